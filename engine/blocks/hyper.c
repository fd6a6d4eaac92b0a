#include "blocks/hyper.h"

#include "blocks/step.h"
#include "kernels/kernels.h"
#include "util/err.h"
#include "util/pool.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct hyper_job {
    const struct hyper_shape *shape;
    const struct kernels *kernels;
    const float *norm, *streams, *answer, *inject;
    float *normed;          /* [n_rows, n_streams * hidden] */
    float *gate;            /* the same, before and after the sigmoid */
    float *low;             /* [n_rows, low_rank] */
    float *out, *to, *factor;
};

static size_t width(const struct hyper_shape *s)
{
    return (size_t)s->n_streams * s->hidden;
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

uint64_t hyper_scratch_size(const struct hyper_shape *s, uint32_t n_rows)
{
    return 2 * arena_need(n_rows * width(s) * sizeof(float)) +
           arena_need((uint64_t)n_rows * s->low_rank * sizeof(float));
}

static void norm_streams(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct hyper_job *job = ctx;
    const struct hyper_shape *s = job->shape;

    (void)thread;
    for (uint32_t item = begin; item < end; item++) {
        size_t at = (size_t)item * s->hidden;
        job->kernels->rmsnorm(job->normed + at, job->streams + at,
                              job->norm + item % s->n_streams * s->hidden, s->hidden, s->eps);
    }
}

static void bend_low(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct hyper_job *job = ctx;
    size_t n = job->shape->low_rank;

    (void)thread;
    job->kernels->silu(job->low + begin * n, 1.0f / (float)job->shape->n_streams,
                       (end - begin) * n);
}

static void mix(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct hyper_job *job = ctx;
    const struct hyper_shape *s = job->shape;
    size_t hidden = s->hidden;
    float share = 1.0f / (float)s->n_streams;

    (void)thread;
    for (uint32_t r = begin; r < end; r++) {
        float *u = job->normed + r * width(s), *out = job->out + r * hidden;
        job->kernels->sigmoid_mul(u, job->gate + r * width(s), width(s));
        memcpy(out, u, hidden * sizeof *out);
        for (uint32_t c = 1; c < s->n_streams; c++)
            job->kernels->add(out, u + c * hidden, hidden);
        for (size_t d = 0; d < hidden; d++)
            out[d] *= share;
        for (uint32_t c = 0; job->factor && c < s->n_streams; c++) {
            float *factor = job->factor + (size_t)r * s->n_streams + c;
            *factor = 2.0f * sigmoid(*factor / (float)s->n_streams);
        }
    }
}

int hyper_read(float *out, float *inject, const float *streams, const struct hyper_shape *s,
               const struct hyper_weights *w, struct step *step, struct err *err)
{
    uint32_t n = step->n_rows;
    uint64_t mark = arena_mark(step->scratch);
    float *normed = arena_take(step->scratch, n * width(s) * sizeof *normed);
    float *gate = arena_take(step->scratch, n * width(s) * sizeof *gate);
    float *low = arena_take(step->scratch, (uint64_t)n * s->low_rank * sizeof *low);

    if (!normed || !gate || !low)
        return err_set(err, ERR_NOMEM, "residual scratch for %" PRIu32 " rows", n);
    struct hyper_job job = { .shape = s, .kernels = step->kernels, .norm = w->norm,
                             .streams = streams, .normed = normed, .gate = gate, .low = low,
                             .out = out, .factor = inject };
    pool_run(step->pool, norm_streams, &job, n * s->n_streams, 4);
    matmul_pooled(step->kernels, step->pool, low, s->low_rank, normed, width(s), n, &w->down);
    pool_run(step->pool, bend_low, &job, n, 8);
    matmul_pooled(step->kernels, step->pool, gate, width(s), low, s->low_rank, n, &w->up);
    if (inject)
        matmul_pooled(step->kernels, step->pool, inject, s->n_streams, normed, width(s), n,
                      &w->inject);
    pool_run(step->pool, mix, &job, n, 1);
    step->counters->multi_row_products += n > 1 ? 2 + (inject != NULL) : 0;
    arena_back(step->scratch, mark);
    return 0;
}

static void add_answer(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct hyper_job *job = ctx;
    size_t hidden = job->shape->hidden;

    (void)thread;
    for (uint32_t item = begin; item < end; item++)
        job->kernels->add_scaled(job->to + item * hidden,
                                 job->answer + item / job->shape->n_streams * hidden,
                                 job->inject[item], hidden);
}

void hyper_write(float *streams, const float *answer, const float *inject,
                 const struct hyper_shape *s, struct step *step)
{
    struct hyper_job job = { .shape = s, .kernels = step->kernels, .to = streams,
                             .answer = answer, .inject = inject };

    pool_run(step->pool, add_answer, &job, step->n_rows * s->n_streams, 4);
}

void hyper_begin(float *streams, const float *rows, const struct hyper_shape *s,
                 const struct step *step)
{
    for (uint32_t r = 0; r < step->n_rows; r++)
        for (uint32_t c = 0; c < s->n_streams; c++)
            memcpy(streams + ((size_t)r * s->n_streams + c) * s->hidden,
                   rows + (size_t)r * s->hidden, s->hidden * sizeof *rows);
}
