/* qsa: attention over the blocks of the past that an indexer picks (Qwen Sparse Attention; the idea
 * of a light indexer as in DeepSeek-V3.2).
 *
 * Tokens stand in aligned blocks. A small head per token keeps a key of its own; when a block is
 * full its keys are averaged, normed and rotated to one block key. A query scores every full block
 *   s = sum over indexer heads of relu(<query, block key>) / sqrt(index_dim)
 * and attends to the tokens of the best ones, ties to the earlier block, and to the block that is
 * not full yet. Up to the budget that is all of the past: plain grouped-query attention with its
 * outputs gated. A full block that holds the query itself competes like any other.
 *
 * Everything is written to the sequence's pages first, rounded as they keep it, and read from
 * there, so a row's result does not depend on what came in the same step. */
#ifndef BLOCKS_QSA_H
#define BLOCKS_QSA_H

#include "kernels/weights.h"

#include <stddef.h>
#include <stdint.h>

struct err;
struct rope;
struct step;

struct qsa_shape {
    uint32_t hidden, n_heads, n_kv_heads, head_dim;
    uint32_t rotated;                /* leading dimensions of a head that are rotated */
    uint32_t n_index_heads, index_dim; /* "indexer_n_heads", "indexer_head_dim" */
    uint32_t block;                  /* "indexer_compress_ratio": tokens */
    uint32_t max_blocks;             /* "indexer_budget" / block */
    float eps;
    bool silu_gate;                  /* "output_gate_type": silu; else sigmoid */
};

struct qsa_weights { /* self_attn. */
    struct matrix q;    /* [n_heads * 2 * head_dim, hidden] q_proj.weight: query, gate, per head */
    struct matrix k, v; /* [n_kv_heads * head_dim, hidden] */
    struct matrix o;    /* [hidden, n_heads * head_dim] */
    struct matrix index; /* [(n_index_heads + 1) * index_dim, hidden] indexer.index_qk_proj.weight:
                            the queries, then the key */
    const float *q_norm, *k_norm; /* [head_dim] 1 + q_norm.weight, 1 + k_norm.weight */
    const float *index_q_norm, *index_k_norm; /* [index_dim] 1 + indexer.{q,k}_layernorm.weight */
};

/* Where a layer's part lies in every page of page_tokens tokens. */
struct qsa_layout {
    enum dtype dtype; /* F32 or BF16 */
    uint32_t page_tokens;
    size_t k, v;      /* of KV head 0: [page_tokens, head_dim]; heads follow each other */
    size_t index;     /* [page_tokens, index_dim] keys as they come */
    size_t blocks;    /* [ceil(page_tokens / block), index_dim] of the full blocks that begin here */
};

/* context: the highest position of a row, and one. */
uint64_t qsa_scratch_size(const struct qsa_shape *s, uint32_t n_rows, uint32_t context);

/* out [n_rows, hidden] = qsa(in); pages[i] are the pages of step.states[i], with room for its
 * rows. rope: of `rotated` dimensions, which step.rope_cos is filled with. The step's
 * counters tell of what was left out. */
int qsa_forward(float *out, const float *in, const struct qsa_shape *shape,
                const struct qsa_weights *w, const struct qsa_layout *layout,
                char *const *const *pages, const struct rope *rope, struct step *step,
                struct err *err);

/* The k best of n scores, ties to the lower index: their indices, rising. work [n] is used up. */
void qsa_select(uint32_t *index, const float *scores, float *work, uint32_t n, uint32_t k);

#endif
