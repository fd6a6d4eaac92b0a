/* The walk through a Qwen4-Exp model: every layer reads a vector out of the residual streams, lets
 * a mixer and then the experts answer, and writes each answer back. */
#include "families/qwen4_exp.h"
#include "families/qwen4_exp_model.h"

#include "blocks/ffn.h"
#include "blocks/step.h"
#include "kernels/kernels.h"
#include "store/kv_pool.h"
#include "store/row_store.h"
#include "util/err.h"
#include "util/pool.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static size_t wide(const struct model_shape *s)
{
    return (size_t)s->streams.n * s->hidden;
}

/* Values that a row's n-grams look up in one table. */
static size_t embedded(const struct model_shape *s)
{
    return (size_t)s->ngram.n_heads * s->ngram.head_dim;
}

/* ---- scratch ---- */

static uint64_t floats(uint64_t n_rows, uint64_t n)
{
    return arena_need(n_rows * n * sizeof(float));
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What the tables are asked, before the first layer. */
static uint64_t lookup_size(const struct model_shape *s, uint32_t n_rows)
{
    return arena_need((uint64_t)n_rows * most(s->ngram.n_heads, 1) * sizeof(uint64_t)) +
           arena_need(((uint64_t)n_rows + NGRAM_MAX_SIZE) * sizeof(uint32_t)) +
           floats(n_rows, most(embedded(s), s->hidden));
}

uint64_t qwen4_scratch_size(const struct model_shape *s, uint32_t context, uint32_t n_rows,
                            uint32_t logit_rows, uint64_t *choices)
{
    /* Sizes do not depend on what only the config says. */
    static const struct qwen4_exp_config any = { 0 };
    struct qwen4_shapes of;
    uint64_t vector = floats(n_rows, s->hidden), block, work;

    qwen4_shapes(&of, s, &any);
    uint64_t kept = floats(n_rows, wide(s)) + 2 * floats(n_rows, (s->head_dim + 1) / 2) +
                    floats(n_rows, (uint64_t)s->ngram.n_tables * embedded(s));
    uint64_t in_layer = 2 * vector + floats(n_rows, s->streams.n);
    block = most(gdn_scratch_size(&of.gdn, n_rows, n_rows),
                 qsa_scratch_size(&of.qsa, n_rows, context));
    block = most(block, moe_scratch_size(&of.moe, n_rows, choices));
    block = most(block, vector + floats(n_rows, 1) +
                            ffn_scratch_size(s->hidden, s->shared_width, n_rows));
    block = most(block, hyper_scratch_size(&of.hyper, n_rows));
    work = in_layer + block;
    work = most(work, floats(n_rows, embedded(s)) + ple_scratch_size(&of.ple, n_rows));
    work = most(work, vector + head_scratch_size(s->vocab, s->hidden, logit_rows));
    work = most(work, lookup_size(s, n_rows));
    return kept + work;
}

/* ---- before the first layer ---- */

static int no_scratch(struct err *err, const struct step *step)
{
    return err_set(err, ERR_NOMEM, "scratch for a step of %" PRIu32 " rows", step->n_rows);
}

/* The token embedding, into every stream. */
static int begin_streams(const struct model *m, struct step *step, struct err *err)
{
    uint64_t mark = arena_mark(step->scratch);
    uint64_t *ids = arena_take(step->scratch, step->n_rows * sizeof *ids);
    float *rows = arena_take(step->scratch, (uint64_t)step->n_rows * m->shape.hidden * sizeof *rows);

    if (!ids || !rows)
        return no_scratch(err, step);
    for (uint32_t r = 0; r < step->n_rows; r++)
        ids[r] = step->rows[r].token;
    if (row_store_read(step->embedding, rows, ids, step->n_rows, err) < 0)
        return err_within(err, "embed_tokens.weight");
    hyper_begin(step->hidden, rows, &m->of.hyper, step);
    arena_back(step->scratch, mark);
    return 0;
}

/* The token at `at`, with those before it. */
static void count_ngrams(struct step_counters *c, const struct ngram *ngram,
                         const uint32_t *tokens, uint32_t at)
{
    bool cut = false;

    for (uint32_t back = 1; back < ngram->shape.size && back <= at; back++)
        cut = cut || tokens[at - back] == ngram->shape.end;
    c->ngram_starts += at + 1 < ngram->shape.size;
    c->ngram_cuts += cut;
    c->ngram_ends += tokens[at] == ngram->shape.end;
}

/* Rows of one table for all of the step's tokens; tokens has room for a sequence's rows and what
 * stood before them. */
static void look_up(uint64_t *ids, const struct ngram *ngram, uint32_t *tokens,
                    const struct step *step)
{
    for (uint32_t i = 0; i < step->n_states; i++) {
        const struct seq_state *s = step->states[i];
        struct row_span span = step_rows_of(step, i);
        memcpy(tokens, s->past, s->n_past * sizeof *tokens);
        for (uint32_t r = 0; r < span.n; r++) {
            tokens[s->n_past + r] = step->rows[span.first + r].token;
            ngram_rows(ids + (uint64_t)(span.first + r) * ngram->n_heads, ngram, tokens,
                       s->n_past + r);
            count_ngrams(step->counters, ngram, tokens, s->n_past + r);
        }
    }
}

/* All of the tables' rows that the step will want, known before it begins. */
static int begin_tables(const struct model *m, struct step *step, struct err *err)
{
    const struct table_shape *t = &m->shape.ngram;
    uint64_t mark = arena_mark(step->scratch);
    size_t one = embedded(&m->shape), all = t->n_tables * one;
    uint64_t *ids = arena_take(step->scratch, (uint64_t)step->n_rows * t->n_heads * sizeof *ids);
    uint32_t *tokens = arena_take(step->scratch,
                                  (step->n_rows + (uint64_t)NGRAM_MAX_SIZE) * sizeof *tokens);
    float *rows = arena_take(step->scratch, step->n_rows * one * sizeof *rows);

    if (!ids || !tokens || !rows)
        return no_scratch(err, step);
    for (uint32_t i = 0; i < t->n_tables; i++) {
        look_up(ids, &m->ngrams[i], tokens, step);
        if (row_store_read(m->tables[i], rows, ids, step->n_rows * t->n_heads, err) < 0)
            return err_within(err, "n-gram table of layer %" PRIu32, t->layers[i]);
        for (uint32_t r = 0; r < step->n_rows; r++)
            memcpy(step->embedded + r * all + i * one, rows + r * one, one * sizeof *rows);
    }
    arena_back(step->scratch, mark);
    return 0;
}

/* What the next step's n-grams will look back at, if this one is kept. */
static void note_tokens(const struct model *m, struct step *step)
{
    uint32_t reach = m->shape.ngram.n_tables ? m->shape.ngram.order - 1 : 0;

    for (uint32_t i = 0; i < step->n_states; i++) {
        struct seq_state *s = step->states[i];
        struct row_span span = step_rows_of(step, i);
        uint32_t have = s->n_past + span.n;
        s->n_rows = span.n;
        s->n_next = have < reach ? have : reach;
        for (uint32_t k = 0; k < s->n_next; k++) {
            uint32_t at = have - s->n_next + k;
            s->next_past[k] = at < s->n_past ? s->past[at]
                                             : step->rows[span.first + at - s->n_past].token;
        }
    }
}

static int begin(struct model *m, struct step *step, struct err *err)
{
    uint64_t mark = arena_mark(step->scratch);
    size_t half = m->of.qsa.rotated / 2, n = step->n_rows;
    size_t tables = m->shape.ngram.n_tables * embedded(&m->shape);

    step->hidden = arena_take(step->scratch, n * wide(&m->shape) * sizeof *step->hidden);
    step->rope_cos = arena_take(step->scratch, n * half * sizeof *step->rope_cos);
    step->rope_sin = arena_take(step->scratch, n * half * sizeof *step->rope_sin);
    step->embedded = arena_take(step->scratch, n * tables * sizeof *step->embedded);
    if (!step->hidden || !step->rope_cos || !step->rope_sin || !step->embedded) {
        step->hidden = NULL;
        return no_scratch(err, step);
    }
    note_tokens(m, step);
    rope_fill(&m->rope, step);
    if ((m->shape.ngram.n_tables && begin_tables(m, step, err) < 0) ||
        begin_streams(m, step, err) < 0) {
        arena_back(step->scratch, mark);
        return -1;
    }
    return 0;
}

static void drop_rows(const struct model *m, struct step *step)
{
    size_t half = m->of.qsa.rotated / 2;
    float *const arrays[] = { step->hidden, step->rope_cos, step->rope_sin, step->embedded };
    const size_t widths[] = { wide(&m->shape), half, half,
                              m->shape.ngram.n_tables * embedded(&m->shape) };

    step_drop_rows(step, arrays, widths, 4);
}

/* ---- a layer ---- */

static const char *state_of(const struct seq_state *s, bool next)
{
    return s->states.base + (next ? !s->now : s->now) * s->model->shape.recurrent_floats *
                                sizeof(float);
}

static int run_ple(struct model *m, struct step *step, const struct qwen4_layer *l, struct err *err)
{
    size_t one = embedded(&m->shape), all = m->shape.ngram.n_tables * one;
    uint64_t mark = arena_mark(step->scratch), at = qwen4_ple_offset(m, l->table);
    float *rows = arena_take(step->scratch, step->n_rows * one * sizeof *rows);

    if (!rows)
        return no_scratch(err, step);
    for (uint32_t r = 0; r < step->n_rows; r++)
        memcpy(rows + r * one, step->embedded + r * all + l->table * one, one * sizeof *rows);
    for (uint32_t i = 0; i < step->n_states; i++)
        m->ple_pasts[i] = (struct conv_past){
            (const float *)(const void *)(state_of(step->states[i], false) + at),
            (float *)(uintptr_t)(state_of(step->states[i], true) + at),
        };
    if (ple_forward(step->hidden, rows, &m->of.ple, &l->ple, m->ple_pasts, step, err) < 0)
        return -1;
    arena_back(step->scratch, mark);
    return 0;
}

static int run_gdn(struct model *m, struct step *step, const struct qwen4_layer *l, float *out,
                   const float *in, struct err *err)
{
    uint64_t at = qwen4_gdn_offset(m, l->nth);

    for (uint32_t i = 0; i < step->n_states; i++)
        m->gdn_states[i] = (struct gdn_state){
            (const float *)(const void *)(state_of(step->states[i], false) + at),
            (float *)(uintptr_t)(state_of(step->states[i], true) + at),
        };
    return gdn_forward(out, in, &m->of.gdn, &l->gdn, m->gdn_states, step, err);
}

static int run_qsa(struct model *m, struct step *step, const struct qwen4_layer *l, float *out,
                   const float *in, struct err *err)
{
    struct qsa_layout layout = {
        .dtype = kv_pool_dtype(m->kv), .page_tokens = KV_PAGE_TOKENS,
        .k = kv_pool_k_offset(m->kv, l->nth, 0), .v = kv_pool_v_offset(m->kv, l->nth, 0),
        .index = kv_pool_index_offset(m->kv, l->nth), .blocks = kv_pool_block_offset(m->kv, l->nth),
    };

    for (uint32_t i = 0; i < step->n_states; i++)
        m->pages[i] = step->states[i]->kv.pages;
    return qsa_forward(out, in, &m->of.qsa, &l->qsa, &layout, m->pages, &m->rope, step,
                       err);
}

struct gate_job {
    const struct kernels *kernels;
    float *out;
    const float *shared, *gate;
    size_t hidden;
};

static void add_shared(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct gate_job *job = ctx;

    (void)thread;
    for (uint32_t r = begin; r < end; r++)
        job->kernels->add_scaled(job->out + r * job->hidden, job->shared + r * job->hidden,
                                 1.0f / (1.0f + expf(-job->gate[r])), job->hidden);
}

/* out = routed experts + sigmoid(gate) * the shared one. */
static int run_experts(struct model *m, struct step *step, uint32_t i, float *out, const float *in,
                       struct err *err)
{
    const struct qwen4_layer *l = &m->layers[i];
    size_t hidden = m->shape.hidden, n = step->n_rows;
    uint64_t mark = arena_mark(step->scratch);

    memset(out, 0, n * hidden * sizeof *out);
    if (moe_forward(out, in, &m->of.moe, &l->router, i, step, err) < 0)
        return -1;
    float *shared = arena_take(step->scratch, n * hidden * sizeof *shared);
    float *gate = arena_take(step->scratch, n * sizeof *gate);
    if (!shared || !gate)
        return no_scratch(err, step);
    memset(shared, 0, n * hidden * sizeof *shared);
    if (ffn_forward(shared, in, &l->shared, step, err) < 0)
        return -1;
    matmul_pooled(step->kernels, step->pool, gate, 1, in, hidden, step->n_rows, &l->shared_gate);
    struct gate_job job = { step->kernels, out, shared, gate, hidden };
    pool_run(step->pool, add_shared, &job, step->n_rows, 8);
    arena_back(step->scratch, mark);
    return 0;
}

static int run_layer(struct model *m, struct step *step, uint32_t i, struct err *err)
{
    const struct qwen4_layer *l = &m->layers[i];
    uint64_t mark = arena_mark(step->scratch), n = step->n_rows;

    if (l->table != QWEN4_NO_TABLE && run_ple(m, step, l, err) < 0)
        return -1;
    step_lap(step, PHASE_PLE);
    float *in = arena_take(step->scratch, n * m->shape.hidden * sizeof *in);
    float *out = arena_take(step->scratch, n * m->shape.hidden * sizeof *out);
    float *inject = arena_take(step->scratch, n * m->shape.streams.n * sizeof *inject);
    if (!in || !out || !inject)
        return no_scratch(err, step);

    if (hyper_read(in, inject, step->hidden, &m->of.hyper, &l->before_mixer, step, err) < 0)
        return -1;
    step_lap(step, PHASE_RESIDUAL);
    int rc = m->shape.layer_is_linear[i] ? run_gdn(m, step, l, out, in, err)
                                         : run_qsa(m, step, l, out, in, err);
    if (rc < 0)
        return -1;
    step_lap(step, m->shape.layer_is_linear[i] ? PHASE_GDN : PHASE_QSA);
    hyper_write(step->hidden, out, inject, &m->of.hyper, step);

    if (hyper_read(in, inject, step->hidden, &m->of.hyper, &l->before_experts, step, err) < 0)
        return -1;
    step_lap(step, PHASE_RESIDUAL);
    if (run_experts(m, step, i, out, in, err) < 0)
        return -1;
    step_lap(step, PHASE_MOE);
    hyper_write(step->hidden, out, inject, &m->of.hyper, step);
    step_lap(step, PHASE_RESIDUAL);
    arena_back(step->scratch, mark);
    return 0;
}

/* ---- all of it ---- */

static int run_head(struct model *m, struct step *step, struct err *err)
{
    uint64_t mark = arena_mark(step->scratch);
    float *out = arena_take(step->scratch, (uint64_t)step->n_rows * m->shape.hidden * sizeof *out);

    if (!out)
        return no_scratch(err, step);
    if (hyper_read(out, NULL, step->hidden, &m->of.hyper, &m->before_head, step, err) < 0)
        return -1;
    step_lap(step, PHASE_RESIDUAL);
    if (head_forward(out, &m->head, step, err) < 0)
        return -1;
    step_lap(step, PHASE_HEAD);
    arena_back(step->scratch, mark);
    return 0;
}

int qwen4_forward(struct model *m, struct step *step, struct err *err)
{
    if (step->n_states > m->cap_seqs)
        return err_set(err, ERR_INPUT, "a step of %" PRIu32 " sequences", step->n_states);
    step_begin_laps(step);
    if (!step->hidden && begin(m, step, err) < 0)
        return -1;
    step_lap(step, PHASE_EMBED);
    while (step->next_layer < m->shape.n_layers) {
        drop_rows(m, step);
        if (step->n_rows == 0)
            return err_set(err, ERR_CANCELLED, "nobody waits for this step");
        if (run_layer(m, step, step->next_layer, err) < 0)
            return err_within(err, "layer %" PRIu32, step->next_layer);
        step->next_layer++;
        step->counters->layers++;
        if (step->pause && step->pause(step->pause_ctx))
            return 1;
    }
    drop_rows(m, step);
    return run_head(m, step, err);
}
