"""Which tensors a Qwen4-Exp config.json asks for, and the constants of its n-gram tables."""
import math

from .layout import Tensor

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


def text_of(config):
    return config.get("text_config", config)


def prefix_of(config):
    return "model.language_model." if "text_config" in config else "model."


def is_linear(text, layer):
    return text["layer_types"][layer] == "linear_attention"


def splitmix64(x):
    x = (x + GAMMA) & MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


def table_of(text, number):
    """(multipliers, sizes, offsets, rows of the table) of the number-th n-gram module."""
    order = text["ngram_size"]
    heads = (order - 1) * text["heads_per_ngram"]
    half = max(1, ((1 << 63) - 1) // text["vocab_size"] // 2)
    base = text.get("seed", 1234) + 10007 * number
    multipliers = [2 * (splitmix64(base + GAMMA * (i + 1) & MASK) % half) + 1 for i in range(order)]
    primes, n = [], text["ngram_vocab_size_base"]
    while len(primes) < (number + 1) * heads:
        if is_prime(n):
            primes.append(n)
        n += 1
    sizes = primes[number * heads:]
    step = text["make_ngram_vocab_size_divisible_by"]
    return (multipliers, sizes, [sum(sizes[:i]) for i in range(heads)],
            -(-sum(sizes) // step) * step)


def mixer(at, text, layer, injects=True):
    wide = text["hc_count"] * text["hidden_size"]
    yield Tensor(at + "hc_norm.weight", (wide,), "norm", layer, -1)
    yield Tensor(at + "input_mix_weight_down.weight", (text["hc_lowrank"], wide), "mix", layer, -1)
    yield Tensor(at + "input_mix_weight_up.weight", (wide, text["hc_lowrank"]), "mix", layer, -1)
    if injects:
        yield Tensor(at + "block_inject_weight.weight", (text["hc_count"], wide), "mix", layer, -1)


def sparse(at, text, layer):
    hidden, dim = text["hidden_size"], text["head_dim"]
    q, kv = text["num_attention_heads"] * dim, text["num_key_value_heads"] * dim
    index = text["indexer_head_dim"]
    yield Tensor(at + "q_proj.weight", (2 * q, hidden), "linear", layer, -1)
    yield Tensor(at + "k_proj.weight", (kv, hidden), "linear", layer, -1)
    yield Tensor(at + "v_proj.weight", (kv, hidden), "linear", layer, -1)
    yield Tensor(at + "o_proj.weight", (hidden, q), "out", layer, -1)
    yield Tensor(at + "q_norm.weight", (dim,), "norm", layer, -1)
    yield Tensor(at + "k_norm.weight", (dim,), "norm", layer, -1)
    yield Tensor(at + "indexer.index_qk_proj.weight",
                 ((text["indexer_n_heads"] + 1) * index, hidden), "index", layer, -1)
    yield Tensor(at + "indexer.q_layernorm.weight", (index,), "norm", layer, -1)
    yield Tensor(at + "indexer.k_layernorm.weight", (index,), "norm", layer, -1)


def linear(at, text, layer):
    hidden, heads = text["hidden_size"], text["linear_num_value_heads"]
    values = heads * text["linear_value_head_dim"]
    channels = 2 * text["linear_num_key_heads"] * text["linear_key_head_dim"] + values
    yield Tensor(at + "in_proj_qkv.weight", (channels, hidden), "linear", layer, -1)
    yield Tensor(at + "in_proj_z.weight", (values, hidden), "linear", layer, -1)
    yield Tensor(at + "in_proj_b.weight", (heads, hidden), "linear", layer, -1)
    yield Tensor(at + "in_proj_a.weight", (heads, hidden), "linear", layer, -1)
    yield Tensor(at + "conv1d.weight", (channels, 1, text["linear_conv_kernel_dim"]), "conv", layer,
                 -1)
    yield Tensor(at + "dt_bias", (heads,), "dt_bias", layer, -1)
    yield Tensor(at + "A_log", (heads,), "a_log", layer, -1)
    yield Tensor(at + "norm.weight", (text["linear_value_head_dim"],), "plain_norm", layer, -1)
    yield Tensor(at + "out_proj.weight", (hidden, values), "out", layer, -1)


def ngrams(at, text, layer, number):
    wide, width = text["hc_count"] * text["hidden_size"], text["ple_embed_dim"]
    order = text["ngram_size"]
    heads = (order - 1) * text["heads_per_ngram"]
    rows, parts = table_of(text, number)[3], text["split_ngram_parts"]
    yield Tensor(at + "key_proj.weight", (wide, width), "linear", layer, -1)
    yield Tensor(at + "value_proj.weight", (text["hidden_size"], width), "linear", layer, -1)
    for name in ("norm_key", "norm_query", "norm_conv"):
        yield Tensor(at + name + ".weight", (wide,), "norm", layer, -1)
    yield Tensor(at + "conv1d.weight", (wide, 1, text["ple_conv_kernel_size"]), "conv", layer, -1)
    at += "ple_embedding."
    yield Tensor(at + "layer_multipliers", (order,), "constant", layer, 0)
    yield Tensor(at + "ngram_heads_vocab_sizes", (heads,), "constant", layer, 1)
    yield Tensor(at + "ngram_heads_offsets", (heads,), "constant", layer, 2)
    for part in range(parts):
        yield Tensor(f"{at}ngram_embedding.shard_{part}.weight", (rows // parts, width // heads),
                     "table", layer, part)


def experts(at, text, layer):
    hidden, width = text["hidden_size"], text["moe_intermediate_size"]
    shared = text["shared_expert_intermediate_size"]
    yield Tensor(at + "gate.weight", (text["num_experts"], hidden), "router", layer, -1)
    yield Tensor(at + "shared_expert.gate_proj.weight", (shared, hidden), "linear", layer, -1)
    yield Tensor(at + "shared_expert.up_proj.weight", (shared, hidden), "linear", layer, -1)
    yield Tensor(at + "shared_expert.down_proj.weight", (hidden, shared), "out", layer, -1)
    yield Tensor(at + "shared_expert_gate.weight", (1, hidden), "linear", layer, -1)
    for e in range(text["num_experts"]):
        for name in ("gate_proj", "up_proj", "down_proj"):
            shape = (hidden, width) if name == "down_proj" else (width, hidden)
            yield Tensor(f"{at}experts.{e}.{name}.weight", shape, "expert", layer, e)


def tensors(config):
    """All of the text model, experts one by one; names as a save by the text class has them."""
    text = text_of(config)
    hidden, vocab = text["hidden_size"], text["vocab_size"]
    with_ngrams = sorted(set(text.get("ple_layer_ids") or []))
    yield Tensor("model.embed_tokens.weight", (vocab, hidden), "embed", -1, -1)
    for i in range(text["num_hidden_layers"]):
        at = f"model.layers.{i}."
        if i + 1 in with_ngrams:
            yield from ngrams(at + "ple.", text, i, with_ngrams.index(i + 1))
        yield from mixer(at + "attn_hyper_connection.", text, i)
        if is_linear(text, i):
            yield from linear(at + "linear_attn.", text, i)
        else:
            yield from sparse(at + "self_attn.", text, i)
        yield from mixer(at + "mlp_hyper_connection.", text, i)
        yield from experts(at + "mlp.", text, i)
    yield from mixer("model.hyper_connection_mixer.", text, -1, injects=False)
    yield Tensor("lm_head.weight", (vocab, hidden), "head", -1, -1)
