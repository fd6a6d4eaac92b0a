/* vector_rows: functions of one row, written over lanes; kernels_avx*.c include it once.
 *
 * A tail goes through the same instructions as a whole vector, with the lanes past the end
 * left out of memory, so an element's result does not depend on where it lies. */
#ifndef KERNELS_VECTOR_ROWS_H
#define KERNELS_VECTOR_ROWS_H

#include "formats/dtype.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* Lanes that are left at i of n. */
LANES_INLINE int lanes_left(size_t i, size_t n)
{
    return n - i < LANES ? (int)(n - i) : LANES;
}

/* e^x to 2 units in the last place for -87 <= x <= 88; outside, the value at the border
 * (1.6e-38, 1.7e38), so that neither an infinity nor a subnormal arises. NaN stays NaN.
 * x = n ln 2 + r with |r| <= ln 2 / 2 (ln 2 in two parts: the first product is exact), then
 * the series of e^r up to r^7, whose rest is below 6e-9. */
LANES_INLINE lanes lanes_exp(lanes x)
{
    x = lanes_max(lanes_set(-87.0f), lanes_min(lanes_set(88.0f), x));
    lanes n = lanes_round(lanes_mul(x, lanes_set(1.44269504088896341f)));
    lanes r = lanes_fnma(n, lanes_set(0.693359375f), x);
    r = lanes_fnma(n, lanes_set(-2.12194440e-4f), r);

    lanes e = lanes_set(1.0f / 5040.0f);
    e = lanes_fma(e, r, lanes_set(1.0f / 720.0f));
    e = lanes_fma(e, r, lanes_set(1.0f / 120.0f));
    e = lanes_fma(e, r, lanes_set(1.0f / 24.0f));
    e = lanes_fma(e, r, lanes_set(1.0f / 6.0f));
    e = lanes_fma(e, r, lanes_set(0.5f));
    e = lanes_fma(e, r, lanes_set(1.0f));
    e = lanes_fma(e, r, lanes_set(1.0f));
    return lanes_mul(e, lanes_pow2(n));
}

static void rmsnorm(float *out, const float *x, const float *weight, size_t dim, float eps)
{
    enum { SUMS = 4 };
    lanes sum[SUMS] = { lanes_set(0.0f), lanes_set(0.0f), lanes_set(0.0f), lanes_set(0.0f) };

    for (size_t i = 0; i < dim; i += SUMS * LANES)
#pragma GCC unroll 4
        for (size_t k = 0; k < SUMS; k++) {
            size_t at = i + k * LANES < dim ? i + k * LANES : dim;
            lanes v = lanes_load_n(x + at, lanes_left(at, dim));
            sum[k] = lanes_fma(v, v, sum[k]);
        }
    float squares = lanes_sum(lanes_add(lanes_add(sum[0], sum[1]), lanes_add(sum[2], sum[3])));
    lanes scale = lanes_set((float)(1.0 / sqrt((double)squares / (double)dim + (double)eps)));

    for (size_t i = 0; i < dim; i += LANES) {
        int n = lanes_left(i, dim);
        lanes v = lanes_mul(lanes_mul(lanes_load_n(x + i, n), scale), lanes_load_n(weight + i, n));
        lanes_store_n(out + i, v, n);
    }
}

static void rope(float *x, const float *cos, const float *sin, size_t dim)
{
    const size_t half = dim / 2;

    for (size_t i = 0; i < half; i += LANES) {
        int n = lanes_left(i, half);
        lanes a = lanes_load_n(x + i, n), b = lanes_load_n(x + half + i, n);
        lanes c = lanes_load_n(cos + i, n), s = lanes_load_n(sin + i, n);

        lanes_store_n(x + i, lanes_fnma(b, s, lanes_mul(a, c)), n);
        lanes_store_n(x + half + i, lanes_fma(a, s, lanes_mul(b, c)), n);
    }
}

static void silu_mul(float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        int left = lanes_left(i, n);
        lanes x = lanes_load_n(gate + i, left), u = lanes_load_n(up + i, left);
        lanes e = lanes_exp(lanes_sub(lanes_set(0.0f), x));

        x = lanes_mul(lanes_div(x, lanes_add(lanes_set(1.0f), e)), u);
        lanes_store_n(gate + i, x, left);
    }
}

LANES_INLINE lanes lanes_sigmoid(lanes x)
{
    lanes e = lanes_exp(lanes_sub(lanes_set(0.0f), x));
    return lanes_div(lanes_set(1.0f), lanes_add(lanes_set(1.0f), e));
}

LANES_INLINE lanes lanes_silu(lanes x)
{
    lanes e = lanes_exp(lanes_sub(lanes_set(0.0f), x));
    return lanes_div(x, lanes_add(lanes_set(1.0f), e));
}

static void silu(float *x, float scale, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        int left = lanes_left(i, n);
        lanes v = lanes_mul(lanes_load_n(x + i, left), lanes_set(scale));
        lanes_store_n(x + i, lanes_silu(v), left);
    }
}

static void sigmoid_mul(float *x, const float *gate, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        int left = lanes_left(i, n);
        lanes s = lanes_sigmoid(lanes_load_n(gate + i, left));
        lanes_store_n(x + i, lanes_mul(lanes_load_n(x + i, left), s), left);
    }
}

static void l2norm(float *x, float scale, size_t dim, float eps)
{
    lanes sum = lanes_set(0.0f);

    for (size_t i = 0; i < dim; i += LANES) {
        lanes v = lanes_load_n(x + i, lanes_left(i, dim));
        sum = lanes_fma(v, v, sum);
    }
    lanes factor =
        lanes_set((float)((double)scale / sqrt((double)lanes_sum(sum) + (double)eps)));
    for (size_t i = 0; i < dim; i += LANES) {
        int n = lanes_left(i, dim);
        lanes_store_n(x + i, lanes_mul(lanes_load_n(x + i, n), factor), n);
    }
}

static void conv_silu(float *out, const float *const *in, const float *taps, uint32_t n_taps,
                      size_t n)
{
    for (size_t c = 0; c < n; c += LANES) {
        int left = lanes_left(c, n);
        lanes sum = lanes_set(0.0f);
        for (uint32_t t = 0; t < n_taps; t++)
            sum = lanes_fma(lanes_gather_n(taps + c * n_taps + t, (int)n_taps, left),
                            lanes_load_n(in[t] + c, left), sum);
        lanes_store_n(out + c, lanes_silu(sum), left);
    }
}

static void add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        int left = lanes_left(i, n);
        lanes_store_n(x + i, lanes_add(lanes_load_n(x + i, left), lanes_load_n(y + i, left)), left);
    }
}

static void add_scaled(float *x, const float *y, float s, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        int left = lanes_left(i, n);
        lanes v = lanes_fma(lanes_set(s), lanes_load_n(y + i, left), lanes_load_n(x + i, left));
        lanes_store_n(x + i, v, left);
    }
}

static void store_row(void *dst, enum dtype dtype, const float *src, size_t n)
{
    if (dtype == DTYPE_F32) {
        memcpy(dst, src, n * sizeof *src);
        return;
    }
    assert(dtype == DTYPE_BF16);
    for (size_t i = 0; i < n; i += LANES) {
        int left = lanes_left(i, n);
        lanes_store_bf16_n((char *)dst + 2 * i, lanes_load_n(src + i, left), left);
    }
}

#endif
