/* vector_delta: the gated delta rule, written over lanes; kernels_avx*.c include it once.
 *
 * Rows of the matrix are taken a few at a time, so that memory is read from its beginning to its
 * end and sums are loaded once for all of them. The second pass finds the matrix in the cache. */
#ifndef KERNELS_VECTOR_DELTA_H
#define KERNELS_VECTOR_DELTA_H

#include <stddef.h>
#include <stdint.h>

enum {
    DELTA_ROWS = LANES / 2,     /* at a time: k and q of each take a register */
    DELTA_COLUMNS = 128,        /* whose sums are held at once */
    DELTA_AHEAD = 8192,         /* bytes between a prefetch and its use */
};

struct delta_sums {
    _Alignas(64) float held[DELTA_COLUMNS]; /* <from, k>, then d */
    _Alignas(64) float seen[DELTA_COLUMNS]; /* <from, q> */
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

/* One vector of n columns of n_rows rows into the sums; both are constants where it matters. */
LANES_INLINE void delta_sum(float *held, float *seen, const float *from, size_t stride,
                            const lanes *k, const lanes *q, int n_rows, int n)
{
    lanes h = lanes_load(held), s = lanes_load(seen);

#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        lanes v = lanes_load_n(from + i * stride, n);
        _mm_prefetch((const char *)(from + i * stride) + DELTA_AHEAD, _MM_HINT_T0);
        h = lanes_fma(v, k[i], h);
        s = lanes_fma(v, q[i], s);
    }
    lanes_store(held, h);
    lanes_store(seen, s);
}

LANES_INLINE void delta_rows(struct delta_sums *sums, const float *from, size_t stride,
                             const float *k, const float *q, int n_rows, size_t n_columns)
{
    lanes keys[DELTA_ROWS], queries[DELTA_ROWS];
    size_t j = 0;

#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        keys[i] = lanes_set(k[i]);
        queries[i] = lanes_set(q[i]);
    }
    for (; j + LANES <= n_columns; j += LANES)
        delta_sum(sums->held + j, sums->seen + j, from + j, stride, keys, queries, n_rows, LANES);
    if (j < n_columns)
        delta_sum(sums->held + j, sums->seen + j, from + j, stride, keys, queries, n_rows,
                  (int)(n_columns - j));
}

static void delta_step(float *out, float *to, const float *from, const float *q, const float *k,
                       const float *v, float decay, float beta, size_t key_dim, size_t value_dim)
{
    lanes along = lanes_set(delta_dot(q, k, key_dim)), kept = lanes_set(decay);
    struct delta_sums sums;

    for (size_t first = 0; first < value_dim; first += DELTA_COLUMNS) {
        size_t n = value_dim - first < DELTA_COLUMNS ? value_dim - first : DELTA_COLUMNS, i = 0;

        for (size_t j = 0; j < DELTA_COLUMNS; j += LANES) {
            lanes_store(sums.held + j, lanes_set(0.0f));
            lanes_store(sums.seen + j, lanes_set(0.0f));
        }
        for (; i + DELTA_ROWS <= key_dim; i += DELTA_ROWS)
            delta_rows(&sums, from + i * value_dim + first, value_dim, k + i, q + i, DELTA_ROWS, n);
        for (; i < key_dim; i++)
            delta_rows(&sums, from + i * value_dim + first, value_dim, k + i, q + i, 1, n);

        for (size_t j = 0; j < n; j += LANES) {
            int left = (int)(n - j < LANES ? n - j : LANES);
            lanes value = lanes_load_n(v + first + j, left);
            lanes d = lanes_mul(lanes_set(beta),
                                lanes_fnma(kept, lanes_load(sums.held + j), value));
            lanes o = lanes_fma(along, d, lanes_mul(kept, lanes_load(sums.seen + j)));
            lanes_store(sums.held + j, d);
            lanes_store_n(out + first + j, o, left);
        }
        for (i = 0; i < key_dim; i++) {
            const size_t row = i * value_dim + first;
            lanes key = lanes_set(k[i]);
            size_t j = 0;
            for (; j + LANES <= n; j += LANES) {
                lanes s = lanes_mul(kept, lanes_load(from + row + j));
                lanes_store(to + row + j, lanes_fma(key, lanes_load(sums.held + j), s));
            }
            if (j < n) {
                int left = (int)(n - j);
                lanes s = lanes_mul(kept, lanes_load_n(from + row + j, left));
                lanes_store_n(to + row + j, lanes_fma(key, lanes_load(sums.held + j), s), left);
            }
        }
    }
}

#endif
