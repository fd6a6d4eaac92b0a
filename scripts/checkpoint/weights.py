"""Random weights that make a tiny model behave: activations of ordinary size in every layer,
attention that looks at something, routers that decide, and greedy text that wanders.

A weight is a function of (seed, tensor name, shape) alone, so two models that differ only in how
they are stored hold the same values."""
import math

import numpy as np

from . import layout, numbers

# Every embedding has this much of one common direction; it is what a router can lean on to want
# an expert always or never.
COMMON = 0.75
QUIET = 2.0 ** -9  # scale of lm_head rows that must never win: added tokens and padding


def common_direction(seed, hidden):
    return numbers.signs(numbers.stream(seed, "common direction"), (hidden,))


def router_bias(config, tensor):
    """Expert 1 of the first routed layer is chosen by every token and expert 2 by none."""
    bias = np.zeros((config["num_experts"], 1), dtype=np.float32)
    if tensor.layer == layout.moe_layers(config)[0] and config["num_experts"] > 2:
        bias[1], bias[2] = 11.0 / config["hidden_size"], -11.0 / config["hidden_size"]
    return bias


def values(config, seed, tensor, n_plain):
    """The float32 values of one tensor. Ids from n_plain on are never to be generated."""
    key = numbers.stream(seed, tensor.name)
    fan_in = tensor.shape[-1]
    if tensor.role == "norm":
        return numbers.uniform(key, tensor.shape, 0.75, 1.25)
    if tensor.role == "head_norm":
        return numbers.uniform(key, tensor.shape, 1.0, 1.75)
    if tensor.role == "embed":
        # A tied head repeats its input unless the layers outweigh the embedding.
        size = 0.25 if config.get("tie_word_embeddings") else 1.0
        rows = numbers.normal(key, tensor.shape, size)
        if config.get("tie_word_embeddings"):
            rows[n_plain:] *= np.float32(QUIET)
            return rows
        return rows + np.float32(COMMON) * common_direction(seed, tensor.shape[1])
    if tensor.role == "head":
        rows = numbers.normal(key, tensor.shape, 4.0 / math.sqrt(fan_in))
        rows[n_plain:] *= np.float32(QUIET)
        return rows
    if tensor.role == "router":
        rows = numbers.normal(key, tensor.shape, 1.0 / math.sqrt(fan_in))
        return rows + router_bias(config, tensor) * common_direction(seed, fan_in)
    if tensor.role in ("expert", "dense"):
        return numbers.normal(key, tensor.shape, 1.7 / math.sqrt(fan_in))
    return numbers.normal(key, tensor.shape, 1.3 / math.sqrt(fan_in))


def stored(tensor, floats, store, scales):
    """The entries that hold one tensor: itself and, when it is FP8, its scales. store "FP8" means
    FP8 where the architecture allows it and BF16 elsewhere."""
    if store == "FP8" and layout.may_be_fp8(tensor):
        codes, scale = numbers.quantise(floats, scales)
        raw = numbers.to_bf16(scale) if scales == "BF16" else scale.astype("<f4")
        yield tensor.name, "F8_E4M3", tensor.shape, codes
        yield layout.scale_name(tensor.name), scales, scale.shape, raw
    elif store in ("FP8", "BF16"):
        yield tensor.name, "BF16", tensor.shape, numbers.to_bf16(floats)
    elif store == "F16":
        yield tensor.name, "F16", tensor.shape, np.ascontiguousarray(floats.astype("<f2"))
    else:
        yield tensor.name, "F32", tensor.shape, np.ascontiguousarray(floats.astype("<f4"))
