/* kv_seq: one sequence's keys and values, as a list of pages of the pool.
 *
 * Grows by whole pages and is cut to any length. Engine thread. */
#ifndef BLOCKS_KV_SEQ_H
#define BLOCKS_KV_SEQ_H

#include <stdint.h>

struct err;
struct kv_pool;

struct kv_seq {
    struct kv_pool *pool; /* borrowed */
    uint32_t *page_ids;   /* owned; [max_pages] */
    char **pages;         /* owned; the same pages as addresses, as struct kv_view wants them */
    uint32_t n_pages, max_pages;
    uint32_t n_tokens; /* kept by the last settle */
};

int kv_seq_open(struct kv_seq *s, struct kv_pool *pool, uint32_t max_tokens, struct err *err);
void kv_seq_close(struct kv_seq *s); /* gives the pages back; also on a zeroed struct */
/* Room for n_tokens in all: 1; or 0 when the pool is empty, keeping what it has. */
int kv_seq_reserve(struct kv_seq *s, uint32_t n_tokens);
void kv_seq_cut(struct kv_seq *s, uint32_t n_tokens); /* to its first ones; gives back other pages */
/* To n_tokens that its pages have held; all pages stay. ERR_INPUT: it has not so many pages. */
int kv_seq_return(struct kv_seq *s, uint32_t n_tokens, struct err *err);
/* An empty one takes n_tokens that lie in these pages, which it shares with whoever has them. */
void kv_seq_adopt(struct kv_seq *s, const uint32_t *page_ids, uint32_t n_pages, uint32_t n_tokens);
/* Its first n pages are these from now on, which hold the same. */
void kv_seq_share(struct kv_seq *s, const uint32_t *page_ids, uint32_t n);
/* A shared page that it is to write into becomes a copy of its own: 1; or 0 when the pool is
 * empty. */
int kv_seq_own_last(struct kv_seq *s);
void kv_seq_reset(struct kv_seq *s);

#endif
