#include "run/tables.h"

#include "io/io.h"
#include "run/headers.h"
#include "store/catalog.h"
#include "store/loader.h"
#include "store/row_store.h"
#include "util/err.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MAX_CONSTANT = 256 }; /* values of one tensor */

static int load_one(void *to, const struct tensor *tensor, bool to_f32, struct io *io,
                    const struct tables_means *means, struct err *err)
{
    const struct load_means how = { .drives = means->drives, .io = io,
                                    .buffer_bytes = LOADER_LEAST_BYTES,
                                    .stall_timeout_ms = means->stall_timeout_ms };
    struct load load = { .tensor = tensor, .to = to, .to_f32 = to_f32 };

    return loader_run(&load, 1, &how, err);
}

static int check_constant(const struct model_headers *h, const struct catalog_item *item,
                          struct io *io, const struct tables_means *means, struct err *err)
{
    int64_t values[MAX_CONSTANT];

    if (item->tensor->size > sizeof values)
        return err_set(err, ERR_UNSUPPORTED, "tensor '%s': %" PRIu64 " bytes of constants",
                       item->want.name, item->tensor->size);
    if (load_one(values, item->tensor, false, io, means, err) < 0)
        return -1;
    return h->family->check_constant(&h->config, &item->want, values, err);
}

/* The parts of a table stand in the catalog by their numbers. */
static int open_table(struct tables *t, uint32_t nth, const struct model_headers *h,
                      const struct tensor **parts, const struct tables_means *means,
                      struct err *err)
{
    const struct table_shape *shape = &h->shape.ngram;
    struct row_table table = { .parts = parts, .cached = means->cached };
    const struct tensor *scale = NULL;

    for (uint32_t i = 0; i < h->catalog->n_items; i++) {
        const struct catalog_item *item = &h->catalog->items[i];
        if (item->want.layer != shape->layers[nth])
            continue;
        if (item->want.role == ROLE_CONSTANT &&
            check_constant(h, item, t->io[nth], means, err) < 0)
            return -1;
        if (item->want.role != ROLE_TABLE)
            continue;
        if (table.n_parts == shape->n_parts)
            return err_set(err, ERR_FORMAT, "tensor '%s': the table has %" PRIu32 " parts",
                           item->want.name, shape->n_parts);
        parts[table.n_parts++] = item->tensor;
        scale = item->scale;
    }
    if (scale && load_one(&table.scale, scale, true, t->io[nth], means, err) < 0)
        return -1;
    return row_store_open(&t->store[nth], &table, means->drives, t->io[nth], ROW_STORE_DEPTH,
                          means->stall_timeout_ms, err);
}

int tables_open(struct tables *t, const struct model_headers *h, const struct tables_means *means,
                struct err *err)
{
    const struct table_shape *shape = &h->shape.ngram;
    int rc = 0;

    if (shape->n_tables == 0)
        return 0;
    const struct tensor **parts = calloc(shape->n_parts, sizeof(const struct tensor *));
    if (!parts)
        return err_set(err, ERR_NOMEM, "a table of %" PRIu32 " parts", shape->n_parts);
    for (uint32_t i = 0; rc == 0 && i < shape->n_tables; i++) {
        rc = io_open(&t->io[i], IO_AUTO, ROW_STORE_DEPTH, err);
        if (rc == 0) {
            t->io[i]->ended = means->reads_ended;
            rc = open_table(t, i, h, parts, means, err);
        }
    }
    free(parts);
    return rc;
}

void tables_close(struct tables *t)
{
    for (uint32_t i = 0; i < SHAPE_MAX_TABLES; i++) {
        row_store_close(t->store[i]);
        io_close(t->io[i]);
    }
    *t = (struct tables){ 0 };
}
