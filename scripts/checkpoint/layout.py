"""Which tensors a Qwen3-MoE config.json asks for."""
import collections

# role: embed, head, norm, head_norm, attention, router, dense or expert
Tensor = collections.namedtuple("Tensor", "name shape role layer expert")


def is_moe(config, layer):
    return (layer not in (config.get("mlp_only_layers") or [])
            and config["num_experts"] > 0
            and (layer + 1) % config.get("decoder_sparse_step", 1) == 0)


def moe_layers(config):
    return [i for i in range(config["num_hidden_layers"]) if is_moe(config, i)]


def mlp(prefix, width, hidden, role, layer, expert=-1):
    yield Tensor(prefix + "gate_proj.weight", (width, hidden), role, layer, expert)
    yield Tensor(prefix + "up_proj.weight", (width, hidden), role, layer, expert)
    yield Tensor(prefix + "down_proj.weight", (hidden, width), role, layer, expert)


def tensors(config):
    """All weights, without scales."""
    vocab, hidden = config["vocab_size"], config["hidden_size"]
    head_dim = config["head_dim"]
    q_width = config["num_attention_heads"] * head_dim
    kv_width = config["num_key_value_heads"] * head_dim

    yield Tensor("model.embed_tokens.weight", (vocab, hidden), "embed", -1, -1)
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        yield Tensor(at + "input_layernorm.weight", (hidden,), "norm", i, -1)
        yield Tensor(at + "self_attn.q_proj.weight", (q_width, hidden), "attention", i, -1)
        yield Tensor(at + "self_attn.k_proj.weight", (kv_width, hidden), "attention", i, -1)
        yield Tensor(at + "self_attn.v_proj.weight", (kv_width, hidden), "attention", i, -1)
        yield Tensor(at + "self_attn.o_proj.weight", (hidden, q_width), "attention", i, -1)
        yield Tensor(at + "self_attn.q_norm.weight", (head_dim,), "head_norm", i, -1)
        yield Tensor(at + "self_attn.k_norm.weight", (head_dim,), "head_norm", i, -1)
        yield Tensor(at + "post_attention_layernorm.weight", (hidden,), "norm", i, -1)
        if is_moe(config, i):
            yield Tensor(at + "mlp.gate.weight", (config["num_experts"], hidden), "router", i, -1)
            for e in range(config["num_experts"]):
                yield from mlp(f"{at}mlp.experts.{e}.", config["moe_intermediate_size"], hidden,
                               "expert", i, e)
        else:
            yield from mlp(at + "mlp.", config["intermediate_size"], hidden, "dense", i)
    yield Tensor("model.norm.weight", (hidden,), "norm", -1, -1)
    if not config.get("tie_word_embeddings", False):
        yield Tensor("lm_head.weight", (vocab, hidden), "head", -1, -1)


def may_be_fp8(tensor):
    return tensor.role in ("attention", "dense", "expert")


def scale_name(name):
    return name + "_scale_inv"


def scale_shape(shape):
    return tuple(-(-n // 128) for n in shape)


def quantization_config(config):
    """What official FP8 repositories say of themselves."""
    kept = ["lm_head"]
    for i in range(config["num_hidden_layers"]):
        kept += [f"model.layers.{i}.input_layernorm", f"model.layers.{i}.post_attention_layernorm"]
        if is_moe(config, i):
            kept.append(f"model.layers.{i}.mlp.gate")
    return {"activation_scheme": "dynamic", "fmt": "e4m3", "modules_to_not_convert": sorted(kept),
            "quant_method": "fp8", "weight_block_size": [128, 128]}
