/* ffn: gated feed-forward blocks, several at once over the pool. Shazeer 2020 (SwiGLU):
 * out = down(silu(gate x) * (up x)). */
#ifndef BLOCKS_FFN_H
#define BLOCKS_FFN_H

#include "kernels/weights.h"

#include <stdint.h>

struct err;
struct step;

/* One block over its own rows. in [n_rows, hidden]; gate and up are scratch
 * [n_rows, width]; out [n_rows, hidden]. */
struct ffn_job {
    const struct expert_weights *w;
    const float *in;
    float *gate, *up, *out;
    uint32_t n_rows;
};

/* Output rows of all jobs are shared out together, so that eight one-row experts keep all
 * threads busy as well as one block with many rows does. */
void ffn_run(const struct ffn_job *jobs, uint32_t n_jobs, struct step *step);

/* x [n_rows, hidden] += ffn(in), a dense layer with resident weights. */
uint64_t ffn_scratch_size(uint32_t hidden, uint32_t width, uint32_t n_rows);
int ffn_forward(float *x, const float *in, const struct expert_weights *w, struct step *step,
                struct err *err);

#endif
