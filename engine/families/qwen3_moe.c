/* qwen3_moe: the walk through a Qwen3 mixture-of-experts model.
 *
 * Per layer: x += attention(norm(x)); x += experts(norm(x)), or a dense block where the config
 * says so; then the head. Reference: Qwen3MoeForCausalLM of Hugging Face transformers. */
#include "families/qwen3_moe.h"

#include "blocks/ffn.h"
#include "blocks/gqa.h"
#include "blocks/head.h"
#include "blocks/kv_seq.h"
#include "blocks/moe.h"
#include "blocks/rope.h"
#include "blocks/step.h"
#include "kernels/kernels.h"
#include "store/kv_pool.h"
#include "store/resident.h"
#include "store/row_store.h"
#include "util/err.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct layer {
    const float *input_norm, *post_attention_norm; /* [hidden] */
    struct gqa_weights attention;
    struct matrix router;        /* mlp.gate.weight; MoE layers only */
    struct expert_weights dense; /* mlp.{gate,up,down}_proj; the others */
};

struct model {
    struct model_shape shape;
    struct gqa_shape gqa;
    struct moe_shape moe;
    struct rope rope;
    struct head head;
    struct layer *layers; /* owned; [n_layers] */
    struct kv_pool *kv;   /* borrowed */
    uint32_t context;
    struct kv_seq **step_seqs; /* owned; [cap_seqs] scratch of forward */
    uint32_t cap_seqs;
};

struct seq_state {
    struct kv_seq kv;
    struct model *model; /* borrowed */
};

/* ---- weights ---- */

static int layer_matrix(struct matrix *out, const struct resident *r, uint32_t layer,
                        const char *name, struct err *err)
{
    char full[128];

    snprintf(full, sizeof full, "model.layers.%" PRIu32 ".%s", layer, name);
    return resident_matrix(out, r, full, err);
}

static int layer_vector(const float **out, const struct resident *r, uint32_t layer,
                        const char *name, uint32_t n, struct err *err)
{
    char full[128];

    snprintf(full, sizeof full, "model.layers.%" PRIu32 ".%s", layer, name);
    return resident_vector(out, r, full, n, err);
}

static int find_layer(struct layer *l, const struct model_shape *s, uint32_t i,
                      const struct resident *r, struct err *err)
{
    struct gqa_weights *a = &l->attention;

    if (layer_vector(&l->input_norm, r, i, "input_layernorm.weight", s->hidden, err) < 0 ||
        layer_vector(&l->post_attention_norm, r, i, "post_attention_layernorm.weight", s->hidden,
                     err) < 0 ||
        layer_vector(&a->q_norm, r, i, "self_attn.q_norm.weight", s->head_dim, err) < 0 ||
        layer_vector(&a->k_norm, r, i, "self_attn.k_norm.weight", s->head_dim, err) < 0 ||
        layer_matrix(&a->q, r, i, "self_attn.q_proj.weight", err) < 0 ||
        layer_matrix(&a->k, r, i, "self_attn.k_proj.weight", err) < 0 ||
        layer_matrix(&a->v, r, i, "self_attn.v_proj.weight", err) < 0 ||
        layer_matrix(&a->o, r, i, "self_attn.o_proj.weight", err) < 0)
        return -1;
    if (s->layer_is_moe[i])
        return layer_matrix(&l->router, r, i, "mlp.gate.weight", err);
    if (layer_matrix(&l->dense.gate, r, i, "mlp.gate_proj.weight", err) < 0 ||
        layer_matrix(&l->dense.up, r, i, "mlp.up_proj.weight", err) < 0 ||
        layer_matrix(&l->dense.down, r, i, "mlp.down_proj.weight", err) < 0)
        return -1;
    return 0;
}

static int find_weights(struct model *m, const struct model_parts *parts, struct err *err)
{
    const struct model_shape *s = &m->shape;
    const struct resident *r = parts->resident;

    for (uint32_t i = 0; i < s->n_layers; i++)
        if (find_layer(&m->layers[i], s, i, r, err) < 0)
            return -1;
    if (resident_vector(&m->head.norm, r, "model.norm.weight", s->hidden, err) < 0)
        return -1;
    return resident_matrix(&m->head.weight, r,
                           s->tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
                           err);
}

static void model_close(struct model *m)
{
    if (!m)
        return;
    rope_close(&m->rope);
    free(m->step_seqs);
    free(m->layers);
    free(m);
}

static int model_open(struct model **out, const struct model_parts *parts, struct err *err)
{
    const struct model_shape *s = parts->shape;
    struct qwen3_moe_config config;
    struct model *m = calloc(1, sizeof *m);

    if (!m)
        return err_set(err, ERR_NOMEM, "the model's layer table");
    m->shape = *s;
    m->kv = parts->kv;
    m->context = parts->context;
    m->cap_seqs = parts->max_step_sequences;
    m->layers = calloc(s->n_layers, sizeof *m->layers);
    m->step_seqs = calloc(m->cap_seqs, sizeof *m->step_seqs);
    if (!m->layers || !m->step_seqs) {
        err_set(err, ERR_NOMEM, "the model's layer table");
        goto fail;
    }
    if (qwen3_moe_read_config(&config, parts->config, err) < 0)
        goto fail;

    m->gqa = (struct gqa_shape){
        .hidden = s->hidden,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .eps = config.rms_eps,
        .scale = 1.0f / sqrtf((float)s->head_dim),
    };
    m->moe = (struct moe_shape){
        .hidden = s->hidden,
        .width = s->expert_width,
        .n_experts = s->n_experts,
        .n_choices = s->experts_per_token,
        .normalise = config.norm_topk_prob,
    };
    m->head.eps = config.rms_eps;
    m->head.logit_rows = parts->logit_rows;
    if (rope_open(&m->rope, s->head_dim, config.rope_theta, config.yarn ? &config.rope_yarn : NULL,
                  err) < 0 ||
        find_weights(m, parts, err) < 0)
        goto fail;
    *out = m;
    return 0;

fail:
    model_close(m);
    return -1;
}

/* ---- sequences ---- */

static int seq_open(struct seq_state **out, struct model *m, struct err *err)
{
    struct seq_state *s = calloc(1, sizeof *s);

    if (!s)
        return err_set(err, ERR_NOMEM, "a sequence");
    s->model = m;
    if (kv_seq_open(&s->kv, m->kv, m->context, err) < 0) {
        free(s);
        return -1;
    }
    *out = s;
    return 0;
}

static void seq_close(struct seq_state *s)
{
    if (!s)
        return;
    kv_seq_close(&s->kv);
    free(s);
}

static int seq_reserve(struct seq_state *s, uint32_t n_tokens)
{
    return kv_seq_reserve(&s->kv, n_tokens);
}

static void seq_reset(struct seq_state *s)
{
    kv_seq_reset(&s->kv);
}

static uint32_t seq_rewind(struct seq_state *s, uint32_t n_tokens)
{
    kv_seq_cut(&s->kv, n_tokens);
    return n_tokens;
}

static struct kv_seq *seq_kv(struct seq_state *s)
{
    return &s->kv;
}

/* Where it was is all that must be known. */
static uint64_t seq_saved_size(const struct model *m)
{
    (void)m;
    return sizeof(uint32_t);
}

static void seq_save(const struct seq_state *s, void *to)
{
    memcpy(to, &s->kv.n_tokens, sizeof s->kv.n_tokens);
}

static int seq_load(struct seq_state *s, const void *from, struct err *err)
{
    uint32_t n_tokens;

    memcpy(&n_tokens, from, sizeof n_tokens);
    return kv_seq_return(&s->kv, n_tokens, err);
}

/* Keys and values past n_tokens are simply written again, so keeping fewer is a number. */
static int seq_settle(struct seq_state *s, uint32_t n_kept, struct err *err)
{
    (void)err;
    s->kv.n_tokens += n_kept;
    return 0;
}

/* ---- forward ---- */

static uint64_t scratch_size(const struct model_shape *s, uint32_t context, uint32_t n_rows,
                             uint32_t logit_rows, uint64_t *choices)
{
    struct gqa_shape gqa = { s->hidden, s->n_heads, s->n_kv_heads, s->head_dim, 0, 0 };
    struct moe_shape moe = { s->hidden, s->expert_width, s->n_experts, s->experts_per_token, false };
    uint64_t rows = arena_need((uint64_t)n_rows * s->hidden * sizeof(float));
    uint64_t kept = rows + 2 * arena_need((uint64_t)n_rows * (s->head_dim / 2) * sizeof(float));
    uint64_t attention = 2 * rows + gqa_scratch_size(&gqa, n_rows);
    uint64_t experts = rows, dense = rows, most;

    (void)context;
    *choices = 0;
    if (s->n_moe_layers)
        experts += moe_scratch_size(&moe, n_rows, choices);
    if (s->n_moe_layers < s->n_layers)
        dense += ffn_scratch_size(s->hidden, s->dense_width, n_rows);
    most = head_scratch_size(s->vocab, s->hidden, logit_rows);
    if (attention > most)
        most = attention;
    if (experts > most)
        most = experts;
    if (dense > most)
        most = dense;
    return kept + most;
}

static int begin(struct model *m, struct step *step, struct err *err)
{
    uint64_t mark = arena_mark(step->scratch);
    size_t half = m->shape.head_dim / 2, n = step->n_rows;

    step->hidden = arena_take(step->scratch, n * m->shape.hidden * sizeof *step->hidden);
    step->rope_cos = arena_take(step->scratch, n * half * sizeof *step->rope_cos);
    step->rope_sin = arena_take(step->scratch, n * half * sizeof *step->rope_sin);
    if (!step->hidden || !step->rope_cos || !step->rope_sin)
        return err_set(err, ERR_NOMEM, "scratch for a step of %zu rows", n);
    rope_fill(&m->rope, step);

    uint64_t ids_mark = arena_mark(step->scratch);
    uint64_t *ids = arena_take(step->scratch, n * sizeof *ids);
    if (!ids)
        return err_set(err, ERR_NOMEM, "scratch for a step of %zu rows", n);
    for (uint32_t r = 0; r < n; r++)
        ids[r] = step->rows[r].token;
    int rc = row_store_read(step->embedding, step->hidden, ids, step->n_rows, err);
    arena_back(step->scratch, rc < 0 ? mark : ids_mark);
    return rc < 0 ? err_within(err, "model.embed_tokens.weight") : 0;
}

static void drop_rows(struct model *m, struct step *step)
{
    size_t half = m->shape.head_dim / 2;
    float *const arrays[] = { step->hidden, step->rope_cos, step->rope_sin };
    const size_t widths[] = { m->shape.hidden, half, half };

    step_drop_rows(step, arrays, widths, 3);
}

static int run_layer(struct model *m, struct step *step, uint32_t i, struct err *err)
{
    const struct layer *l = &m->layers[i];
    size_t hidden = m->shape.hidden;
    uint64_t mark = arena_mark(step->scratch);
    float *normed = arena_take(step->scratch, step->n_rows * hidden * sizeof *normed);
    float *out = NULL;

    if (!normed)
        return err_set(err, ERR_NOMEM, "scratch of layer %" PRIu32, i);
    norm_rows(normed, step->hidden, l->input_norm, m->shape.hidden, m->gqa.eps, step);
    step_lap(step, PHASE_RESIDUAL);

    uint64_t attention_mark = arena_mark(step->scratch);
    out = arena_take(step->scratch, step->n_rows * hidden * sizeof *out);
    if (!out)
        return err_set(err, ERR_NOMEM, "scratch of layer %" PRIu32, i);
    if (gqa_forward(out, normed, &m->gqa, &l->attention, i, m->step_seqs, step, err) < 0)
        return -1;
    step_lap(step, PHASE_ATTENTION);
    step->kernels->add(step->hidden, out, step->n_rows * hidden);
    arena_back(step->scratch, attention_mark);

    norm_rows(normed, step->hidden, l->post_attention_norm, m->shape.hidden, m->gqa.eps, step);
    step_lap(step, PHASE_RESIDUAL);
    int rc = m->shape.layer_is_moe[i]
                 ? moe_forward(step->hidden, normed, &m->moe, &l->router, i, step, err)
                 : ffn_forward(step->hidden, normed, &l->dense, step, err);
    if (rc < 0)
        return err_within(err, "layer %" PRIu32, i);
    step_lap(step, PHASE_MOE);
    arena_back(step->scratch, mark);
    return 0;
}

static int forward(struct model *m, struct step *step, struct err *err)
{
    if (step->n_states > m->cap_seqs)
        return err_set(err, ERR_INPUT, "a step of %" PRIu32 " sequences", step->n_states);
    for (uint32_t i = 0; i < step->n_states; i++)
        m->step_seqs[i] = &step->states[i]->kv;
    step_begin_laps(step);
    if (!step->hidden && begin(m, step, err) < 0)
        return -1;
    step_lap(step, PHASE_EMBED);

    while (step->next_layer < m->shape.n_layers) {
        drop_rows(m, step);
        if (step->n_rows == 0)
            return err_set(err, ERR_CANCELLED, "nobody waits for this step");
        if (run_layer(m, step, step->next_layer, err) < 0)
            return -1;
        step->next_layer++;
        step->counters->layers++;
        if (step->pause && step->pause(step->pause_ctx))
            return 1;
    }
    drop_rows(m, step);
    int rc = head_forward(step->hidden, &m->head, step, err);
    step_lap(step, PHASE_HEAD);
    return rc;
}

const struct family qwen3_moe_family = {
    .model_type = "qwen3_moe",
    .read_shape = qwen3_moe_read_shape,
    .each_tensor = qwen3_moe_each_tensor,
    .scratch_size = scratch_size,
    .open = model_open,
    .close = model_close,
    .seq_open = seq_open,
    .seq_close = seq_close,
    .seq_reserve = seq_reserve,
    .seq_reset = seq_reset,
    .seq_rewind = seq_rewind,
    .seq_saved_size = seq_saved_size,
    .seq_save = seq_save,
    .seq_load = seq_load,
    .seq_kv = seq_kv,
    .forward = forward,
    .settle = seq_settle,
};
