#include "blocks/conv.h"

#include "blocks/step.h"
#include "kernels/kernels.h"
#include "util/pool.h"

#include <assert.h>
#include <string.h>

enum { GRAIN = 512 }; /* channels: a few thousand bytes of each row */

struct conv_job {
    const struct conv_shape *s;
    const struct step *step;
    const float *in, *taps;
    const struct conv_past *pasts;
    float *out;
};

struct row_span step_rows_of(const struct step *step, uint32_t seq)
{
    struct row_span span = { 0, 0 };

    for (uint32_t r = 0; r < step->n_rows; r++) {
        if (step->rows[r].seq != seq)
            continue;
        if (span.n++ == 0)
            span.first = r;
    }
    return span;
}

/* The input `back` tokens before row i of a span: of the step, or of the history. */
static const float *past(const struct conv_job *job, const struct row_span *span, uint32_t i,
                         uint32_t back, const float *history)
{
    size_t channels = job->s->channels;

    if (back <= i)
        return job->in + (span->first + i - back) * channels;
    return history + (conv_length(job->s) - (back - i)) * channels;
}

static void convolve_row(const struct conv_job *job, const struct row_span *span, uint32_t i,
                         const float *history, size_t begin, size_t end)
{
    const struct conv_shape *s = job->s;
    float *out = job->out + (size_t)(span->first + i) * s->channels;
    const float *in[CONV_MAX_TAPS];

    assert(s->n_taps <= CONV_MAX_TAPS);
    for (uint32_t tap = 0; tap < s->n_taps; tap++)
        in[tap] = past(job, span, i, (s->n_taps - 1 - tap) * s->dilation, history) + begin;
    job->step->kernels->conv_silu(out + begin, in, job->taps + begin * s->n_taps, s->n_taps,
                                  end - begin);
}

/* Items are channels, each through all rows. */
static void convolve(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct conv_job *job = ctx;
    uint32_t length = conv_length(job->s);

    (void)thread;
    for (uint32_t seq = 0; seq < job->step->n_states; seq++) {
        struct row_span span = step_rows_of(job->step, seq);
        const float *history = job->pasts[seq].from;
        for (uint32_t i = 0; i < span.n; i++)
            convolve_row(job, &span, i, history, begin, end);
        for (uint32_t k = 0; span.n > 0 && k < length; k++)
            memcpy(job->pasts[seq].to + (size_t)k * job->s->channels + begin,
                   past(job, &span, span.n - 1, length - 1 - k, history) + begin,
                   (end - begin) * sizeof(float));
    }
}

void conv_forward(float *out, const float *in, const struct conv_shape *s, const float *taps,
                  const struct conv_past *pasts, struct step *step)
{
    struct conv_job job = { .s = s, .step = step, .in = in, .taps = taps, .pasts = pasts,
                            .out = out };

    pool_run(step->pool, convolve, &job, s->channels, GRAIN);
}
