/* The shape of a Qwen3-MoE model, and the tensors that follow from it. */
#include "families/qwen3_moe.h"
#include "families/quantization.h"
#include "families/qwen3_moe_config.h"
#include "formats/json.h"
#include "util/err.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Bounds that no model comes near; what passes them cannot overflow a product of two. */
enum {
    MAX_VOCAB = 1 << 24,
    MAX_WIDTH = 1 << 20,
    MAX_HEADS = 4096,
    MAX_HEAD_DIM = 256,       /* of the attention kernels */
    MAX_HEADS_PER_KV = 32,    /* likewise */
    MAX_EXPERTS = 4096,
    MAX_POSITIONS = 1 << 30,
};

static int read_heads(struct model_shape *s, const struct json *j, struct err *err)
{
    if (json_u32(&s->n_heads, j, "num_attention_heads", 1, MAX_HEADS, err) < 0 ||
        json_u32(&s->n_kv_heads, j, "num_key_value_heads", 1, MAX_HEADS, err) < 0)
        return -1;
    if (s->n_heads % s->n_kv_heads)
        return err_set(err, ERR_FORMAT, "%s: 'num_attention_heads' is %u: must be a multiple of "
                       "'num_key_value_heads', which is %u", j->name, s->n_heads, s->n_kv_heads);
    if (s->n_heads / s->n_kv_heads > MAX_HEADS_PER_KV)
        return err_set(err, ERR_UNSUPPORTED, "%s: %u 'num_attention_heads' share one of "
                       "'num_key_value_heads': at most %d are built", j->name,
                       s->n_heads / s->n_kv_heads, MAX_HEADS_PER_KV);
    if (json_has(j, "head_dim")) {
        if (json_u32(&s->head_dim, j, "head_dim", 2, MAX_WIDTH, err) < 0)
            return -1;
    } else {
        if (s->hidden % s->n_heads)
            return err_set(err, ERR_FORMAT, "%s: 'head_dim' is missing, and 'hidden_size' %u is no "
                           "multiple of 'num_attention_heads' %u", j->name, s->hidden,
                           s->n_heads);
        s->head_dim = s->hidden / s->n_heads;
    }
    if (s->head_dim % 2)
        return err_set(err, ERR_FORMAT, "%s: 'head_dim' is %u: must be even, for its rotation by "
                       "pairs", j->name, s->head_dim);
    if (s->head_dim > MAX_HEAD_DIM)
        return err_set(err, ERR_UNSUPPORTED, "%s: 'head_dim' is %u: at most %d is built", j->name,
                       s->head_dim, MAX_HEAD_DIM);
    return 0;
}

/* transformers 5 saves num_local_experts, 4 num_experts. */
static int read_n_experts(uint32_t *out, const struct json *j, struct err *err)
{
    uint32_t local;

    if (!json_has(j, "num_local_experts"))
        return json_u32(out, j, "num_experts", 0, MAX_EXPERTS, err);
    if (json_u32(&local, j, "num_local_experts", 0, MAX_EXPERTS, err) < 0 ||
        json_u32_or(out, j, "num_experts", local, 0, MAX_EXPERTS, err) < 0)
        return -1;
    if (*out != local)
        return err_set(err, ERR_FORMAT, "%s: 'num_experts' is %u and 'num_local_experts' is %u: "
                       "keep one", j->name, *out, local);
    return 0;
}

/* Layer i is routed unless mlp_only_layers lists it or decoder_sparse_step passes it by. */
static int read_layers(struct model_shape *s, const struct json *j, struct err *err)
{
    uint32_t dense[MODEL_MAX_LAYERS], n_dense, step;

    if (json_u32_or(&step, j, "decoder_sparse_step", 1, 1, MAX_WIDTH, err) < 0 ||
        json_u32_list(dense, &n_dense, MODEL_MAX_LAYERS, j, "mlp_only_layers", err) < 0)
        return -1;
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->layer_is_moe[i] = s->n_experts > 0 && (i + 1) % step == 0;
    for (uint32_t i = 0; i < n_dense; i++) {
        if (dense[i] >= s->n_layers)
            return err_set(err, ERR_FORMAT, "%s: 'mlp_only_layers' has %u: there are %u layers, "
                           "from 0", j->name, dense[i], s->n_layers);
        s->layer_is_moe[dense[i]] = false;
    }
    for (uint32_t i = 0; i < s->n_layers; i++)
        s->n_moe_layers += s->layer_is_moe[i];
    return 0;
}

static int read_experts(struct model_shape *s, const struct json *j, struct err *err)
{
    if (s->n_moe_layers < s->n_layers &&
        json_u32(&s->dense_width, j, "intermediate_size", 1, MAX_WIDTH, err) < 0)
        return -1;
    if (s->n_moe_layers == 0) {
        s->n_experts = 0;
        return 0;
    }
    if (json_u32(&s->experts_per_token, j, "num_experts_per_tok", 1, MAX_EXPERTS, err) < 0 ||
        json_u32(&s->expert_width, j, "moe_intermediate_size", 1, MAX_WIDTH, err) < 0)
        return -1;
    if (s->experts_per_token > s->n_experts)
        return err_set(err, ERR_FORMAT, "%s: 'num_experts_per_tok' is %u: there are %u experts",
                       j->name, s->experts_per_token, s->n_experts);
    return 0;
}

/* With YaRN the context is what it stretches to, whatever max_position_embeddings says:
 * releases leave that at its old value. */
static int read_positions(struct model_shape *s, const struct json *j, struct err *err)
{
    struct qwen3_moe_config c;

    if (qwen3_moe_read_config(&c, j, err) < 0 ||
        json_u32(&s->max_positions, j, "max_position_embeddings", 1, MAX_POSITIONS, err) < 0)
        return -1;
    if (c.yarn) {
        double stretched = c.rope_yarn.factor * c.rope_yarn.original_positions;
        s->max_positions = stretched < MAX_POSITIONS ? (uint32_t)stretched : MAX_POSITIONS;
    }
    return 0;
}

int qwen3_moe_read_shape(struct model_shape *out, struct config_warnings *warnings,
                         const struct json *config, struct err *err)
{
    struct model_shape s = { .model_type = "qwen3_moe" };
    struct config_warnings w = { 0 };
    const struct json *j = config;
    const char *type;

    if (json_string_or_null(&type, j, "model_type", err) < 0)
        return -1;
    if (!type || strcmp(type, s.model_type) != 0)
        return err_set(err, ERR_UNSUPPORTED, "%s: 'model_type' is not %s", j->name, s.model_type);
    if (qwen3_moe_check_keys(j, &w, err) < 0 ||
        quantization_read(&s.fp8, j, NULL, &w, err) < 0 ||
        json_u32(&s.vocab, j, "vocab_size", 1, MAX_VOCAB, err) < 0 ||
        json_u32(&s.hidden, j, "hidden_size", 1, MAX_WIDTH, err) < 0 ||
        json_u32(&s.n_layers, j, "num_hidden_layers", 1, MODEL_MAX_LAYERS, err) < 0 ||
        read_heads(&s, j, err) < 0 || read_n_experts(&s.n_experts, j, err) < 0 ||
        read_layers(&s, j, err) < 0 || read_experts(&s, j, err) < 0 ||
        json_bool_or(&s.tied_embeddings, j, "tie_word_embeddings", false, err) < 0 ||
        read_positions(&s, j, err) < 0)
        return -1;
    s.kv_values_per_token = 2 * (uint64_t)s.n_kv_heads * s.head_dim * s.n_layers;
    *out = s;
    if (warnings)
        *warnings = w;
    return 0;
}

/* ---- tensors ---- */

struct visitor {
    want_visit *visit;
    void *ctx;
    struct err *err;
    struct tensor_want want; /* role, layer, expert and part are set as the walk goes */
};

static int say(struct visitor *v, const char *name)
{
    snprintf(v->want.name, sizeof v->want.name, "%s", name);
    return v->visit(v->ctx, &v->want, v->err);
}

static int layer_tensor(struct visitor *v, const char *rest)
{
    snprintf(v->want.name, sizeof v->want.name, "model.layers.%u.%s", v->want.layer, rest);
    return v->visit(v->ctx, &v->want, v->err);
}

static void vector(struct visitor *v, enum tensor_role role, uint64_t n)
{
    v->want.role = role;
    v->want.n_dims = 1;
    v->want.dims[0] = n;
    v->want.dims[1] = 0;
    v->want.may_be_fp8 = false;
}

static void matrix(struct visitor *v, enum tensor_role role, uint64_t rows, uint64_t cols)
{
    v->want.role = role;
    v->want.n_dims = 2;
    v->want.dims[0] = rows;
    v->want.dims[1] = cols;
    v->want.may_be_fp8 =
        role == ROLE_ATTENTION || role == ROLE_EXPERT || role == ROLE_DENSE_MLP;
}

static int each_attention(struct visitor *v, const struct model_shape *s)
{
    uint64_t q = (uint64_t)s->n_heads * s->head_dim, kv = (uint64_t)s->n_kv_heads * s->head_dim;
    int rc;

    vector(v, ROLE_NORM, s->hidden);
    if ((rc = layer_tensor(v, "input_layernorm.weight")) != 0)
        return rc;
    vector(v, ROLE_NORM, s->head_dim);
    if ((rc = layer_tensor(v, "self_attn.q_norm.weight")) != 0 ||
        (rc = layer_tensor(v, "self_attn.k_norm.weight")) != 0)
        return rc;
    matrix(v, ROLE_ATTENTION, q, s->hidden);
    if ((rc = layer_tensor(v, "self_attn.q_proj.weight")) != 0)
        return rc;
    matrix(v, ROLE_ATTENTION, kv, s->hidden);
    if ((rc = layer_tensor(v, "self_attn.k_proj.weight")) != 0 ||
        (rc = layer_tensor(v, "self_attn.v_proj.weight")) != 0)
        return rc;
    matrix(v, ROLE_ATTENTION, s->hidden, q);
    if ((rc = layer_tensor(v, "self_attn.o_proj.weight")) != 0)
        return rc;
    vector(v, ROLE_NORM, s->hidden);
    return layer_tensor(v, "post_attention_layernorm.weight");
}

static int expert_tensor(struct visitor *v, enum expert_part part, const char *name)
{
    v->want.part = part;
    snprintf(v->want.name, sizeof v->want.name, "model.layers.%u.mlp.experts.%u.%s.weight",
             v->want.layer, v->want.expert, name);
    return v->visit(v->ctx, &v->want, v->err);
}

static int each_experts(struct visitor *v, const struct model_shape *s)
{
    int rc;

    matrix(v, ROLE_ROUTER, s->n_experts, s->hidden);
    if ((rc = layer_tensor(v, "mlp.gate.weight")) != 0)
        return rc;
    for (uint32_t e = 0; e < s->n_experts; e++) {
        v->want.expert = e;
        matrix(v, ROLE_EXPERT, s->expert_width, s->hidden);
        if ((rc = expert_tensor(v, PART_GATE, "gate_proj")) != 0 ||
            (rc = expert_tensor(v, PART_UP, "up_proj")) != 0)
            return rc;
        matrix(v, ROLE_EXPERT, s->hidden, s->expert_width);
        if ((rc = expert_tensor(v, PART_DOWN, "down_proj")) != 0)
            return rc;
    }
    v->want.expert = 0;
    v->want.part = PART_GATE;
    return 0;
}

static int each_dense(struct visitor *v, const struct model_shape *s)
{
    int rc;

    matrix(v, ROLE_DENSE_MLP, s->dense_width, s->hidden);
    if ((rc = layer_tensor(v, "mlp.gate_proj.weight")) != 0 ||
        (rc = layer_tensor(v, "mlp.up_proj.weight")) != 0)
        return rc;
    matrix(v, ROLE_DENSE_MLP, s->hidden, s->dense_width);
    return layer_tensor(v, "mlp.down_proj.weight");
}

int qwen3_moe_each_tensor(const struct model_shape *shape, want_visit *visit, void *ctx,
                          struct err *err)
{
    struct visitor v = { .visit = visit, .ctx = ctx, .err = err };
    int rc;

    matrix(&v, ROLE_EMBEDDING, shape->vocab, shape->hidden);
    if ((rc = say(&v, "model.embed_tokens.weight")) != 0)
        return rc;
    for (uint32_t i = 0; i < shape->n_layers; i++) {
        v.want.layer = i;
        if ((rc = each_attention(&v, shape)) != 0)
            return rc;
        rc = shape->layer_is_moe[i] ? each_experts(&v, shape) : each_dense(&v, shape);
        if (rc != 0)
            return rc;
    }
    v.want.layer = 0;
    vector(&v, ROLE_NORM, shape->hidden);
    if ((rc = say(&v, "model.norm.weight")) != 0 || shape->tied_embeddings)
        return rc;
    matrix(&v, ROLE_HEAD, shape->vocab, shape->hidden);
    return say(&v, "lm_head.weight");
}
