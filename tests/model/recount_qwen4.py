"""What a Qwen4-Exp checkpoint holds, counted from its config.json by name, dtype and shape: a second
opinion on colizigctl inspect, written from the published tensor list. Shares no code with it."""
import collections
import math

DTYPE_SIZE = {"F8": 1, "BF16": 2, "I64": 8}
DEFAULTS = {
    "vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512, "num_experts": 512, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4, "hc_count": 4, "hc_lowrank": 320, "ple_conv_kernel_size": 4,
    "ngram_size": 3, "heads_per_ngram": 8, "ngram_vocab_size_base": 20000000,
    "make_ngram_vocab_size_divisible_by": 128, "split_ngram_parts": 512,
    "full_attention_interval": 4, "mtp_num_hidden_layers": 0,
}


def primes_from(start):
    n = start
    while True:
        if n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1)):
            yield n
        n += 1


class Count:
    """bytes and tensors by class"""

    def __init__(self, config):
        self.text = {**DEFAULTS, **config.get("text_config", config)}
        self.fp8 = bool(config.get("quantization_config"))
        self.fp8_table = bool((config.get("quantization_config") or {}).get("modules_to_convert"))
        self.bytes, self.tensors = collections.Counter(), collections.Counter()
        text = self.text
        kinds = text.get("layer_types") or [
            "linear_attention" if (i + 1) % text["full_attention_interval"] else "full_attention"
            for i in range(text["num_hidden_layers"])]
        self.linear = [kind == "linear_attention" for kind in kinds]
        self.with_ngrams = sorted(set(text.get("ple_layer_ids") or []))
        self.wide = text["hc_count"] * text["hidden_size"]
        self.count_text()
        self.count_mtp()
        if "vision_config" in config:
            self.count_vision(config["vision_config"])

    def add(self, kind, *shape, dtype="BF16", times=1):
        self.bytes[kind] += math.prod(shape) * DTYPE_SIZE[dtype] * times
        self.tensors[kind] += times

    def count_mixer(self, kind, injects=True):
        self.add(kind, self.wide)
        self.add(kind, self.text["hc_lowrank"], self.wide, times=2)
        if injects:
            self.add(kind, self.text["hc_count"], self.wide)

    def count_sparse(self, kind):
        t = self.text
        hidden, dim = t["hidden_size"], t["head_dim"]
        self.add(kind, 2 * t["num_attention_heads"] * dim, hidden)
        self.add(kind, t["num_key_value_heads"] * dim, hidden, times=2)
        self.add(kind, hidden, t["num_attention_heads"] * dim)
        self.add(kind, dim, times=2)
        self.add(kind, (t["indexer_n_heads"] + 1) * t["indexer_head_dim"], hidden)
        self.add(kind, t["indexer_head_dim"], times=2)

    def channels(self):
        t = self.text
        values = t["linear_num_value_heads"] * t["linear_value_head_dim"]
        return values, 2 * t["linear_num_key_heads"] * t["linear_key_head_dim"] + values

    def count_linear(self, kind):
        t = self.text
        values, channels = self.channels()
        self.add(kind, channels, t["hidden_size"])
        self.add(kind, values, t["hidden_size"], times=2)  # in_proj_z, out_proj
        self.add(kind, t["linear_num_value_heads"], t["hidden_size"], times=2)
        self.add(kind, channels, 1, t["linear_conv_kernel_dim"])
        self.add(kind, t["linear_num_value_heads"], times=2)
        self.add(kind, t["linear_value_head_dim"])

    def count_experts(self, kind, routed):
        t = self.text
        hidden, width, n = t["hidden_size"], t["moe_intermediate_size"], t["num_experts"]
        self.add(kind, n, hidden)
        self.add(kind, hidden, t["shared_expert_intermediate_size"], times=3)
        self.add(kind, 1, hidden)
        if self.fp8:
            self.add(routed, width, hidden, dtype="F8", times=3 * n)
            self.add(routed, -(-width // 128), -(-hidden // 128), times=3 * n)
        else:
            self.add(routed, n, 2 * width, hidden)
            self.add(routed, n, hidden, width)

    def count_ngrams(self):
        t = self.text
        heads = (t["ngram_size"] - 1) * t["heads_per_ngram"]
        width = t.get("ple_embed_dim") or t["hidden_size"]
        sizes = primes_from(t["ngram_vocab_size_base"])
        self.table_rows = 0
        for _ in self.with_ngrams:
            self.add("dense", self.wide, width)
            self.add("dense", t["hidden_size"], width)
            self.add("dense", self.wide, times=3)
            self.add("dense", self.wide, 1, t["ple_conv_kernel_size"])
            self.add("constants", t["ngram_size"], dtype="I64")
            self.add("constants", heads, dtype="I64", times=2)
            rows = sum(next(sizes) for _ in range(heads))
            step = t["make_ngram_vocab_size_divisible_by"]
            rows = -(-rows // step) * step
            parts = t["split_ngram_parts"]
            assert rows % parts == 0
            self.add("table", rows // parts, width // heads,
                     dtype="F8" if self.fp8_table else "BF16", times=parts)
            if self.fp8_table:
                self.add("table", 1)
            self.table_rows += rows

    def count_text(self):
        t = self.text
        self.add("dense", t["vocab_size"], t["hidden_size"], times=2)
        self.embedding = t["vocab_size"] * t["hidden_size"] * 2
        for linear in self.linear:
            self.count_mixer("dense")
            self.count_mixer("dense")
            (self.count_linear if linear else self.count_sparse)("dense")
            self.count_experts("dense", "routed")
        self.count_mixer("dense", injects=False)
        self.count_ngrams()

    def count_mtp(self):
        layers = self.text["mtp_num_hidden_layers"]
        if not layers:
            return
        hidden = self.text["hidden_size"]
        self.add("mtp", hidden, hidden, times=2)
        self.add("mtp", hidden)
        self.add("mtp", self.wide)
        self.count_mixer("mtp", injects=False)
        for _ in range(layers):
            self.count_mixer("mtp")
            self.count_mixer("mtp")
            self.count_sparse("mtp")
            self.count_experts("mtp", "mtp")

    def count_vision(self, v):
        hidden, merged = v["hidden_size"], v["hidden_size"] * v["spatial_merge_size"] ** 2

        def biased(rows, columns, times=1):
            self.add("vision", rows, columns, times=times)
            self.add("vision", rows, times=times)

        biased(hidden, v["in_channels"] * v["temporal_patch_size"] * v["patch_size"] ** 2)
        self.add("vision", v["num_position_embeddings"], hidden)
        biased(merged, merged)
        biased(v["out_hidden_size"], merged)
        self.add("vision", hidden, times=2)
        depth = v["depth"]
        self.add("vision", hidden, times=4 * depth)
        biased(3 * hidden, hidden, depth)
        biased(hidden, hidden, depth)
        biased(v["intermediate_size"], hidden, depth)
        biased(hidden, v["intermediate_size"], depth)

    def facts(self):
        """As colizigctl inspect --json names them."""
        t = self.text
        values, channels = self.channels()
        state = sum(self.linear) * (values * t["linear_key_head_dim"]
                                    + channels * (t["linear_conv_kernel_dim"] - 1))
        state += len(self.with_ngrams) * self.wide * (t["ple_conv_kernel_size"] - 1) * t["ngram_size"]
        sparse = len(self.linear) - sum(self.linear)
        index = sparse * t["indexer_head_dim"]
        kv = sparse * 2 * t["num_key_value_heads"] * t["head_dim"]
        out = {f"{kind}_bytes": self.bytes[kind]
               for kind in ("dense", "routed", "table", "constants", "mtp", "vision")}
        out.update({f"n_{kind}_tensors": self.tensors[kind]
                    for kind in ("dense", "routed", "table", "mtp", "vision")})
        out.update(
            n_tensors=sum(self.tensors.values()), total_bytes=sum(self.bytes.values()),
            embedding_bytes=self.embedding, table_rows=self.table_rows,
            fixed_state_bytes=4 * state, kv_values_per_token=kv, index_values_per_token=index,
            state_bytes_per_token_f32=4 * (kv + index), block_values=index,
            block_tokens=t["indexer_compress_ratio"])
        return out
