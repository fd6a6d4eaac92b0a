#include "store/prefix_cache.h"

#include "store/kv_pool.h"
#include "util/err.h"
#include "util/size.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = KV_PAGE_TOKENS };

#define NONE UINT32_MAX

struct node {
    uint32_t tokens[PAGE];
    uint32_t n; /* of them; below PAGE there are no children; 0: the node is free */
    uint32_t page;
    uint32_t parent, child, sibling; /* numbers of nodes; sibling is also the next free one */
    uint32_t newer, older;           /* in the order of their last use */
};

struct state {
    struct prefix_place place; /* owner NULL: this entry is free */
    uint32_t node, n;          /* after the first n tokens of the node */
    uint64_t used;             /* when, by the cache's own count */
    uint64_t lookup;           /* the last one before that */
};

struct prefix_cache {
    struct prefix_options o;
    struct node *nodes;   /* [n_pages of the pool] */
    uint32_t free;        /* first of the free nodes */
    uint32_t root;        /* first of the nodes that begin a sequence */
    uint32_t newest, oldest; /* in the order of their last use; each before the nodes below it */
    struct state *states; /* [n_places] */
    uint32_t *path;       /* pages of the last hit; [n_pages of the pool] */
    uint64_t now, lookups;
    struct prefix_stats stats;
};

uint64_t prefix_cache_size(uint32_t n_pages, uint32_t n_places)
{
    return n_pages * (uint64_t)(sizeof(struct node) + sizeof(uint32_t)) +
           n_places * (uint64_t)sizeof(struct state) + sizeof(struct prefix_cache);
}

int prefix_cache_open(struct prefix_cache **out, const struct prefix_options *opt, struct err *err)
{
    uint32_t n_pages = kv_pool_total(opt->kv);
    struct prefix_cache *c = calloc(1, sizeof *c);

    if (!c)
        return err_set(err, ERR_NOMEM, "the prefix cache");
    *c = (struct prefix_cache){ .o = *opt, .root = NONE, .free = NONE,
                                .newest = NONE, .oldest = NONE };
    c->nodes = calloc((size_t)n_pages + 1, sizeof *c->nodes);
    c->path = calloc((size_t)n_pages + 1, sizeof *c->path);
    c->states = calloc((size_t)opt->n_places + 1, sizeof *c->states);
    if (!c->nodes || !c->path || !c->states) {
        prefix_cache_close(c);
        return err_set(err, ERR_NOMEM, "the prefix cache of %u pages", n_pages);
    }
    for (uint32_t i = n_pages; i-- > 0; c->free = i)
        c->nodes[i].sibling = c->free;
    *out = c;
    return 0;
}

void prefix_cache_close(struct prefix_cache *c)
{
    if (!c)
        return;
    if (c->nodes && c->states)
        prefix_cache_clear(c);
    free(c->states);
    free(c->path);
    free(c->nodes);
    free(c);
}

/* ---- the tree ---- */

static uint32_t *first_below(struct prefix_cache *c, uint32_t parent)
{
    return parent == NONE ? &c->root : &c->nodes[parent].child;
}

/* How many of the n tokens the node begins with. */
static uint32_t in_common(const struct node *node, const uint32_t *tokens, uint32_t n)
{
    uint32_t i = 0, most = node->n < n ? node->n : n;

    while (i < most && node->tokens[i] == tokens[i])
        i++;
    return i;
}

/* Below parent, the node that has most in common with the n tokens that follow; NONE: nothing. */
static uint32_t nearest(struct prefix_cache *c, uint32_t parent, const uint32_t *tokens, uint32_t n,
                        uint32_t *common)
{
    uint32_t best = NONE;

    *common = 0;
    for (uint32_t i = *first_below(c, parent); i != NONE; i = c->nodes[i].sibling) {
        uint32_t k = in_common(&c->nodes[i], tokens, n);
        if (k > *common || (k == *common && k > 0 && c->nodes[i].n < c->nodes[best].n)) {
            best = i;
            *common = k;
        }
    }
    return best;
}

static void unlink_node(struct prefix_cache *c, uint32_t i)
{
    const struct node *node = &c->nodes[i];

    *(node->newer == NONE ? &c->newest : &c->nodes[node->newer].older) = node->older;
    *(node->older == NONE ? &c->oldest : &c->nodes[node->older].newer) = node->newer;
}

static void link_newest(struct prefix_cache *c, uint32_t i)
{
    c->nodes[i].newer = NONE;
    c->nodes[i].older = c->newest;
    *(c->newest == NONE ? &c->oldest : &c->nodes[c->newest].newer) = i;
    c->newest = i;
}

/* It and those above it, which come before it. */
static void note_use(struct prefix_cache *c, uint32_t i)
{
    for (; i != NONE; i = c->nodes[i].parent) {
        unlink_node(c, i);
        link_newest(c, i);
    }
}

static uint32_t add_node(struct prefix_cache *c, uint32_t parent, uint32_t page)
{
    uint32_t *first = first_below(c, parent), i = c->free;

    assert(i != NONE); /* each has a page of its own */
    c->free = c->nodes[i].sibling;
    c->nodes[i].parent = parent;
    c->nodes[i].child = NONE;
    c->nodes[i].sibling = *first;
    *first = i;
    kv_pool_keep(c->o.kv, page);
    c->nodes[i].page = page;
    link_newest(c, i);
    c->stats.n_pages++;
    return i;
}

static void forget_state(struct prefix_cache *c, struct state *s)
{
    c->stats.n_states--;
    s->place.owner = NULL;
}

static void drop_state(struct prefix_cache *c, struct state *s)
{
    struct prefix_place place = s->place;

    forget_state(c, s);
    c->o.give_back(c->o.ctx, place);
}

static void drop_leaf(struct prefix_cache *c, uint32_t i)
{
    struct node *node = &c->nodes[i];
    uint32_t *at = first_below(c, node->parent);

    assert(node->child == NONE);
    for (uint32_t k = 0; k < c->o.n_places; k++)
        if (c->states[k].place.owner && c->states[k].node == i)
            drop_state(c, &c->states[k]);
    while (*at != i)
        at = &c->nodes[*at].sibling;
    *at = node->sibling;
    unlink_node(c, i);
    kv_pool_unkeep(c->o.kv, node->page);
    node->n = 0;
    node->sibling = c->free;
    c->free = i;
    c->stats.n_pages--;
}

/* ---- finding ---- */

/* Of the states in nodes below parent that fit the n tokens that follow, the one behind most of
 * them; NULL: there is none. */
static struct state *state_below(struct prefix_cache *c, uint32_t parent, const uint32_t *tokens,
                                 uint32_t n)
{
    struct state *best = NULL;

    for (uint32_t k = 0; k < c->o.n_places; k++) {
        struct state *s = &c->states[k];
        if (s->place.owner && c->nodes[s->node].parent == parent && (!best || s->n > best->n) &&
            in_common(&c->nodes[s->node], tokens, n) >= s->n)
            best = s;
    }
    return best;
}

void prefix_cache_find(struct prefix_cache *c, struct prefix_hit *out, const uint32_t *tokens,
                       uint32_t n)
{
    uint32_t parent = NONE, depth = 0, seen = 0, common, deepest = NONE;
    struct state *last = NULL;

    *out = (struct prefix_hit){ .page_ids = c->path };
    c->now++;
    c->lookups++;
    while (seen < n) {
        struct state *s = state_below(c, parent, tokens + seen, n - seen);
        if (s) {
            last = s;
            out->n_tokens = seen + s->n;
            out->n_pages = depth + 1;
        }
        uint32_t i = nearest(c, parent, tokens + seen, n - seen, &common);
        if (i == NONE)
            break;
        c->path[depth++] = c->nodes[i].page;
        deepest = i;
        seen += common;
        if (common < PAGE)
            break;
        parent = i;
    }
    note_use(c, deepest);
    out->n_known = seen;
    if (c->o.n_places == 0) {
        out->n_tokens = seen;
        out->n_pages = depth;
    } else if (last) {
        last->used = c->now;
        last->lookup = c->lookups;
        note_use(c, last->node);
        c->path[out->n_pages - 1] = c->nodes[last->node].page;
        out->place = last->place;
    }
}

/* ---- keeping ---- */

/* The node of these n <= PAGE tokens below parent: one that has them, one that has fewer of them
 * and takes the page, or a new one. */
static uint32_t keep_page(struct prefix_cache *c, uint32_t parent, const uint32_t *tokens,
                          uint32_t n, uint32_t page)
{
    uint32_t common, i = nearest(c, parent, tokens, n, &common);

    if (i != NONE && common == n)
        return i;
    if (i == NONE || common < c->nodes[i].n) {
        i = add_node(c, parent, page);
    } else if (c->nodes[i].page != page) {
        kv_pool_unkeep(c->o.kv, c->nodes[i].page);
        kv_pool_keep(c->o.kv, page);
        c->nodes[i].page = page;
    }
    memcpy(c->nodes[i].tokens, tokens, n * sizeof *tokens);
    c->nodes[i].n = n;
    return i;
}

const uint32_t *prefix_cache_keep(struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                                  const uint32_t *page_ids)
{
    uint32_t parent = NONE;

    c->now++;
    for (uint32_t seen = 0, depth = 0; seen < n; seen += PAGE, depth++) {
        uint32_t here = n - seen < PAGE ? n - seen : PAGE;
        parent = keep_page(c, parent, tokens + seen, here, page_ids[depth]);
        c->path[depth] = c->nodes[parent].page;
    }
    note_use(c, parent);
    return c->path;
}

bool prefix_cache_keep_state(struct prefix_cache *c, const uint32_t *tokens, uint32_t n,
                             struct prefix_place place)
{
    uint32_t parent = NONE, seen = 0, common = 0;
    struct state *free = NULL;

    while (seen < n) {
        uint32_t want = n - seen < PAGE ? n - seen : PAGE;
        parent = nearest(c, parent, tokens + seen, want, &common);
        if (parent == NONE || common < want)
            return false;
        seen += want;
    }
    if (parent == NONE)
        return false;
    for (uint32_t k = 0; k < c->o.n_places; k++) {
        struct state *s = &c->states[k];
        if (!s->place.owner)
            free = s;
        else if (s->node == parent && s->n == common)
            return false;
    }
    if (!free)
        return false;
    *free = (struct state){ .place = place, .node = parent, .n = common, .used = ++c->now,
                             .lookup = c->lookups };
    c->stats.n_states++;
    return true;
}

/* ---- giving up ---- */

static bool is_of(const struct state *s, const void *owner)
{
    return s->place.owner && s->place.owner == owner;
}

bool prefix_cache_use_state(struct prefix_cache *c, const void *owner)
{
    for (uint32_t k = 0; k < c->o.n_places; k++) {
        struct state *s = &c->states[k];
        if (!is_of(s, owner))
            continue;
        bool goes_on = s->place.kind == PREFIX_END;
        s->place.kind = PREFIX_SHARED; /* if it is still there */
        return goes_on;
    }
    return false;
}

/* Of two states, the one that goes first. */
static bool goes_before(const struct state *a, const struct state *b)
{
    bool guess = a->place.kind == PREFIX_GUESS;

    return guess != (b->place.kind == PREFIX_GUESS) ? guess : a->used < b->used;
}

struct prefix_place prefix_cache_take_state(struct prefix_cache *c, const void *owner)
{
    struct prefix_place place = { 0 };
    struct state *found = NULL;

    for (uint32_t k = 0; k < c->o.n_places; k++) {
        struct state *s = &c->states[k];
        if (owner ? is_of(s, owner) : s->place.owner && (!found || goes_before(s, found)))
            found = s;
    }
    if (found) {
        place = found->place;
        forget_state(c, found);
    }
    return place;
}

/* The leaf used longest ago whose page no sequence has; NONE: there is none. What is passed over
 * is in use, or above what is. */
static uint32_t oldest_leaf(const struct prefix_cache *c)
{
    for (uint32_t i = c->oldest; i != NONE; i = c->nodes[i].newer)
        if (c->nodes[i].child == NONE && kv_pool_count(c->o.kv, c->nodes[i].page) == 1)
            return i;
    return NONE;
}

bool prefix_cache_evict(struct prefix_cache *c)
{
    uint32_t leaf = oldest_leaf(c);

    if (leaf == NONE)
        return false;
    drop_leaf(c, leaf);
    c->stats.evictions++;
    return true;
}

void prefix_cache_clear(struct prefix_cache *c)
{
    struct prefix_place place;

    while ((place = prefix_cache_take_state(c, NULL)).owner)
        c->o.give_back(c->o.ctx, place);
    c->root = c->free = c->newest = c->oldest = NONE;
    for (uint32_t i = kv_pool_total(c->o.kv); i-- > 0; c->free = i) {
        if (c->nodes[i].n > 0)
            kv_pool_unkeep(c->o.kv, c->nodes[i].page);
        c->nodes[i].n = 0;
        c->nodes[i].sibling = c->free;
    }
    c->stats.n_pages = 0;
}

void prefix_cache_stats(const struct prefix_cache *c, struct prefix_stats *out)
{
    *out = c->stats;
    for (uint32_t k = 0; k < c->o.n_places; k++) {
        const struct state *s = &c->states[k];
        out->n_spare += s->place.owner && (s->place.kind == PREFIX_GUESS ||
                                           c->lookups - s->lookup > c->o.n_places);
    }
}
