/* vector_delta: the gated delta rule, written over lanes; kernels_avx*.c include it once.
 *
 * Columns of the matrix are independent of each other. A group of them goes through both passes
 * before the next, so the second finds what the first has read in the nearest cache. */
#ifndef KERNELS_VECTOR_DELTA_H
#define KERNELS_VECTOR_DELTA_H

#include <stddef.h>
#include <stdint.h>

enum {
    GROUP = 4,         /* vectors: two sums for each keep the multipliers busy */
    ROWS_AHEAD = 16,   /* rows between a prefetch and its use */
};

LANES_INLINE float delta_dot(const float *a, const float *b, size_t n)
{
    lanes sum = lanes_set(0.0f);

    for (size_t i = 0; i < n; i += LANES) {
        int left = (int)(n - i < LANES ? n - i : LANES);
        sum = lanes_fma(lanes_load_n(a + i, left), lanes_load_n(b + i, left), sum);
    }
    return lanes_sum(sum);
}

struct delta {
    const float *q, *k;
    size_t key_dim, stride;
    float decay, beta, along; /* along: <q, k> */
};

/* n_vectors whole vectors, or one of n lanes; both are constants where it matters. */
LANES_INLINE void delta_columns(float *out, float *to, const float *from, const float *v,
                                const struct delta *d, int n_vectors, int n)
{
    lanes held[GROUP], seen[GROUP], decay = lanes_set(d->decay);

#pragma GCC unroll 4
    for (int j = 0; j < n_vectors; j++)
        held[j] = seen[j] = lanes_set(0.0f);
    for (size_t i = 0; i < d->key_dim; i++) {
        const float *row = from + i * d->stride;
        lanes k = lanes_set(d->k[i]), q = lanes_set(d->q[i]);
#pragma GCC unroll 4
        for (int j = 0; j < n_vectors; j++) {
            lanes s = lanes_load_n(row + j * LANES, n);
            _mm_prefetch((const char *)(row + ROWS_AHEAD * d->stride + j * LANES), _MM_HINT_T0);
            held[j] = lanes_fma(s, k, held[j]);
            seen[j] = lanes_fma(s, q, seen[j]);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < n_vectors; j++) { /* held becomes the change along k */
        lanes value = lanes_load_n(v + j * LANES, n);
        held[j] = lanes_mul(lanes_set(d->beta), lanes_fnma(decay, held[j], value));
        lanes_store_n(out + j * LANES,
                      lanes_fma(lanes_set(d->along), held[j], lanes_mul(decay, seen[j])), n);
    }
    for (size_t i = 0; i < d->key_dim; i++) {
        const float *row = from + i * d->stride;
        lanes k = lanes_set(d->k[i]);
#pragma GCC unroll 4
        for (int j = 0; j < n_vectors; j++) {
            lanes s = lanes_mul(decay, lanes_load_n(row + j * LANES, n));
            lanes_store_n(to + i * d->stride + j * LANES, lanes_fma(k, held[j], s), n);
        }
    }
}

static void delta_step(float *out, float *to, const float *from, const float *q, const float *k,
                       const float *v, float decay, float beta, size_t key_dim, size_t value_dim)
{
    const struct delta d = { q, k, key_dim, value_dim, decay, beta, delta_dot(q, k, key_dim) };
    size_t j = 0;

    for (; j + GROUP * LANES <= value_dim; j += GROUP * LANES)
        delta_columns(out + j, to + j, from + j, v + j, &d, GROUP, LANES);
    for (; j < value_dim; j += LANES)
        delta_columns(out + j, to + j, from + j, v + j, &d, 1,
                      (int)(value_dim - j < LANES ? value_dim - j : LANES));
}

#endif
