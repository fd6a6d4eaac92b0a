/* qwen4_exp: opening a model, and the states of its sequences. */
#include "families/qwen4_exp.h"
#include "families/qwen4_exp_model.h"

#include "blocks/conv.h"
#include "blocks/step.h"
#include "families/qwen4_exp_config.h"
#include "store/kv_pool.h"
#include "util/err.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)QWEN4_MAX_TAPS <= (int)CONV_MAX_TAPS, "what a config may say, blocks can do");

void qwen4_shapes(struct qwen4_shapes *out, const struct model_shape *s,
                  const struct qwen4_exp_config *c)
{
    const struct linear_shape *l = &s->linear;
    uint32_t ratio = s->index.ratio ? s->index.ratio : 1;

    *out = (struct qwen4_shapes){
        .hyper = { s->hidden, s->streams.n, s->streams.rank, c->rms_eps },
        .gdn = { s->hidden, l->n_key_heads, l->n_value_heads, l->key_dim, l->value_dim, l->kernel,
                 c->rms_eps, c->gate_is_silu },
        .qsa = { s->hidden, s->n_heads, s->n_kv_heads, s->head_dim, c->rotary_dim,
                 s->index.n_heads, s->index.head_dim, ratio, s->index.budget / ratio, c->rms_eps,
                 false },
        .ple = { s->hidden, s->streams.n, s->ngram.n_heads * s->ngram.head_dim, s->ngram.kernel,
                 s->ngram.order, c->rms_eps },
        .moe = { s->hidden, s->expert_width, s->n_experts, s->experts_per_token,
                 c->norm_topk_prob },
    };
}

uint64_t qwen4_gdn_offset(const struct model *m, uint32_t nth)
{
    return nth * gdn_state_size(&m->of.gdn);
}

uint64_t qwen4_ple_offset(const struct model *m, uint32_t table)
{
    return m->shape.n_linear_layers * gdn_state_size(&m->of.gdn) +
           table * ple_past(&m->of.ple) * sizeof(float);
}

/* ---- the model ---- */

static void close_model(struct model *m)
{
    if (!m)
        return;
    rope_close(&m->rope);
    free(m->gdn_states);
    free(m->ple_pasts);
    free(m->pages);
    free(m->layers);
    free(m);
}

static int check_blocks(const struct model_shape *s, struct err *err)
{
    if (s->n_linear_layers < s->n_layers && s->index.ratio == 0)
        return err_set(err, ERR_UNSUPPORTED, "qwen4_exp: attention without an indexer is not built: "
                                             "the 'indexer_...' keys are missing");
    return 0;
}

/* The n-gram tables' constants: each is the same as computed, or the table is another one. */
static int check_constant(const struct json *config, const struct tensor_want *want,
                          const int64_t *values, struct err *err)
{
    struct qwen4_exp_config c;
    struct model_shape s;
    struct ngram n;
    uint32_t table = 0;

    if (qwen4_exp_read_config(&c, config, NULL, err) < 0 ||
        qwen4_exp_read_shape(&s, NULL, config, err) < 0)
        return -1;
    while (table + 1 < s.ngram.n_tables && s.ngram.layers[table] != want->layer)
        table++;
    if (qwen4_exp_ngram(&n, &c, s.vocab, table, err) < 0)
        return -1;
    const uint64_t *computed = strstr(want->name, "layer_multipliers") ? n.multipliers
                               : strstr(want->name, "vocab_sizes")     ? n.sizes
                                                                       : n.offsets;
    for (uint64_t i = 0; i < want->dims[0]; i++)
        if ((uint64_t)values[i] != computed[i])
            return err_set(err, ERR_FORMAT, "tensor '%s': element %" PRIu64 " is %" PRId64 ", but "
                           "config.json makes it %" PRIu64 ": they belong to different checkpoints",
                           want->name, i, values[i], computed[i]);
    return 0;
}

static int take_tables(struct model *m, const struct qwen4_exp_config *c, struct err *err)
{
    m->gdn_states = calloc(m->cap_seqs, sizeof *m->gdn_states);
    m->ple_pasts = calloc(m->cap_seqs, sizeof *m->ple_pasts);
    m->pages = calloc(m->cap_seqs, sizeof *m->pages);
    m->layers = calloc(m->shape.n_layers, sizeof *m->layers);
    if (!m->gdn_states || !m->ple_pasts || !m->pages || !m->layers)
        return err_set(err, ERR_NOMEM, "the model's layer table");
    for (uint32_t i = 0; i < m->shape.ngram.n_tables; i++)
        if (qwen4_exp_ngram(&m->ngrams[i], c, m->shape.vocab, i, err) < 0)
            return -1;
    return 0;
}

static int open_model(struct model **out, const struct model_parts *parts, struct err *err)
{
    struct qwen4_exp_config c;
    struct model *m = calloc(1, sizeof *m);

    if (!m)
        return err_set(err, ERR_NOMEM, "the model's layer table");
    m->shape = *parts->shape;
    m->kv = parts->kv;
    m->tables = parts->tables;
    m->context = parts->context;
    m->cap_seqs = parts->max_step_sequences;
    if (check_blocks(&m->shape, err) < 0 || qwen4_exp_read_config(&c, parts->config, NULL, err) < 0)
        goto fail;
    qwen4_shapes(&m->of, &m->shape, &c);
    m->head.logit_rows = parts->logit_rows;
    if (rope_open(&m->rope, c.rotary_dim, c.rope_theta, NULL, err) < 0 ||
        take_tables(m, &c, err) < 0 || qwen4_find_weights(m, parts, err) < 0)
        goto fail;
    *out = m;
    return 0;

fail:
    close_model(m);
    return -1;
}

/* ---- sequences ---- */

static uint64_t state_bytes(const struct model *m)
{
    return m->shape.recurrent_floats * sizeof(float);
}

static void seq_close(struct seq_state *s)
{
    if (!s)
        return;
    kv_seq_close(&s->kv);
    region_close(&s->states);
    free(s);
}

static int seq_open(struct seq_state **out, struct model *m, struct err *err)
{
    struct seq_state *s = calloc(1, sizeof *s);

    if (!s)
        return err_set(err, ERR_NOMEM, "a sequence");
    s->model = m;
    if ((state_bytes(m) && region_open(&s->states, 2 * state_bytes(m), REGION_HUGE, err) < 0) ||
        kv_seq_open(&s->kv, m->kv, m->context, err) < 0) {
        seq_close(s);
        return err_within(err, "the state of a sequence");
    }
    *out = s;
    return 0;
}

static int seq_reserve(struct seq_state *s, uint32_t n_tokens)
{
    return kv_seq_reserve(&s->kv, n_tokens);
}

static char *state_now(const struct seq_state *s)
{
    return s->states.base + s->now * state_bytes(s->model);
}

/* As it began: zeros, which a state that was never kept still is. */
static void forget(struct seq_state *s)
{
    if ((s->kv.n_tokens > 0 || s->lent) && state_bytes(s->model))
        memset(state_now(s), 0, state_bytes(s->model));
    s->n_past = 0;
    s->n_rows = 0;
    s->lent = false;
}

static void seq_reset(struct seq_state *s)
{
    forget(s);
    kv_seq_reset(&s->kv);
}

/* A recurrence cannot be run backwards: that is what points are saved for. */
static uint32_t seq_rewind(struct seq_state *s, uint32_t n_tokens)
{
    if (n_tokens >= s->kv.n_tokens)
        return s->kv.n_tokens;
    forget(s);
    s->kv.n_tokens = 0;
    return 0;
}

static uint64_t seq_saved_size(const struct model *m)
{
    return sizeof(struct qwen4_saved) + state_bytes(m);
}

/* `to` may lie in the sequence's own states. */
static void seq_save(const struct seq_state *s, void *to)
{
    struct qwen4_saved point = { .n_tokens = s->kv.n_tokens, .n_past = s->n_past };

    memcpy(point.past, s->past, sizeof point.past);
    if (state_bytes(s->model))
        memmove((char *)to + sizeof point, state_now(s), state_bytes(s->model));
    memcpy(to, &point, sizeof point);
}

static int seq_load(struct seq_state *s, const void *from, struct err *err)
{
    struct qwen4_saved point;

    memcpy(&point, from, sizeof point);
    if (kv_seq_return(&s->kv, point.n_tokens, err) < 0)
        return -1;
    s->n_rows = 0;
    s->n_past = point.n_past;
    memcpy(s->past, point.past, sizeof s->past);
    if (state_bytes(s->model))
        memmove(state_now(s), (const char *)from + sizeof point, state_bytes(s->model));
    return 0;
}

/* The two states of a sequence that does not run have room for one and the few bytes more. */
static void *seq_spare(struct seq_state *s)
{
    if (s->states.size < seq_saved_size(s->model) || s->kv.n_tokens > 0)
        return NULL;
    s->lent = true;
    s->now = 0; /* what is lent begins with the state that forget clears */
    return s->states.base;
}

static void *seq_retire(struct seq_state *s)
{
    if (s->states.size < seq_saved_size(s->model))
        return NULL;
    seq_save(s, s->states.base);
    kv_seq_reset(&s->kv);
    s->n_past = 0;
    s->n_rows = 0;
    return seq_spare(s);
}

static struct kv_seq *seq_kv(struct seq_state *s)
{
    return &s->kv;
}

static int settle(struct seq_state *s, uint32_t n_kept, struct err *err)
{
    uint32_t n_rows = s->n_rows;

    s->n_rows = 0;
    if (n_kept == 0)
        return 0;
    if (n_kept != n_rows)
        return err_set(err, ERR_UNSUPPORTED, "qwen4_exp: keeping %" PRIu32 " of a step's %" PRIu32
                       " rows is not built", n_kept, n_rows);
    s->now = !s->now;
    s->n_past = s->n_next;
    memcpy(s->past, s->next_past, sizeof s->past);
    s->kv.n_tokens += n_kept;
    return 0;
}

const struct family qwen4_exp_family = {
    .model_type = "qwen4_exp",
    .text_type = "qwen4_exp_text",
    .read_shape = qwen4_exp_read_shape,
    .each_tensor = qwen4_exp_each_tensor,
    .check_constant = check_constant,
    .scratch_size = qwen4_scratch_size,
    .open = open_model,
    .close = close_model,
    .seq_open = seq_open,
    .seq_close = seq_close,
    .seq_reserve = seq_reserve,
    .seq_reset = seq_reset,
    .seq_rewind = seq_rewind,
    .seq_saved_size = seq_saved_size,
    .seq_save = seq_save,
    .seq_load = seq_load,
    .seq_spare = seq_spare,
    .seq_retire = seq_retire,
    .seq_kv = seq_kv,
    .forward = qwen4_forward,
    .settle = settle,
};
