/* What is found was kept, whatever was given up in between: a cache beside a table of what each
 * page of the pool holds. */
#include "store/prefix_cache.h"

#include "store/kv_pool.h"
#include "util/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_PAGES = 12, N_PLACES = 3, PAGE = KV_PAGE_TOKENS, LONGEST = 4 * PAGE };

static const struct model_shape shape = { .n_layers = 1, .n_kv_heads = 1, .head_dim = 1 };

struct place { /* where a test keeps a "state": the tokens before it */
    bool lent;
    uint32_t tokens[LONGEST], n;
};

struct bench {
    struct kv_pool *kv;
    struct prefix_cache *c;
    uint32_t holds[N_PAGES][PAGE]; /* the tokens that were written into each page */
    struct place places[N_PLACES];
    uint32_t seed;
};

static void give_back(void *ctx, struct prefix_place place)
{
    struct place *p = place.owner;

    (void)ctx;
    assert_true(p->lent);
    p->lent = false;
}

static void bench_open(struct bench *b, uint32_t n_places)
{
    struct err err;

    *b = (struct bench){ .seed = 1 };
    if (kv_pool_open(&b->kv, &shape, DTYPE_F32, N_PAGES, &err) < 0)
        fail_msg("%s", err.text);
    const struct prefix_options o = { .kv = b->kv, .n_places = n_places, .give_back = give_back };
    if (prefix_cache_open(&b->c, &o, &err) < 0)
        fail_msg("%s", err.text);
}

static void bench_close(struct bench *b)
{
    prefix_cache_close(b->c);
    for (int i = 0; i < N_PLACES; i++)
        assert_false(b->places[i].lent);
    assert_int_equal(kv_pool_free(b->kv), N_PAGES);
    kv_pool_close(b->kv);
}

static uint32_t draw(struct bench *b, uint32_t n)
{
    b->seed = b->seed * 1664525 + 1013904223;
    return (b->seed >> 8) % n;
}

/* A sequence that computes its n tokens and leaves: how many it found. Its pages are as a real
 * one's: those found are shared, one found in part is copied, the rest is written. */
static uint32_t run(struct bench *b, const uint32_t *tokens, uint32_t n)
{
    uint32_t page_ids[LONGEST / PAGE], n_pages = (n + PAGE - 1) / PAGE;
    struct prefix_hit hit;

    prefix_cache_find(b->c, &hit, tokens, n - 1);
    assert_true(hit.n_tokens < n && hit.n_pages == (hit.n_tokens + PAGE - 1) / PAGE);
    for (uint32_t i = 0; i < hit.n_tokens; i++)
        assert_int_equal(b->holds[hit.page_ids[i / PAGE]][i % PAGE], tokens[i]);
    for (uint32_t i = 0; i < hit.n_pages; i++)
        kv_pool_share(b->kv, page_ids[i] = hit.page_ids[i]);
    if (hit.place.owner) {
        const struct place *p = hit.place.owner;
        assert_int_equal(p->n, hit.n_tokens);
        assert_memory_equal(p->tokens, tokens, p->n * sizeof *tokens);
    }
    for (uint32_t i = hit.n_tokens / PAGE; i < n_pages; i++) {
        uint32_t part = i < hit.n_pages ? page_ids[i] : UINT32_MAX;
        int64_t page;
        while ((page = kv_pool_take(b->kv)) < 0)
            assert_true(prefix_cache_evict(b->c));
        page_ids[i] = (uint32_t)page;
        memset(b->holds[page], 0xff, sizeof b->holds[page]);
        if (part != UINT32_MAX)
            kv_pool_give(b->kv, part);
        for (uint32_t k = 0; k < PAGE && i * PAGE + k < n; k++)
            b->holds[page][k] = tokens[i * PAGE + k];
    }
    prefix_cache_keep(b->c, tokens, n, page_ids);
    for (uint32_t i = 0; i < n_pages; i++)
        kv_pool_give(b->kv, page_ids[i]);
    return hit.n_tokens;
}

static struct place *free_place(struct bench *b)
{
    for (int i = 0; i < N_PLACES; i++)
        if (!b->places[i].lent)
            return &b->places[i];
    struct prefix_place place = prefix_cache_take_state(b->c, NULL);
    struct place *p = place.owner;
    p->lent = false;
    return p;
}

static bool keep_state(struct bench *b, const uint32_t *tokens, uint32_t n)
{
    struct place *p = free_place(b);

    if (!prefix_cache_keep_state(b->c, tokens, n, (struct prefix_place){ p, p, PREFIX_END }))
        return false;
    p->lent = true;
    p->n = n;
    memcpy(p->tokens, tokens, n * sizeof *tokens);
    return true;
}

static void count_up(uint32_t *tokens, uint32_t n, uint32_t from)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = from + i;
}

static void any_beginning_is_found_where_sequences_can_be_cut(void **state)
{
    uint32_t tokens[LONGEST];
    struct bench b;

    (void)state;
    bench_open(&b, 0);
    count_up(tokens, LONGEST, 0);
    assert_int_equal(run(&b, tokens, 150), 0);
    assert_int_equal(run(&b, tokens, 150), 149);
    assert_int_equal(run(&b, tokens, 64), 63);
    assert_int_equal(run(&b, tokens, 200), 150); /* as far as it was kept */
    assert_int_equal(run(&b, tokens, 200), 199);
    tokens[100] = 7; /* parts in the middle of a page */
    assert_int_equal(run(&b, tokens, 150), 100);
    assert_int_equal(run(&b, tokens, 150), 149);
    tokens[0] = 7;
    assert_int_equal(run(&b, tokens, 10), 0);
    bench_close(&b);
}

static void what_is_known_takes_no_page_twice(void **state)
{
    uint32_t tokens[LONGEST];
    struct prefix_stats stats;
    struct bench b;

    (void)state;
    bench_open(&b, 0);
    count_up(tokens, LONGEST, 0);
    for (uint32_t n = 1; n <= LONGEST; n++) {
        run(&b, tokens, n);
        prefix_cache_stats(b.c, &stats);
        assert_int_equal(stats.n_pages, (n + PAGE - 1) / PAGE);
        assert_int_equal(kv_pool_idle(b.kv), stats.n_pages);
    }
    bench_close(&b);
}

static void a_state_is_needed_where_sequences_cannot_be_cut(void **state)
{
    uint32_t tokens[LONGEST];
    struct prefix_hit hit;
    struct bench b;

    (void)state;
    bench_open(&b, N_PLACES);
    count_up(tokens, LONGEST, 0);
    assert_false(keep_state(&b, tokens, 100)); /* no such tokens are kept */
    assert_int_equal(run(&b, tokens, 150), 0);
    assert_int_equal(run(&b, tokens, 150), 0);
    assert_true(keep_state(&b, tokens, 100));
    assert_false(keep_state(&b, tokens, 100));
    assert_true(keep_state(&b, tokens, 150));
    assert_int_equal(run(&b, tokens, 150), 100);
    assert_int_equal(run(&b, tokens, 151), 150);
    prefix_cache_find(b.c, &hit, tokens, 99);
    assert_true(hit.n_tokens == 0 && !hit.place.owner);
    tokens[120] = 7; /* a branch of its own, beside that with the state */
    assert_int_equal(run(&b, tokens, 150), 100);
    tokens[140] = 7;
    assert_int_equal(run(&b, tokens, 150), 100);
    bench_close(&b);
}

static void the_state_used_longest_ago_makes_room(void **state)
{
    uint32_t tokens[N_PLACES + 1][LONGEST];
    struct bench b;

    (void)state;
    bench_open(&b, N_PLACES);
    for (uint32_t i = 0; i <= N_PLACES; i++)
        count_up(tokens[i], LONGEST, 1000 * i);
    for (uint32_t i = 0; i < N_PLACES; i++) {
        run(&b, tokens[i], 80);
        assert_true(keep_state(&b, tokens[i], 80));
    }
    assert_int_equal(run(&b, tokens[0], 81), 80); /* and so that of 1 is the oldest */
    run(&b, tokens[N_PLACES], 80);
    assert_true(keep_state(&b, tokens[N_PLACES], 80));
    assert_int_equal(run(&b, tokens[1], 81), 0);
    assert_int_equal(run(&b, tokens[0], 81), 80);
    bench_close(&b);
}

static void pages_go_from_the_ends_of_what_was_used_longest_ago(void **state)
{
    uint32_t old[LONGEST], young[LONGEST], third[LONGEST];
    struct prefix_stats stats;
    struct prefix_hit hit;
    struct bench b;

    (void)state;
    bench_open(&b, 0);
    count_up(old, LONGEST, 0);
    count_up(young, LONGEST, 1000);
    count_up(third, LONGEST, 2000);
    run(&b, old, LONGEST);
    run(&b, young, LONGEST);
    run(&b, third, LONGEST);
    count_up(third, LONGEST, 3000);
    run(&b, third, 2 * PAGE); /* two pages of `old` pay for it */
    prefix_cache_stats(b.c, &stats);
    assert_int_equal(stats.evictions, 2);
    prefix_cache_find(b.c, &hit, young, LONGEST);
    assert_int_equal(hit.n_tokens, LONGEST);
    prefix_cache_find(b.c, &hit, old, LONGEST);
    assert_int_equal(hit.n_tokens, 2 * PAGE);
    bench_close(&b);
}

static void pages_that_sequences_have_are_not_given_up(void **state)
{
    uint32_t tokens[LONGEST];
    struct prefix_hit hit;
    struct bench b;

    (void)state;
    bench_open(&b, 0);
    count_up(tokens, LONGEST, 0);
    run(&b, tokens, LONGEST);
    prefix_cache_find(b.c, &hit, tokens, 2 * PAGE);
    assert_int_equal(hit.n_pages, 2);
    uint32_t used[2] = { hit.page_ids[0], hit.page_ids[1] };
    kv_pool_share(b.kv, used[0]);
    kv_pool_share(b.kv, used[1]);
    assert_true(prefix_cache_evict(b.c) && prefix_cache_evict(b.c));
    assert_false(prefix_cache_evict(b.c));
    kv_pool_give(b.kv, used[1]);
    assert_true(prefix_cache_evict(b.c));
    assert_false(prefix_cache_evict(b.c));
    kv_pool_give(b.kv, used[0]);
    bench_close(&b);
}

static void all_of_it_can_be_given_up_at_once(void **state)
{
    uint32_t tokens[LONGEST];
    struct prefix_hit hit;
    struct bench b;

    (void)state;
    bench_open(&b, N_PLACES);
    count_up(tokens, LONGEST, 0);
    for (int i = 0; i < 2; i++) {
        run(&b, tokens, LONGEST);
        assert_true(keep_state(&b, tokens, 100));
        prefix_cache_find(b.c, &hit, tokens, LONGEST);
        assert_int_equal(hit.n_tokens, 100);
        prefix_cache_clear(b.c);
        prefix_cache_find(b.c, &hit, tokens, LONGEST);
        assert_int_equal(hit.n_tokens, 0);
        assert_int_equal(kv_pool_free(b.kv), N_PAGES);
    }
    bench_close(&b);
}

/* Few different tokens, so that beginnings meet, part and meet again. */
static void make_up(struct bench *b, uint32_t *tokens, uint32_t *n)
{
    uint32_t branch = draw(b, 3);

    *n = 2 + draw(b, LONGEST - 2);
    for (uint32_t i = 0; i < *n; i++)
        tokens[i] = i < 40 ? branch : i == 40 + 30 * branch ? draw(b, 3) : i * branch;
}

static void whatever_comes_what_is_found_is_right(void **state)
{
    uint32_t tokens[LONGEST], n;
    uint64_t found = 0, n_states = 0;
    struct bench b;

    (void)state;
    for (uint32_t n_places = 0; n_places <= N_PLACES; n_places += N_PLACES) {
        bench_open(&b, n_places);
        for (int i = 0; i < 3000; i++) {
            make_up(&b, tokens, &n);
            found += run(&b, tokens, n);
            if (n_places)
                n_states += keep_state(&b, tokens, draw(&b, 2) ? n : 1 + draw(&b, n));
        }
        assert_true(found > 3000 * 20);
        bench_close(&b);
    }
    assert_true(n_states > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_beginning_is_found_where_sequences_can_be_cut),
        cmocka_unit_test(what_is_known_takes_no_page_twice),
        cmocka_unit_test(a_state_is_needed_where_sequences_cannot_be_cut),
        cmocka_unit_test(the_state_used_longest_ago_makes_room),
        cmocka_unit_test(pages_go_from_the_ends_of_what_was_used_longest_ago),
        cmocka_unit_test(pages_that_sequences_have_are_not_given_up),
        cmocka_unit_test(all_of_it_can_be_given_up_at_once),
        cmocka_unit_test(whatever_comes_what_is_found_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
