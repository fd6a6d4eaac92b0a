/* loader: many tensors from the drives to their places in memory, in one sweep.
 *
 * Works through the files in the order of their bytes: large tensors in pieces, small
 * neighbours together in one read, several reads under way, each through a bounce
 * buffer because tensors start at any byte and O_DIRECT does not. FP8 is looked
 * through for NaN codes on the way; what becomes F32 or FP8 must be finite.
 *
 * A matrix that becomes FP8 does so in strips of 128 rows, as soon as a strip is there: the whole
 * is never in memory as it was. Its bytes are taken in their order, whatever that of the reads. */
#ifndef STORE_LOADER_H
#define STORE_LOADER_H

#include "formats/safetensors.h"

#include <stdbool.h>
#include <stdint.h>

struct err;
struct drives;
struct io;
struct pool;

struct load {
    const struct tensor *tensor; /* borrowed */
    char *to;    /* its bytes as they are, or, with to_f32, its elements as F32, */
    float *scales; /* or, with scales, a matrix's as F8_E4M3, and a scale for each block; or NULL */
    bool to_f32; /* F32, F16 and BF16 */
    bool add_one; /* with to_f32: to each element, afterwards */
    uint64_t left; /* the loader's own */
};

enum { LOADER_LEAST_BYTES = 32 << 10 };

struct load_means { /* borrowed */
    const struct drives *drives;
    struct io *io;             /* used by nobody else meanwhile */
    uint64_t buffer_bytes;     /* at least LOADER_LEAST_BYTES; taken while it works, */
                               /* and loader_strip_size of each load with scales beside it */
    struct pool *pool;         /* that quantises; may be NULL */
    uint32_t stall_timeout_ms; /* no read ended for so long: ERR_IO; 0: never */
    /* May be NULL; false gives up. Called several times a second, also while a drive is silent. */
    bool (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
};

/* What a matrix takes while it is quantised: the largest of all is taken. */
uint64_t loader_strip_size(uint64_t rows, uint64_t cols, enum dtype dtype);

/* Loads all, which it sorts. A read that fails is tried once more, then ERR_IO. Whatever it
 * returns, no read writes into anything of the caller's then. */
int loader_run(struct load *loads, uint32_t n_loads, const struct load_means *means,
               struct err *err);

#endif
