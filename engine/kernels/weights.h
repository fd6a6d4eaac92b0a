/* weights: a matrix as the checkpoint holds it, and how to look at it. */
#ifndef KERNELS_WEIGHTS_H
#define KERNELS_WEIGHTS_H

#include "formats/dtype.h"

#include <stdint.h>

enum { SCALE_BLOCK = 128 };

/* A tagged view; owns nothing. data may have any alignment. */
struct matrix {
    enum dtype dtype; /* F32, F16, BF16 or F8_E4M3 */
    uint32_t rows, cols;
    const void *data;    /* [rows, cols], row-major */
    const float *scales; /* F8_E4M3: [ceil(rows/128), ceil(cols/128)] multipliers; else NULL */
};

/* A gated feed-forward block: out = down(silu(gate x) * (up x)). */
struct expert_weights {
    struct matrix gate, up; /* [intermediate, hidden] */
    struct matrix down;     /* [hidden, intermediate] */
};

#endif
