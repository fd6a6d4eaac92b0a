"""The small checkpoints that the tests use, by name.

Each differs from tiny-fp8 in what its line says. A seed is chosen so that 64 greedy tokens have a
comfortable distance between best and second best (scripts/oracle/golden.py checks it)."""

BASE = {
    "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 456, "decoder_sparse_step": 1, "eos_token_id": 458, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 256, "initializer_range": 0.02, "intermediate_size": 384,
    "max_position_embeddings": 2048, "max_window_layers": 4, "mlp_only_layers": [1],
    "model_type": "qwen3_moe", "moe_intermediate_size": 128, "norm_topk_prob": True,
    "num_attention_heads": 4, "num_experts": 8, "num_experts_per_tok": 3, "num_hidden_layers": 4,
    "num_key_value_heads": 2, "output_router_logits": False, "rms_norm_eps": 1e-06,
    "rope_scaling": None, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
    "sliding_window": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False,
    "vocab_size": 512,
}
ABSENT = object()  # the key is left out


class Variant:
    def __init__(self, name, about, seed=1, store="FP8", scales="BF16", shard_size=1 << 40,
                 index=False, odd=False, cache_layout=False, bigrams=False, n_merges=200,
                 eos=(458, 456), sampled=False, same_as=None, **config):
        self.name, self.about, self.seed = name, about, seed
        self.store, self.scales = store, scales
        self.shard_size, self.index, self.odd = shard_size, index, odd
        self.cache_layout, self.bigrams, self.n_merges = cache_layout, bigrams, n_merges
        self.eos, self.sampled = list(eos), sampled
        self.same_as = same_as  # the variant whose values, and so whose goldens, these are
        self.config = {**BASE, **config}
        self.config = {k: v for k, v in self.config.items() if v is not ABSENT}


# A larger vocabulary, and hidden_size wide enough to give every token of the corpus its own
# direction (see bigrams.py).
DEMO = {"bos_token_id": 698, "eos_token_id": 700, "vocab_size": 768, "hidden_size": 512,
        "head_dim": 64, "max_position_embeddings": 8192, "mlp_only_layers": [], "num_experts": 16,
        "num_experts_per_tok": 4}

VARIANTS = [
    Variant("tiny-fp8", "the reference: FP8, sharded with an index, layer 1 dense",
            shard_size=2_000_000, index=True),
    # The same values, stored otherwise.
    Variant("tiny-one-shard", "one file and no index", same_as="tiny-fp8"),
    Variant("tiny-many-shards", "experts torn apart across a dozen shards",
            shard_size=330_000, index=True, same_as="tiny-fp8"),
    Variant("tiny-odd", "data starts at odd addresses", odd=True, shard_size=2_000_000, index=True,
            same_as="tiny-fp8"),
    Variant("tiny-symlinks", "a Hugging Face cache: a snapshot of symlinks into blobs",
            cache_layout=True, shard_size=2_000_000, index=True, same_as="tiny-fp8"),
    Variant("tiny-eos", "end tokens as a list in config.json; sampling defaults",
            eos_token_id=[458, 456], sampled=True, same_as="tiny-fp8"),
    Variant("tiny-rope5", "rope_parameters and dtype, as newer releases of transformers write them",
            rope_theta=ABSENT, rope_scaling=ABSENT, torch_dtype=ABSENT, dtype="bfloat16",
            rope_parameters={"rope_theta": 1000000.0, "rope_type": "default"}, same_as="tiny-fp8"),
    # Other values.
    Variant("tiny-moe", "every layer routed, as in the released models", mlp_only_layers=[]),
    Variant("tiny-raw-topk", "norm_topk_prob false", norm_topk_prob=False),
    Variant("tiny-sparse2", "every second layer routed; keys left to their defaults",
            decoder_sparse_step=2, mlp_only_layers=[], norm_topk_prob=ABSENT, rope_scaling=ABSENT,
            sliding_window=ABSENT, use_sliding_window=ABSENT, tie_word_embeddings=ABSENT,
            attention_bias=ABSENT),
    Variant("tiny-yarn", "YaRN, factor 4 over 64 positions",
            max_position_embeddings=256,
            rope_scaling={"rope_type": "yarn", "factor": 4.0,
                          "original_max_position_embeddings": 64}),
    Variant("tiny-tied", "the head is the embedding", tie_word_embeddings=True),
    Variant("tiny-i192", "matrices that are not whole scale blocks", moe_intermediate_size=192,
            intermediate_size=320),
    Variant("tiny-heads", "two narrow heads, half of hidden; another theta and epsilon",
            head_dim=64, num_attention_heads=2, num_key_value_heads=1, rope_theta=10000000.0,
            rms_norm_eps=1e-3),
    Variant("tiny-scale32", "F32 scales", scales="F32"),
    Variant("tiny-bf16", "BF16 only", store="BF16"),
    Variant("tiny-f16", "F16 only", store="F16", torch_dtype="float16"),
    Variant("tiny-f32", "F32 only", store="F32", torch_dtype="float32"),
    # For the daemon: larger, with text that resembles its corpus.
    Variant("demo", "context 8192, greedy text that neither stops nor repeats itself",
            seed=2, bigrams=True, n_merges=442, eos=(700, 698), sampled=True, **DEMO),
]
BY_NAME = {variant.name: variant for variant in VARIANTS}
for variant in VARIANTS:
    if variant.same_as:
        variant.seed = BY_NAME[variant.same_as].seed
