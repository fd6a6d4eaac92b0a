/* qwen4_exp: what of the family is built. Configs, tensors and plans are; running is not. */
#include "families/qwen4_exp.h"

#include "util/arena.h"
#include "util/err.h"

struct model;
struct seq_state;
struct step;

static int not_built(struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED, "qwen4_exp: running it is not built yet");
}

static uint64_t floats(uint64_t n_rows, uint64_t n)
{
    return arena_need(n_rows * n * sizeof(float));
}

/* Of one step: streams and what is read out of them stay for a whole layer; of mixer, attention
 * or experts the largest. */
static uint64_t scratch_size(const struct model_shape *s, uint32_t n_rows, uint32_t logit_rows,
                             uint64_t *choices)
{
    const struct linear_shape *l = &s->linear;
    uint64_t wide = (uint64_t)s->streams.n * s->hidden;
    uint64_t values = (uint64_t)l->n_value_heads * l->value_dim;
    uint64_t linear = floats(n_rows, 4 * (uint64_t)l->n_key_heads * l->key_dim + 4 * values +
                                         2 * (uint64_t)l->n_value_heads);
    uint64_t sparse = floats(n_rows, 3 * (uint64_t)s->n_heads * s->head_dim +
                                         2 * (uint64_t)s->n_kv_heads * s->head_dim +
                                         ((uint64_t)s->index.n_heads + 1) * s->index.head_dim);
    uint64_t ngram = floats(n_rows, (uint64_t)s->ngram.n_heads * s->ngram.head_dim + 3 * wide);
    uint64_t kept = floats(n_rows, 2 * wide + 2 * (uint64_t)s->hidden + s->streams.rank +
                                       2 * s->streams.n + s->head_dim);
    uint64_t experts, head = floats(logit_rows, (uint64_t)s->vocab + s->hidden);
    uint64_t most = linear > sparse ? linear : sparse;

    *choices = floats(n_rows, (uint64_t)s->experts_per_token * s->hidden);
    experts = *choices + floats(n_rows, 3 * (uint64_t)s->expert_width +
                                            3 * (uint64_t)s->shared_width + s->n_experts +
                                            4 * (uint64_t)s->experts_per_token);
    most = ngram > most ? ngram : most;
    most = experts > most ? experts : most;
    return kept + (head > most ? head : most);
}

static int open_model(struct model **out, const struct model_parts *parts, struct err *err)
{
    (void)out, (void)parts;
    return not_built(err);
}

static void close_model(struct model *m)
{
    (void)m;
}

static int seq_open(struct seq_state **out, struct model *m, struct err *err)
{
    (void)out, (void)m;
    return not_built(err);
}

static void seq_close(struct seq_state *s)
{
    (void)s;
}

static int seq_reserve(struct seq_state *s, uint32_t n_tokens)
{
    (void)s, (void)n_tokens;
    return 0;
}

static void seq_reset(struct seq_state *s)
{
    (void)s;
}

static int forward(struct model *m, struct step *step, struct err *err)
{
    (void)m, (void)step;
    return not_built(err);
}

static int settle(struct seq_state *s, uint32_t n_kept, struct err *err)
{
    (void)s, (void)n_kept;
    return not_built(err);
}

const struct family qwen4_exp_family = {
    .model_type = "qwen4_exp",
    .text_type = "qwen4_exp_text",
    .read_shape = qwen4_exp_read_shape,
    .each_tensor = qwen4_exp_each_tensor,
    .scratch_size = scratch_size,
    .open = open_model,
    .close = close_model,
    .seq_open = seq_open,
    .seq_close = seq_close,
    .seq_reserve = seq_reserve,
    .seq_reset = seq_reset,
    .forward = forward,
    .settle = settle,
};
