/* row_store: rows of a huge table, read by id.
 *
 * One row per token is no reason to keep a table resident: the token embedding is
 * read from disk row by row (a tied head makes it resident; then rows come from
 * there). Engine thread. */
#ifndef STORE_ROW_STORE_H
#define STORE_ROW_STORE_H

#include "formats/safetensors.h"
#include "kernels/weights.h"

#include <stdint.h>

struct err;
struct drives;
struct io;
struct row_store;

/* Bounce buffers it will take for reads under way. */
uint64_t row_store_size(const struct tensor *table, uint32_t depth);
/* stall_timeout_ms: no read ended for so long is ERR_IO; 0: never. */
int row_store_open(struct row_store **out, const struct tensor *table, const struct drives *d,
                   struct io *io, uint32_t depth, uint32_t stall_timeout_ms, struct err *err);
/* Rows from a resident matrix instead; needs no io. */
int row_store_open_resident(struct row_store **out, const struct matrix *table, struct err *err);
void row_store_close(struct row_store *s); /* NULL is fine; waits for reads as io_forget does */
/* out[i] = row ids[i] as F32, [n, cols]. ids are below the table's rows. A read that fails is
 * tried once more. After an error the store stays usable: reads that did not end keep their
 * buffers until they do, and others go through what is left. */
int row_store_read(struct row_store *s, float *out, const uint32_t *ids, uint32_t n,
                   struct err *err);

#endif
