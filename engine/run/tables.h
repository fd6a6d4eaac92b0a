/* tables: a model's n-gram tables, found in the checkpoint and opened for reading by row.
 *
 * None is ever resident. What the checkpoint says of how they are looked up is compared with what
 * the family computes. Engine thread. */
#ifndef RUN_TABLES_H
#define RUN_TABLES_H

#include "store/shape.h"

#include <stdint.h>

struct drives;
struct err;
struct io;
struct model_headers;
struct row_store;

struct tables { /* zero it */
    struct row_store *store[SHAPE_MAX_TABLES]; /* in the shape's order; owned */
    struct io *io[SHAPE_MAX_TABLES];           /* one user each; owned */
};

struct tables_means {
    const struct drives *drives;
    uint32_t cached; /* rows of each kept in memory */
    uint32_t stall_timeout_ms;
    _Atomic uint64_t *reads_ended; /* as in struct cz_watch; may be NULL */
};

/* A model without tables has nothing to open. tables_close also after a failure. */
int tables_open(struct tables *t, const struct model_headers *h, const struct tables_means *means,
                struct err *err);
void tables_close(struct tables *t);

#endif
