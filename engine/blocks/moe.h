/* moe: a routed mixture of experts (Shazeer et al. 2017; softmax before top-k).
 *
 * All rows are routed, grouped by expert, and the union is ordered once from the store: an
 * expert that several rows or sequences want is read once. Ready experts compute while others
 * arrive. Each (row, choice) result has a place of its own and the sum is taken in the
 * router's order, so the order of arrival cannot matter. */
#ifndef BLOCKS_MOE_H
#define BLOCKS_MOE_H

#include "kernels/weights.h"

#include <stdbool.h>
#include <stdint.h>

struct err;
struct expert_loan;
struct expert_order;
struct step;

struct moe_shape {
    uint32_t hidden, width; /* width: "moe_intermediate_size" */
    uint32_t n_experts, n_choices; /* "num_experts", "num_experts_per_tok" */
    bool normalise; /* "norm_topk_prob": chosen weights are divided by their sum */
};

/* Scratch bytes for n_rows; *choices is the part for per-choice outputs. */
uint64_t moe_scratch_size(const struct moe_shape *shape, uint32_t n_rows, uint64_t *choices);

/* Loans of one order as they are taken: a batch at a time, all of it returned before the next. */
struct moe_batches {
    const uint32_t *first; /* [n_experts + 1]: expert e has first[e + 1] - first[e] rows */
    uint32_t most_rows;    /* of a batch: moe_batch_rows */
    void (*compute)(void *ctx, const struct expert_loan *loans, uint32_t n);
    void *ctx;
};
uint32_t moe_batch_rows(uint32_t n_rows, uint32_t n_choices);
/* Takes what is ready into one batch, computes it, returns it, until the order is done. Waits for a
 * read only when it has nothing to compute. */
int moe_take_all(struct expert_order *order, const struct moe_batches *b, struct err *err);

/* x [n_rows, hidden] += moe(in). router: mlp.gate.weight [n_experts, hidden]. */
int moe_forward(float *x, const float *in, const struct moe_shape *shape,
                const struct matrix *router, uint32_t layer, struct step *step, struct err *err);

#endif
