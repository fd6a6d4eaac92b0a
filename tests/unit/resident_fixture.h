/* resident_fixture: a made-up checkpoint of what stays in memory, and its loading. */
#ifndef TESTS_RESIDENT_FIXTURE_H
#define TESTS_RESIDENT_FIXTURE_H

#include "store/resident.h"

#include "fake_io.h"
#include "io/drives.h"
#include "store/loader.h"

enum { BUFFERS = 1 << 20 };

struct house {
    struct fixture f;
    struct fake_io fake;
    struct drives *drives;
    struct resident *resident;
    struct catalog_item *items; /* the catalog's */
    struct pool *pool;
    bool f8_dense;
};

static inline struct catalog_item *
add_item(struct house *h, const char *name, enum tensor_role role, uint32_t file, uint64_t skip,
         enum dtype dtype, uint64_t rows, uint64_t cols)
{
    struct catalog_item *item = &h->items[h->f.catalog.n_items++];

    *item = (struct catalog_item){
        .tensor = fixture_tensor(&h->f, name, file, fixture_end(&h->f, file) + skip, dtype, rows,
                                 cols),
        .want = { .role = role, .n_dims = rows ? 2 : 1, .dims = { rows ? rows : cols, cols } },
    };
    snprintf(item->want.name, sizeof item->want.name, "%s", name);
    return item;
}

static inline void add_scale(struct house *h, struct catalog_item *item, enum dtype dtype)
{
    char name[128];

    snprintf(name, sizeof name, "%.100s_scale_inv", item->want.name);
    item->scale = fixture_tensor(&h->f, name, item->tensor->file,
                                 fixture_end(&h->f, item->tensor->file), dtype,
                                 size_div_up(item->want.dims[0], 128),
                                 size_div_up(item->want.dims[1], 128));
}

static inline int open_with(struct house *h, struct io *io, uint64_t buffers, struct err *err)
{
    if (!h->drives && drives_open(&h->drives, &h->f.shards, true, err) < 0)
        fail_msg("%s", err->text);
    const struct load_means means = { .drives = h->drives, .io = io, .buffer_bytes = buffers,
                                      .pool = h->pool };
    return resident_open(&h->resident, &h->f.catalog, h->f8_dense, &means, err);
}

static inline void open_ok(struct house *h, struct io *io, uint64_t buffers)
{
    struct err err = { 0 };

    if (open_with(h, io, buffers, &err) < 0)
        fail_msg("%s", err.text);
}

static inline void tear_down(struct house *h)
{
    resident_close(h->resident);
    drives_close(h->drives);
    fixture_done(&h->f); /* with the items, which are the catalog's */
}

#endif
