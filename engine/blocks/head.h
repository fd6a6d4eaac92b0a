/* head: final norm and vocabulary product for the rows that want logits.
 *
 * Goes over the wanted rows a few at a time, so that memory is bounded by logit_rows and the
 * head's weights are still shared by several rows. */
#ifndef BLOCKS_HEAD_H
#define BLOCKS_HEAD_H

#include "kernels/weights.h"

#include <stdint.h>

struct err;
struct step;

struct head {
    const float *norm;    /* [hidden] model.norm.weight; NULL: none, rows are taken as they are */
    struct matrix weight; /* [vocab, hidden] lm_head.weight, or the embedding when tied */
    float eps;
    uint32_t logit_rows;
};

uint64_t head_scratch_size(uint32_t vocab, uint32_t hidden, uint32_t logit_rows);
int head_forward(const float *hidden, const struct head *head, struct step *step,
                 struct err *err);

/* Root-mean-square norm of all rows of the step, over the pool. out may not be x. */
void norm_rows(float *out, const float *x, const float *weight, uint32_t dim, float eps,
               struct step *step);

#endif
