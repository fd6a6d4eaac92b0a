/* kernels: the mathematics, as plain functions over plain pointers.
 *
 * A table of functions for one instruction set, chosen once by CPUID or by name.
 * The scalar table is the reference and always built. Promises of every table:
 *
 *  - The result for one row and one output depends on that row and the weights
 *    alone: not on n_rows, on [begin, end), on alignment or on the caller's thread.
 *    Two tables may differ in the last bits (sums are ordered by lane count).
 *  - Sums are F32 or wider; FP8 codes are converted exactly; nothing depends on
 *    the MXCSR denormal bits.
 *  - No allocation, no locks. Any thread. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "kernels/weights.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct pool;

enum kernel_class { KERNELS_AUTO, KERNELS_SCALAR, KERNELS_AVX2, KERNELS_AVX512 };

/* Where a sequence's keys and values lie: pages of page_tokens tokens. For a layer
 * and a KV head, the keys of page p are [page_tokens, head_dim] at pages[p] +
 * k_offset, the values likewise at v_offset. */
struct kv_view {
    enum dtype dtype; /* F32 or BF16 */
    uint32_t page_tokens, head_dim;
    char *const *pages;
    size_t k_offset, v_offset;
};

struct kernels {
    enum kernel_class class;
    const char *name; /* "scalar", "avx2", "avx512" */

    /* out[r][o] = sum_c w[o][c] * in[r][c] for o in [begin, end), r in [0, n_rows).
     * Strides are in floats. Weights are read once for all rows (in blocks of a few
     * rows); software prefetch runs ahead past the end of each row group. */
    void (*matmul)(float *out, size_t out_stride, const float *in, size_t in_stride,
                   uint32_t n_rows, const struct matrix *w, uint32_t begin, uint32_t end);

    /* Root-mean-square norm of one row, Zhang and Sennrich 2019 equation 4:
     * out = x / sqrt(mean(x^2) + eps) * weight. out may be x. */
    void (*rmsnorm)(float *out, const float *x, const float *weight, size_t dim, float eps);

    /* Rotary embedding in place on one head: pairs (i, i + dim/2), i < dim/2
     * (Su et al. 2021, half-split as in the HF models). cos, sin: [dim/2]. */
    void (*rope)(float *x, const float *cos, const float *sin, size_t dim);

    /* gate[i] = silu(gate[i]) * up[i]. */
    void (*silu_mul)(float *gate, const float *up, size_t n);

    /* x[i] = silu(scale * x[i]). */
    void (*silu)(float *x, float scale, size_t n);
    /* x[i] *= sigmoid(gate[i]). */
    void (*sigmoid_mul)(float *x, const float *gate, size_t n);
    /* x *= scale / sqrt(sum(x^2) + eps). */
    void (*l2norm)(float *x, float scale, size_t dim, float eps);

    /* Depthwise convolution over time and SiLU: out[c] = silu(sum_t taps[c][t] * in[t][c]) for c in
     * [0, n), taps [n, n_taps], rows of `in` from the oldest on. */
    void (*conv_silu)(float *out, const float *const *in, const float *taps, uint32_t n_taps,
                      size_t n);

    /* One token of one head of the gated delta rule (Yang et al. 2024, arXiv 2412.06464):
     *   S = decay * from    d = beta * (v - S^T k)    to = S + k d^T    out = to^T q
     * Matrices are [key_dim, value_dim]; `to` may be `from`. The output is summed from `from`,
     * as decay * from^T q + (k q) d, so that two passes do. */
    void (*delta_step)(float *out, float *to, const float *from, const float *q, const float *k,
                       const float *v, float decay, float beta, size_t key_dim, size_t value_dim);

    void (*add)(float *x, const float *y, size_t n);            /* x += y */
    void (*add_scaled)(float *x, const float *y, float s, size_t n); /* x += s * y */

    /* Causal attention of one row: n_heads query heads that share one KV head.
     *   out, q   [n_heads, head_dim]
     *   n_tokens how many cached tokens the row sees, its own included
     *   scale    usually head_dim^-1/2
     * Softmax in F32, by spans of tokens in page order (running maximum and sum), so
     * the result does not depend on how the cache was filled. Pages may be as small as
     * a token. head_dim <= 256, n_heads <= 32. */
    void (*attend)(float *out, const float *q, uint32_t n_heads, const struct kv_view *kv,
                   uint32_t n_tokens, float scale);

    /* Rounds n values to dtype (F32 or BF16, nearest even) at dst. */
    void (*store_row)(void *dst, enum dtype dtype, const float *src, size_t n);
};

/* ERR_UNSUPPORTED when the CPU lacks what the class needs. The result is static. */
int kernels_choose(const struct kernels **out, enum kernel_class want, struct err *err);
bool kernels_parse(enum kernel_class *out, const char *name); /* "auto", "scalar", ... */

/* The whole product, its output rows shared out over the pool. */
void matmul_pooled(const struct kernels *k, struct pool *pool, float *out, size_t out_stride,
                   const float *in, size_t in_stride, uint32_t n_rows, const struct matrix *w);

/* Softmax in place over n logits, in F32, maximum subtracted. */
void softmax(float *x, size_t n);

/* The k largest of x[n], in descending order, ties to the lower index. */
void top_k(uint32_t *index, const float *x, uint32_t n, uint32_t k);

#endif
