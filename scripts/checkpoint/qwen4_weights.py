"""Random weights for small Qwen4-Exp models: states that remember some heads for long and others
hardly, indexers that prefer some blocks, routers that decide, and greedy text that wanders.

A weight is a function of (seed, tensor name, shape) alone, so two models that differ only in how
they are stored hold the same values."""
import math

import numpy as np

from . import bigrams, numbers, qwen4_layout, safetensors
from .weights import COMMON, QUIET, common_direction

GAINS = {"linear": 1.5, "mix": 1.0, "out": 0.8, "expert": 1.6}
BABBLE_GAIN = 0.9   # what layers add, where text should resemble words; see Babble
INDEX_COMMON = 0.6  # of an indexer's values in what is not rotated: few scores are exactly zero


def index_rows(text, seed, tensor, rows):
    """Queries and keys share a direction in the values that positions leave alone, so that scores
    are mostly above zero and blocks are not picked among equals."""
    rope = text["rope_parameters"]
    dim, rotated = text["indexer_head_dim"], int(text["head_dim"] * rope["partial_rotary_factor"])
    signs = numbers.signs(numbers.stream(seed, tensor.name + " common"), (dim,))
    signs[:rotated] = 0
    lean = np.tile(signs, text["indexer_n_heads"] + 1)[:, None] * np.float32(
        INDEX_COMMON / math.sqrt(tensor.shape[-1]))
    return rows + lean * common_direction(seed, tensor.shape[-1])


def constants(text, tensor):
    number = sorted(set(text["ple_layer_ids"])).index(tensor.layer + 1)
    return np.array(qwen4_layout.table_of(text, number)[tensor.expert], dtype="<i8")


def values(text, seed, tensor, n_plain):
    """float32, but for constants. Ids from n_plain on are never to be generated."""
    key, fan_in, role = numbers.stream(seed, tensor.name), tensor.shape[-1], tensor.role
    if role == "constant":
        return constants(text, tensor)
    if role == "norm":
        return numbers.normal(key, tensor.shape, 0.2)  # less one
    if role == "plain_norm":
        return numbers.normal(key, tensor.shape, 0.2) + np.float32(1)
    if role == "conv":
        rows = numbers.normal(key, tensor.shape, 0.3)
        rows[..., -1] += np.float32(0.5)
        return rows
    if role == "a_log":
        return numbers.uniform(key, tensor.shape, -3.0, 1.0)
    if role == "dt_bias":
        return numbers.uniform(key, tensor.shape, -3.0, 0.5)
    if role == "table":
        return numbers.normal(key, tensor.shape, 1.0)
    if role == "embed":
        return numbers.normal(key, tensor.shape, 1.0) + np.float32(COMMON) * common_direction(
            seed, fan_in)
    if role == "head":
        rows = numbers.normal(key, tensor.shape, 6.0 / math.sqrt(fan_in))
        rows[n_plain:] *= np.float32(QUIET)
        return rows
    if role == "router":
        return numbers.normal(key, tensor.shape, 2.0 / math.sqrt(fan_in))
    if role == "index":
        rows = numbers.normal(key, tensor.shape, 1.3 / math.sqrt(fan_in))
        return index_rows(text, seed, tensor, rows)
    return numbers.normal(key, tensor.shape, GAINS[role] / math.sqrt(fan_in))


def bf16(name, floats):
    return name, "BF16", floats.shape, numbers.to_bf16(floats)


def fp8_expert(name, floats):
    codes, scale = numbers.quantise(floats)
    yield name, "F8_E4M3", floats.shape, codes
    yield name + "_scale_inv", "BF16", scale.shape, numbers.to_bf16(scale)


def fp8_table(prefix, parts):
    """Every part with the one scale, itself first rounded to its format."""
    scale = np.float32(max(np.abs(part).max() for _, part in parts) / numbers.F8_MAX)
    raw = numbers.to_bf16(np.array([scale]))
    scale = numbers.from_bf16(raw)[0]
    for name, part in parts:
        yield name, "F8_E4M3", part.shape, numbers.to_e4m3(part / scale)
    yield prefix + "weight_scale", "BF16", (1,), raw


def fused(at, rows):
    """rows: of one layer, gate, up and down of one expert after the other."""
    gate, up, down = rows[0::3], rows[1::3], rows[2::3]
    yield bf16(at + "gate_up_proj", np.stack([np.concatenate(pair) for pair in zip(gate, up)]))
    yield bf16(at + "down_proj", np.stack(down))


def unused(text, seed):
    """Some tensors of what is not the text model."""
    hidden = text["hidden_size"]
    for name, shape in [("mtp.fc_hidden.weight", (hidden, hidden)),
                        ("mtp.layers.0.mlp.experts.0.down_proj.weight", (hidden, 128)),
                        ("mtp.layers.0.self_attn.q_norm.weight", (text["head_dim"],)),
                        ("model.visual.pos_embed.weight", (48, 32)),
                        ("model.visual.patch_embed.proj.weight", (32, 3, 2, 4, 4))]:
        yield bf16(name, numbers.normal(numbers.stream(seed, name), shape, 1.0))


class Babble:
    """Words of the corpus, as bigrams.py makes them: layers are a little quieter than elsewhere,
    loud enough to lead out of a circle, and the head makes up for the gates of the last read, which
    are a half on average."""

    def __init__(self, text, seed, tokenizer):
        self.words = bigrams.Bigrams(text, seed, tokenizer)

    def values(self, text, seed, tensor, n_plain):
        if tensor.role == "embed":
            return self.words.embed
        if tensor.role == "head":
            return self.words.head * np.float32(2)
        floats = values(text, seed, tensor, n_plain)
        if tensor.role == "out" or tensor.name.endswith(("down_proj.weight", "value_proj.weight")):
            floats *= np.float32(BABBLE_GAIN)
        return floats


def entries(variant, tokenizer):
    """What is written: experts and table as the variant stores them, names as its class has them."""
    config, text = variant.config, qwen4_layout.text_of(variant.config)
    n_plain = tokenizer.n_plain
    source = Babble(text, variant.seed, tokenizer).values if variant.bigrams else values
    prefix = qwen4_layout.prefix_of(config)
    table, rows, out = [], [], []
    listed = list(qwen4_layout.tensors(config))
    for tensor, after in zip(listed, [*listed[1:], None]):
        name = prefix + tensor.name[len("model."):] if tensor.name.startswith("model.") \
            else tensor.name
        floats = source(text, variant.seed, tensor, n_plain)
        if tensor.role == "constant":
            out.append((name, "I64", tensor.shape, floats))
        elif tensor.role == "table" and variant.table == "FP8":
            table.append((name, floats))
            if after.role != "table":
                out += fp8_table(name.rsplit("shard_", 1)[0], table)
                table = []
        elif tensor.role == "expert" and variant.experts == "FP8":
            out += fp8_expert(name, floats)
        elif tensor.role == "expert" and variant.experts == "fused":
            rows.append(floats)
            if after.role != "expert":
                out += fused(name[:name.index("experts.")] + "experts.", rows)
                rows = []
        else:
            out.append(bf16(name, floats))
    if variant.unused:
        out += unused(text, variant.seed)
    assert len({entry[0] for entry in out}) == len(out)
    assert all(entry[3].nbytes == safetensors.n_bytes(*entry[1:3]) for entry in out)
    return out
