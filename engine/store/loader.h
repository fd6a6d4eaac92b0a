/* loader: many tensors from the drives to their places in memory, in one sweep.
 *
 * Works through the files in the order of their bytes: large tensors in pieces, small
 * neighbours together in one read, several reads under way, each through a bounce
 * buffer because tensors start at any byte and O_DIRECT does not. FP8 is looked
 * through for NaN codes on the way; what becomes F32 must be finite. */
#ifndef STORE_LOADER_H
#define STORE_LOADER_H

#include "formats/safetensors.h"

#include <stdbool.h>
#include <stdint.h>

struct err;
struct drives;
struct io;

struct load {
    const struct tensor *tensor; /* borrowed */
    char *to;    /* its bytes as they are, or, with to_f32, its elements as F32 */
    bool to_f32; /* F32, F16 and BF16 */
    uint64_t left; /* the loader's own */
};

/* Loads all, which it sorts. buffer_bytes (at least LOADER_LEAST_BYTES) are taken while
 * it works. A read that fails is tried once more, then ERR_IO. progress may be NULL;
 * false gives up with ERR_CANCELLED. Whatever it returns, no read is under way then. */
enum { LOADER_LEAST_BYTES = 32 << 10 };
int loader_run(struct load *loads, uint32_t n_loads, const struct drives *d, struct io *io,
               uint64_t buffer_bytes, bool (*progress)(void *ctx, uint64_t done, uint64_t total),
               void *ctx, struct err *err);

#endif
