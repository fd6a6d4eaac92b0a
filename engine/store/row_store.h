/* row_store: rows of a huge table, read by id.
 *
 * A few rows per token are no reason to keep a table resident: the token embedding and hashed
 * n-gram tables are read from disk row by row (a tied head makes the embedding resident; then rows
 * come from there). A table may be cut into several tensors; rows that lie in the same pages of
 * the drive are read together, and a cache may keep those that were read last. Engine thread. */
#ifndef STORE_ROW_STORE_H
#define STORE_ROW_STORE_H

#include "formats/safetensors.h"
#include "kernels/weights.h"

#include <stdint.h>

struct err;
struct drives;
struct io;
struct row_store;

enum { ROW_STORE_DEPTH = 16 }; /* reads under way at once, of a store in use */

/* Borrowed for the life of the store, but for the struct and the list itself. */
struct row_table {
    const struct tensor *const *parts; /* [rows of it, n_cols] each: rows are numbered through */
    uint32_t n_parts;
    float scale;     /* F8_E4M3: of every value. Else not looked at */
    uint32_t cached; /* rows kept in memory; 0: none */
};

/* Buffers for reads under way, and the cache. */
uint64_t row_store_size(const struct tensor *part, uint32_t cached, uint32_t depth);
/* stall_timeout_ms: no read ended for so long is ERR_IO; 0: never. */
int row_store_open(struct row_store **out, const struct row_table *table, const struct drives *d,
                   struct io *io, uint32_t depth, uint32_t stall_timeout_ms, struct err *err);
/* Rows from a resident matrix instead; needs no io. */
int row_store_open_resident(struct row_store **out, const struct matrix *table, struct err *err);
void row_store_close(struct row_store *s); /* NULL is fine; waits for reads as io_forget does */
/* out[i] = row ids[i] as F32, [n, cols]. ids are below the table's rows. A read that fails is
 * tried once more. ERR_NUMERIC names a row of F8_E4M3 that holds a code for no number. After an
 * error the store stays usable: reads that did not end keep their buffers until they do, and
 * others go through what is left. */
int row_store_read(struct row_store *s, float *out, const uint64_t *ids, uint32_t n,
                   struct err *err);
uint64_t row_store_rows(const struct row_store *s);

struct row_store_stats {
    uint64_t hits, misses, reads; /* misses: rows; reads: of the drive, each of one or more rows */
    uint32_t parts_read;          /* of the table's parts, those that a read went to */
};
void row_store_stats(const struct row_store *s, struct row_store_stats *out);

#endif
