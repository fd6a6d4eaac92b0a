/* ple: an embedding of the last few tokens, added to the residual streams of one layer (the hashed
 * n-gram embedding of Qwen4-Exp).
 *
 * e is the token's rows of the table (ngram.h), side by side. With one gate per stream,
 *   key = norm(K e)   value = V e   query = norm(h)   t = <key, query> / sqrt(hidden)
 *   G = sigmoid(sign(t) sqrt(max(|t|, 1e-6))) value
 * and h += G + conv(norm(G)), the convolution reaching back by multiples of the n-gram's size. */
#ifndef BLOCKS_PLE_H
#define BLOCKS_PLE_H

#include "blocks/conv.h"
#include "kernels/weights.h"

#include <stdint.h>

struct err;
struct step;

struct ple_shape {
    uint32_t hidden, n_streams;
    uint32_t embedded; /* "ple_embed_dim" */
    uint32_t n_taps;   /* "ple_conv_kernel_size" */
    uint32_t dilation; /* "ngram_size" */
    float eps;
};

struct ple_weights { /* ple. */
    struct matrix key;   /* [n_streams * hidden, embedded] key_proj.weight */
    struct matrix value; /* [hidden, embedded] value_proj.weight */
    /* [n_streams, hidden] each: 1 + norm_key.weight, 1 + norm_query.weight, 1 + norm_conv.weight */
    const float *norm_key, *norm_query, *norm_conv;
    const float *taps; /* [n_streams * hidden, n_taps] conv1d.weight */
};

/* Floats of a sequence's history. */
static inline uint64_t ple_past(const struct ple_shape *s)
{
    return (uint64_t)(s->n_taps - 1) * s->dilation * s->n_streams * s->hidden;
}

uint64_t ple_scratch_size(const struct ple_shape *s, uint32_t n_rows);

/* streams [n_rows, n_streams * hidden] += ple(embedded [n_rows, embedded]). pasts[i] belongs to
 * step.states[i]. */
int ple_forward(float *streams, const float *embedded, const struct ple_shape *shape,
                const struct ple_weights *w, const struct conv_past *pasts, struct step *step,
                struct err *err);

#endif
