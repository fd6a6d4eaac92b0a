/* vector_attend: attention of one row, written over lanes; kernels_avx*.c include it once,
 * after vector_rows.h.
 *
 * A page is taken in spans of SPAN tokens, counted from the page's start; of small pages a span
 * takes as many as it can hold. So the borders are absolute positions. In a span: scores of all
 * heads, their maximum, weights exp(score - maximum), the weighted sum of the values; then it is
 * merged into what the spans before it gave. Keys and values are widened once for HEADS heads. */
#ifndef KERNELS_VECTOR_ATTEND_H
#define KERNELS_VECTOR_ATTEND_H

#include "kernels/tables.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* A tile of HEADS x TOKENS scores has LANES sums, one of HEADS x VECTORS values as many. */
enum { SPAN = 64, HEADS = LANES / 2, TOKENS = 2, VECTORS = 2 };

struct attention {
    uint32_t n_heads, dim;
    float scale;
    float *out; /* [n_heads, dim]: weighted values so far */
    const char *k[SPAN], *v[SPAN]; /* of the tokens of the span in hand */
    /* Queries as a tile reads them, zero past the last head and the last dimension. */
    _Alignas(64) float query[ATTEND_HEADS_MAX / HEADS][ATTEND_HEAD_DIM_MAX / LANES][HEADS][LANES];
    _Alignas(64) float score[ATTEND_HEADS_MAX][SPAN]; /* later exp(score - max of the span) */
    float max[ATTEND_HEADS_MAX], sum[ATTEND_HEADS_MAX];
    float keep[ATTEND_HEADS_MAX], take[ATTEND_HEADS_MAX]; /* factors of old and new in a merge */
};

LANES_INLINE size_t cached_size(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? 2 : 4;
}

/* n is a constant in all but the last vector of a head. */
LANES_INLINE lanes load_cached(enum dtype dtype, const char *at, int n)
{
    const bool whole = __builtin_constant_p(n) && n >= LANES;

    if (dtype == DTYPE_BF16)
        return whole ? lanes_load_bf16(at) : lanes_load_bf16_n(at, n);
    return whole ? lanes_load_f32(at) : lanes_load_f32_n(at, n);
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

LANES_INLINE void score_step(lanes sum[LANES], enum dtype dtype, float (*query)[LANES],
                             const char *const token[TOKENS], size_t at, int n)
{
    lanes key[TOKENS];

#pragma GCC unroll 2
    for (int j = 0; j < TOKENS; j++)
        key[j] = load_cached(dtype, token[j] + at, n);
#pragma GCC unroll 8
    for (int i = 0; i < HEADS; i++) {
        lanes q = lanes_pin(lanes_load(query[i]));
#pragma GCC unroll 2
        for (int j = 0; j < TOKENS; j++)
            sum[i * TOKENS + j] = lanes_fma(q, key[j], sum[i * TOKENS + j]);
    }
}

/* Scores of the heads from h and the tokens from t; past the last token the last again,
 * whose score then goes where nobody reads. */
LANES_INLINE void score_tile(struct attention *a, enum dtype dtype, uint32_t h, uint32_t t,
                             uint32_t n_tokens)
{
    const size_t size = cached_size(dtype);
    const char *token[TOKENS];
    uint32_t d = 0;
    lanes sum[LANES];
    float tile[LANES];

    for (uint32_t j = 0; j < TOKENS; j++)
        token[j] = a->k[at_most(t + j, n_tokens - 1)];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        sum[i] = lanes_set(0.0f);
    for (; d + LANES <= a->dim; d += LANES)
        score_step(sum, dtype, a->query[h / HEADS][d / LANES], token, d * size, LANES);
    if (d < a->dim)
        score_step(sum, dtype, a->query[h / HEADS][d / LANES], token, d * size, (int)(a->dim - d));
    lanes_store(tile, lanes_sum_each(sum));
    for (uint32_t i = 0; i < HEADS; i++)
        for (uint32_t j = 0; j < TOKENS; j++)
            a->score[h + i][t + j] = tile[i * TOKENS + j];
}

/* Scores to weights, and the factors of the merge. */
LANES_INLINE void weigh(struct attention *a, uint32_t h, uint32_t n_tokens)
{
    float *score = a->score[h];
    lanes highest = lanes_set(-INFINITY), total = lanes_set(0.0f);

    for (uint32_t t = 0; t < n_tokens; t += LANES) {
        lanes s = lanes_mul(lanes_load(score + t), lanes_set(a->scale));
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
    lanes_store_n(ends, lanes_exp(lanes_load_n(ends, 2)), 2);
    a->keep[h] = ends[0];
    a->take[h] = ends[1];
    a->sum[h] = a->sum[h] * ends[0] + lanes_sum(total) * ends[1];
    a->max[h] = all;
}

/* out = out * keep + (weighted sum of the span's values) * take, for the heads from h and
 * the dimensions [d, d + n). */
LANES_INLINE void value_tile(struct attention *a, enum dtype dtype, uint32_t h, uint32_t n_tokens,
                             uint32_t d, int n)
{
    const size_t size = cached_size(dtype);
    lanes sum[HEADS][VECTORS];

#pragma GCC unroll 8
    for (int i = 0; i < HEADS; i++)
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; j++)
            sum[i][j] = lanes_set(0.0f);
    for (uint32_t t = 0; t < n_tokens; t++) {
        const char *at = a->v[t] + d * size;
        lanes value[VECTORS];

#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; j++)
            value[j] = load_cached(dtype, at + j * LANES * size, n - j * LANES);
#pragma GCC unroll 8
        for (uint32_t i = 0; i < HEADS; i++) {
            lanes weight = lanes_pin(lanes_set(a->score[h + i][t]));
#pragma GCC unroll 2
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] = lanes_fma(weight, value[j], sum[i][j]);
        }
    }
    for (uint32_t i = 0; i < HEADS && h + i < a->n_heads; i++) {
        float *to = a->out + (h + i) * a->dim + d;
#pragma GCC unroll 2
        for (int j = 0; j < VECTORS; j++) {
            lanes old = lanes_load_n(to + j * LANES, n - j * LANES);
            old = lanes_mul(old, lanes_set(a->keep[h + i]));
            old = lanes_fma(sum[i][j], lanes_set(a->take[h + i]), old);
            lanes_store_n(to + j * LANES, old, n - j * LANES);
        }
    }
}

/* The span of n tokens from `first` on. */
LANES_INLINE void open_span(struct attention *a, const struct kv_view *kv, size_t token_size,
                            uint32_t first, uint32_t n)
{
    uint32_t page = first / kv->page_tokens, in_page = first % kv->page_tokens;

    for (uint32_t t = 0; t < n; t++) {
        const char *at = kv->pages[page] + in_page * token_size;
        a->k[t] = at + kv->k_offset;
        a->v[t] = at + kv->v_offset;
        if (++in_page == kv->page_tokens) {
            in_page = 0;
            page++;
        }
    }
}

LANES_INLINE void prefetch_keys(const struct kv_view *kv, size_t token_size, uint32_t first,
                                uint32_t n)
{
    for (uint32_t t = 0; t < n; t += kv->page_tokens)
        prefetch_lines(kv->pages[(first + t) / kv->page_tokens] + kv->k_offset,
                       at_most(n - t, kv->page_tokens) * token_size);
}

LANES_INLINE void attend_span(struct attention *a, enum dtype dtype, uint32_t n_tokens)
{
    enum { WIDTH = VECTORS * LANES };
    const size_t token_size = a->dim * cached_size(dtype);

    for (uint32_t h = 0; h < a->n_heads; h += HEADS)
        for (uint32_t t = 0; t < n_tokens; t += TOKENS) {
            if (h == 0) /* the values are wanted next */
                for (uint32_t j = t; j < t + TOKENS && j < n_tokens; j++)
                    prefetch_lines(a->v[j], token_size);
            score_tile(a, dtype, h, t, n_tokens);
        }
    for (uint32_t h = 0; h < a->n_heads; h++)
        weigh(a, h, n_tokens);
    for (uint32_t h = 0; h < a->n_heads; h += HEADS) {
        uint32_t d = 0;

        for (; d + WIDTH <= a->dim; d += WIDTH)
            value_tile(a, dtype, h, n_tokens, d, WIDTH);
        if (d < a->dim)
            value_tile(a, dtype, h, n_tokens, d, (int)(a->dim - d));
    }
}

LANES_INLINE void open_attention(struct attention *a, float *out, const float *q, uint32_t n_heads,
                                 uint32_t dim, float scale)
{
    a->n_heads = n_heads;
    a->dim = dim;
    a->scale = scale;
    a->out = out;
    memset(out, 0, (size_t)n_heads * dim * sizeof *out);
    for (uint32_t h = 0; h < (n_heads + HEADS - 1) / HEADS * HEADS; h++) {
        a->max[h] = -INFINITY;
        a->sum[h] = 0.0f;
        for (uint32_t d = 0; d < dim; d += LANES) {
            lanes v =
                h < n_heads ? lanes_load_n(q + h * dim + d, lanes_left(d, dim)) : lanes_set(0.0f);
            lanes_store(a->query[h / HEADS][d / LANES][h % HEADS], v);
        }
    }
}

LANES_INLINE void attend_of(enum dtype dtype, float *out, const float *q, uint32_t n_heads,
                            const struct kv_view *kv, uint32_t n_tokens, float scale)
{
    const uint32_t dim = kv->head_dim;
    const size_t token_size = dim * cached_size(dtype);
    /* Tokens of a page, or of the pages that make a span. */
    const uint32_t stretch =
        kv->page_tokens < SPAN ? SPAN / kv->page_tokens * kv->page_tokens : kv->page_tokens;
    struct attention a;

    open_attention(&a, out, q, n_heads, dim, scale);
    for (uint32_t first = 0; first < n_tokens; first += stretch) {
        const uint32_t n = at_most(n_tokens - first, stretch);

        if (first + stretch < n_tokens)
            prefetch_keys(kv, token_size, first + stretch,
                          at_most(n_tokens - first - stretch, at_most(stretch, SPAN)));
        for (uint32_t t = 0; t < n; t += SPAN) {
            open_span(&a, kv, token_size, first + t, at_most(n - t, SPAN));
            attend_span(&a, dtype, at_most(n - t, SPAN));
        }
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
