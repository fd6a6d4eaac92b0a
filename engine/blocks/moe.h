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
struct step;

struct moe_shape {
    uint32_t hidden, width; /* width: "moe_intermediate_size" */
    uint32_t n_experts, n_choices; /* "num_experts", "num_experts_per_tok" */
    bool normalise; /* "norm_topk_prob": chosen weights are divided by their sum */
};

/* Scratch bytes for n_rows; *choices is the part for per-choice outputs. */
uint64_t moe_scratch_size(const struct moe_shape *shape, uint32_t n_rows, uint64_t *choices);

/* x [n_rows, hidden] += moe(in). router: mlp.gate.weight [n_experts, hidden]. */
int moe_forward(float *x, const float *in, const struct moe_shape *shape,
                const struct matrix *router, uint32_t layer, struct step *step, struct err *err);

#endif
