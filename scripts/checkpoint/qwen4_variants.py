"""The small Qwen4-Exp checkpoints that the tests use, by name.

Each differs from tiny4-fp8 in what its line says. Seeds are chosen as in variants.py, and so that
no indexer picks among equals (scripts/oracle/golden_qwen4.py checks it)."""

LINEAR, SPARSE = "linear_attention", "full_attention"

BASE = {
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 456, "dtype": "bfloat16",
    "eos_token_id": 456, "full_attention_interval": 4, "hc_count": 4, "hc_lowrank": 16,
    "head_dim": 64, "heads_per_ngram": 4, "hidden_act": "silu", "hidden_size": 256,
    "indexer_budget": 16, "indexer_compress_ratio": 4, "indexer_head_dim": 32,
    "indexer_kv_heads": 1, "indexer_n_heads": 2, "initializer_range": 0.02,
    "layer_types": [LINEAR, LINEAR, LINEAR, SPARSE] * 2, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
    "linear_value_head_dim": 16, "make_ngram_vocab_size_divisible_by": 32,
    "mamba_ssm_dtype": "float32", "max_position_embeddings": 512, "model_type": "qwen4_exp_text",
    "moe_intermediate_size": 128, "ngram_size": 3, "ngram_vocab_size_base": 50,
    "num_attention_heads": 4, "num_experts": 16, "num_experts_per_tok": 4, "num_hidden_layers": 8,
    "num_key_value_heads": 2, "output_gate_type": "sigmoid", "output_router_logits": False,
    "pad_token_id": None, "partial_rotary_factor": 0.25, "ple_conv_kernel_size": 4,
    "ple_embed_dim": 96, "ple_layer_ids": [2], "rms_norm_eps": 1e-06,
    "rope_parameters": {"mrope_interleaved": True, "mrope_section": [3, 3, 2],
                        "partial_rotary_factor": 0.25, "rope_theta": 10000000,
                        "rope_type": "default"},
    "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 64, "split_ngram_parts": 4,
    "tie_word_embeddings": False, "use_cache": True, "vocab_size": 512,
}
VISION = {
    "depth": 1, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 32, "in_channels": 3,
    "initializer_range": 0.02, "intermediate_size": 64, "model_type": "qwen4_exp", "num_heads": 2,
    "num_position_embeddings": 48, "out_hidden_size": 256, "patch_size": 4,
    "spatial_merge_size": 2, "temporal_patch_size": 2,
}
ABSENT = object()  # the key is left out


def quantization(experts, table):
    if "FP8" not in (experts, table):
        return {}
    out = {"activation_scheme": "dynamic", "modules_to_not_convert": ["lm_head"],
           "quant_method": "fp8", "weight_block_size": [128, 128]}
    if table == "FP8":
        out["modules_to_convert"] = ["ple.ple_embedding.ngram_embedding"]
    return {"quantization_config": out}


class Variant:
    family = "qwen4_exp"
    cache_layout = False

    def __init__(self, name, about, seed=1, experts="FP8", table="FP8", text_only=False,
                 unused=False, shard_size=1 << 40, index=False, odd=False, same_as=None,
                 bigrams=False, n_merges=200, eos=(458, 456), sampled=False, template=None,
                 **config):
        """experts: FP8 or BF16, one by one, or fused (BF16). table: FP8 or BF16."""
        self.name, self.about, self.seed, self.same_as = name, about, seed, same_as
        self.experts, self.table, self.unused = experts, table, unused
        self.shard_size, self.index, self.odd = shard_size, index, odd
        self.bigrams, self.n_merges, self.template = bigrams, n_merges, template
        self.eos, self.sampled = list(eos), sampled
        text = {k: v for k, v in {**BASE, **config}.items() if v is not ABSENT}
        if unused:
            text["mtp_num_hidden_layers"] = 1
        if text_only:
            self.config = {**text, "architectures": ["Qwen4ExpForCausalLM"],
                           **quantization(experts, table)}
        else:
            self.config = {"architectures": ["Qwen4ExpForConditionalGeneration"],
                           "model_type": "qwen4_exp", "text_config": text,
                           "tie_word_embeddings": False, "transformers_version": "5.8.0.dev0",
                           "vision_config": VISION, **quantization(experts, table)}


SMALL = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 64}

VARIANTS = [
    Variant("tiny4-fp8", "the reference: FP8 experts and table, sharded with an index",
            seed=2, shard_size=2_000_000, index=True),
    Variant("tiny4-text", "the same, saved by the text class", text_only=True, same_as="tiny4-fp8"),
    Variant("tiny4-unused", "the same with tensors of MTP and vision; data at odd addresses",
            unused=True, odd=True, same_as="tiny4-fp8"),
    Variant("tiny4-fused", "fused BF16 experts, BF16 table; a silu gate, weights as they come",
            seed=3, experts="fused", table="BF16", output_gate_type="silu", norm_topk_prob=False, **SMALL),
    Variant("tiny4-apart", "the same, experts one by one in BF16", experts="BF16", table="BF16",
            output_gate_type="silu", norm_topk_prob=False, same_as="tiny4-fused",
            text_only=True, **SMALL),
    Variant("tiny4-odd", "no size of the release: three streams, two tables, other kernels; the "
            "gate by default", experts="FP8", table="BF16", text_only=True, odd=True,
            output_gate_type=ABSENT, norm_topk_prob=True, hidden_size=96, hc_count=3, hc_lowrank=10,
            num_hidden_layers=5, layer_types=["indexed_attention", LINEAR, LINEAR, LINEAR,
                                              "qwen_sparse_attention"],
            ple_layer_ids=[4, 2], ngram_size=4, heads_per_ngram=2, ple_embed_dim=60,
            ple_conv_kernel_size=3, split_ngram_parts=8,
            make_ngram_vocab_size_divisible_by=24, ngram_vocab_size_base=90,
            indexer_compress_ratio=3, indexer_budget=12, indexer_n_heads=3, indexer_head_dim=40,
            num_attention_heads=3, num_key_value_heads=1, head_dim=48,
            linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=24,
            linear_value_head_dim=40, linear_conv_kernel_dim=3, num_experts=6,
            num_experts_per_tok=2, moe_intermediate_size=72, shared_expert_intermediate_size=40,
            rms_norm_eps=1e-5, full_attention_interval=ABSENT,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                             "partial_rotary_factor": 0.5}, partial_rotary_factor=ABSENT),
    # For the daemon: text that resembles its corpus, and the release's chat template.
    Variant("demo4", "context 8192, greedy text that neither stops nor repeats itself", bigrams=True,
            n_merges=442, eos=(700, 698), sampled=True, template="qwen3.8.jinja",
            bos_token_id=698, eos_token_id=698, vocab_size=768, hidden_size=512, hc_lowrank=32,
            max_position_embeddings=8192, num_hidden_layers=4,
            layer_types=[LINEAR, LINEAR, LINEAR, SPARSE], indexer_budget=256,
            ngram_vocab_size_base=500),
]
BY_NAME = {variant.name: variant for variant in VARIANTS}
for variant in VARIANTS:
    if variant.same_as:
        variant.seed = BY_NAME[variant.same_as].seed
