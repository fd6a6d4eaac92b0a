/* gqa: grouped-query attention with per-head norms of q and k (Ainslie et al. 2023; the
 * norms as in Qwen3).
 *
 * Writes the rows' keys and values to their sequences' pages first, rounded as the pool
 * keeps them; then every row reads the pages, its own token included. So a row's result is
 * the same whether its neighbours came in this step or an earlier one. */
#ifndef BLOCKS_GQA_H
#define BLOCKS_GQA_H

#include "kernels/weights.h"

#include <stdint.h>

struct err;
struct kv_seq;
struct step;

struct gqa_shape {
    uint32_t hidden, n_heads, n_kv_heads, head_dim;
    float eps;   /* "rms_norm_eps" */
    float scale; /* head_dim^-1/2 */
};

struct gqa_weights {
    struct matrix q, k, v, o; /* self_attn.{q,k,v,o}_proj.weight */
    const float *q_norm, *k_norm; /* [head_dim] self_attn.{q,k}_norm.weight */
};

/* Scratch bytes for n_rows. */
uint64_t gqa_scratch_size(const struct gqa_shape *shape, uint32_t n_rows);

/* out [n_rows, hidden] = attention(in); seqs[i] belongs to step.states[i]. */
int gqa_forward(float *out, const float *in, const struct gqa_shape *shape,
                const struct gqa_weights *w, uint32_t layer, struct kv_seq *const *seqs,
                struct step *step, struct err *err);

#endif
