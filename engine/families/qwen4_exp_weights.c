/* The weights of a Qwen4-Exp model by their names. */
#include "families/qwen4_exp.h"
#include "families/qwen4_exp_model.h"
#include "store/resident.h"
#include "util/err.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* Where one looks, and what has gone wrong so far: further lookups do nothing. */
struct finder {
    const struct resident *resident;
    struct err *err;
    char at[96]; /* beginning of the names */
    int rc;
};

static void matrix(struct finder *f, struct matrix *out, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void vector(struct finder *f, const float **out, uint64_t n, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void name_it(char *name, size_t cap, const struct finder *f, const char *fmt, va_list args)
{
    int n = snprintf(name, cap, "%s", f->at);

    vsnprintf(name + n, cap - (size_t)n, fmt, args);
}

static void matrix(struct finder *f, struct matrix *out, const char *fmt, ...)
{
    char name[192];
    va_list args;

    va_start(args, fmt);
    name_it(name, sizeof name, f, fmt, args);
    va_end(args);
    if (f->rc == 0)
        f->rc = resident_matrix(out, f->resident, name, f->err);
}

static void vector(struct finder *f, const float **out, uint64_t n, const char *fmt, ...)
{
    char name[192];
    va_list args;

    va_start(args, fmt);
    name_it(name, sizeof name, f, fmt, args);
    va_end(args);
    if (f->rc == 0)
        f->rc = resident_vector(out, f->resident, name, n, f->err);
}

static void find_hyper(struct finder *f, struct hyper_weights *w, const struct model_shape *s,
                       const char *name, bool injects)
{
    vector(f, &w->norm, (uint64_t)s->streams.n * s->hidden, "%s.hc_norm.weight", name);
    matrix(f, &w->down, "%s.input_mix_weight_down.weight", name);
    matrix(f, &w->up, "%s.input_mix_weight_up.weight", name);
    if (injects)
        matrix(f, &w->inject, "%s.block_inject_weight.weight", name);
}

static void find_gdn(struct finder *f, struct gdn_weights *w, const struct gdn_shape *s)
{
    matrix(f, &w->qkv, "linear_attn.in_proj_qkv.weight");
    matrix(f, &w->z, "linear_attn.in_proj_z.weight");
    matrix(f, &w->b, "linear_attn.in_proj_b.weight");
    matrix(f, &w->a, "linear_attn.in_proj_a.weight");
    matrix(f, &w->out, "linear_attn.out_proj.weight");
    vector(f, &w->taps, (uint64_t)gdn_channels(s) * s->conv, "linear_attn.conv1d.weight");
    vector(f, &w->dt_bias, s->n_value_heads, "linear_attn.dt_bias");
    vector(f, &w->a_log, s->n_value_heads, "linear_attn.A_log");
    vector(f, &w->norm, s->value_dim, "linear_attn.norm.weight");
}

static void find_qsa(struct finder *f, struct qsa_weights *w, const struct qsa_shape *s)
{
    matrix(f, &w->q, "self_attn.q_proj.weight");
    matrix(f, &w->k, "self_attn.k_proj.weight");
    matrix(f, &w->v, "self_attn.v_proj.weight");
    matrix(f, &w->o, "self_attn.o_proj.weight");
    matrix(f, &w->index, "self_attn.indexer.index_qk_proj.weight");
    vector(f, &w->q_norm, s->head_dim, "self_attn.q_norm.weight");
    vector(f, &w->k_norm, s->head_dim, "self_attn.k_norm.weight");
    vector(f, &w->index_q_norm, s->index_dim, "self_attn.indexer.q_layernorm.weight");
    vector(f, &w->index_k_norm, s->index_dim, "self_attn.indexer.k_layernorm.weight");
}

static void find_ple(struct finder *f, struct ple_weights *w, const struct ple_shape *s)
{
    uint64_t wide = (uint64_t)s->n_streams * s->hidden;

    matrix(f, &w->key, "ple.key_proj.weight");
    matrix(f, &w->value, "ple.value_proj.weight");
    vector(f, &w->norm_key, wide, "ple.norm_key.weight");
    vector(f, &w->norm_query, wide, "ple.norm_query.weight");
    vector(f, &w->norm_conv, wide, "ple.norm_conv.weight");
    vector(f, &w->taps, wide * s->n_taps, "ple.conv1d.weight");
}

static void find_layer(struct finder *f, struct qwen4_layer *l, const struct model *m, bool linear)
{
    find_hyper(f, &l->before_mixer, &m->shape, "attn_hyper_connection", true);
    find_hyper(f, &l->before_experts, &m->shape, "mlp_hyper_connection", true);
    if (linear)
        find_gdn(f, &l->gdn, &m->of.gdn);
    else
        find_qsa(f, &l->qsa, &m->of.qsa);
    if (l->table != QWEN4_NO_TABLE)
        find_ple(f, &l->ple, &m->of.ple);
    matrix(f, &l->router, "mlp.gate.weight");
    matrix(f, &l->shared.gate, "mlp.shared_expert.gate_proj.weight");
    matrix(f, &l->shared.up, "mlp.shared_expert.up_proj.weight");
    matrix(f, &l->shared.down, "mlp.shared_expert.down_proj.weight");
    matrix(f, &l->shared_gate, "mlp.shared_expert_gate.weight");
}

int qwen4_find_weights(struct model *m, const struct model_parts *parts, struct err *err)
{
    const char *prefix = m->shape.text_only ? "model." : "model.language_model.";
    struct finder f = { .resident = parts->resident, .err = err };
    uint32_t n_linear = 0, n_attending = 0, table = 0;

    for (uint32_t i = 0; i < m->shape.n_layers; i++) {
        struct qwen4_layer *l = &m->layers[i];
        bool linear = m->shape.layer_is_linear[i];
        l->nth = linear ? n_linear++ : n_attending++;
        l->table = QWEN4_NO_TABLE;
        if (table < m->shape.ngram.n_tables && m->shape.ngram.layers[table] == i)
            l->table = table++;
        snprintf(f.at, sizeof f.at, "%slayers.%" PRIu32 ".", prefix, i);
        find_layer(&f, l, m, linear);
    }
    snprintf(f.at, sizeof f.at, "%s", prefix);
    find_hyper(&f, &m->before_head, &m->shape, "hyper_connection_mixer", false);
    f.at[0] = '\0';
    matrix(&f, &m->head.weight, "lm_head.weight");
    return f.rc;
}
