#include "store/row_cache.h"

#include "util/err.h"
#include "util/region.h"
#include "util/size.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = UINT32_MAX };

/* One row: in the list from the newest to the oldest, and in the chain of its bucket. */
struct place {
    uint64_t id;
    uint32_t newer, older, chain;
};

struct row_cache {
    uint64_t row_size;
    uint32_t cap, n;
    uint32_t mask, newest, oldest;
    uint32_t *buckets; /* [mask + 1]; in memory, as the rest */
    struct place *places; /* [cap] */
    char *rows;           /* [cap, row_size] */
    struct region memory;
};

static uint32_t n_buckets(uint32_t n_rows)
{
    uint32_t n = 1;

    while (n < n_rows && n < UINT32_C(1) << 31)
        n *= 2;
    return n;
}

static uint64_t parts(uint64_t row_size, uint32_t n_rows, uint64_t *places, uint64_t *rows)
{
    uint64_t size = (uint64_t)n_buckets(n_rows) * sizeof(uint32_t), all;

    *places = size = size_up(size, 64);
    size += (uint64_t)n_rows * sizeof(struct place);
    *rows = size_up(size, 64);
    if (!size_mul(&all, n_rows, row_size) || !size_add(&size, *rows, all))
        return UINT64_MAX;
    return size;
}

uint64_t row_cache_size(uint64_t row_size, uint32_t n_rows)
{
    uint64_t places, rows, size = parts(row_size, n_rows, &places, &rows);

    return n_rows == 0 || size == UINT64_MAX ? size * (n_rows > 0)
                                             : region_size(size, REGION_SMALL);
}

int row_cache_open(struct row_cache **out, uint64_t row_size, uint32_t n_rows, struct err *err)
{
    uint64_t places, rows, size = parts(row_size, n_rows, &places, &rows);
    struct row_cache *c = calloc(1, sizeof *c);

    assert(n_rows > 0);
    if (!c || size == UINT64_MAX) {
        free(c);
        return err_set(err, ERR_NOMEM, "a cache of %" PRIu32 " rows", n_rows);
    }
    if (region_open(&c->memory, size, REGION_SMALL, err) < 0) {
        free(c);
        return err_within(err, "a cache of %" PRIu32 " rows", n_rows);
    }
    char *base = c->memory.base;
    c->row_size = row_size;
    c->cap = n_rows;
    c->mask = n_buckets(n_rows) - 1;
    c->newest = c->oldest = NONE;
    c->buckets = (uint32_t *)(void *)base;
    c->places = (struct place *)(void *)(base + places);
    c->rows = base + rows;
    memset(c->buckets, 0xff, (c->mask + 1ull) * sizeof *c->buckets);
    *out = c;
    return 0;
}

void row_cache_close(struct row_cache *c)
{
    if (!c)
        return;
    region_close(&c->memory);
    free(c);
}

/* Ids are hashes already, or small; the multiplier is 2^64 over the golden ratio. */
static uint32_t bucket_of(const struct row_cache *c, uint64_t id)
{
    return (uint32_t)((id * 0x9e3779b97f4a7c15u) >> 32) & c->mask;
}

static void leave_list(struct row_cache *c, uint32_t i)
{
    const struct place *p = &c->places[i];

    if (p->newer == NONE)
        c->newest = p->older;
    else
        c->places[p->newer].older = p->older;
    if (p->older == NONE)
        c->oldest = p->newer;
    else
        c->places[p->older].newer = p->newer;
}

static void enter_list(struct row_cache *c, uint32_t i)
{
    c->places[i].newer = NONE;
    c->places[i].older = c->newest;
    if (c->newest == NONE)
        c->oldest = i;
    else
        c->places[c->newest].newer = i;
    c->newest = i;
}

static void leave_chain(struct row_cache *c, uint32_t i)
{
    uint32_t *at = &c->buckets[bucket_of(c, c->places[i].id)];

    while (*at != i)
        at = &c->places[*at].chain;
    *at = c->places[i].chain;
}

static uint32_t find(const struct row_cache *c, uint64_t id)
{
    uint32_t i = c->buckets[bucket_of(c, id)];

    while (i != NONE && c->places[i].id != id)
        i = c->places[i].chain;
    return i;
}

const char *row_cache_find(struct row_cache *c, uint64_t id)
{
    uint32_t i = find(c, id);

    if (i == NONE)
        return NULL;
    leave_list(c, i);
    enter_list(c, i);
    return c->rows + i * c->row_size;
}

void row_cache_put(struct row_cache *c, uint64_t id, const char *row)
{
    uint32_t *bucket = &c->buckets[bucket_of(c, id)], i = c->n;

    assert(find(c, id) == NONE);
    if (c->n < c->cap) {
        c->n++;
    } else {
        i = c->oldest;
        leave_list(c, i);
        leave_chain(c, i);
    }
    c->places[i].id = id;
    c->places[i].chain = *bucket;
    *bucket = i;
    enter_list(c, i);
    memcpy(c->rows + i * c->row_size, row, c->row_size);
}
