/* vector_matmul: the matrix product, written over lanes; kernels_avx*.c include it once.
 *
 * One order of operations for every (row, output), whatever comes along with it. The
 * columns are cut into blocks of SCALE_BLOCK. In a block lane l sums, by fused
 * multiply-add from zero, the columns that are l modulo LANES, rising; then the block's
 * lanes times the block scale are added to the output's lanes, again fused; at the end the
 * lanes are added by lanes_sum. Types without scales take 1 for it.
 *
 * Few rows are multiplied straight from the weights, OUTPUTS weight rows interleaved, so
 * that as many streams come from memory. For more rows a panel of weights is widened to
 * F32 in the first-level cache and used for all of them. Both follow the order above.
 *
 * Software prefetch, measured on a Sapphire Rapids guest: 1.7 to 2 times the speed from
 * memory at 8 to 16 KiB ahead into the second-level cache, less at 4 or 32 KiB. */
#ifndef KERNELS_VECTOR_MATMUL_H
#define KERNELS_VECTOR_MATMUL_H

#include "kernels/weights.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

enum { OUTPUTS = 4, STEP = 2 * LANES, CACHE_LINE = 64 };
enum { AHEAD = 8 * 1024 };
/* Rows straight from the weights: as many as the registers hold. Measured: one more, and a
 * panel is faster than a second pass, by 6 to 20 %. */
enum { DIRECT_ROWS = LANES == 16 ? 4 : 2 };
/* Rows that share a panel: the panel and the rows' sums fit the first-level cache. The inputs
 * come from the second, for rows whose distance is a power of two fall into few sets of the
 * first; so a tile has as many outputs for each input as the registers hold. Measured: rows of
 * more than ROWS_SIZE together come from further away and take 1.3 to 1.5 times as long. */
enum { ROWS_SIZE = 1024 * 1024 };
enum { PANEL_OUTPUTS = 8, PANEL_ROWS = 48, TILE_ROWS = 3, TILE_OUTPUTS = LANES == 16 ? 8 : 4 };

/* ---- weights ---- */

LANES_INLINE size_t weight_size(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 4 : dtype == DTYPE_F8_E4M3 ? 1 : 2;
}

/* n of STEP weights at `at`; n is a constant in all but the last step of a row. */
LANES_INLINE struct lanes_pair load_weights(enum dtype dtype, const char *at, int n)
{
    const char *second = at + LANES * weight_size(dtype);
    const bool whole = __builtin_constant_p(n) && n == STEP;

    if (dtype == DTYPE_F8_E4M3)
        return whole ? pair_load_f8(at) : pair_load_f8_n(at, n);
    if (dtype == DTYPE_BF16)
        return whole ? (struct lanes_pair){ lanes_load_bf16(at), lanes_load_bf16(second) }
                     : (struct lanes_pair){ lanes_load_bf16_n(at, n),
                                            lanes_load_bf16_n(second, n - LANES) };
    if (dtype == DTYPE_F16)
        return whole ? (struct lanes_pair){ lanes_load_f16(at), lanes_load_f16(second) }
                     : (struct lanes_pair){ lanes_load_f16_n(at, n),
                                            lanes_load_f16_n(second, n - LANES) };
    return whole ? (struct lanes_pair){ lanes_load_f32(at), lanes_load_f32(second) }
                 : (struct lanes_pair){ lanes_load_f32_n(at, n),
                                        lanes_load_f32_n(second, n - LANES) };
}

LANES_INLINE struct lanes_pair load_inputs(const float *at, int n)
{
    if (__builtin_constant_p(n) && n == STEP)
        return (struct lanes_pair){ lanes_load(at), lanes_load(at + LANES) };
    return (struct lanes_pair){ lanes_load_n(at, n), lanes_load_n(at + LANES, n - LANES) };
}

/* The weight rows [first, first + n) walked side by side; past `last` the last one again. */
struct weight_rows {
    const char *row[PANEL_OUTPUTS];
    const float *scales[PANEL_OUTPUTS]; /* of F8_E4M3 only */
    size_t row_size;
    /* Row i of the group is one stream with row i of the next groups, and AHEAD is the
     * bytes of all streams together. Up to wrap_at the prefetched byte lies `near`
     * further, then in the next group, `far` further. */
    size_t near, far, wrap_at;
};

LANES_INLINE void open_rows(struct weight_rows *g, const struct matrix *w, uint32_t first,
                            uint32_t last, uint32_t n)
{
    const size_t n_blocks = (w->cols + SCALE_BLOCK - 1) / SCALE_BLOCK;
    const size_t row_size = w->cols * weight_size(w->dtype);
    const size_t ahead = AHEAD / n;

    g->row_size = row_size;
    g->near = ahead / row_size * n * row_size + ahead % row_size;
    g->far = g->near + (n - 1) * row_size;
    g->wrap_at = row_size - ahead % row_size;
    for (uint32_t i = 0; i < n; i++) {
        size_t o = first + i < last ? first + i : last - 1;
        g->row[i] = (const char *)w->data + o * row_size;
        g->scales[i] = w->scales ? w->scales + o / SCALE_BLOCK * n_blocks : NULL;
    }
}

LANES_INLINE float block_scale(enum dtype dtype, const struct weight_rows *g, uint32_t i,
                               size_t block)
{
    return dtype == DTYPE_F8_E4M3 ? g->scales[i][block] * F8_UNIT : 1.0f;
}

/* A prefetch never faults, so it may run past the matrix; as a number, because a pointer
 * may not. */
LANES_INLINE void prefetch_ahead(const struct weight_rows *g, uint32_t i, size_t at)
{
    uintptr_t to = (uintptr_t)(g->row[i] + at) + (at < g->wrap_at ? g->near : g->far);
    _mm_prefetch((const char *)to, _MM_HINT_T1);
}

/* ---- few rows ---- */

/* block[r][i] += weights * inputs for the columns [c, c + n). */
LANES_INLINE void direct_step(lanes block[DIRECT_ROWS][OUTPUTS], enum dtype dtype, uint32_t n_rows,
                              const struct weight_rows *g, const float *in, size_t in_stride,
                              size_t c, int n)
{
    struct lanes_pair x[DIRECT_ROWS];

#pragma GCC unroll 4
    for (uint32_t r = 0; r < n_rows; r++)
        x[r] = load_inputs(in + r * in_stride + c, n);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        struct lanes_pair w = load_weights(dtype, g->row[i] + c * weight_size(dtype), n);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < n_rows; r++) {
            block[r][i] = lanes_fma(w.lo, x[r].lo, block[r][i]);
            block[r][i] = lanes_fma(w.hi, x[r].hi, block[r][i]);
        }
    }
}

LANES_INLINE void clear_block(lanes block[DIRECT_ROWS][OUTPUTS], uint32_t n_rows)
{
#pragma GCC unroll 4
    for (uint32_t r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (uint32_t i = 0; i < OUTPUTS; i++)
            block[r][i] = lanes_set(0.0f);
}

LANES_INLINE void add_block(lanes sum[DIRECT_ROWS][OUTPUTS], lanes block[DIRECT_ROWS][OUTPUTS],
                            enum dtype dtype, uint32_t n_rows, const struct weight_rows *g,
                            size_t number)
{
#pragma GCC unroll 4
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        lanes scale = lanes_set(block_scale(dtype, g, i, number));
#pragma GCC unroll 4
        for (uint32_t r = 0; r < n_rows; r++)
            sum[r][i] = lanes_fma(block[r][i], scale, sum[r][i]);
    }
}

/* OUTPUTS outputs of n_rows rows; dtype and n_rows are constants. */
LANES_INLINE void direct_group(float *out, size_t out_stride, const float *in, size_t in_stride,
                               uint32_t n_rows, enum dtype dtype, size_t cols,
                               const struct weight_rows *g, uint32_t n_outputs)
{
    const size_t size = weight_size(dtype), n_whole = cols / SCALE_BLOCK;
    /* Columns between two prefetches of a row. */
    const size_t unit = STEP * size < CACHE_LINE ? CACHE_LINE / size : STEP;
    lanes sum[DIRECT_ROWS][OUTPUTS], block[DIRECT_ROWS][OUTPUTS];

    clear_block(sum, n_rows);
    for (size_t b = 0; b < n_whole; b++) {
        clear_block(block, n_rows);
#pragma GCC unroll 4
        for (size_t s = 0; s < SCALE_BLOCK; s += unit) {
            const size_t c = b * SCALE_BLOCK + s;

#pragma GCC unroll 4
            for (size_t line = 0; line < unit * size; line += CACHE_LINE)
#pragma GCC unroll 4
                for (uint32_t i = 0; i < OUTPUTS; i++)
                    prefetch_ahead(g, i, c * size + line);
#pragma GCC unroll 4
            for (size_t step = 0; step < unit; step += STEP)
                direct_step(block, dtype, n_rows, g, in, in_stride, c + step, STEP);
        }
        add_block(sum, block, dtype, n_rows, g, b);
    }
    if (cols % SCALE_BLOCK) {
        size_t c = n_whole * SCALE_BLOCK;
        clear_block(block, n_rows);
        for (; c + STEP <= cols; c += STEP) {
            for (uint32_t i = 0; i < OUTPUTS; i++)
                prefetch_ahead(g, i, c * size);
            direct_step(block, dtype, n_rows, g, in, in_stride, c, STEP);
        }
        if (c < cols)
            direct_step(block, dtype, n_rows, g, in, in_stride, c, (int)(cols - c));
        add_block(sum, block, dtype, n_rows, g, n_whole);
    }
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < n_outputs; i++)
            out[r * out_stride + i] = lanes_sum(sum[r][i]);
}

/* n_rows <= DIRECT_ROWS. */
LANES_INLINE void direct(float *out, size_t out_stride, const float *in, size_t in_stride,
                         uint32_t n_rows, enum dtype dtype, const struct matrix *w, uint32_t begin,
                         uint32_t end)
{
    enum { TWO = DIRECT_ROWS < 2 ? DIRECT_ROWS : 2, THREE = DIRECT_ROWS < 3 ? DIRECT_ROWS : 3 };
    const size_t cols = w->cols;
    struct weight_rows g;

    for (uint32_t o = begin; o < end; o += OUTPUTS) {
        uint32_t n = end - o < OUTPUTS ? end - o : OUTPUTS;

        open_rows(&g, w, o, end, OUTPUTS);
        if (n_rows == 1)
            direct_group(out + o, out_stride, in, in_stride, 1, dtype, cols, &g, n);
        else if (n_rows == 2)
            direct_group(out + o, out_stride, in, in_stride, TWO, dtype, cols, &g, n);
        else if (n_rows == 3)
            direct_group(out + o, out_stride, in, in_stride, THREE, dtype, cols, &g, n);
        else
            direct_group(out + o, out_stride, in, in_stride, DIRECT_ROWS, dtype, cols, &g, n);
    }
}

/* ---- many rows ---- */

struct panel {
    _Alignas(CACHE_LINE) float weights[PANEL_OUTPUTS][SCALE_BLOCK]; /* zero past the last column */
    _Alignas(CACHE_LINE) lanes sum[PANEL_ROWS][PANEL_OUTPUTS];
    float scale[PANEL_OUTPUTS]; /* of the block in hand */
};

LANES_INLINE void widen_panel(struct panel *p, enum dtype dtype, const struct weight_rows *g,
                              size_t block, size_t cols)
{
    const size_t size = weight_size(dtype), from = block * SCALE_BLOCK;
    const size_t n = cols - from < SCALE_BLOCK ? cols - from : SCALE_BLOCK;

    for (uint32_t i = 0; i < PANEL_OUTPUTS; i++) {
        const char *at = g->row[i] + from * size;
        size_t c = 0;

        p->scale[i] = block_scale(dtype, g, i, block);
        for (size_t line = 0; line < SCALE_BLOCK * size; line += CACHE_LINE)
            prefetch_ahead(g, i, from * size + line);
#pragma GCC unroll 8
        for (; c + STEP <= n; c += STEP) {
            struct lanes_pair w = load_weights(dtype, at + c * size, STEP);
            lanes_store(&p->weights[i][c], w.lo);
            lanes_store(&p->weights[i][c + LANES], w.hi);
        }
        if (c < n) {
            struct lanes_pair w = load_weights(dtype, at + c * size, (int)(n - c));
            lanes_store(&p->weights[i][c], w.lo);
            lanes_store(&p->weights[i][c + LANES], w.hi);
        }
    }
}

/* block[r][i] += weights * inputs for the outputs [first, first + TILE_OUTPUTS) of the panel. */
LANES_INLINE void tile_step(lanes block[TILE_ROWS][TILE_OUTPUTS], const struct panel *p,
                            uint32_t first, const float *in, size_t in_stride, uint32_t n_rows,
                            size_t c, int n)
{
#pragma GCC unroll 2
    for (int from = 0; from < STEP; from += LANES) {
        lanes x[TILE_ROWS];

#pragma GCC unroll 4
        for (uint32_t r = 0; r < n_rows; r++) {
            const float *at = in + r * in_stride + c + from;
            x[r] =
                __builtin_constant_p(n) && n == STEP ? lanes_load(at) : lanes_load_n(at, n - from);
            /* The next tile's, for rows are too short here for the CPU to foresee them; behind the
             * last row it is a number only, as in prefetch_ahead. */
            const uintptr_t next = (uintptr_t)at + TILE_ROWS * in_stride * sizeof *at;
            _mm_prefetch((const char *)next, _MM_HINT_T0);
        }
#pragma GCC unroll 8
        for (uint32_t i = 0; i < TILE_OUTPUTS; i++) {
            lanes w = lanes_load(&p->weights[first + i][c + from]);
            w = lanes_pin(w);
#pragma GCC unroll 4
            for (uint32_t r = 0; r < n_rows; r++)
                block[r][i] = lanes_fma(w, x[r], block[r][i]);
        }
    }
}

/* A block of n_cols columns for the rows [row, row + n_rows) and the outputs [first, first +
 * TILE_OUTPUTS) of the panel; n_rows is a constant. */
LANES_INLINE void tile(struct panel *p, uint32_t row, uint32_t first, const float *in,
                       size_t in_stride, uint32_t n_rows, size_t n_cols)
{
    lanes block[TILE_ROWS][TILE_OUTPUTS];
    size_t c = 0;

#pragma GCC unroll 4
    for (uint32_t r = 0; r < n_rows; r++)
#pragma GCC unroll 8
        for (uint32_t i = 0; i < TILE_OUTPUTS; i++)
            block[r][i] = lanes_set(0.0f);
    for (; c + STEP <= n_cols; c += STEP)
        tile_step(block, p, first, in, in_stride, n_rows, c, STEP);
    if (c < n_cols)
        tile_step(block, p, first, in, in_stride, n_rows, c, (int)(n_cols - c));
#pragma GCC unroll 8
    for (uint32_t i = 0; i < TILE_OUTPUTS; i++) {
        lanes scale = lanes_set(p->scale[first + i]);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < n_rows; r++) {
            lanes *sum = &p->sum[row + r][first + i];
            *sum = lanes_fma(block[r][i], scale, *sum);
        }
    }
}

/* The panel, n_cols wide, times the same columns of n_rows rows. Not inlined: one copy serves
 * all types. */
static __attribute__((noinline)) void
multiply_panel(struct panel *p, const float *in, size_t in_stride, uint32_t n_rows, size_t n_cols)
{
    for (uint32_t i = 0; i < PANEL_OUTPUTS; i += TILE_OUTPUTS) {
        uint32_t r = 0;

        for (; r + TILE_ROWS <= n_rows; r += TILE_ROWS)
            tile(p, r, i, in + r * in_stride, in_stride, TILE_ROWS, n_cols);
        if (n_rows - r == 2)
            tile(p, r, i, in + r * in_stride, in_stride, 2, n_cols);
        else if (n_rows - r == 1)
            tile(p, r, i, in + r * in_stride, in_stride, 1, n_cols);
    }
}

LANES_INLINE void panel_rows(struct panel *p, float *out, size_t out_stride, const float *in,
                             size_t in_stride, uint32_t n_rows, enum dtype dtype, size_t cols,
                             const struct weight_rows *g, uint32_t n_outputs)
{
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < PANEL_OUTPUTS; i++)
            p->sum[r][i] = lanes_set(0.0f);

    for (size_t from = 0; from < cols; from += SCALE_BLOCK) {
        widen_panel(p, dtype, g, from / SCALE_BLOCK, cols);
        multiply_panel(p, in + from, in_stride, n_rows,
                       cols - from < SCALE_BLOCK ? cols - from : SCALE_BLOCK);
    }
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < n_outputs; i++)
            out[r * out_stride + i] = lanes_sum(p->sum[r][i]);
}

/* Rows whose inputs stay in the second-level cache while all panels go past them. */
LANES_INLINE uint32_t rows_together(size_t cols)
{
    const size_t fit = ROWS_SIZE / (cols * sizeof(float)) / TILE_ROWS * TILE_ROWS;

    return fit < TILE_ROWS ? TILE_ROWS : fit < PANEL_ROWS ? (uint32_t)fit : PANEL_ROWS;
}

LANES_INLINE void by_panels(float *out, size_t out_stride, const float *in, size_t in_stride,
                            uint32_t n_rows, enum dtype dtype, const struct matrix *w,
                            uint32_t begin, uint32_t end)
{
    const uint32_t most = rows_together(w->cols);
    struct weight_rows g;
    struct panel p;

    for (uint32_t r = 0; r < n_rows; r += most)
        for (uint32_t o = begin; o < end; o += PANEL_OUTPUTS) {
            open_rows(&g, w, o, end, PANEL_OUTPUTS);
            panel_rows(&p, out + r * out_stride + o, out_stride, in + r * in_stride, in_stride,
                       n_rows - r < most ? n_rows - r : most, dtype, w->cols, &g,
                       end - o < PANEL_OUTPUTS ? end - o : PANEL_OUTPUTS);
        }
}

/* ---- all types ---- */

LANES_INLINE void matmul_of(float *out, size_t out_stride, const float *in, size_t in_stride,
                            uint32_t n_rows, enum dtype dtype, const struct matrix *w,
                            uint32_t begin, uint32_t end)
{
    if (n_rows <= DIRECT_ROWS)
        direct(out, out_stride, in, in_stride, n_rows, dtype, w, begin, end);
    else
        by_panels(out, out_stride, in, in_stride, n_rows, dtype, w, begin, end);
}

static void matmul(float *out, size_t out_stride, const float *in, size_t in_stride,
                   uint32_t n_rows, const struct matrix *w, uint32_t begin, uint32_t end)
{
    assert(begin <= end && end <= w->rows && w->cols > 0);
    if (n_rows == 0) /* everybody has left the step behind its last layer */
        return;
    switch (w->dtype) {
    case DTYPE_F8_E4M3:
        matmul_of(out, out_stride, in, in_stride, n_rows, DTYPE_F8_E4M3, w, begin, end);
        break;
    case DTYPE_BF16:
        matmul_of(out, out_stride, in, in_stride, n_rows, DTYPE_BF16, w, begin, end);
        break;
    case DTYPE_F16:
        matmul_of(out, out_stride, in, in_stride, n_rows, DTYPE_F16, w, begin, end);
        break;
    default:
        assert(w->dtype == DTYPE_F32);
        matmul_of(out, out_stride, in, in_stride, n_rows, DTYPE_F32, w, begin, end);
    }
}

#endif
