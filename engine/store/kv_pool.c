#include "store/kv_pool.h"

#include "util/err.h"
#include "util/region.h"
#include "util/size.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct kv_pool {
    struct region region; /* [n_pages, page_size] */
    uint64_t page_size;
    enum dtype dtype;
    uint32_t n_kv_heads;
    size_t head_size; /* bytes of one [KV_PAGE_TOKENS, head_dim] */
    size_t index_at, index_size, block_at, block_size; /* in a page; of one layer */
    uint32_t n_pages, n_free, n_idle, peak;
    uint32_t *counts; /* owned; [n_pages] */
    bool *kept;       /* owned; [n_pages]: one of the count is who keeps it for later */
    uint32_t *free;   /* owned; stack of n_free: the page given last is taken first, for it is
                         the one still in the caches */
};

uint64_t kv_pool_page_size(const struct model_shape *shape, enum dtype dtype)
{
    uint64_t size = dtype_size(dtype);

    if (!size_mul(&size, size, (uint64_t)KV_PAGE_TOKENS * 2) ||
        !size_mul(&size, size, shape_kv_layers(shape)) || !size_mul(&size, size, shape->n_kv_heads) ||
        !size_mul(&size, size, shape->head_dim))
        return UINT64_MAX; /* no budget holds it */
    return size;
}

/* A layer's keys of n tokens or blocks. */
static uint64_t index_size(const struct model_shape *shape, enum dtype dtype, uint64_t n)
{
    return n * shape->index.head_dim * dtype_size(dtype);
}

static uint64_t n_blocks(const struct model_shape *shape)
{
    return shape->index.ratio ? size_div_up(KV_PAGE_TOKENS, shape->index.ratio) : 0;
}

uint64_t kv_pool_index_size(const struct model_shape *shape, enum dtype dtype)
{
    uint64_t size;

    return size_mul(&size, index_size(shape, dtype, shape->index.ratio ? KV_PAGE_TOKENS : 0),
                    shape_kv_layers(shape)) ? size : UINT64_MAX;
}

uint64_t kv_pool_block_size(const struct model_shape *shape, enum dtype dtype)
{
    uint64_t size;

    return size_mul(&size, index_size(shape, dtype, n_blocks(shape)), shape_kv_layers(shape))
               ? size : UINT64_MAX;
}

int kv_pool_open(struct kv_pool **out, const struct model_shape *shape, enum dtype dtype,
                 uint32_t n_pages, struct err *err)
{
    uint64_t kv = kv_pool_page_size(shape, dtype), index = kv_pool_index_size(shape, dtype);
    uint64_t page_size, size;

    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16)
        return err_set(err, ERR_UNSUPPORTED, "KV cache of %s: f32 and bf16 are built",
                       dtype_name(dtype));
    if (!size_add(&page_size, kv, index) ||
        !size_add(&page_size, page_size, kv_pool_block_size(shape, dtype)) ||
        !size_mul(&size, page_size, n_pages))
        return err_set(err, ERR_BUDGET, "KV pool of %u pages: impossible size", n_pages);

    struct kv_pool *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(err, ERR_NOMEM, "KV pool");
    *p = (struct kv_pool){
        .page_size = page_size,
        .dtype = dtype,
        .n_kv_heads = shape->n_kv_heads,
        .head_size = (size_t)KV_PAGE_TOKENS * shape->head_dim * dtype_size(dtype),
        .index_at = kv,
        .index_size = index_size(shape, dtype, KV_PAGE_TOKENS),
        .block_at = kv + index,
        .block_size = index_size(shape, dtype, n_blocks(shape)),
        .n_pages = n_pages,
    };
    p->counts = calloc((size_t)n_pages + 1, sizeof *p->counts);
    p->free = calloc((size_t)n_pages + 1, sizeof *p->free);
    p->kept = calloc((size_t)n_pages + 1, sizeof *p->kept);
    if (!p->counts || !p->free || !p->kept) {
        err_set(err, ERR_NOMEM, "KV pool of %u pages", n_pages);
        goto fail;
    }
    /* Where no layer attends a page holds nothing, and its number still counts tokens. */
    if (size > 0 && region_open(&p->region, size, REGION_HUGE, err) < 0) {
        err_within(err, "KV pool of %u pages", n_pages);
        goto fail;
    }
    while (p->n_free < n_pages) {
        p->free[p->n_free] = n_pages - 1 - p->n_free;
        p->n_free++;
    }
    *out = p;
    return 0;

fail:
    kv_pool_close(p);
    return -1;
}

void kv_pool_close(struct kv_pool *p)
{
    if (!p)
        return;
    region_close(&p->region);
    free(p->counts);
    free(p->free);
    free(p->kept);
    free(p);
}

static void note_peak(struct kv_pool *p)
{
    uint32_t used = p->n_pages - p->n_free - p->n_idle;

    if (used > p->peak)
        p->peak = used;
}

int64_t kv_pool_take(struct kv_pool *p)
{
    if (p->n_free == 0)
        return -1;
    uint32_t page = p->free[--p->n_free];

    assert(p->counts[page] == 0);
    p->counts[page] = 1;
    note_peak(p);
    return page;
}

void kv_pool_share(struct kv_pool *p, uint32_t page)
{
    assert(page < p->n_pages && p->counts[page] > 0 && p->counts[page] < UINT32_MAX);
    p->n_idle -= p->kept[page] && p->counts[page] == 1;
    p->counts[page]++;
    note_peak(p);
}

void kv_pool_give(struct kv_pool *p, uint32_t page)
{
    assert(page < p->n_pages && p->counts[page] > 0);
    p->counts[page]--;
    p->n_idle += p->kept[page] && p->counts[page] == 1;
    if (p->counts[page] == 0)
        p->free[p->n_free++] = page;
}

void kv_pool_keep(struct kv_pool *p, uint32_t page)
{
    assert(!p->kept[page]);
    kv_pool_share(p, page);
    p->kept[page] = true;
}

void kv_pool_unkeep(struct kv_pool *p, uint32_t page)
{
    assert(p->kept[page]);
    p->n_idle -= p->counts[page] == 1;
    p->kept[page] = false;
    kv_pool_give(p, page);
}

uint32_t kv_pool_idle(const struct kv_pool *p)
{
    return p->n_idle;
}

uint32_t kv_pool_count(const struct kv_pool *p, uint32_t page)
{
    assert(page < p->n_pages);
    return p->counts[page];
}

void kv_pool_copy(struct kv_pool *p, uint32_t to, uint32_t from)
{
    if (p->page_size)
        memcpy(kv_pool_page(p, to), kv_pool_page(p, from), p->page_size);
}

char *kv_pool_page(const struct kv_pool *p, uint32_t page)
{
    assert(page < p->n_pages);
    return p->region.base + page * p->page_size;
}

uint32_t kv_pool_peak(const struct kv_pool *p)
{
    return p->peak;
}

uint32_t kv_pool_free(const struct kv_pool *p)
{
    return p->n_free;
}

uint32_t kv_pool_total(const struct kv_pool *p)
{
    return p->n_pages;
}

size_t kv_pool_k_offset(const struct kv_pool *p, uint32_t layer, uint32_t kv_head)
{
    assert(kv_head < p->n_kv_heads);
    return ((size_t)layer * 2 * p->n_kv_heads + kv_head) * p->head_size;
}

size_t kv_pool_v_offset(const struct kv_pool *p, uint32_t layer, uint32_t kv_head)
{
    return kv_pool_k_offset(p, layer, kv_head) + p->n_kv_heads * p->head_size;
}

size_t kv_pool_index_offset(const struct kv_pool *p, uint32_t layer)
{
    return p->index_at + layer * p->index_size;
}

size_t kv_pool_block_offset(const struct kv_pool *p, uint32_t layer)
{
    return p->block_at + layer * p->block_size;
}

enum dtype kv_pool_dtype(const struct kv_pool *p)
{
    return p->dtype;
}
