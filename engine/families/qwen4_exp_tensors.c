/* The tensors that follow from the shape of a Qwen4-Exp model. */
#include "families/qwen4_exp.h"

#include "store/catalog.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static const char whole_prefix[] = "model.language_model.", text_prefix[] = "model.";

struct visitor {
    want_visit *visit;
    void *ctx;
    struct err *err;
    const struct model_shape *shape;
    const char *prefix, *other_prefix;
    char at[64];             /* beginning of the names of a layer */
    bool unused;             /* of the layers that guess ahead: counted only */
    struct tensor_want want; /* role, layer, expert and part are set as the walk goes */
    char fused[128], scale[128];
};

static int say(struct visitor *v, enum tensor_role role, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A name below v->at, with the dims that are set. */
static int say(struct visitor *v, enum tensor_role role, const char *fmt, ...)
{
    va_list args;
    int n = snprintf(v->want.name, sizeof v->want.name, "%s", v->at);

    va_start(args, fmt);
    vsnprintf(v->want.name + n, sizeof v->want.name - (size_t)n, fmt, args);
    va_end(args);
    v->want.role = v->unused ? ROLE_MTP : role;
    v->want.may_be_fp8 = role == ROLE_EXPERT;
    return v->visit(v->ctx, &v->want, v->err);
}

/* A norm whose weights stand for 1 + w: all but the delta network's own. */
static int say_norm(struct visitor *v, const char *beginning, const char *name)
{
    v->want.centred = true;
    int rc = say(v, ROLE_NORM, "%s%s.weight", beginning, name);
    v->want.centred = false;
    return rc;
}

static void dims(struct visitor *v, uint32_t n, uint64_t a, uint64_t b, uint64_t c)
{
    v->want.n_dims = n;
    v->want.dims[0] = a;
    v->want.dims[1] = b;
    v->want.dims[2] = c;
}

static void vector(struct visitor *v, uint64_t n)
{
    dims(v, 1, n, 0, 0);
}

static void matrix(struct visitor *v, uint64_t rows, uint64_t cols)
{
    dims(v, 2, rows, cols, 0);
}

/* ---- parts of a layer ---- */

/* Reading the residual streams; injecting into them, except behind the last layer. */
static int each_mixer(struct visitor *v, const char *name, bool injects)
{
    uint64_t wide = (uint64_t)v->shape->streams.n * v->shape->hidden, rank = v->shape->streams.rank;
    int rc;

    vector(v, wide);
    if ((rc = say_norm(v, name, ".hc_norm")) != 0)
        return rc;
    matrix(v, rank, wide);
    if ((rc = say(v, ROLE_STREAMS, "%s.input_mix_weight_down.weight", name)) != 0)
        return rc;
    matrix(v, wide, rank);
    if ((rc = say(v, ROLE_STREAMS, "%s.input_mix_weight_up.weight", name)) != 0 || !injects)
        return rc;
    matrix(v, v->shape->streams.n, wide);
    return say(v, ROLE_STREAMS, "%s.block_inject_weight.weight", name);
}

static int each_sparse(struct visitor *v)
{
    const struct model_shape *s = v->shape;
    uint64_t q = (uint64_t)s->n_heads * s->head_dim, kv = (uint64_t)s->n_kv_heads * s->head_dim;
    int rc;

    matrix(v, 2 * q, s->hidden); /* a query and its output gate, head by head */
    if ((rc = say(v, ROLE_ATTENTION, "self_attn.q_proj.weight")) != 0)
        return rc;
    matrix(v, kv, s->hidden);
    if ((rc = say(v, ROLE_ATTENTION, "self_attn.k_proj.weight")) != 0 ||
        (rc = say(v, ROLE_ATTENTION, "self_attn.v_proj.weight")) != 0)
        return rc;
    matrix(v, s->hidden, q);
    if ((rc = say(v, ROLE_ATTENTION, "self_attn.o_proj.weight")) != 0)
        return rc;
    vector(v, s->head_dim);
    if ((rc = say_norm(v, "self_attn.", "q_norm")) != 0 ||
        (rc = say_norm(v, "self_attn.", "k_norm")) != 0)
        return rc;
    matrix(v, (uint64_t)(s->index.n_heads + 1) * s->index.head_dim, s->hidden);
    if ((rc = say(v, ROLE_ATTENTION, "self_attn.indexer.index_qk_proj.weight")) != 0)
        return rc;
    vector(v, s->index.head_dim);
    if ((rc = say_norm(v, "self_attn.indexer.", "q_layernorm")) != 0)
        return rc;
    return say_norm(v, "self_attn.indexer.", "k_layernorm");
}

static int each_linear(struct visitor *v)
{
    const struct model_shape *s = v->shape;
    const struct linear_shape *l = &s->linear;
    uint64_t values = (uint64_t)l->n_value_heads * l->value_dim;
    uint64_t channels = 2 * (uint64_t)l->n_key_heads * l->key_dim + values;
    int rc;

    matrix(v, channels, s->hidden);
    if ((rc = say(v, ROLE_LINEAR, "linear_attn.in_proj_qkv.weight")) != 0)
        return rc;
    matrix(v, values, s->hidden);
    if ((rc = say(v, ROLE_LINEAR, "linear_attn.in_proj_z.weight")) != 0)
        return rc;
    matrix(v, l->n_value_heads, s->hidden);
    if ((rc = say(v, ROLE_LINEAR, "linear_attn.in_proj_b.weight")) != 0 ||
        (rc = say(v, ROLE_LINEAR, "linear_attn.in_proj_a.weight")) != 0)
        return rc;
    dims(v, 3, channels, 1, l->kernel);
    if ((rc = say(v, ROLE_NORM, "linear_attn.conv1d.weight")) != 0)
        return rc;
    vector(v, l->n_value_heads);
    if ((rc = say(v, ROLE_NORM, "linear_attn.dt_bias")) != 0 ||
        (rc = say(v, ROLE_NORM, "linear_attn.A_log")) != 0)
        return rc;
    vector(v, l->value_dim);
    if ((rc = say(v, ROLE_NORM, "linear_attn.norm.weight")) != 0)
        return rc;
    matrix(v, s->hidden, values);
    return say(v, ROLE_LINEAR, "linear_attn.out_proj.weight");
}

static int each_table(struct visitor *v, uint32_t table)
{
    const struct table_shape *n = &v->shape->ngram;
    int rc;

    vector(v, n->order);
    if ((rc = say(v, ROLE_CONSTANT, "ple.ple_embedding.layer_multipliers")) != 0)
        return rc;
    vector(v, n->n_heads);
    if ((rc = say(v, ROLE_CONSTANT, "ple.ple_embedding.ngram_heads_vocab_sizes")) != 0 ||
        (rc = say(v, ROLE_CONSTANT, "ple.ple_embedding.ngram_heads_offsets")) != 0)
        return rc;
    snprintf(v->scale, sizeof v->scale, "%sple.ple_embedding.ngram_embedding.weight_scale", v->at);
    v->want.table_scale = v->scale;
    matrix(v, n->rows[table] / n->n_parts, n->head_dim);
    for (uint32_t i = 0; i < n->n_parts && rc == 0; i++) { /* by number: names sort otherwise */
        v->want.expert = i;
        rc = say(v, ROLE_TABLE, "ple.ple_embedding.ngram_embedding.shard_%u.weight", i);
    }
    v->want.table_scale = NULL;
    v->want.expert = 0;
    return rc;
}

static int each_ngram(struct visitor *v, uint32_t table)
{
    const struct model_shape *s = v->shape;
    uint64_t wide = (uint64_t)s->streams.n * s->hidden;
    uint64_t embedded = (uint64_t)s->ngram.n_heads * s->ngram.head_dim;
    int rc;

    matrix(v, wide, embedded);
    if ((rc = say(v, ROLE_NGRAM, "ple.key_proj.weight")) != 0)
        return rc;
    matrix(v, s->hidden, embedded);
    if ((rc = say(v, ROLE_NGRAM, "ple.value_proj.weight")) != 0)
        return rc;
    vector(v, wide);
    if ((rc = say_norm(v, "ple.", "norm_key")) != 0 ||
        (rc = say_norm(v, "ple.", "norm_query")) != 0 ||
        (rc = say_norm(v, "ple.", "norm_conv")) != 0)
        return rc;
    dims(v, 3, wide, 1, s->ngram.kernel);
    if ((rc = say(v, ROLE_NORM, "ple.conv1d.weight")) != 0)
        return rc;
    return each_table(v, table);
}

/* ---- experts ---- */

static int expert_tensor(struct visitor *v, enum expert_part part, const char *name,
                         const char *fused, uint64_t fused_rows, uint64_t rows_before)
{
    snprintf(v->fused, sizeof v->fused, "%smlp.experts.%s", v->at, fused);
    v->want.part = part;
    v->want.fused = v->fused;
    v->want.fused_rows = fused_rows;
    v->want.rows_before = rows_before;
    int rc = say(v, ROLE_EXPERT, "mlp.experts.%u.%s.weight", v->want.expert, name);
    v->want.fused = NULL;
    return rc;
}

static int each_routed(struct visitor *v)
{
    const struct model_shape *s = v->shape;
    uint64_t width = s->expert_width;
    int rc = 0;

    for (uint32_t e = 0; e < s->n_experts && rc == 0; e++) {
        v->want.expert = e;
        matrix(v, width, s->hidden);
        if ((rc = expert_tensor(v, PART_GATE, "gate_proj", "gate_up_proj", 2 * width, 0)) != 0 ||
            (rc = expert_tensor(v, PART_UP, "up_proj", "gate_up_proj", 2 * width, width)) != 0)
            break;
        matrix(v, s->hidden, width);
        rc = expert_tensor(v, PART_DOWN, "down_proj", "down_proj", s->hidden, 0);
    }
    v->want.expert = 0;
    v->want.part = PART_GATE;
    return rc;
}

static int each_experts(struct visitor *v)
{
    const struct model_shape *s = v->shape;
    int rc;

    matrix(v, s->n_experts, s->hidden);
    if ((rc = say(v, ROLE_ROUTER, "mlp.gate.weight")) != 0)
        return rc;
    matrix(v, s->shared_width, s->hidden);
    if ((rc = say(v, ROLE_SHARED, "mlp.shared_expert.gate_proj.weight")) != 0 ||
        (rc = say(v, ROLE_SHARED, "mlp.shared_expert.up_proj.weight")) != 0)
        return rc;
    matrix(v, s->hidden, s->shared_width);
    if ((rc = say(v, ROLE_SHARED, "mlp.shared_expert.down_proj.weight")) != 0)
        return rc;
    matrix(v, 1, s->hidden);
    if ((rc = say(v, ROLE_SHARED, "mlp.shared_expert_gate.weight")) != 0)
        return rc;
    return each_routed(v);
}

/* ---- layers ---- */

/* table: of n-grams; UINT32_MAX: none. */
static int each_layer(struct visitor *v, bool linear, uint32_t table)
{
    int rc;

    if (table != UINT32_MAX && (rc = each_ngram(v, table)) != 0)
        return rc;
    if ((rc = each_mixer(v, "attn_hyper_connection", true)) != 0 ||
        (rc = linear ? each_linear(v) : each_sparse(v)) != 0 ||
        (rc = each_mixer(v, "mlp_hyper_connection", true)) != 0)
        return rc;
    return each_experts(v);
}

static uint32_t table_of(const struct model_shape *s, uint32_t layer)
{
    for (uint32_t i = 0; i < s->ngram.n_tables; i++)
        if (s->ngram.layers[i] == layer)
            return i;
    return UINT32_MAX;
}

/* Layers that guess tokens ahead: each attends and has experts, as the model's own do. */
static int each_mtp(struct visitor *v)
{
    const struct model_shape *s = v->shape;
    int rc;

    if (s->unused.n_mtp_layers == 0)
        return 0;
    v->unused = true;
    v->want.prefix = NULL;
    snprintf(v->at, sizeof v->at, "mtp.");
    matrix(v, s->hidden, s->hidden);
    if ((rc = say(v, ROLE_MTP, "fc_embedding.weight")) != 0 ||
        (rc = say(v, ROLE_MTP, "fc_hidden.weight")) != 0)
        return rc;
    vector(v, s->hidden);
    if ((rc = say(v, ROLE_MTP, "pre_fc_norm_embedding.weight")) != 0)
        return rc;
    vector(v, (uint64_t)s->streams.n * s->hidden);
    if ((rc = say(v, ROLE_MTP, "pre_fc_norm_hidden.weight")) != 0 ||
        (rc = each_mixer(v, "hyper_connection_mixer", false)) != 0)
        return rc;
    for (uint32_t i = 0; i < s->unused.n_mtp_layers && rc == 0; i++) {
        snprintf(v->at, sizeof v->at, "mtp.layers.%u.", i);
        rc = each_layer(v, false, UINT32_MAX);
    }
    v->unused = false;
    return rc;
}

/* ---- vision ---- */

/* A projection with a bias. */
static int biased(struct visitor *v, const char *name, uint64_t rows, uint64_t cols)
{
    int rc;

    matrix(v, rows, cols);
    if ((rc = say(v, ROLE_VISION, "%s.weight", name)) != 0)
        return rc;
    vector(v, rows);
    return say(v, ROLE_VISION, "%s.bias", name);
}

static int normed(struct visitor *v, const char *name, uint64_t n)
{
    int rc;

    vector(v, n);
    if ((rc = say(v, ROLE_VISION, "%s.weight", name)) != 0)
        return rc;
    return say(v, ROLE_VISION, "%s.bias", name);
}

static int each_vision(struct visitor *v)
{
    const struct vision_shape *x = &v->shape->unused.vision;
    uint64_t hidden = x->hidden, merged = hidden * x->merge * x->merge;
    int rc;

    if (x->depth == 0)
        return 0;
    v->want.prefix = NULL;
    snprintf(v->at, sizeof v->at, "model.visual.");
    if ((rc = biased(v, "patch_embed.proj", hidden,
                     (uint64_t)x->channels * x->frames * x->patch_pixels)) != 0)
        return rc;
    matrix(v, x->positions, hidden);
    if ((rc = say(v, ROLE_VISION, "pos_embed.weight")) != 0 ||
        (rc = normed(v, "merger.norm", hidden)) != 0 ||
        (rc = biased(v, "merger.linear_fc1", merged, merged)) != 0 ||
        (rc = biased(v, "merger.linear_fc2", x->out, merged)) != 0)
        return rc;
    for (uint32_t i = 0; i < x->depth; i++) {
        snprintf(v->at, sizeof v->at, "model.visual.blocks.%u.", i);
        if ((rc = normed(v, "norm1", hidden)) != 0 || (rc = normed(v, "norm2", hidden)) != 0 ||
            (rc = biased(v, "attn.qkv", 3 * hidden, hidden)) != 0 ||
            (rc = biased(v, "attn.proj", hidden, hidden)) != 0 ||
            (rc = biased(v, "mlp.linear_fc1", x->width, hidden)) != 0 ||
            (rc = biased(v, "mlp.linear_fc2", hidden, x->width)) != 0)
            return rc;
    }
    return 0;
}

/* ---- all of it ---- */

int qwen4_exp_each_tensor(const struct model_shape *shape, want_visit *visit, void *ctx,
                          struct err *err)
{
    struct visitor v = {
        .visit = visit, .ctx = ctx, .err = err, .shape = shape,
        .prefix = shape->text_only ? text_prefix : whole_prefix,
        .other_prefix = shape->text_only ? whole_prefix : text_prefix,
    };
    int rc;

    v.want.prefix = v.prefix;
    v.want.other_prefix = v.other_prefix;
    snprintf(v.at, sizeof v.at, "%s", v.prefix);
    matrix(&v, shape->vocab, shape->hidden);
    if ((rc = say(&v, ROLE_EMBEDDING, "embed_tokens.weight")) != 0)
        return rc;
    for (uint32_t i = 0; i < shape->n_layers; i++) {
        v.want.layer = i;
        snprintf(v.at, sizeof v.at, "%slayers.%u.", v.prefix, i);
        if ((rc = each_layer(&v, shape->layer_is_linear[i], table_of(shape, i))) != 0)
            return rc;
    }
    v.want.layer = 0;
    snprintf(v.at, sizeof v.at, "%s", v.prefix);
    if ((rc = each_mixer(&v, "hyper_connection_mixer", false)) != 0)
        return rc;
    v.want.prefix = NULL;
    v.at[0] = '\0';
    matrix(&v, shape->vocab, shape->hidden);
    if ((rc = say(&v, ROLE_HEAD, "lm_head.weight")) != 0 || (rc = each_mtp(&v)) != 0)
        return rc;
    return each_vision(&v);
}
