#include "blocks/ple.h"

#include "blocks/step.h"
#include "kernels/kernels.h"
#include "util/err.h"
#include "util/pool.h"

#include <inttypes.h>
#include <math.h>

static const float LEAST_GATE = 1e-6f;

struct ple_job {
    const struct ple_shape *s;
    const struct ple_weights *w;
    const struct kernels *kernels;
    float *streams;     /* [n_rows, n_streams, hidden], as the rest but value */
    const float *value; /* [n_rows, hidden] */
    float *gated;       /* keys first */
    float *normed;      /* queries first */
    float *mixed;
};

static size_t width(const struct ple_shape *s)
{
    return (size_t)s->n_streams * s->hidden;
}

uint64_t ple_scratch_size(const struct ple_shape *s, uint32_t n_rows)
{
    return 3 * arena_need(n_rows * width(s) * sizeof(float)) +
           arena_need((uint64_t)n_rows * s->hidden * sizeof(float));
}

/* How much of the value a stream takes. */
static float gate_of(const float *key, const float *query, size_t n)
{
    double sum = 0.0;

    for (size_t d = 0; d < n; d++)
        sum += (double)key[d] * (double)query[d];
    float t = (float)(sum / sqrt((double)n));
    float root = sqrtf(fmaxf(fabsf(t), LEAST_GATE));
    root = t > 0.0f ? root : t < 0.0f ? -root : t; /* no number stays none */
    return 1.0f / (1.0f + expf(-root));
}

/* An item is one stream of one row. */
static void gate(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct ple_job *job = ctx;
    const struct ple_shape *s = job->s;
    size_t hidden = s->hidden;

    (void)thread;
    for (size_t item = begin; item < end; item++) {
        size_t weight = item % s->n_streams * hidden;
        float *key = job->gated + item * hidden, *query = job->normed + item * hidden;
        const float *value = job->value + item / s->n_streams * hidden;
        job->kernels->rmsnorm(key, key, job->w->norm_key + weight, hidden, s->eps);
        job->kernels->rmsnorm(query, job->streams + item * hidden, job->w->norm_query + weight,
                              hidden, s->eps);
        float g = gate_of(key, query, hidden);
        for (size_t d = 0; d < hidden; d++)
            key[d] = g * value[d];
        job->kernels->rmsnorm(query, key, job->w->norm_conv + weight, hidden, s->eps);
    }
}

static void add_both(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct ple_job *job = ctx;
    size_t n = width(job->s), at = begin * n;

    (void)thread;
    job->kernels->add(job->mixed + at, job->gated + at, (end - begin) * n);
    job->kernels->add(job->streams + at, job->mixed + at, (end - begin) * n);
}

int ple_forward(float *streams, const float *embedded, const struct ple_shape *s,
                const struct ple_weights *w, const struct conv_past *pasts, struct step *step,
                struct err *err)
{
    uint32_t n = step->n_rows;
    uint64_t mark = arena_mark(step->scratch);
    float *gated = arena_take(step->scratch, n * width(s) * sizeof *gated);
    float *normed = arena_take(step->scratch, n * width(s) * sizeof *normed);
    float *mixed = arena_take(step->scratch, n * width(s) * sizeof *mixed);
    float *value = arena_take(step->scratch, (uint64_t)n * s->hidden * sizeof *value);
    struct conv_shape conv = { (uint32_t)width(s), s->n_taps, s->dilation };

    if (!gated || !normed || !mixed || !value)
        return err_set(err, ERR_NOMEM, "n-gram embedding scratch for %" PRIu32 " rows", n);
    struct ple_job job = { .s = s, .w = w, .kernels = step->kernels, .streams = streams,
                           .value = value, .gated = gated, .normed = normed, .mixed = mixed };
    matmul_pooled(step->kernels, step->pool, gated, width(s), embedded, s->embedded, n, &w->key);
    matmul_pooled(step->kernels, step->pool, value, s->hidden, embedded, s->embedded, n,
                  &w->value);
    pool_run(step->pool, gate, &job, n * s->n_streams, 2);
    conv_forward(mixed, normed, &conv, w->taps, pasts, step);
    pool_run(step->pool, add_both, &job, n, 2);
    step->counters->multi_row_products += n > 1 ? 2 : 0;
    arena_back(step->scratch, mark);
    return 0;
}
