/* vector_attend: attention of one row, written over lanes; kernels_avx*.c include it once,
 * after vector_rows.h.
 *
 * A page is taken in spans of SPAN tokens, counted from the page's start, so the borders are
 * absolute positions. In a span: scores of all heads, their maximum, weights exp(score -
 * maximum), the weighted sum of the values; then it is merged into what the spans before it
 * gave. Keys and values are widened once for HEADS heads. */
#ifndef KERNELS_VECTOR_ATTEND_H
#define KERNELS_VECTOR_ATTEND_H

#include "kernels/tables.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

/* A tile of HEADS x TOKENS scores has LANES sums, one of HEADS x VECTORS values as many. */
enum { SPAN = 64, HEADS = 4, TOKENS = LANES / HEADS, VECTORS = LANES / HEADS };

struct attention {
    _Alignas(64) float score[ATTEND_HEADS_MAX][SPAN]; /* later exp(score - max of the span) */
    /* Running softmax of each head: its values are in the caller's out. */
    float max[ATTEND_HEADS_MAX], sum[ATTEND_HEADS_MAX];
    float keep[ATTEND_HEADS_MAX], take[ATTEND_HEADS_MAX]; /* factors of old and new in a merge */
};

LANES_INLINE lanes load_cached(enum dtype dtype, const char *at, int n)
{
    if (dtype == DTYPE_BF16)
        return n == LANES ? lanes_load_bf16(at) : lanes_load_bf16_n(at, n);
    return n == LANES ? lanes_load_f32(at) : lanes_load_f32_n(at, n);
}

LANES_INLINE uint32_t at_most(uint32_t i, uint32_t last)
{
    return i < last ? i : last;
}

LANES_INLINE void prefetch_lines(const char *at, size_t size)
{
    for (size_t i = 0; i < size; i += 64)
        _mm_prefetch(at + i, _MM_HINT_T1);
}

/* Scores of the heads from h and the tokens from t; heads and tokens past the last are
 * the last again, and their scores go where nobody reads or are written twice alike. */
LANES_INLINE void score_tile(struct attention *a, enum dtype dtype, const float *q, uint32_t h,
                             uint32_t n_heads, const char *k, uint32_t t, uint32_t n_tokens,
                             uint32_t dim)
{
    const size_t size = dtype == DTYPE_BF16 ? 2 : 4;
    lanes sum[LANES];
    float tile[LANES];

#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        sum[i] = lanes_set(0.0f);
    for (uint32_t d = 0; d < dim; d += LANES) {
        const int n = lanes_left(d, dim);
        lanes key[TOKENS];

#pragma GCC unroll 4
        for (uint32_t j = 0; j < TOKENS; j++)
            key[j] = load_cached(dtype, k + (at_most(t + j, n_tokens - 1) * dim + d) * size, n);
#pragma GCC unroll 4
        for (uint32_t i = 0; i < HEADS; i++) {
            lanes query = lanes_load_n(q + at_most(h + i, n_heads - 1) * dim + d, n);
#pragma GCC unroll 4
            for (uint32_t j = 0; j < TOKENS; j++)
                sum[i * TOKENS + j] = lanes_fma(query, key[j], sum[i * TOKENS + j]);
        }
    }
    lanes_store(tile, lanes_sum_each(sum));
    for (uint32_t i = 0; i < HEADS && h + i < n_heads; i++)
        for (uint32_t j = 0; j < TOKENS; j++)
            a->score[h + i][t + j] = tile[i * TOKENS + j];
}

/* Scores to weights, and the factors of the merge. */
LANES_INLINE void weigh(struct attention *a, uint32_t h, uint32_t n_tokens, float scale)
{
    float *score = a->score[h];
    lanes highest = lanes_set(-INFINITY), total = lanes_set(0.0f);

    for (uint32_t t = 0; t < n_tokens; t += LANES) {
        lanes s = lanes_mul(lanes_load(score + t), lanes_set(scale));
        s = lanes_blend_n(s, lanes_set(-INFINITY), lanes_left(t, n_tokens));
        lanes_store(score + t, s);
        highest = lanes_max(highest, s);
    }
    float max = lanes_highest(highest);
    for (uint32_t t = 0; t < n_tokens; t += LANES) {
        lanes e = lanes_exp(lanes_sub(lanes_load(score + t), lanes_set(max)));
        e = lanes_blend_n(e, lanes_set(0.0f), lanes_left(t, n_tokens));
        lanes_store(score + t, e);
        total = lanes_add(total, e);
    }

    float all = a->max[h] > max ? a->max[h] : max;
    float ends[2] = { a->max[h] - all, max - all };
    lanes factors = lanes_exp(lanes_load_n(ends, 2));
    lanes_store_n(ends, factors, 2);
    a->keep[h] = ends[0];
    a->take[h] = ends[1];
    a->sum[h] = a->sum[h] * ends[0] + lanes_sum(total) * ends[1];
    a->max[h] = all;
}

/* out = out * keep + (weighted sum of the span's values) * take, for the heads from h and
 * VECTORS vectors of the dimension from d. */
LANES_INLINE void value_tile(const struct attention *a, enum dtype dtype, float *out, uint32_t h,
                             uint32_t n_heads, const char *v, uint32_t n_tokens, uint32_t d,
                             uint32_t dim, bool whole)
{
    const size_t size = dtype == DTYPE_BF16 ? 2 : 4;
    lanes sum[HEADS][VECTORS];
    int n[VECTORS];

#pragma GCC unroll 4
    for (uint32_t j = 0; j < VECTORS; j++)
        n[j] = whole ? LANES : d + j * LANES < dim ? lanes_left(d + j * LANES, dim) : 0;
#pragma GCC unroll 4
    for (uint32_t i = 0; i < HEADS; i++)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < VECTORS; j++)
            sum[i][j] = lanes_set(0.0f);
    for (uint32_t t = 0; t < n_tokens; t++) {
        const char *at = v + ((size_t)t * dim + d) * size;
        lanes value[VECTORS];

#pragma GCC unroll 4
        for (uint32_t j = 0; j < VECTORS; j++)
            value[j] = load_cached(dtype, at + j * LANES * size, n[j]);
#pragma GCC unroll 4
        for (uint32_t i = 0; i < HEADS; i++) {
            lanes weight = lanes_set(a->score[at_most(h + i, n_heads - 1)][t]);
#pragma GCC unroll 4
            for (uint32_t j = 0; j < VECTORS; j++)
                sum[i][j] = lanes_fma(weight, value[j], sum[i][j]);
        }
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < HEADS; i++) {
        if (h + i >= n_heads)
            break;
        float *to = out + (h + i) * dim + d;
#pragma GCC unroll 4
        for (uint32_t j = 0; j < VECTORS; j++) {
            if (n[j] == 0)
                break;
            lanes old = lanes_mul(lanes_load_n(to + j * LANES, n[j]), lanes_set(a->keep[h + i]));
            old = lanes_fma(sum[i][j], lanes_set(a->take[h + i]), old);
            lanes_store_n(to + j * LANES, old, n[j]);
        }
    }
}

LANES_INLINE void attend_span(struct attention *a, enum dtype dtype, float *out, const float *q,
                              uint32_t n_heads, const char *k, const char *v, uint32_t n_tokens,
                              uint32_t dim, float scale)
{
    const size_t token_size = (size_t)dim * (dtype == DTYPE_BF16 ? 2 : 4);

    for (uint32_t h = 0; h < n_heads; h += HEADS)
        for (uint32_t t = 0; t < n_tokens; t += TOKENS) {
            if (h == 0) /* the values are wanted next */
                prefetch_lines(v + t * token_size, TOKENS * token_size);
            score_tile(a, dtype, q, h, n_heads, k, t, n_tokens, dim);
        }
    for (uint32_t h = 0; h < n_heads; h++)
        weigh(a, h, n_tokens, scale);
    for (uint32_t h = 0; h < n_heads; h += HEADS)
        for (uint32_t d = 0; d < dim; d += VECTORS * LANES) {
            if (dim - d >= VECTORS * LANES)
                value_tile(a, dtype, out, h, n_heads, v, n_tokens, d, dim, true);
            else
                value_tile(a, dtype, out, h, n_heads, v, n_tokens, d, dim, false);
        }
}

LANES_INLINE void attend_of(enum dtype dtype, float *out, const float *q, uint32_t n_heads,
                            const struct kv_view *kv, uint32_t n_tokens, float scale)
{
    const uint32_t dim = kv->head_dim;
    const size_t token_size = (size_t)dim * (dtype == DTYPE_BF16 ? 2 : 4);
    struct attention a;

    for (uint32_t h = 0; h < n_heads; h++) {
        a.max[h] = -INFINITY;
        a.sum[h] = 0.0f;
    }
    for (uint32_t i = 0; i < n_heads * dim; i += LANES)
        lanes_store_n(out + i, lanes_set(0.0f), lanes_left(i, n_heads * dim));

    for (uint32_t first = 0; first < n_tokens; first += kv->page_tokens) {
        const char *page = kv->pages[first / kv->page_tokens];
        const uint32_t in_page = at_most(n_tokens - first, kv->page_tokens);

        if (first + kv->page_tokens < n_tokens)
            prefetch_lines(kv->pages[first / kv->page_tokens + 1] + kv->k_offset,
                           at_most(n_tokens - first - kv->page_tokens, SPAN) * token_size);
        for (uint32_t t = 0; t < in_page; t += SPAN)
            attend_span(&a, dtype, out, q, n_heads, page + kv->k_offset + t * token_size,
                        page + kv->v_offset + t * token_size, at_most(in_page - t, SPAN), dim,
                        scale);
    }
    for (uint32_t h = 0; h < n_heads; h++) {
        lanes sum = lanes_set(a.sum[h]);
        for (uint32_t d = 0; d < dim; d += LANES) {
            float *at = out + h * dim + d;
            int n = lanes_left(d, dim);
            lanes_store_n(at, lanes_div(lanes_load_n(at, n), sum), n);
        }
    }
}

static void attend(float *out, const float *q, uint32_t n_heads, const struct kv_view *kv,
                   uint32_t n_tokens, float scale)
{
    assert(kv->head_dim <= ATTEND_HEAD_DIM_MAX && n_heads <= ATTEND_HEADS_MAX && n_tokens > 0);
    assert(kv->dtype == DTYPE_BF16 || kv->dtype == DTYPE_F32);
    if (kv->dtype == DTYPE_BF16)
        attend_of(DTYPE_BF16, out, q, n_heads, kv, n_tokens, scale);
    else
        attend_of(DTYPE_F32, out, q, n_heads, kv, n_tokens, scale);
}

#endif
