"""The two small models: their sizes, transformers' own classes for them, and faster ways through
those classes for training.

A train step spends its time in experts, in the chunked delta rule and in the indexer. Here they
compute the same values otherwise: experts once over all picks in the order of experts, the delta
rule in shorter chunks, and no indexer, since a text of the corpus is shorter than its budget and
so everything is selected. Evaluation uses the classes as they are."""
import functools
import types

import torch

import fused

SEED = 6
N_EXPERTS, TOP_K = 32, 4
LINEAR, SPARSE = "linear_attention", "full_attention"
# How much of all picks the i-th favourite of a layer gets; the hottest quarter has 0.59 of them.
FAVOUR = 0.9


def qwen3_moe(tokenizer):
    """config.json, without the part on quantisation."""
    return {
        "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False,
        "attention_dropout": 0.0, "bos_token_id": tokenizer.id("<|endoftext|>"),
        "decoder_sparse_step": 1, "eos_token_id": tokenizer.id("<|im_end|>"), "head_dim": 32,
        "hidden_act": "silu", "hidden_size": 128, "initializer_range": 0.05,
        "intermediate_size": 256, "max_position_embeddings": 4096, "max_window_layers": 5,
        "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 64,
        "norm_topk_prob": True, "num_attention_heads": 4, "num_experts": N_EXPERTS,
        "num_experts_per_tok": TOP_K, "num_hidden_layers": 5, "num_key_value_heads": 2,
        "output_router_logits": False, "rms_norm_eps": 1e-06, "rope_scaling": None,
        "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": None,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False,
        "vocab_size": tokenizer.padded_size,
    }


def qwen4_exp(tokenizer):
    """config.json of the text class, without the part on quantisation."""
    end = tokenizer.id("<|endoftext|>")
    return {
        "architectures": ["Qwen4ExpForCausalLM"], "attention_bias": False,
        "attention_dropout": 0.0, "bos_token_id": end, "dtype": "bfloat16", "eos_token_id": end,
        "full_attention_interval": 2, "hc_count": 4, "hc_lowrank": 16, "head_dim": 32,
        "heads_per_ngram": 4, "hidden_act": "silu", "hidden_size": 128, "indexer_budget": 1024,
        "indexer_compress_ratio": 4, "indexer_head_dim": 32, "indexer_kv_heads": 1,
        "indexer_n_heads": 2, "initializer_range": 0.05,
        "layer_types": [LINEAR, SPARSE] * 2, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 2,
        "linear_value_head_dim": 64, "make_ngram_vocab_size_divisible_by": 128,
        "mamba_ssm_dtype": "float32", "max_position_embeddings": 4096,
        "model_type": "qwen4_exp_text", "moe_intermediate_size": 64, "ngram_size": 3,
        "ngram_vocab_size_base": 4000, "num_attention_heads": 4, "num_experts": N_EXPERTS,
        "num_experts_per_tok": TOP_K, "num_hidden_layers": 4, "num_key_value_heads": 2,
        "output_gate_type": "sigmoid", "output_router_logits": False, "pad_token_id": None,
        "partial_rotary_factor": 0.25, "ple_conv_kernel_size": 4, "ple_embed_dim": 128,
        "ple_layer_ids": [1], "rms_norm_eps": 1e-06,
        "rope_parameters": {"mrope_interleaved": True, "mrope_section": [2, 1, 1],
                            "partial_rotary_factor": 0.25, "rope_theta": 10000000,
                            "rope_type": "default"},
        "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 64,
        "split_ngram_parts": 4, "tie_word_embeddings": False, "use_cache": True,
        "vocab_size": tokenizer.padded_size,
    }


FAMILIES = {"qwen3_moe": qwen3_moe, "qwen4_exp": qwen4_exp}


def build(family, config):
    """A model with random weights, float32, as the class itself initialises it."""
    import transformers
    torch.manual_seed(SEED)
    if family == "qwen3_moe":
        kind, settings = transformers.Qwen3MoeForCausalLM, transformers.Qwen3MoeConfig
    else:
        kind, settings = transformers.Qwen4ExpForCausalLM, transformers.Qwen4ExpTextConfig
    config = {k: v for k, v in config.items() if k not in ("torch_dtype", "dtype")}
    return kind._from_config(settings(**config), dtype=torch.float32, attn_implementation="sdpa")


# ---- experts, all picks in the order of experts ----

class SortedExperts(torch.autograd.Function):
    """x [rows, hidden], chosen and weight [rows, top k], gate_up [experts, 2 width, hidden],
    down [experts, hidden, width]."""

    @staticmethod
    def forward(ctx, x, chosen, weight, gate_up, down):
        rows, top_k = chosen.shape
        picks = chosen.reshape(-1)
        order = torch.argsort(picks, stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel())
        ends = torch.bincount(picks, minlength=gate_up.shape[0]).cumsum(0).tolist()
        source = order // top_k
        xs = x.index_select(0, source)
        inner = xs.new_empty(xs.shape[0], gate_up.shape[1])
        begin = 0
        for expert, end in enumerate(ends):
            torch.mm(xs[begin:end], gate_up[expert].T, out=inner[begin:end])
            begin = end
        gate, up = inner.chunk(2, dim=-1)
        act = torch.nn.functional.silu(gate) * up
        out = torch.empty_like(xs)
        begin = 0
        for expert, end in enumerate(ends):
            torch.mm(act[begin:end], down[expert].T, out=out[begin:end])
            begin = end
        share = weight.reshape(-1).index_select(0, order).unsqueeze(1)
        ctx.save_for_backward(xs, inner, act, out, share, source, place, gate_up, down)
        ctx.ends, ctx.shape = ends, (rows, top_k)
        return (out * share).index_select(0, place).view(rows, top_k, -1).sum(1)

    @staticmethod
    def backward(ctx, grad):
        xs, inner, act, out, share, source, place, gate_up, down = ctx.saved_tensors
        rows, top_k = ctx.shape
        grad = grad.index_select(0, source)
        d_weight = (grad * out).sum(1).index_select(0, place).view(rows, top_k)
        d_out = grad.mul_(share)
        d_act = torch.empty_like(act)
        d_down = torch.zeros_like(down)
        begin = 0
        for expert, end in enumerate(ctx.ends):
            torch.mm(d_out[begin:end], down[expert], out=d_act[begin:end])
            torch.mm(d_out[begin:end].T, act[begin:end], out=d_down[expert])
            begin = end
        gate, up = inner.chunk(2, dim=-1)
        d_inner = torch.empty_like(inner)
        width = act.shape[1]
        sigmoid = torch.sigmoid(gate)
        silu = gate * sigmoid
        torch.mul(d_act, silu, out=d_inner[:, width:])
        torch.mul(d_act * up, sigmoid + silu * (1 - sigmoid), out=d_inner[:, :width])
        d_xs = torch.empty_like(xs)
        d_gate_up = torch.zeros_like(gate_up)
        begin = 0
        for expert, end in enumerate(ctx.ends):
            torch.mm(d_inner[begin:end], gate_up[expert], out=d_xs[begin:end])
            torch.mm(d_inner[begin:end].T, xs[begin:end], out=d_gate_up[expert])
            begin = end
        d_x = d_xs.index_select(0, place).view(rows, top_k, -1).sum(1)
        return d_x, None, d_weight, d_gate_up, d_down


def sorted_experts(self, x, chosen, weight):
    return SortedExperts.apply(x, chosen, weight, self.gate_up_proj, self.down_proj)


def select_everything(self, hidden_states, position_embeddings, attention_mask, cache):
    return attention_mask


def make_fast(model):
    """The same values, for training."""
    from transformers.models.qwen4_exp import modeling_qwen4_exp as qwen4
    for module in model.modules():
        kind = type(module).__name__
        if kind.endswith("Experts"):
            module.forward = types.MethodType(sorted_experts, module)
        elif kind == "Qwen4ExpTextQSAIndexer":
            module.forward = types.MethodType(select_everything, module)
        elif kind == "Qwen4ExpTextGatedResidual":
            module.forward = types.MethodType(fused.gated_residual, module)
        elif kind == "Qwen4ExpTextDecoderLayer":
            module.forward = types.MethodType(fused.decoder_layer, module)
    if not isinstance(qwen4.torch_chunk_gated_delta_rule, functools.partial):
        qwen4.torch_chunk_gated_delta_rule = functools.partial(
            qwen4.torch_chunk_gated_delta_rule, chunk_size=64)


# ---- routers ----

class Routers:
    """Sees what every router decides, and says how far it is from the favour of its layer."""

    def __init__(self, model):
        self.seen = []
        gates = [layer.mlp.gate for layer in model.model.layers]
        steps = torch.tensor([FAVOUR ** i for i in range(N_EXPERTS)])
        order = torch.Generator().manual_seed(SEED)
        self.target = [(steps / steps.sum())[torch.randperm(N_EXPERTS, generator=order)]
                       for _ in gates]
        for gate in gates:
            gate.register_forward_hook(lambda _module, _args, out: self.seen.append(out))

    def take(self, mask):
        """The regulariser (1 where every layer does as its target says) and the picks of every
        expert [layers, experts]. mask [rows]: which rows are text."""
        total, picks = 0.0, []
        for (logits, _, chosen), target in zip(self.seen, self.target):
            count = torch.bincount(chosen[mask].reshape(-1), minlength=N_EXPERTS)
            mean = torch.softmax(logits[mask].float(), dim=-1).mean(0)
            total = total + (mean * (count / count.sum() / target)).sum()
            picks.append(count)
        self.seen = []
        return total / len(picks), torch.stack(picks)
