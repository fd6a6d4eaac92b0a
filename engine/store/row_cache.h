/* row_cache: the rows of a table that were asked for last, as the table has them.
 *
 * A fixed number of rows, the one unused for longest making way. Engine thread. */
#ifndef STORE_ROW_CACHE_H
#define STORE_ROW_CACHE_H

#include <stdint.h>

struct err;
struct row_cache;

uint64_t row_cache_size(uint64_t row_size, uint32_t n_rows); /* bytes it holds; 0 for no rows */
/* n_rows at least 1. */
int row_cache_open(struct row_cache **out, uint64_t row_size, uint32_t n_rows, struct err *err);
void row_cache_close(struct row_cache *c); /* NULL is fine */
/* The row, which counts as used now; NULL when it is not there. Valid until the next put. */
const char *row_cache_find(struct row_cache *c, uint64_t id);
/* Copies a row that is not there. */
void row_cache_put(struct row_cache *c, uint64_t id, const char *row);

#endif
