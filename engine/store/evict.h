/* evict: which expert leaves when another needs its slot. Pure.
 *
 * Layers are visited in a cycle. Plain LRU over one pool then throws out exactly what
 * the next layers need (with a token's experts just above the slots it never hits),
 * and a hard share for each layer wastes slots. Here every expert has a probability,
 *
 *   p = (its uses) / (visits to its layer), both halved every HALF_LIFE visits,
 *
 * which is the frequency of LRFU (Lee et al. 2001: recency and frequency as one
 * decayed sum) with visits to the expert's own layer as the clock, so that layers
 * compare wherever in the cycle we stand. An expert is expected to be wanted again in
 *
 *   (layers until its layer comes) + (layers in the cycle) * (1/p - 1)
 *
 * layer visits; the candidate for which that is longest goes. Ties go to the one
 * released last: in a cycle the newest is needed again last. An evicted expert keeps
 * its history, so a returning favourite stays and a passer-by is the next to go.
 *
 * Sweeps. A prefill that wants more than half of a layer's experts says nothing about
 * which are hot. Its caller leaves evict_visit and evict_use out: what it brings in
 * keeps the little heat it had, is the coldest as soon as it is returned, and its slot
 * takes the sweep's next expert. A sweep so passes through the few slots that it holds
 * at once, while free slots are still filled by it; and an expert of it that by its
 * history is warmer than the coldest in the cache may stay, as it should.
 *
 * Floor. A layer does not lose its last `floor` experts to another layer, unless
 * nothing else can go: a layer whose routing is flat would otherwise be starved by
 * its neighbours' favourites and then read everything always.
 *
 * Only which bytes are read depends on all this, never a result. Engine thread. Each
 * call is O(log experts of a layer), choose also O(layers). */
#ifndef STORE_EVICT_H
#define STORE_EVICT_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct evict;

/* Visits to a layer after which a use counts half. An average expert of Qwen3 is used
 * once in 16 tokens: 128 visits weigh about twelve of its uses, enough to tell
 * favourites from luck, while a change of subject shows within a paragraph. */
enum { EVICT_HALF_LIFE = 128 };

/* layer means the ordinal among layers with experts. */
int evict_open(struct evict **out, uint32_t n_layers, uint32_t n_experts, uint32_t floor,
               struct err *err);
void evict_close(struct evict *e); /* NULL is fine */
uint64_t evict_size(uint32_t n_layers, uint32_t n_experts); /* bytes of its tables */
void evict_set_floor(struct evict *e, uint32_t floor);

/* A layer's order came; before the evict_use of its experts. */
void evict_visit(struct evict *e, uint32_t layer);
/* The expert was asked for. Not while it is a candidate. */
void evict_use(struct evict *e, uint32_t layer, uint32_t expert);

/* It got a slot (and is no candidate yet); it lost its slot (and was none). */
void evict_admit(struct evict *e, uint32_t layer, uint32_t expert);
void evict_remove(struct evict *e, uint32_t layer, uint32_t expert);
/* It may go; it may not (a loan, an order or a read holds it). */
void evict_release(struct evict *e, uint32_t layer, uint32_t expert);
void evict_hold(struct evict *e, uint32_t layer, uint32_t expert);

/* Takes the victim for a need of layer now out of its slot (as evict_hold and
 * evict_remove would) and names it; false when there is no candidate. */
bool evict_choose(struct evict *e, uint32_t now, uint32_t *layer, uint32_t *expert);

/* The probability p above; for reports and tests. */
double evict_heat(const struct evict *e, uint32_t layer, uint32_t expert);
uint32_t evict_slots(const struct evict *e, uint32_t layer); /* experts of it with a slot */

#endif
