/* quantize: a matrix of floats as F8_E4M3 with a scale for each block of 128x128.
 *
 * Of a block: scale = the largest magnitude / 448, in F32; each code is the one nearest to the
 * F32 quotient weight / scale, ties to the even code, 448 at most. A block of zeros has scale 1.
 * No scale is below 2^-100, so that no quotient rests on a subnormal number: weights below 2^-110
 * become zero. What a block becomes depends on its own weights alone, on every machine. Any
 * thread. */
#ifndef KERNELS_QUANTIZE_H
#define KERNELS_QUANTIZE_H

#include "formats/dtype.h"

#include <stdbool.h>
#include <stdint.h>

struct pool;

/* Up to 128 rows of a matrix, from a row that begins blocks. */
struct quantize_strip {
    const void *weights; /* [rows, cols], any alignment */
    enum dtype dtype;    /* F32, F16 or BF16 */
    uint32_t rows, cols;
    uint8_t *codes; /* [rows, cols] */
    float *scales;  /* [ceil(cols/128)] */
};

/* Shares the blocks out over the pool, which may be NULL. false: a weight is not finite, which
 * quantize_find_bad finds. */
bool quantize_strip(const struct quantize_strip *s, struct pool *pool);
/* The index of the first weight that is not finite; rows * cols: there is none. */
uint64_t quantize_find_bad(const struct quantize_strip *s);

#endif
