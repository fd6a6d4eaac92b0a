/* Decayed sums are kept as base-2 logarithms counted from visit 0: adding the visit's
 * age to both sides leaves their order alone, so a key changes only when its expert is
 * used, and each layer's candidates stay in an ordinary heap while time passes. */
#include "store/evict.h"

#include "util/err.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum { NOT_IN_HEAP = UINT32_MAX };

struct heat {
    double key;        /* log2 of the decayed uses, as seen from visit 0; -INFINITY: none */
    uint64_t released; /* when it became a candidate, in releases */
    uint32_t at;       /* place in its layer's heap */
};

struct layer_heat {
    double key;        /* log2 of the decayed visits, as seen from visit 0 */
    uint64_t n_visits;
    uint32_t n_slots;      /* experts with a slot, candidates or not */
    uint32_t n_candidates; /* in the heap */
};

struct evict {
    uint32_t n_layers, n_experts, floor;
    uint64_t n_releases;
    struct layer_heat *layers; /* owned; [n_layers] */
    struct heat *heats;        /* owned; [n_layers, n_experts] */
    uint32_t *heap;            /* owned; [n_layers, n_experts], the first n_candidates used;
                                  coldest at 0 */
};

uint64_t evict_size(uint32_t n_layers, uint32_t n_experts)
{
    return (uint64_t)n_layers * n_experts * (sizeof(struct heat) + sizeof(uint32_t));
}

void evict_set_floor(struct evict *e, uint32_t floor)
{
    e->floor = floor;
}

int evict_open(struct evict **out, uint32_t n_layers, uint32_t n_experts, uint32_t floor,
               struct err *err)
{
    size_t n = (size_t)n_layers * n_experts;
    struct evict *e = calloc(1, sizeof *e);

    if (!e)
        return err_set(err, ERR_NOMEM, "expert heat");
    *e = (struct evict){ .n_layers = n_layers, .n_experts = n_experts, .floor = floor };
    e->layers = calloc(n_layers, sizeof *e->layers);
    e->heats = calloc(n, sizeof *e->heats);
    e->heap = calloc(n, sizeof *e->heap);
    if (!e->layers || !e->heats || !e->heap) {
        err_set(err, ERR_NOMEM, "heat of %u x %u experts", n_layers, n_experts);
        evict_close(e);
        return -1;
    }
    for (uint32_t i = 0; i < n_layers; i++)
        e->layers[i].key = -INFINITY;
    for (size_t i = 0; i < n; i++)
        e->heats[i] = (struct heat){ .key = -INFINITY, .at = NOT_IN_HEAP };
    *out = e;
    return 0;
}

void evict_close(struct evict *e)
{
    if (!e)
        return;
    free(e->layers);
    free(e->heats);
    free(e->heap);
    free(e);
}

static struct heat *heat_at(const struct evict *e, uint32_t layer, uint32_t expert)
{
    assert(layer < e->n_layers && expert < e->n_experts);
    return &e->heats[(size_t)layer * e->n_experts + expert];
}

/* log2(2^key + 2^now), one more event at the age of now. */
static double add_event(double key, double now)
{
    return now + log2(1.0 + exp2(key - now));
}

void evict_visit(struct evict *e, uint32_t layer)
{
    struct layer_heat *l = &e->layers[layer];

    l->n_visits++;
    l->key = add_event(l->key, (double)l->n_visits / EVICT_HALF_LIFE);
}

void evict_use(struct evict *e, uint32_t layer, uint32_t expert)
{
    struct heat *h = heat_at(e, layer, expert);

    assert(h->at == NOT_IN_HEAP);
    h->key = add_event(h->key, (double)e->layers[layer].n_visits / EVICT_HALF_LIFE);
}

double evict_heat(const struct evict *e, uint32_t layer, uint32_t expert)
{
    double key = heat_at(e, layer, expert)->key;

    return isinf(key) ? 0.0 : exp2(key - e->layers[layer].key);
}

uint32_t evict_slots(const struct evict *e, uint32_t layer)
{
    return e->layers[layer].n_slots;
}

/* Whether a goes before b: colder, or as cold and released later. */
static bool goes_first(const struct heat *a, const struct heat *b)
{
    if (a->key < b->key || a->key > b->key)
        return a->key < b->key;
    return a->released > b->released;
}

static void heap_set(struct evict *e, uint32_t layer, uint32_t at, uint32_t expert)
{
    e->heap[(size_t)layer * e->n_experts + at] = expert;
    heat_at(e, layer, expert)->at = at;
}

/* Puts expert at the place where it belongs, from the hole at upwards or downwards. */
static void heap_place(struct evict *e, uint32_t layer, uint32_t at, uint32_t expert)
{
    const uint32_t *heap = &e->heap[(size_t)layer * e->n_experts];
    const struct heat *heats = &e->heats[(size_t)layer * e->n_experts];
    uint32_t n = e->layers[layer].n_candidates;

    while (at > 0 && goes_first(&heats[expert], &heats[heap[(at - 1) / 2]])) {
        heap_set(e, layer, at, heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < n && goes_first(&heats[heap[child + 1]], &heats[heap[child]]))
            child++;
        if (child >= n || !goes_first(&heats[heap[child]], &heats[expert]))
            break;
        heap_set(e, layer, at, heap[child]);
        at = child;
    }
    heap_set(e, layer, at, expert);
}

void evict_release(struct evict *e, uint32_t layer, uint32_t expert)
{
    struct heat *h = heat_at(e, layer, expert);

    assert(h->at == NOT_IN_HEAP);
    h->released = ++e->n_releases;
    uint32_t at = e->layers[layer].n_candidates++;
    heap_place(e, layer, at, expert);
}

void evict_hold(struct evict *e, uint32_t layer, uint32_t expert)
{
    struct heat *h = heat_at(e, layer, expert);
    uint32_t at = h->at, n = --e->layers[layer].n_candidates;
    uint32_t last = e->heap[(size_t)layer * e->n_experts + n];

    assert(at <= n);
    h->at = NOT_IN_HEAP;
    if (at < n)
        heap_place(e, layer, at, last);
}

void evict_admit(struct evict *e, uint32_t layer, uint32_t expert)
{
    assert(heat_at(e, layer, expert)->at == NOT_IN_HEAP);
    e->layers[layer].n_slots++;
}

void evict_remove(struct evict *e, uint32_t layer, uint32_t expert)
{
    assert(heat_at(e, layer, expert)->at == NOT_IN_HEAP && e->layers[layer].n_slots > 0);
    e->layers[layer].n_slots--;
}

/* Layer visits until the layer's coldest candidate is expected to be wanted. */
static double expected_wait(const struct evict *e, uint32_t now, uint32_t layer)
{
    double p = evict_heat(e, layer, e->heap[(size_t)layer * e->n_experts]);
    uint32_t ahead = layer > now ? layer - now : layer + e->n_layers - now;

    if (p <= 0.0)
        return INFINITY;
    return ahead + e->n_layers * (1.0 / p - 1.0);
}

/* Scans the layers from the one visited now backwards, so that among equals the one
 * whose turn comes last is found first. */
static bool coldest_layer(const struct evict *e, uint32_t now, uint32_t floor, uint32_t *out)
{
    double longest = -1.0; /* any wait is longer */

    for (uint32_t i = 0; i < e->n_layers; i++) {
        uint32_t layer = (now + e->n_layers - i) % e->n_layers;
        const struct layer_heat *l = &e->layers[layer];

        if (l->n_candidates == 0 || (layer != now && l->n_slots <= floor))
            continue;
        double wait = expected_wait(e, now, layer);
        if (wait > longest) {
            longest = wait;
            *out = layer;
        }
    }
    return longest >= 0.0;
}

bool evict_choose(struct evict *e, uint32_t now, uint32_t *layer, uint32_t *expert)
{
    uint32_t from = 0;

    if (!coldest_layer(e, now, e->floor, &from) && !coldest_layer(e, now, 0, &from))
        return false;
    *layer = from;
    *expert = e->heap[(size_t)from * e->n_experts];
    evict_hold(e, from, *expert);
    evict_remove(e, from, *expert);
    return true;
}
