/* What the engine tells of the experts that it orders, and runs that must be the same each time. */
#include "engine_fixture.h"

enum { MOST_ORDERS = 4096, MOST_NAMED = 1 << 16 };

struct orders { /* as they came */
    struct cz_expert_order list[MOST_ORDERS]; /* its pointers are of no use any more */
    uint16_t experts[MOST_NAMED];
    uint32_t n, n_named, n_picks, n_at_fault;
    uint32_t per_token;
};

static void note(void *ctx, const struct cz_expert_order *o)
{
    struct orders *all = ctx;
    uint32_t picks = 0;

    assert_true(all->n < MOST_ORDERS && all->n_named + o->n_experts <= MOST_NAMED);
    all->list[all->n++] = *o;
    for (uint32_t i = 0; i < o->n_experts; i++) {
        uint32_t e = o->experts[i], rows = o->first[e + 1] - o->first[e];

        if (rows < 1 || rows > o->n_rows || (i > 0 && o->experts[i - 1] >= e))
            all->n_at_fault++;
        picks += rows;
        all->experts[all->n_named++] = o->experts[i];
    }
    all->n_at_fault += picks != o->n_rows * all->per_token;
}

static void run_noting(struct orders *all, struct trace *t, const struct cz_options *opt,
                       struct cz_stats *stats)
{
    const struct cz_watch watch = { .ctx = all, .ordering = note };
    struct cz_model_info info;
    struct cz_facts facts;
    struct cz_engine *e;
    struct err err;

    assert_int_equal(cz_inspect(&info, opt->model_dir, &err), 0);
    *all = (struct orders){ .per_token = info.experts_per_token };
    if (cz_open(&e, opt, &watch, &err) < 0)
        fail_msg("%s", err.text);
    cz_facts(e, &facts);
    trace_open(t, facts.vocab);
    submit(e, t, 1, 0, N_PROMPT, N_NEW);
    run(e, t);
    cz_stats(e, stats);
    cz_close(e);
}

static struct orders all, again;

static void every_order_is_told_with_the_rows_that_picked_each_expert(void **state)
{
    struct cz_options opt;
    struct cz_stats stats;
    struct trace t;
    uint64_t n_prefill = 0;

    (void)state;
    defaults(&opt);
    opt.prefill_rows = 64;
    run_noting(&all, &t, &opt, &stats);
    assert_int_equal(all.n_at_fault, 0);
    assert_int_equal(all.n, stats.expert_orders);
    assert_int_equal(all.n_named, stats.expert_hits + stats.expert_misses);
    /* Each step visits every layer, and steps are counted as the statistics do. */
    uint32_t n_layers = all.n / (uint32_t)stats.steps;
    assert_int_equal(all.n, n_layers * stats.steps);
    for (uint32_t i = 0; i < all.n; i++) {
        assert_int_equal(all.list[i].step, i / n_layers);
        assert_true(i % n_layers == 0 || all.list[i].layer > all.list[i - 1].layer);
        n_prefill += all.list[i].prefill;
    }
    assert_int_equal(n_prefill, n_layers * stats.prefill_steps);
    assert_int_equal(all.list[0].n_rows, 64);
    assert_int_equal(all.list[all.n - 1].n_rows, 1);
    free(t.logits);
}

static void what_is_ordered_does_not_depend_on_the_cache(void **state)
{
    struct cz_options opt;
    struct cz_stats stats;
    struct trace t;

    (void)state;
    defaults(&opt);
    opt.prefill_rows = 64;
    run_noting(&all, &t, &opt, &stats);
    free(t.logits);
    for (uint32_t slots = 8; slots <= 16; slots += 8) {
        defaults(&opt);
        opt.prefill_rows = 64;
        opt.expert_slots = slots;
        opt.threads = 2;
        run_noting(&again, &t, &opt, &stats);
        assert_true(stats.expert_evictions > 0);
        assert_int_equal(again.n, all.n);
        assert_memory_equal(again.experts, all.experts, all.n_named * sizeof *all.experts);
        free(t.logits);
    }
}

static void reads_in_turn_find_the_same_experts_in_every_run(void **state)
{
    struct cz_options opt;
    struct cz_stats first, stats;
    struct trace t;

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        defaults(&opt);
        opt.expert_slots = 9;
        opt.reads_in_turn = true;
        opt.threads = 1 + i % 2;
        opt.direct_io = i < 2;
        run_noting(&again, &t, &opt, &stats);
        same_bits(&t, "reads in turn");
        assert_string_equal(stats.io, "in turn");
        if (i == 0)
            first = stats;
        assert_true(stats.expert_hits > 0 && stats.expert_evictions > 0);
        assert_int_equal(stats.expert_hits, first.expert_hits);
        assert_int_equal(stats.expert_misses, first.expert_misses);
        assert_int_equal(stats.expert_evictions, first.expert_evictions);
        free(t.logits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_is_told_with_the_rows_that_picked_each_expert),
        cmocka_unit_test(what_is_ordered_does_not_depend_on_the_cache),
        cmocka_unit_test(reads_in_turn_find_the_same_experts_in_every_run),
    };

    return cmocka_run_group_tests(tests, make_reference, drop_reference);
}
