/* Which expert gives up its slot, on made-up histories of use. */
#include "store/evict.h"

#include "util/err.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct evict *open_ok(uint32_t n_layers, uint32_t n_experts, uint32_t floor)
{
    struct evict *e = NULL;
    struct err err = { 0 };

    if (evict_open(&e, n_layers, n_experts, floor, &err) < 0)
        fail_msg("%s", err.text);
    return e;
}

static void bring_in(struct evict *e, uint32_t layer, uint32_t expert)
{
    evict_admit(e, layer, expert);
    evict_release(e, layer, expert);
}

static uint32_t victim(struct evict *e, uint32_t now)
{
    uint32_t layer, expert;

    assert_true(evict_choose(e, now, &layer, &expert));
    return layer * 100 + expert;
}

static void with_no_candidate_nobody_goes(void **state)
{
    (void)state;
    struct evict *e = open_ok(2, 4, 0);
    uint32_t layer, expert;

    assert_false(evict_choose(e, 0, &layer, &expert));
    evict_admit(e, 0, 1);
    assert_false(evict_choose(e, 0, &layer, &expert));
    evict_release(e, 0, 1);
    evict_hold(e, 0, 1);
    assert_false(evict_choose(e, 0, &layer, &expert));
    evict_close(e);
}

static void the_least_used_goes_first_and_the_longest_unused_among_equals(void **state)
{
    (void)state;
    struct evict *e = open_ok(1, 4, 0);
    static const int uses[4][6] = { { 0, 1, 2, 3, 4, 5 }, { 0, 1, 2, -1 }, { 3, -1 }, { 2, -1 } };

    for (int visit = 0; visit < 6; visit++) {
        evict_visit(e, 0);
        for (uint32_t expert = 0; expert < 4; expert++)
            for (int i = 0; i < 6 && uses[expert][i] >= 0; i++)
                if (uses[expert][i] == visit)
                    evict_use(e, 0, expert);
    }
    assert_true(fabs(evict_heat(e, 0, 0) - 1.0) < 1e-9);
    assert_true(fabs(evict_heat(e, 0, 1) - 0.5) < 0.02);
    for (uint32_t expert = 0; expert < 4; expert++)
        bring_in(e, 0, expert);
    assert_int_equal(victim(e, 0), 3);
    assert_int_equal(victim(e, 0), 2);
    assert_int_equal(victim(e, 0), 1);
    assert_int_equal(victim(e, 0), 0);
    evict_close(e);
}

static void old_use_weighs_less_than_new(void **state)
{
    (void)state;
    struct evict *e = open_ok(1, 2, 0);

    for (int visit = 0; visit < 1200; visit++) {
        evict_visit(e, 0);
        if (visit < 200) /* many, long ago */
            evict_use(e, 0, 0);
        if (visit >= 1180) /* a few, just now */
            evict_use(e, 0, 1);
    }
    bring_in(e, 0, 0);
    bring_in(e, 0, 1);
    assert_int_equal(victim(e, 0), 0);
    evict_close(e);
}

static void among_equals_the_layer_whose_turn_comes_last_gives(void **state)
{
    (void)state;
    struct evict *e = open_ok(3, 2, 0);

    for (uint32_t layer = 0; layer < 3; layer++) {
        evict_visit(e, layer);
        evict_use(e, layer, 0);
        bring_in(e, layer, 0);
    }
    /* Layer 1 is computed now: 2 and 0 come before 1 does. */
    assert_int_equal(victim(e, 1), 100);
    assert_int_equal(victim(e, 1), 0);
    assert_int_equal(victim(e, 1), 200);
    evict_close(e);
}

static void a_layer_keeps_its_floor_while_others_have_more(void **state)
{
    (void)state;
    struct evict *e = open_ok(2, 8, 2);

    /* Layer 0's experts were never used: coldest of all. */
    for (uint32_t expert = 0; expert < 3; expert++)
        bring_in(e, 0, expert);
    evict_visit(e, 1);
    for (uint32_t expert = 0; expert < 4; expert++) {
        evict_use(e, 1, expert);
        bring_in(e, 1, expert);
    }
    assert_int_equal(victim(e, 1) / 100, 0);
    assert_int_equal(victim(e, 1) / 100, 1); /* layer 0 is at its floor */
    assert_int_equal(victim(e, 0) / 100, 0); /* but may take from itself */
    assert_int_equal(victim(e, 1) / 100, 1);
    assert_int_equal(victim(e, 1) / 100, 1);
    assert_int_equal(victim(e, 1) / 100, 1);
    assert_int_equal(victim(e, 1) / 100, 0); /* nothing else is left */
    evict_close(e);
}

/* ---- whole traces ---- */

struct cache {
    struct evict *e;
    uint32_t n_experts, n_free;
    bool *resident;
    uint64_t hits, misses;
};

/* One order whose loans are returned as soon as they are computed. */
static void order(struct cache *c, uint32_t layer, const uint32_t *experts, uint32_t n)
{
    bool sweep = n * 2 > c->n_experts;
    bool *in = &c->resident[layer * c->n_experts], was_in[512];

    if (!sweep)
        evict_visit(c->e, layer);
    for (uint32_t i = 0; i < n; i++) {
        was_in[i] = in[experts[i]];
        if (was_in[i])
            evict_hold(c->e, layer, experts[i]);
        if (!sweep)
            evict_use(c->e, layer, experts[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (was_in[i]) {
            c->hits++;
            evict_release(c->e, layer, experts[i]);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t l, x;

        if (was_in[i])
            continue;
        c->misses++;
        if (c->n_free > 0) {
            c->n_free--;
        } else {
            assert_true(evict_choose(c->e, layer, &l, &x));
            assert_true(c->resident[l * c->n_experts + x]);
            c->resident[l * c->n_experts + x] = false;
        }
        in[experts[i]] = true;
        bring_in(c->e, layer, experts[i]);
    }
}

static struct cache cache_of(uint32_t n_layers, uint32_t n_experts, uint32_t n_slots,
                             uint32_t floor)
{
    struct cache c = {
        .e = open_ok(n_layers, n_experts, floor),
        .n_experts = n_experts,
        .n_free = n_slots,
        .resident = calloc((size_t)n_layers * n_experts, sizeof *c.resident),
    };

    assert_non_null(c.resident);
    return c;
}

static void cache_done(struct cache *c)
{
    evict_close(c->e);
    free(c->resident);
}

static void a_cycle_larger_than_the_cache_still_hits(void **state)
{
    (void)state;
    enum { LAYERS = 12, K = 4, SLOTS = 36 }; /* the cycle needs 48: LRU never hits */
    struct cache c = cache_of(LAYERS, 64, SLOTS, 1);
    static const uint32_t same[K] = { 3, 9, 20, 41 };

    for (int token = 0; token < 200; token++) {
        if (token == 20)
            c.hits = c.misses = 0;
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            order(&c, layer, same, K);
    }
    /* The best that can be: all slots but the one in passing. */
    assert_true((double)c.hits / (double)(c.hits + c.misses) > 0.65);
    cache_done(&c);
}

static uint32_t random_below(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

/* n distinct experts of a layer, the low ranks of its own permutation preferred. */
static void skewed_pick(uint32_t *out, uint32_t n, uint32_t layer, uint32_t n_experts,
                        uint64_t *seed)
{
    for (uint32_t i = 0; i < n;) {
        double u = (double)random_below(seed, 1u << 20) / (double)(1u << 20);
        uint32_t rank = (uint32_t)(pow((double)n_experts + 1.0, u) - 1.0); /* density 1/rank */
        uint32_t expert = (rank * 37 + layer * 11) % n_experts;
        bool taken = rank >= n_experts;

        for (uint32_t j = 0; j < i; j++)
            taken |= out[j] == expert;
        if (!taken)
            out[i++] = expert;
    }
}

static double skewed_hit_rate(bool sweeps, uint32_t slots)
{
    enum { LAYERS = 24, EXPERTS = 128, K = 8 };
    struct cache c = cache_of(LAYERS, EXPERTS, slots, 4);
    uint64_t seed = 7, hits = 0, all = 0;
    uint32_t picks[K], every[EXPERTS];

    for (uint32_t i = 0; i < EXPERTS; i++)
        every[i] = i;
    for (int token = 0; token < 600; token++) {
        if (sweeps && token % 50 == 49)
            for (uint32_t layer = 0; layer < LAYERS; layer++)
                order(&c, layer, every, EXPERTS);
        c.hits = c.misses = 0;
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            skewed_pick(picks, K, layer, EXPERTS, &seed);
            order(&c, layer, picks, K);
        }
        if (token >= 200) {
            hits += c.hits;
            all += c.hits + c.misses;
        }
    }
    cache_done(&c);
    return (double)hits / (double)all;
}

/* The same trace through least-recently-used over one pool. */
static double lru_hit_rate(uint32_t slots)
{
    enum { LAYERS = 24, EXPERTS = 128, K = 8 };
    uint64_t *last = calloc(LAYERS * EXPERTS, sizeof *last), now = 0, hits = 0, all = 0, seed = 7;
    uint32_t n_in = 0, picks[K];

    assert_non_null(last);
    for (int token = 0; token < 600; token++) {
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            skewed_pick(picks, K, layer, EXPERTS, &seed);
            for (uint32_t i = 0; i < K; i++) {
                uint64_t *at = &last[layer * EXPERTS + picks[i]];

                all += token >= 200;
                hits += token >= 200 && *at != 0;
                n_in += *at == 0;
                *at = ++now;
                if (n_in > slots) {
                    uint64_t *oldest = at;

                    for (uint32_t j = 0; j < LAYERS * EXPERTS; j++)
                        if (last[j] != 0 && last[j] < *oldest)
                            oldest = &last[j];
                    *oldest = 0;
                    n_in--;
                }
            }
        }
    }
    free(last);
    return (double)hits / (double)all;
}

static void favourites_stay_where_recency_alone_loses_them(void **state)
{
    (void)state;
    static const uint32_t slots[] = { 192, 480, 1200 };

    for (size_t i = 0; i < 3; i++) {
        double ours = skewed_hit_rate(false, slots[i]), lru = lru_hit_rate(slots[i]);

        print_message("%u slots of 3072: %.3f, least recently used %.3f\n", slots[i], ours, lru);
        assert_true(ours > lru + 0.02);
    }
}

static void sweeps_do_not_cost_the_favourites_their_place(void **state)
{
    (void)state;
    double without = skewed_hit_rate(false, 480), with = skewed_hit_rate(true, 480);

    print_message("hit rate %.3f, with a sweep every 50 tokens %.3f\n", without, with);
    assert_true(with > without - 0.02);
}

static void repeated_sweeps_keep_what_fits(void **state)
{
    (void)state;
    enum { LAYERS = 12, EXPERTS = 32, SLOTS = 192 }; /* half of all */
    struct cache c = cache_of(LAYERS, EXPERTS, SLOTS, 2);
    uint32_t every[EXPERTS];

    for (uint32_t i = 0; i < EXPERTS; i++)
        every[i] = i;
    for (int sweep = 0; sweep < 20; sweep++) {
        if (sweep == 4)
            c.hits = c.misses = 0;
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            order(&c, layer, every, EXPERTS);
    }
    assert_true((double)c.hits / (double)(c.hits + c.misses) > 0.45);
    cache_done(&c);
}

/* Any sequence of calls: the victim is always the coldest candidate of its layer. */
static void the_victim_is_the_coldest_of_its_layer(void **state)
{
    (void)state;
    enum { LAYERS = 3, EXPERTS = 20 };
    struct evict *e = open_ok(LAYERS, EXPERTS, 1);
    enum { OUT, HELD, IDLE } where[LAYERS][EXPERTS] = { 0 };
    uint64_t seed = 99;
    uint32_t n_chosen = 0;

    for (int i = 0; i < 20000; i++) {
        uint32_t layer = random_below(&seed, LAYERS), x = random_below(&seed, EXPERTS), l, v;

        switch (random_below(&seed, 5)) {
        case 0:
            evict_visit(e, layer);
            break;
        case 1:
            if (where[layer][x] != IDLE)
                evict_use(e, layer, x);
            break;
        case 2:
            if (where[layer][x] == OUT) {
                evict_admit(e, layer, x);
                where[layer][x] = HELD;
            }
            break;
        case 3:
            if (where[layer][x] == HELD)
                evict_release(e, layer, x);
            else if (where[layer][x] == IDLE)
                evict_hold(e, layer, x);
            where[layer][x] = where[layer][x] == OUT ? OUT : where[layer][x] == HELD ? IDLE : HELD;
            break;
        default:
            if (!evict_choose(e, layer, &l, &v))
                break;
            n_chosen++;
            assert_int_equal(where[l][v], IDLE);
            for (uint32_t j = 0; j < EXPERTS; j++)
                if (where[l][j] == IDLE)
                    assert_true(evict_heat(e, l, v) <= evict_heat(e, l, j));
            where[l][v] = OUT;
        }
    }
    assert_true(n_chosen > 500);
    evict_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_no_candidate_nobody_goes),
        cmocka_unit_test(the_least_used_goes_first_and_the_longest_unused_among_equals),
        cmocka_unit_test(old_use_weighs_less_than_new),
        cmocka_unit_test(among_equals_the_layer_whose_turn_comes_last_gives),
        cmocka_unit_test(a_layer_keeps_its_floor_while_others_have_more),
        cmocka_unit_test(a_cycle_larger_than_the_cache_still_hits),
        cmocka_unit_test(favourites_stay_where_recency_alone_loses_them),
        cmocka_unit_test(sweeps_do_not_cost_the_favourites_their_place),
        cmocka_unit_test(repeated_sweeps_keep_what_fits),
        cmocka_unit_test(the_victim_is_the_coldest_of_its_layer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
