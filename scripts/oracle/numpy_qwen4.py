#!/usr/bin/env python3
"""Qwen4-Exp's text model in NumPy, float32, as short as it can be read: the second oracle.

Written from the architecture's description, without torch. It shares no code with the engine and
none with scripts/checkpoint: a checkpoint is read here by other eyes than those that wrote it.
Recurrences go token by token, whatever came at once.

  numpy_qwen4.py DIR --tokens 1,2,3 [--steps N]"""
import argparse
import json
import pathlib

import numpy as np

from numpy_forward import read_shard, silu, softmax

F = np.float32


# ---- checkpoint ----

def load(directory):
    """(text config, name -> array): dequantised, experts stacked as [experts, rows, columns] under
    ...experts.gate_up_proj and down_proj, table parts joined; names begin with "model."."""
    directory = pathlib.Path(directory)
    config = json.loads((directory / "config.json").read_text())
    text = config.get("text_config", config)
    raw = {}
    for path in sorted(directory.glob("*.safetensors")):
        for name, values in read_shard(path):
            if not name.startswith(("mtp.", "model.visual.")):
                raw[name.replace("model.language_model.", "model.", 1)] = values
    for name in [name for name in raw if name.endswith("_scale_inv")]:
        scale, matrix = raw.pop(name), name.removesuffix("_scale_inv")
        rows, columns = raw[matrix].shape
        raw[matrix] = raw[matrix] * np.repeat(np.repeat(
            scale, 128, axis=0)[:rows], 128, axis=1)[:, :columns]
    join_tables(raw, text)
    join_experts(raw, text)
    return text, raw


def join_tables(raw, text):
    for layer in set(text.get("ple_layer_ids") or []):
        at = f"model.layers.{layer - 1}.ple.ple_embedding.ngram_embedding."
        scale = raw.pop(at + "weight_scale", np.ones(1, F)).reshape(())
        raw[at + "weight"] = scale * np.concatenate(
            [raw.pop(f"{at}shard_{i}.weight") for i in range(text["split_ngram_parts"])])


def join_experts(raw, text):
    for layer in range(text["num_hidden_layers"]):
        at = f"model.layers.{layer}.mlp.experts."
        if at + "gate_up_proj" in raw:
            continue
        parts = {part: np.stack([raw.pop(f"{at}{e}.{part}.weight")
                                 for e in range(text["num_experts"])])
                 for part in ("gate_proj", "up_proj", "down_proj")}
        raw[at + "gate_up_proj"] = np.concatenate([parts["gate_proj"], parts["up_proj"]], axis=1)
        raw[at + "down_proj"] = parts["down_proj"]


# ---- mathematics ----

def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, F(20)))))


def norm(x, weight, eps, groups=1):
    """Root mean square of each group, times one more than the weight."""
    shape = x.shape
    x = x.reshape(*shape[:-1], groups, shape[-1] // groups)
    x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + F(eps))
    return x.reshape(shape) * (1 + weight)


def unit(x):
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + F(1e-6))


# ---- n-gram tables ----

class Table:
    def __init__(self, text, weights, at, number):
        mask, gamma = (1 << 64) - 1, 0x9E3779B97F4A7C15
        order = text.get("ngram_size", 3)
        self.heads, self.order = text["heads_per_ngram"], order
        eos = text["eos_token_id"]
        self.eos = eos[0] if isinstance(eos, list) else eos

        def mixed(x):
            x = (x + gamma) & mask
            x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & mask
            x = ((x ^ x >> 27) * 0x94D049BB133111EB) & mask
            return x ^ x >> 31

        half = max(1, (2 ** 63 - 1) // text["vocab_size"] // 2)
        first = text.get("seed", 1234) + 10007 * number
        self.multipliers = [2 * (mixed((first + gamma * (i + 1)) & mask) % half) + 1
                            for i in range(order)]
        self.sizes, candidate = [], text["ngram_vocab_size_base"]
        n_heads = (order - 1) * self.heads
        while len(self.sizes) < (number + 1) * n_heads:
            if candidate > 1 and all(candidate % d for d in range(2, int(candidate ** 0.5) + 1)):
                self.sizes.append(candidate)
            candidate += 1
        self.sizes = self.sizes[number * n_heads:]
        self.offsets = [sum(self.sizes[:i]) for i in range(n_heads)]
        if weights is None:  # only to hash
            return
        self.rows = weights[at + "ngram_embedding.weight"]
        for name, ours in (("layer_multipliers", self.multipliers),
                           ("ngram_heads_vocab_sizes", self.sizes),
                           ("ngram_heads_offsets", self.offsets)):
            if weights[at + name].tolist() != ours:
                raise ValueError(f"{at}{name} is not what the config says")

    def ids(self, tokens, at):
        context, ended = [tokens[at]], False
        for back in range(1, self.order):
            ended = ended or back > at or tokens[at - back] == self.eos
            context.append(self.eos if ended else tokens[at - back])
        mix, out = context[0] * self.multipliers[0], []
        for back in range(1, self.order):
            mix ^= context[back] * self.multipliers[back]
            for head in range((back - 1) * self.heads, back * self.heads):
                out.append(mix % self.sizes[head] + self.offsets[head])
        return out

    def embed(self, tokens, first):
        return np.stack([self.rows[self.ids(tokens, at)].reshape(-1)
                         for at in range(first, len(tokens))])


class Model:
    def __init__(self, directory):
        self.config, self.weights = load(directory)
        c = self.config
        rope = c["rope_parameters"]
        rotated = int(c["head_dim"] * rope.get("partial_rotary_factor", 1.0))
        self.frequencies = (1.0 / F(rope["rope_theta"]) ** (
            np.arange(0, rotated, 2, dtype=F) / F(rotated))).astype(F)
        with_ngrams = sorted(set(c.get("ple_layer_ids") or []))
        self.tables = {layer - 1: Table(
            c, self.weights, f"model.layers.{layer - 1}.ple.ple_embedding.", number)
            for number, layer in enumerate(with_ngrams)}
        self.reset()

    def reset(self):
        self.tokens, self.state, self.past = [], {}, {}
        self.streams = []         # after each layer, of the last call
        self.picks = []           # [layer, rows, k] of every call
        self.dumps = None         # a dict: filled with inputs and outputs of sub-layers
        self.router_gap = np.inf  # smallest distance, in logarithms of weights
        self.index_gap = np.inf   # and between the last chosen and the first refused block
        self.seen = {"dense": 0, "sparse": 0, "self_refused": 0, "tails": set(), "table": set(),
                     "eos_inside": 0}

    def dump(self, name, **arrays):
        if self.dumps is not None:
            for key, values in arrays.items():
                self.dumps[f"{name}.{key}"] = np.asarray(values)

    def linear(self, x, name):
        return x @ self.weights[name].T

    def rotate(self, x, positions):
        """x [rows, heads, dim]: the first values, pair i is (i, i + half)."""
        half = len(self.frequencies)
        angle = positions[:, None].astype(F) * self.frequencies
        cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
        a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)

    # ---- residual streams ----

    def read(self, h, at):
        """(what a sub-layer sees [rows, hidden], how much of its answer each stream gets)."""
        c, w = self.config, self.weights
        n, rows = F(c["hc_count"]), len(h)
        u = norm(h, w[at + "hc_norm.weight"], c["rms_norm_eps"], c["hc_count"])
        a = silu(self.linear(u, at + "input_mix_weight_down.weight") / n)
        s = sigmoid(self.linear(a, at + "input_mix_weight_up.weight"))
        mixed = (s * u).reshape(rows, c["hc_count"], -1).mean(axis=1, dtype=F)
        if at + "block_inject_weight.weight" not in w:
            return mixed, None
        return mixed, 2 * sigmoid(self.linear(u, at + "block_inject_weight.weight") / n)

    def write(self, h, y, inject):
        return h + (inject[:, :, None] * y[:, None, :]).reshape(h.shape)

    # ---- convolutions: taps reach back by multiples of dilation ----

    def convolve(self, x, taps, key, dilation=1):
        channels, n_taps = taps.shape[0], taps.shape[-1]
        back = (n_taps - 1) * dilation
        past = self.past.get(key, np.zeros((back, channels), F))
        line = np.concatenate([past, x])
        self.past[key] = line[len(line) - back:]
        out = np.zeros_like(x)
        for tap in range(n_taps):
            out += taps[:, 0, tap] * line[tap * dilation:tap * dilation + len(x)]
        return silu(out)

    # ---- Gated DeltaNet ----

    def delta_net(self, m, layer):
        c, w, at = self.config, self.weights, f"model.layers.{layer}.linear_attn."
        kh, vh = c["linear_num_key_heads"], c["linear_num_value_heads"]
        kd, vd = c["linear_key_head_dim"], c["linear_value_head_dim"]
        rows = len(m)
        x = self.convolve(self.linear(m, at + "in_proj_qkv.weight"), w[at + "conv1d.weight"],
                          ("gdn", layer))
        q, k, v = np.split(x, [kh * kd, 2 * kh * kd], axis=1)
        q = np.repeat(unit(q.reshape(rows, kh, kd)) / F(np.sqrt(kd)), vh // kh, axis=1)
        k = np.repeat(unit(k.reshape(rows, kh, kd)), vh // kh, axis=1)
        v = v.reshape(rows, vh, vd)
        beta = sigmoid(self.linear(m, at + "in_proj_b.weight"))
        decay = np.exp(-np.exp(w[at + "A_log"]) * softplus(
            self.linear(m, at + "in_proj_a.weight") + w[at + "dt_bias"]))
        s = self.state.get(layer, np.zeros((vh, kd, vd), F))
        o = np.empty_like(v)
        for t in range(rows):
            s = decay[t, :, None, None] * s
            error = beta[t, :, None] * (v[t] - np.einsum("hkv,hk->hv", s, k[t]))
            s = s + k[t, :, :, None] * error[:, None, :]
            o[t] = np.einsum("hkv,hk->hv", s, q[t])
        self.state[layer] = s
        z = self.linear(m, at + "in_proj_z.weight").reshape(rows, vh, vd)
        gate = silu(z) if (c.get("output_gate_type") or c["hidden_act"]) == "silu" else sigmoid(z)
        o = norm(o, w[at + "norm.weight"] - 1, c["rms_norm_eps"]) * gate
        return self.linear(o.reshape(rows, -1), at + "out_proj.weight")

    # ---- sparse attention ----

    def visible(self, m, layer, positions):
        """Which tokens each row attends to: the best whole blocks, and the unfinished one."""
        c, w, at = self.config, self.weights, f"model.layers.{layer}.self_attn.indexer."
        heads, dim, ratio = c["indexer_n_heads"], c["indexer_head_dim"], c["indexer_compress_ratio"]
        eps, most = c["rms_norm_eps"], c["indexer_budget"] // c["indexer_compress_ratio"]
        both = self.linear(m, at + "index_qk_proj.weight").reshape(len(m), heads + 1, dim)
        q = self.rotate(norm(both[:, :heads], w[at + "q_layernorm.weight"], eps), positions)
        raw = np.concatenate([self.past.get(("index", layer), np.empty((0, dim), F)),
                              both[:, heads]])
        self.past[("index", layer)] = raw
        n_blocks = len(raw) // ratio
        pooled = raw[:n_blocks * ratio].reshape(n_blocks, ratio, dim).mean(axis=1, dtype=F)
        keys = self.rotate(norm(pooled, w[at + "k_layernorm.weight"], eps)[:, None],
                           np.arange(n_blocks) * ratio)[:, 0]
        out = np.zeros((len(m), len(raw)), bool)
        for row, t in enumerate(positions):
            blocks = (t + 1) // ratio
            out[row, blocks * ratio:t + 1] = True
            self.seen["tails"].add(int(t + 1 - blocks * ratio))
            score = np.maximum(q[row] @ keys[:blocks].T, 0).sum(axis=0) / F(np.sqrt(dim))
            order = np.argsort(-score, kind="stable")
            if blocks > most:
                self.seen["sparse"] += 1
                self.index_gap = min(self.index_gap,
                                     float(score[order[most - 1]] - score[order[most]]))
                self.seen["self_refused"] += (t + 1) % ratio == 0 and blocks - 1 in order[most:]
            else:
                self.seen["dense"] += 1
            for block in order[:most]:
                out[row, block * ratio:(block + 1) * ratio] = True
        return out

    def attention(self, m, layer, positions):
        c, w, at = self.config, self.weights, f"model.layers.{layer}.self_attn."
        heads, kv_heads, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        rows, eps = len(m), c["rms_norm_eps"]
        visible = self.visible(m, layer, positions)
        self.dump(f"index{layer}", m=m, visible=visible.astype(np.uint8))
        q, gate = np.split(self.linear(m, at + "q_proj.weight").reshape(rows, heads, 2 * dim), 2,
                           axis=2)
        q = self.rotate(norm(q, w[at + "q_norm.weight"], eps), positions)
        k = self.linear(m, at + "k_proj.weight").reshape(rows, kv_heads, dim)
        k = self.rotate(norm(k, w[at + "k_norm.weight"], eps), positions)
        v = self.linear(m, at + "v_proj.weight").reshape(rows, kv_heads, dim)
        empty = np.empty((0, kv_heads, dim), F)
        k = np.concatenate([self.past.get(("k", layer), empty), k])
        v = np.concatenate([self.past.get(("v", layer), empty), v])
        self.past[("k", layer)], self.past[("v", layer)] = k, v
        out = np.empty_like(q)
        for head in range(heads):
            kv = head // (heads // kv_heads)
            score = q[:, head] @ k[:, kv].T * F(dim ** -0.5)
            out[:, head] = softmax(np.where(visible, score, F(-np.inf))) @ v[:, kv]
        return self.linear((out * sigmoid(gate)).reshape(rows, -1), at + "o_proj.weight")

    # ---- n-gram embeddings ----

    def ngrams(self, h, layer):
        c, w, at = self.config, self.weights, f"model.layers.{layer}.ple."
        n, hidden, eps, rows = c["hc_count"], c["hidden_size"], c["rms_norm_eps"], len(h)
        table = self.tables[layer]
        e = table.embed(self.tokens, len(self.tokens) - rows)
        key = norm(self.linear(e, at + "key_proj.weight"), w[at + "norm_key.weight"], eps, n)
        query = norm(h, w[at + "norm_query.weight"], eps, n)
        t = (key * query).reshape(rows, n, hidden).sum(axis=2) / F(np.sqrt(hidden))
        t = np.sqrt(np.maximum(np.abs(t), F(1e-6))) * np.sign(t)
        value = self.linear(e, at + "value_proj.weight")
        g = (sigmoid(t)[:, :, None] * value[:, None, :]).reshape(rows, n * hidden)
        normed = norm(g, w[at + "norm_conv.weight"], eps, n)
        out = g + self.convolve(normed, w[at + "conv1d.weight"], ("ple", layer), c["ngram_size"])
        for at_token in range(len(self.tokens) - rows, len(self.tokens)):
            per_part = len(table.rows) // c["split_ngram_parts"]
            self.seen["table"].update(i // per_part for i in table.ids(self.tokens, at_token))
        self.dump(f"ple{layer}", embedded=e, h=h, out=out)
        return out

    # ---- experts ----

    def swiglu(self, x, gate, up, down):
        return (silu(x @ gate.T) * (x @ up.T)) @ down.T

    def experts(self, m, layer):
        c, w, at = self.config, self.weights, f"model.layers.{layer}.mlp."
        k, width = c["num_experts_per_tok"], c["moe_intermediate_size"]
        weight = softmax(self.linear(m, at + "gate.weight"))
        order = np.argsort(-weight, axis=-1, kind="stable")
        ranked = np.log(np.take_along_axis(weight, order, axis=-1))
        if k < ranked.shape[1]:
            self.router_gap = min(self.router_gap, float((ranked[:, k - 1] - ranked[:, k]).min()))
        chosen = order[:, :k]
        weight = np.take_along_axis(weight, chosen, axis=-1)
        if c.get("norm_topk_prob", True):
            weight = weight / weight.sum(axis=-1, keepdims=True)
        self.picks.append(chosen)
        out = np.zeros_like(m)
        gate_up, down = w[at + "experts.gate_up_proj"], w[at + "experts.down_proj"]
        for expert in np.unique(chosen):
            row, place = np.nonzero(chosen == expert)
            out[row] += weight[row, place, None] * self.swiglu(
                m[row], gate_up[expert, :width], gate_up[expert, width:], down[expert])
        shared = self.swiglu(m, *(w[f"{at}shared_expert.{part}_proj.weight"]
                                  for part in ("gate", "up", "down")))
        out += sigmoid(self.linear(m, at + "shared_expert_gate.weight")) * shared
        self.dump(f"moe{layer}", m=m, out=out, chosen=chosen.astype(np.int32), weight=weight)
        return out

    # ---- the model ----

    def forward(self, tokens):
        """Logits [rows, vocab] of tokens that follow those already seen."""
        c, rows = self.config, len(tokens)
        positions = np.arange(len(self.tokens), len(self.tokens) + rows)
        self.tokens = self.tokens + [int(token) for token in tokens]
        self.streams = []
        h = np.tile(self.weights["model.embed_tokens.weight"][tokens], (1, c["hc_count"]))
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            if layer in self.tables:
                h = h + self.ngrams(h, layer)
            m, inject = self.read(h, at + "attn_hyper_connection.")
            self.dump(f"residual{layer}", h=h, m=m, inject=inject)
            if c["layer_types"][layer] == "linear_attention":
                y = self.delta_net(m, layer)
                self.dump(f"gdn{layer}", m=m, out=y)
            else:
                y = self.attention(m, layer, positions)
                self.dump(f"qsa{layer}", m=m, out=y)
            h = self.write(h, y, inject)
            m, inject = self.read(h, at + "mlp_hyper_connection.")
            h = self.write(h, self.experts(m, layer), inject)
            self.streams.append(h)
        x, _ = self.read(h, "model.hyper_connection_mixer.")
        return self.linear(x, "lm_head.weight")

    def greedy(self, prompt, steps):
        """(logits of prompt rows and of each step's row but the last, generated tokens)."""
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
