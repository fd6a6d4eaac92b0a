"""Checkpoints of any size from a config.json, written at the speed of the disk.

Weights are slices of two pools of random numbers, so making them costs almost nothing and
activations stay of ordinary size through any number of layers. With a skewed router every embedding
carries one common direction, and the router leans on it, layer by layer in another order, so that
some experts are wanted often and others hardly ever. Good for measuring loads, reads and speed; the text is noise.

FP8 when the config has a quantization_config, BF16 otherwise."""
import json
import lzma
import math
import pathlib
import shutil
import sys
import time

import numpy as np

from . import build, layout, numbers, qwen4_layout, qwen4_weights, safetensors, weights
from .qwen4_layout import text_of
from .tokenizer import Tokenizer

POOL_MIN, POOL_MAX = 1 << 18, 1 << 24  # random values that all matrices share
CODE_STD = 448.0 / 3.47        # the pool's FP8 codes reach just to the largest one
COMMON = 0.5                   # of the embedding, when the router is skewed
LAYER_GAIN = 0.15              # what a layer adds, against the embedding
SKEW = 2.5                     # spread of expert popularity, in logits of a full common direction
ROWS = 2048                    # rows of embedding or head made at a time
WHOLE = 1 << 24                # values of another BF16 matrix made at a time


class Refused(Exception):
    pass


class Pools:
    def __init__(self, seed, largest, need_codes):
        """largest: values of the largest matrix. Each takes a stretch of its own."""
        self.seed = seed
        size = min(max(8 * largest, POOL_MIN), POOL_MAX) + 4093  # no matrix lines up with it
        self.normal = numbers.normal(numbers.stream(seed, "pool"), (size,), 1.0)
        if need_codes:
            part = numbers.to_e4m3(self.normal * np.float32(CODE_STD))
            self.codes = np.concatenate([part, part[::-1], part ^ np.uint8(0x80)])

    def pick(self, name, pool, count):
        start = numbers.stream(self.seed, name) % (len(pool) - count + 1)
        return pool[start:start + count]

    def floats(self, name, shape):
        """Values of standard deviation 1."""
        return self.pick(name, self.normal, math.prod(shape)).reshape(shape)


def is_qwen4(config):
    return "hc_count" in text_of(config)


def listed(config):
    return (qwen4_layout if is_qwen4(config) else layout).tensors(config)


def spread(tensor):
    """Standard deviation of a matrix that keeps activations at ordinary size."""
    quiet = ("o_proj.weight", "down_proj.weight", "out_proj.weight")
    gain = LAYER_GAIN if tensor.name.endswith(quiet) else 1.5
    return gain / math.sqrt(tensor.shape[-1])


def fp8_entries(tensor, pools):
    shape = layout.scale_shape(tensor.shape)
    scale = numbers.uniform(numbers.stream(pools.seed, layout.scale_name(tensor.name)), shape,
                            0.8, 1.2) * np.float32(spread(tensor) / CODE_STD)
    codes = pools.pick(tensor.name, pools.codes, math.prod(tensor.shape))
    yield tensor.name, "F8_E4M3", tensor.shape, codes
    yield layout.scale_name(tensor.name), "BF16", shape, numbers.to_bf16(scale)


def router(config, tensor, pools, skewed):
    experts, hidden = tensor.shape
    rows = pools.floats(tensor.name, tensor.shape) / np.float32(math.sqrt(hidden))
    if skewed:
        order = np.argsort(numbers.bits(numbers.stream(pools.seed, tensor.name), experts),
                           kind="stable")
        popularity = np.linspace(SKEW, -SKEW, experts, dtype=np.float32)[order]
        rows = rows + (popularity / np.float32(hidden))[:, None] * weights.common_direction(
            pools.seed, hidden)
    return rows


def big_matrix(tensor, pools, n_plain, skewed):
    """Writes embedding or head a few thousand rows at a time."""
    rows, hidden = tensor.shape
    common = np.float32(COMMON * skewed) * weights.common_direction(pools.seed, hidden)

    def write(out):
        for first in range(0, rows, ROWS):
            count = min(ROWS, rows - first)
            part = pools.floats(f"{tensor.name} {first}", (count, hidden))
            if tensor.role == "embed":
                part = part + common
            else:
                part = part * np.float32(4.0 / math.sqrt(hidden))
                part[max(0, n_plain - first):] *= np.float32(weights.QUIET)
            safetensors.write_all(out, numbers.to_bf16(part).data.cast("B"))

    return tensor.name, "BF16", tensor.shape, write


def bf16_matrix(tensor, pools):
    rows, columns = tensor.shape
    at_once = max(1, WHOLE // columns)

    def write(out):
        for first in range(0, rows, at_once):
            name = tensor.name if rows <= at_once else f"{tensor.name} {first}"
            part = pools.floats(name, (min(at_once, rows - first), columns))
            safetensors.write_all(
                out, numbers.to_bf16(part * np.float32(spread(tensor))).data.cast("B"))

    return tensor.name, "BF16", tensor.shape, write


def table_part(name, tensor, pools, fp8):
    """A part of an n-gram table, of any size: the pool over and over."""
    size = math.prod(tensor.shape)
    pool = pools.codes if fp8 else numbers.to_bf16(pools.normal)

    def write(out):
        for first in range(0, size, len(pool)):
            safetensors.write_all(out, pool[:min(len(pool), size - first)].data.cast("B"))

    return name, "F8_E4M3" if fp8 else "BF16", tensor.shape, write


def qwen4_entries(config, pools, skewed, n_plain):
    """Experts one by one, as the FP8 release has them; so are BF16 ones, which a release fuses."""
    text, prefix = text_of(config), qwen4_layout.prefix_of(config)
    quantized = config.get("quantization_config") or {}
    fp8_table = bool(quantized.get("modules_to_convert"))
    scaled = set()
    for tensor in qwen4_layout.tensors(config):
        if tensor.name.startswith("model."):
            tensor = tensor._replace(name=prefix + tensor.name[len("model."):])
        if tensor.role in ("embed", "head"):
            yield big_matrix(tensor, pools, n_plain, skewed)
        elif tensor.role == "router":
            yield qwen4_weights.bf16(tensor.name, router(text, tensor, pools, skewed))
        elif tensor.role == "expert" and quantized:
            yield from fp8_entries(tensor, pools)
        elif tensor.role == "table":
            yield table_part(tensor.name, tensor, pools, fp8_table)
            at = tensor.name.rsplit("shard_", 1)[0]
            if fp8_table and at not in scaled:
                scaled.add(at)
                scale = numbers.to_bf16(np.array([1 / CODE_STD], dtype=np.float32))
                yield at + "weight_scale", "BF16", (1,), scale
        elif tensor.role in ("expert", "linear", "mix", "out"):
            yield bf16_matrix(tensor, pools)
        else:
            values = qwen4_weights.values(text, pools.seed, tensor, n_plain)
            yield (tensor.name, "I64", tensor.shape, values) if tensor.role == "constant" else \
                qwen4_weights.bf16(tensor.name, values)


def entries_of(config, pools, skewed, n_plain):
    if is_qwen4(config):
        yield from qwen4_entries(config, pools, skewed, n_plain)
        return
    fp8 = bool(config.get("quantization_config"))
    for tensor in layout.tensors(config):
        if tensor.role in ("embed", "head"):
            yield big_matrix(tensor, pools, n_plain, skewed)
        elif fp8 and layout.may_be_fp8(tensor):
            yield from fp8_entries(tensor, pools)
        elif layout.may_be_fp8(tensor):
            yield bf16_matrix(tensor, pools)
        elif tensor.role == "router":
            rows = router(config, tensor, pools, skewed)
            yield tensor.name, "BF16", tensor.shape, numbers.to_bf16(rows)
        else:
            rows = weights.values(config, pools.seed, tensor, n_plain)
            yield tensor.name, "BF16", tensor.shape, numbers.to_bf16(rows)


class Progress:
    """A bar on a terminal, a line per tenth elsewhere."""

    def __init__(self, total):
        self.total, self.done, self.shown = total, 0, -1
        self.start, self.tty = time.monotonic(), sys.stderr.isatty()

    def __call__(self, size):
        self.done += size
        step = self.done * (100 if self.tty else 10) // self.total
        if step == self.shown:
            return
        self.shown = step
        seconds = max(time.monotonic() - self.start, 1e-3)
        share = self.done / self.total
        text = (f"{share:4.0%}  {self.done / 1e9:.1f} of {self.total / 1e9:.1f} GB  "
                f"{self.done / 1e9 / seconds:.2f} GB/s  "
                f"{seconds / share - seconds:.0f} s left ")
        if self.tty:
            bar = "#" * int(30 * share)
            text = f"\r[{bar:30}] {text}" + ("\n" if self.done == self.total else "")
        else:
            text += "\n"
        sys.stderr.write(text)
        sys.stderr.flush()


def largest_matrix(config):
    """Of those that are made whole, or as much of others as is made at a time."""
    return max(min(math.prod(t.shape), WHOLE) if t.role in ("linear", "mix", "out")
               else math.prod(t.shape) for t in listed(config)
               if t.role not in ("embed", "head", "table"))


def cut_layers(config, n_layers):
    text = text_of(config)
    if not 1 <= n_layers <= text["num_hidden_layers"]:
        raise Refused(f"--layers must be 1 to {text['num_hidden_layers']}")
    text["num_hidden_layers"] = n_layers
    if "layer_types" in text:
        text["layer_types"] = text["layer_types"][:n_layers]
    if "ple_layer_ids" in text:
        text["ple_layer_ids"] = [i for i in text["ple_layer_ids"] if i <= n_layers]


def prepare_qwen4(config, ngram_base):
    """Text only: nothing of vision or of guessing ahead is made."""
    text = text_of(config)
    config.pop("vision_config", None)
    text["mtp_num_hidden_layers"] = 0
    text.setdefault("layer_types", [
        "linear_attention" if (i + 1) % text.get("full_attention_interval", 4) else "full_attention"
        for i in range(text["num_hidden_layers"])])
    if ngram_base is not None:
        text["ngram_vocab_size_base"] = ngram_base


def read_config(path, n_layers, ngram_base):
    try:
        config = json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError) as why:
        raise Refused(f"{path}: {why}") from None
    if config.get("model_type") not in ("qwen3_moe", "qwen4_exp", "qwen4_exp_text"):
        raise Refused(f"{path}: model_type is {config.get('model_type')!r}, not 'qwen3_moe' or "
                      "'qwen4_exp'")
    qwen4 = config["model_type"] != "qwen3_moe"
    if ngram_base is not None and not qwen4:
        raise Refused("--ngram-base: only for qwen4_exp")
    if qwen4:
        prepare_qwen4(config, ngram_base)
    if n_layers is not None:
        cut_layers(config, n_layers)
    if config.get("quantization_config") and not qwen4:
        config["quantization_config"] = layout.quantization_config(config)
    rows_at_once = ROWS * text_of(config)["hidden_size"]
    if max(largest_matrix(config), rows_at_once) > POOL_MAX:
        raise Refused(f"{path}: a matrix is larger than the pool of {POOL_MAX} values")
    return config


def tokenizer_files(path):
    """(files to write, highest plain id + 1, end ids or None for the config's own)."""
    if path is None:
        tiny = Tokenizer()
        return ({"tokenizer.json": tiny.json(), "tokenizer_config.json": tiny.config_json()},
                tiny.n_plain, [tiny.added["<|im_end|>"], tiny.added["<|endoftext|>"]])
    raw = pathlib.Path(path).read_bytes()
    text = (lzma.decompress(raw) if path.endswith(".xz") else raw).decode()
    return {"tokenizer.json": text}, len(json.loads(text)["model"]["vocab"]), None


def make(args, directory):
    config = read_config(args.config, args.layers, args.ngram_base)
    text = text_of(config)
    files, n_plain, eos = tokenizer_files(args.tokenizer)
    if n_plain > text["vocab_size"]:
        raise Refused(f"the tokenizer has {n_plain} ids, the config only {text['vocab_size']}")
    if eos:
        text.update(bos_token_id=eos[1], eos_token_id=eos[0])
    else:
        eos = [text["eos_token_id"], text["bos_token_id"]]
    skewed = args.router == "skewed"

    largest = max(largest_matrix(config), min(ROWS, text["vocab_size"]) * text["hidden_size"])
    pools = Pools(1 if args.seed is None else args.seed, largest,
                  bool(config.get("quantization_config")))
    entries = list(entries_of(config, pools, skewed, n_plain))
    total = sum(safetensors.n_bytes(dtype, shape) for _, dtype, shape, _ in entries)
    free = shutil.disk_usage(directory).free
    if total * 1.01 + (64 << 20) > free:
        raise Refused(f"{directory}: needs {total / 1e9:.1f} GB, the file system has "
                      f"{free / 1e9:.1f} GB free")

    (directory / "config.json").write_text(build.dump(config))
    (directory / "generation_config.json").write_text(
        build.dump(build.generation_config(config, eos, sampled=True)))
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    safetensors.write_checkpoint(directory, entries, int(args.shard_size * 1e9),
                                 progress=Progress(total), settle=True)
