#include "blocks/kv_seq.h"

#include "store/kv_pool.h"
#include "util/err.h"
#include "util/size.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

int kv_seq_open(struct kv_seq *s, struct kv_pool *pool, uint32_t max_tokens, struct err *err)
{
    uint32_t max_pages = (uint32_t)size_div_up(max_tokens, KV_PAGE_TOKENS);

    *s = (struct kv_seq){ .pool = pool, .max_pages = max_pages };
    s->page_ids = calloc(max_pages, sizeof *s->page_ids);
    s->pages = calloc(max_pages, sizeof *s->pages);
    if (!s->page_ids || !s->pages) {
        kv_seq_close(s);
        return err_set(err, ERR_NOMEM, "page list of a sequence of %" PRIu32 " tokens", max_tokens);
    }
    return 0;
}

void kv_seq_close(struct kv_seq *s)
{
    kv_seq_reset(s);
    free(s->page_ids);
    free(s->pages);
    *s = (struct kv_seq){ 0 };
}

static void set_page(struct kv_seq *s, uint32_t at, uint32_t page)
{
    s->page_ids[at] = page;
    s->pages[at] = kv_pool_page(s->pool, page);
}

int kv_seq_reserve(struct kv_seq *s, uint32_t n_tokens)
{
    uint32_t want = (uint32_t)size_div_up(n_tokens, KV_PAGE_TOKENS);

    assert(want <= s->max_pages);
    while (s->n_pages < want) {
        int64_t page = kv_pool_take(s->pool);
        if (page < 0)
            return 0;
        set_page(s, s->n_pages++, (uint32_t)page);
    }
    return 1;
}

void kv_seq_cut(struct kv_seq *s, uint32_t n_tokens)
{
    uint32_t keep = (uint32_t)size_div_up(n_tokens, KV_PAGE_TOKENS);

    assert(n_tokens <= s->n_tokens);
    while (s->n_pages > keep)
        kv_pool_give(s->pool, s->page_ids[--s->n_pages]);
    s->n_tokens = n_tokens;
}

int kv_seq_return(struct kv_seq *s, uint32_t n_tokens, struct err *err)
{
    if ((uint64_t)s->n_pages * KV_PAGE_TOKENS < n_tokens)
        return err_set(err, ERR_INPUT, "a sequence with pages for %" PRIu32 " tokens is to go on "
                       "after %" PRIu32, s->n_pages * KV_PAGE_TOKENS, n_tokens);
    s->n_tokens = n_tokens;
    return 0;
}

void kv_seq_adopt(struct kv_seq *s, const uint32_t *page_ids, uint32_t n_pages, uint32_t n_tokens)
{
    assert(s->n_pages == 0 && n_pages <= s->max_pages);
    assert(n_tokens <= n_pages * KV_PAGE_TOKENS);
    for (uint32_t i = 0; i < n_pages; i++) {
        kv_pool_share(s->pool, page_ids[i]);
        set_page(s, i, page_ids[i]);
    }
    s->n_pages = n_pages;
    s->n_tokens = n_tokens;
}

void kv_seq_share(struct kv_seq *s, const uint32_t *page_ids, uint32_t n)
{
    assert(n <= s->n_pages);
    for (uint32_t i = 0; i < n; i++) {
        if (page_ids[i] == s->page_ids[i])
            continue;
        kv_pool_share(s->pool, page_ids[i]);
        kv_pool_give(s->pool, s->page_ids[i]);
        set_page(s, i, page_ids[i]);
    }
}

int kv_seq_own_last(struct kv_seq *s)
{
    uint32_t at = s->n_tokens / KV_PAGE_TOKENS;

    if (at >= s->n_pages || kv_pool_count(s->pool, s->page_ids[at]) == 1)
        return 1;
    int64_t page = kv_pool_take(s->pool);
    if (page < 0)
        return 0;
    kv_pool_copy(s->pool, (uint32_t)page, s->page_ids[at]);
    kv_pool_give(s->pool, s->page_ids[at]);
    set_page(s, at, (uint32_t)page);
    return 1;
}

void kv_seq_reset(struct kv_seq *s)
{
    if (s->page_ids)
        kv_seq_cut(s, 0);
}
