#!/usr/bin/env python3
"""Qwen3-MoE in NumPy, float32, as short as it can be read: the second oracle.

Written from the architecture's description, without torch. It shares no code with the engine and
none with scripts/checkpoint: a checkpoint is read here by other eyes than those that wrote it.

  numpy_forward.py DIR --tokens 1,2,3 [--steps N]"""
import argparse
import json
import math
import pathlib

import numpy as np


# ---- checkpoint ----

def e4m3_values():
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    size = np.where(exponent == 0, mantissa * 2.0 ** -9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    size[(code & 0x7F) == 0x7F] = np.nan
    return np.where(code & 0x80, -size, size).astype(np.float32)


def decode(raw, dtype):
    if dtype == "F8_E4M3":
        return e4m3_values()[np.frombuffer(raw, np.uint8)]
    if dtype == "BF16":
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    if dtype == "I64":
        return np.frombuffer(raw, "<i8")
    return np.frombuffer(raw, {"F16": "<f2", "F32": "<f4"}[dtype]).astype(np.float32)


def read_shard(path):
    """name -> float32 array, FP8 not yet scaled; integers stay what they are."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, decode(data[start + begin:start + end], entry["dtype"]).reshape(
                entry["shape"])


def load(directory):
    """(config, name -> float32 array), dequantised."""
    directory = pathlib.Path(directory)
    config = json.loads((directory / "config.json").read_text())
    weights = {}
    for path in sorted(directory.glob("*.safetensors")):
        weights.update(read_shard(path))
    for name in [name for name in weights if name.endswith("_scale_inv")]:
        scale, matrix = weights.pop(name), name.removesuffix("_scale_inv")
        rows, columns = weights[matrix].shape
        weights[matrix] = weights[matrix] * np.repeat(np.repeat(
            scale, 128, axis=0)[:rows], 128, axis=1)[:, :columns]
    return config, weights


# ---- mathematics ----

def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def rope_frequencies(config):
    """Radians per position for each pair, and the factor on cosine and sine."""
    dim = config["head_dim"]
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    plain = 1.0 / theta ** (np.arange(0, dim, 2) / dim)
    if rope.get("rope_type", "default") == "default":
        return plain.astype(np.float32), 1.0

    # YaRN (Peng et al. 2023): slow pairs are stretched by the factor, fast ones left alone.
    factor, original = rope["factor"], rope["original_max_position_embeddings"]

    def pair_that_turns(times):
        return dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair_that_turns(rope.get("beta_fast", 32))), 0)
    high = min(math.ceil(pair_that_turns(rope.get("beta_slow", 1))), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
    return ((1 - ramp) * plain + ramp * plain / factor).astype(np.float32), \
        0.1 * math.log(factor) + 1


class Model:
    def __init__(self, directory):
        self.config, self.weights = load(directory)
        self.frequencies, self.attention_factor = rope_frequencies(self.config)
        self.reset()

    def reset(self):
        layers = self.config["num_hidden_layers"]
        self.keys, self.values = [None] * layers, [None] * layers
        self.n_seen = 0
        self.picks = []         # [layer, rows, k] of every call, for those who count experts
        self.router_gap = np.inf  # smallest distance between a chosen and a refused expert

    def rotate(self, x, positions):
        """x [rows, heads, dim]; pair i is (i, i + dim/2)."""
        angle = positions[:, None].astype(np.float32) * self.frequencies
        cos = np.float32(self.attention_factor) * np.cos(angle)[:, None, :]
        sin = np.float32(self.attention_factor) * np.sin(angle)[:, None, :]
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def attention(self, x, at, layer, positions):
        c, w = self.config, self.weights
        heads, kv_heads, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        rows = len(x)
        q = (x @ w[at + "q_proj.weight"].T).reshape(rows, heads, dim)
        k = (x @ w[at + "k_proj.weight"].T).reshape(rows, kv_heads, dim)
        v = (x @ w[at + "v_proj.weight"].T).reshape(rows, kv_heads, dim)
        q = self.rotate(rms_norm(q, w[at + "q_norm.weight"], c["rms_norm_eps"]), positions)
        k = self.rotate(rms_norm(k, w[at + "k_norm.weight"], c["rms_norm_eps"]), positions)
        if self.n_seen:
            k = np.concatenate([self.keys[layer], k])
            v = np.concatenate([self.values[layer], v])
        self.keys[layer], self.values[layer] = k, v

        visible = np.arange(len(k))[None, :] <= positions[:, None]
        out = np.empty_like(q)
        for head in range(heads):
            kv = head // (heads // kv_heads)
            score = q[:, head] @ k[:, kv].T * np.float32(dim ** -0.5)
            out[:, head] = softmax(np.where(visible, score, np.float32(-np.inf))) @ v[:, kv]
        return out.reshape(rows, heads * dim) @ w[at + "o_proj.weight"].T

    def swiglu(self, x, at):
        w = self.weights
        gated = silu(x @ w[at + "gate_proj.weight"].T) * (x @ w[at + "up_proj.weight"].T)
        return gated @ w[at + "down_proj.weight"].T

    def experts(self, x, at):
        c = self.config
        k = c["num_experts_per_tok"]
        weight = softmax(x @ self.weights[at + "gate.weight"].T)
        order = np.argsort(-weight, axis=-1, kind="stable")
        ranked = np.log(np.take_along_axis(weight, order, axis=-1))
        if k < ranked.shape[1]:
            self.router_gap = min(self.router_gap, float((ranked[:, k - 1] - ranked[:, k]).min()))
        chosen = order[:, :k]
        weight = np.take_along_axis(weight, chosen, axis=-1)
        if c.get("norm_topk_prob", False):
            weight = weight / weight.sum(axis=-1, keepdims=True)
        self.picks.append(chosen)

        out = np.zeros_like(x)
        for expert in np.unique(chosen):
            row, place = np.nonzero(chosen == expert)
            out[row] += weight[row, place, None] * self.swiglu(x[row], f"{at}experts.{expert}.")
        return out

    def is_moe(self, layer):
        c = self.config
        return (layer not in (c.get("mlp_only_layers") or []) and c["num_experts"] > 0
                and (layer + 1) % c.get("decoder_sparse_step", 1) == 0)

    def forward(self, tokens):
        """Logits [rows, vocab] of tokens that follow those already seen."""
        c, w = self.config, self.weights
        eps = c["rms_norm_eps"]
        positions = np.arange(self.n_seen, self.n_seen + len(tokens))
        h = w["model.embed_tokens.weight"][tokens]
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            x = rms_norm(h, w[at + "input_layernorm.weight"], eps)
            h = h + self.attention(x, at + "self_attn.", layer, positions)
            x = rms_norm(h, w[at + "post_attention_layernorm.weight"], eps)
            h = h + (self.experts if self.is_moe(layer) else self.swiglu)(x, at + "mlp.")
        self.n_seen += len(tokens)
        head = "model.embed_tokens.weight" if c.get("tie_word_embeddings") else "lm_head.weight"
        return rms_norm(h, w["model.norm.weight"], eps) @ w[head].T

    def greedy(self, prompt, steps):
        """(logits of prompt rows and of each step's row but the last, generated tokens)."""
        self.reset()
        rows, tokens = [self.forward(list(prompt))], []
        while len(tokens) < steps:
            tokens.append(int(rows[-1][-1].argmax()))
            if len(tokens) < steps:
                rows.append(self.forward(tokens[-1:]))
        return np.concatenate(rows), tokens


def main():
    parse = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("directory")
    parse.add_argument("--tokens", required=True, help="comma separated ids")
    parse.add_argument("--steps", type=int, default=0)
    args = parse.parse_args()
    logits, tokens = Model(args.directory).greedy(
        [int(t) for t in args.tokens.split(",")], args.steps)
    print(json.dumps({"tokens": tokens, "rows": len(logits), "vocab": logits.shape[1]}))


if __name__ == "__main__":
    main()
