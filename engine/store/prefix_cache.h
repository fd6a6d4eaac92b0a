/* prefix_cache: what was computed before, by its tokens, so that it is not computed again.
 *
 * A tree. A node is a page of the KV pool and the tokens in it: a full page may have children, one
 * that is filled in part is a leaf. The cache holds a reference to each page beside the sequences
 * that use it. Full pages are shared as they are; of a page that is used in part a sequence takes
 * a copy.
 *
 * Where a sequence can be cut anywhere, any prefix will do. Where it has a state that cannot be cut
 * back, a prefix is usable only where a state was kept after just these tokens: the caller lends
 * places for such states, and each comes back through give_back when its node goes.
 *
 * Keys and values depend on the tokens before them alone, so nothing in here changes a bit of any
 * answer. What was used longest ago goes first, from the ends of branches inwards, and only when
 * pages or places are wanted: the pool of pages is the plan's, and this adds nothing to it but the
 * table of nodes. Engine thread. */
#ifndef STORE_PREFIX_CACHE_H
#define STORE_PREFIX_CACHE_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct kv_pool;
struct prefix_cache;

enum prefix_state {
    PREFIX_END,    /* where a conversation ended: when it goes on, nobody needs it any more */
    PREFIX_SHARED, /* where others begin that have no more in common */
    PREFIX_GUESS,  /* perhaps somebody wants it: shared when somebody did */
};

/* Where a state is kept. */
struct prefix_place {
    void *owner; /* the caller's; NULL: there is none */
    void *saved; /* what is kept in it */
    enum prefix_state kind;
};

struct prefix_options {
    struct kv_pool *kv; /* borrowed */
    uint32_t n_places;  /* states at a time; 0: sequences can be cut anywhere */
    void (*give_back)(void *ctx, struct prefix_place place);
    void *ctx;
};

struct prefix_hit {
    uint32_t n_tokens;        /* that need not be run; 0: none */
    const uint32_t *page_ids; /* that hold them, the last perhaps in part; until the next call */
    uint32_t n_pages;
    uint32_t n_known;          /* tokens that are there, usable or not */
    struct prefix_place place; /* the state after them, where one is needed */
};

struct prefix_stats {
    uint32_t n_pages, n_states; /* held now */
    uint32_t n_spare;           /* of these states: guesses, and those that nobody used for as many
                                   lookups as there are places */
    uint64_t evictions;         /* pages that were given up for others */
};

/* Bytes of its tables, for the plan. */
uint64_t prefix_cache_size(uint32_t n_pages, uint32_t n_places);
int prefix_cache_open(struct prefix_cache **out, const struct prefix_options *opt, struct err *err);
void prefix_cache_close(struct prefix_cache *c); /* gives back pages and places; NULL is fine */

/* The most of the first n tokens that is there and usable. It counts as used now. */
void prefix_cache_find(struct prefix_cache *c, struct prefix_hit *out, const uint32_t *tokens,
                       uint32_t n);
/* The first n tokens of a sequence lie in these pages, from the first one on. Pages that hold what
 * is known already are not taken: the pages that it is known in, until the next call. A sequence
 * that runs on shares the full ones of them instead of its own, for a page cannot be given up
 * while one further down the branch is in use. */
const uint32_t *prefix_cache_keep(struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                                  const uint32_t *page_ids);
/* Keeps the state after n tokens, which were kept. False: there is one, or there is no such node,
 * and the place stays the caller's. */
bool prefix_cache_keep_state(struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                             struct prefix_place place);
/* Somebody begins from that state. True: it is where one conversation ended and goes on. */
bool prefix_cache_use_state(struct prefix_cache *c, const void *owner);
/* Gives up the state in that place, or (owner NULL) a guess, or that used longest ago. The place is
 * the caller's again, without give_back; owner is NULL where there was none. */
struct prefix_place prefix_cache_take_state(struct prefix_cache *c, const void *owner);
/* Gives up pages until the pool has a free one more. False: sequences hold all there are. */
bool prefix_cache_evict(struct prefix_cache *c);
void prefix_cache_clear(struct prefix_cache *c); /* gives up all there is */

void prefix_cache_stats(const struct prefix_cache *c, struct prefix_stats *out);

#endif
