#include "blocks/gdn.h"

#include "blocks/conv.h"
#include "blocks/step.h"
#include "kernels/kernels.h"
#include "util/err.h"
#include "util/pool.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Inside the root, whatever "rms_norm_eps" is. */
static const float L2_EPS = 1e-6f;

struct gdn_job {
    const struct gdn_shape *s;
    const struct gdn_weights *w;
    const struct gdn_state *states;
    const struct step *step;
    float *mixed;      /* [n_rows, channels] behind the convolution; q and k normed later */
    const float *z;    /* [n_rows, n_value_heads * value_dim] */
    float *a, *b;      /* [n_rows, n_value_heads]: then decay and beta */
    float *heads;      /* [n_rows, n_value_heads * value_dim] */
};

static size_t key_width(const struct gdn_shape *s)
{
    return (size_t)s->n_key_heads * s->key_dim;
}

static size_t value_width(const struct gdn_shape *s)
{
    return (size_t)s->n_value_heads * s->value_dim;
}

static size_t matrices(const struct gdn_shape *s)
{
    return (size_t)s->n_value_heads * s->key_dim * s->value_dim;
}

uint64_t gdn_state_size(const struct gdn_shape *s)
{
    return (matrices(s) + (uint64_t)(s->conv - 1) * gdn_channels(s)) * sizeof(float);
}

uint64_t gdn_scratch_size(const struct gdn_shape *s, uint32_t n_rows, uint32_t n_states)
{
    uint64_t n = n_rows;

    return 2 * arena_need(n * gdn_channels(s) * sizeof(float)) +
           2 * arena_need(n * value_width(s) * sizeof(float)) +
           2 * arena_need(n * s->n_value_heads * sizeof(float)) +
           arena_need(n_states * sizeof(struct conv_past));
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

/* ---- heads ---- */

/* Items are rows: q and k to unit length, decay and beta of every head. */
static void prepare(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct gdn_job *job = ctx;
    const struct gdn_shape *s = job->s;
    const struct kernels *kernels = job->step->kernels;
    float q_scale = 1.0f / sqrtf((float)s->key_dim);

    (void)thread;
    for (uint32_t r = begin; r < end; r++) {
        float *q = job->mixed + (size_t)r * gdn_channels(s), *k = q + key_width(s);
        for (uint32_t h = 0; h < s->n_key_heads; h++) {
            kernels->l2norm(q + (size_t)h * s->key_dim, q_scale, s->key_dim, L2_EPS);
            kernels->l2norm(k + (size_t)h * s->key_dim, 1.0f, s->key_dim, L2_EPS);
        }
        for (uint32_t h = 0; h < s->n_value_heads; h++) {
            float *a = job->a + (size_t)r * s->n_value_heads + h;
            float *b = job->b + (size_t)r * s->n_value_heads + h;
            *a = expf(-expf(job->w->a_log[h]) * softplus(*a + job->w->dt_bias[h]));
            *b = sigmoid(*b);
        }
    }
}

static void gate_head(float *x, const float *z, const struct gdn_job *job)
{
    size_t n = job->s->value_dim;

    job->step->kernels->rmsnorm(x, x, job->w->norm, n, job->s->eps);
    job->step->kernels->sigmoid_mul(x, z, n);
    for (size_t j = 0; j < n && job->s->silu_gate; j++)
        x[j] *= z[j];
}

/* An item is one value head of one sequence: its matrix stays in the cache for all rows. */
static void run_heads(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct gdn_job *job = ctx;
    const struct gdn_shape *s = job->s;
    size_t matrix = (size_t)s->key_dim * s->value_dim;
    uint32_t shared = s->n_value_heads / s->n_key_heads;

    (void)thread;
    for (uint32_t item = begin; item < end; item++) {
        uint32_t seq = item / s->n_value_heads, h = item % s->n_value_heads;
        struct row_span span = step_rows_of(job->step, seq);
        for (uint32_t i = 0; i < span.n; i++) {
            size_t r = span.first + i;
            const float *q = job->mixed + r * gdn_channels(s) + (size_t)(h / shared) * s->key_dim;
            const float *k = q + key_width(s);
            const float *v = job->mixed + r * gdn_channels(s) + 2 * key_width(s) +
                             (size_t)h * s->value_dim;
            const float *from = i == 0 ? job->states[seq].from : job->states[seq].to;
            size_t at = r * value_width(s) + (size_t)h * s->value_dim;
            job->step->kernels->delta_step(
                job->heads + at, job->states[seq].to + h * matrix, from + h * matrix, q, k, v,
                job->a[r * s->n_value_heads + h], job->b[r * s->n_value_heads + h], s->key_dim,
                s->value_dim);
            gate_head(job->heads + at, job->z + at, job);
        }
    }
}

int gdn_forward(float *out, const float *in, const struct gdn_shape *s,
                const struct gdn_weights *w, const struct gdn_state *states, struct step *step,
                struct err *err)
{
    uint32_t n = step->n_rows;
    uint64_t mark = arena_mark(step->scratch);
    float *raw = arena_take(step->scratch, n * (size_t)gdn_channels(s) * sizeof *raw);
    float *mixed = arena_take(step->scratch, n * (size_t)gdn_channels(s) * sizeof *mixed);
    float *z = arena_take(step->scratch, n * value_width(s) * sizeof *z);
    float *heads = arena_take(step->scratch, n * value_width(s) * sizeof *heads);
    float *a = arena_take(step->scratch, (uint64_t)n * s->n_value_heads * sizeof *a);
    float *b = arena_take(step->scratch, (uint64_t)n * s->n_value_heads * sizeof *b);
    struct conv_past *pasts = arena_take(step->scratch, step->n_states * sizeof *pasts);
    struct conv_shape conv = { gdn_channels(s), s->conv, 1 };

    if (!raw || !mixed || !z || !heads || !a || !b || !pasts)
        return err_set(err, ERR_NOMEM, "delta network scratch for %" PRIu32 " rows", n);
    for (uint32_t i = 0; i < step->n_states; i++)
        pasts[i] = (struct conv_past){ states[i].from + matrices(s), states[i].to + matrices(s) };
    matmul_pooled(step->kernels, step->pool, raw, gdn_channels(s), in, s->hidden, n, &w->qkv);
    matmul_pooled(step->kernels, step->pool, z, value_width(s), in, s->hidden, n, &w->z);
    matmul_pooled(step->kernels, step->pool, a, s->n_value_heads, in, s->hidden, n, &w->a);
    matmul_pooled(step->kernels, step->pool, b, s->n_value_heads, in, s->hidden, n, &w->b);

    struct gdn_job job = { .s = s, .w = w, .states = states, .step = step, .mixed = mixed,
                           .z = z, .a = a, .b = b, .heads = heads };
    conv_forward(mixed, raw, &conv, w->taps, pasts, step);
    pool_run(step->pool, prepare, &job, n, 4);
    pool_run(step->pool, run_heads, &job, step->n_states * s->n_value_heads, 1);

    matmul_pooled(step->kernels, step->pool, out, s->hidden, heads, value_width(s), n, &w->out);
    step->counters->multi_row_products += n > 1 ? 5 : 0;
    arena_back(step->scratch, mark);
    return 0;
}
