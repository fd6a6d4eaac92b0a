/* hyper: hyper-connections, residuals in several streams (Zhu et al. 2024; gated and low-rank as
 * in Qwen4-Exp).
 *
 * In place of x += block(norm(x)) a layer reads one vector out of all streams, gated per value,
 * and writes the block's answer back into each by its own factor:
 *   u = norm(h), each stream by itself      a = silu(down u / C)      s = sigmoid(up a)
 *   m = mean over streams of s * u          i = 2 sigmoid(inject u / C)
 *   h_c += i_c * block(m)
 * There is no other norm in such a model. Streams are [n_streams, hidden], one after the other. */
#ifndef BLOCKS_HYPER_H
#define BLOCKS_HYPER_H

#include "kernels/weights.h"

#include <stdint.h>

struct err;
struct step;

struct hyper_shape {
    uint32_t hidden, n_streams; /* "hidden_size", "hc_count" */
    uint32_t low_rank;          /* "hc_lowrank" */
    float eps;                  /* "rms_norm_eps" */
};

struct hyper_weights {
    const float *norm;  /* [n_streams, hidden] 1 + hc_norm.weight */
    struct matrix down; /* [low_rank, n_streams * hidden] input_mix_weight_down.weight */
    struct matrix up;   /* [n_streams * hidden, low_rank] input_mix_weight_up.weight */
    struct matrix inject; /* [n_streams, n_streams * hidden] block_inject_weight.weight; data NULL
                             in front of the head, which only reads */
};

uint64_t hyper_scratch_size(const struct hyper_shape *shape, uint32_t n_rows);

/* out [n_rows, hidden]; inject [n_rows, n_streams], NULL where the weights have none. streams
 * [n_rows, n_streams * hidden]. */
int hyper_read(float *out, float *inject, const float *streams, const struct hyper_shape *shape,
               const struct hyper_weights *w, struct step *step, struct err *err);
/* streams += inject * answer [n_rows, hidden]. */
void hyper_write(float *streams, const float *answer, const float *inject,
                 const struct hyper_shape *shape, struct step *step);
/* Every stream begins as the embedding: streams from rows [n_rows, hidden]. */
void hyper_begin(float *streams, const float *rows, const struct hyper_shape *shape,
                 const struct step *step);

#endif
