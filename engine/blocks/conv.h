/* conv: a causal convolution over time, each channel by itself, then silu.
 *
 * out_t = silu(sum over j of taps[j] * in_(t - (n_taps - 1 - j) * dilation)), zeros before a
 * sequence's beginning. A sequence's history is read in one place and written to another, so that
 * a step can be dropped. */
#ifndef BLOCKS_CONV_H
#define BLOCKS_CONV_H

#include <stdint.h>

struct step;

enum { CONV_MAX_TAPS = 64 };

struct conv_shape {
    uint32_t channels, n_taps, dilation; /* the last tap is the token's own */
};

/* The inputs of the last (n_taps - 1) * dilation tokens, oldest first: [.., channels]. */
struct conv_past {
    const float *from;
    float *to;
};

static inline uint32_t conv_length(const struct conv_shape *s)
{
    return (s->n_taps - 1) * s->dilation;
}

/* in, out [n_rows, channels], not the same; taps [channels, n_taps]; pasts[i] belongs to
 * step.states[i] and stays as it is where that has no row in the step. */
void conv_forward(float *out, const float *in, const struct conv_shape *shape, const float *taps,
                  const struct conv_past *pasts, struct step *step);

/* The rows of one sequence in a step. */
struct row_span {
    uint32_t first, n;
};
struct row_span step_rows_of(const struct step *step, uint32_t seq);

#endif
