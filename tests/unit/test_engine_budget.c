/* A budget that changes while the engine works: slots follow, answers do not change, and what
 * does not fit is refused with nothing changed. */
#define MODEL "build/models/tiny-f32"
#include "engine_fixture.h"

#include "util/size.h"

static int adjust(struct cz_engine *e, uint64_t ram, struct err *err)
{
    const struct cz_limits limits = { .queue = 32, .ram = ram };

    return cz_adjust(e, &limits, err);
}

static void adjust_ok(struct cz_engine *e, uint64_t ram)
{
    struct err err;

    if (adjust(e, ram, &err) < 0)
        fail_msg("%s", err.text);
    const struct cz_plan *p = cz_engine_plan(e);
    assert_int_equal(p->ram, ram);
    assert_true(p->total <= ram);
}

/* As planned, unless the machine itself is short of memory just now (or ThreadSanitizer takes
 * more of it than anybody planned). */
static uint32_t slots_of(const struct cz_engine *e)
{
    struct cz_stats stats;

    cz_stats(e, &stats);
    if (stats.pressure == CZ_PRESSURE_NONE)
        assert_int_equal(stats.expert_slots, cz_engine_plan(e)->expert_slots);
    assert_true(stats.expert_slots <= cz_engine_plan(e)->expert_slots);
    return stats.expert_slots;
}

/* The least ram for what is open, as a refusal names it. */
static uint64_t least_of(struct cz_engine *e)
{
    struct err err;

    assert_int_equal(adjust(e, 1 * MIB, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
    uint64_t least = 0;
    for (const char *at = strchr(err.text, '('); *at != ' '; at++)
        if (*at >= '0' && *at <= '9')
            least = least * 10 + (uint64_t)(*at - '0');
    return least;
}

static void a_smaller_budget_takes_slots_and_nothing_else(void **state)
{
    struct cz_options opt;
    struct cz_plan before;
    struct err err;

    (void)state;
    defaults(&opt);
    struct cz_engine *e = open_engine(&opt);
    before = *cz_engine_plan(e);
    assert_int_equal(slots_of(e), before.n_experts_total);
    uint64_t least = least_of(e);
    assert_int_equal(slots_of(e), before.n_experts_total);

    adjust_ok(e, least);
    assert_in_range(slots_of(e), before.min_slots, before.min_slots + 4); /* a huge page's worth */
    const struct cz_plan *now = cz_engine_plan(e);
    assert_int_equal(now->kv_pages, before.kv_pages);
    assert_int_equal(now->prefill_rows, before.prefill_rows);
    assert_int_equal(now->context, before.context);
    assert_int_equal(now->slots_bytes, size_up(now->expert_slots * now->slot_size, 2 * MIB));
    assert_string_equal(now->ram_source, "config");

    assert_int_equal(adjust(e, least - 1, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
    assert_int_equal(cz_engine_plan(e)->ram, least);
    adjust_ok(e, opt.ram);
    assert_int_equal(slots_of(e), before.n_experts_total);

    assert_int_equal(adjust(e, 1ull << 49, &err), 0); /* more than it can use is no fault */
    assert_int_equal(slots_of(e), before.n_experts_total);
    cz_close(e);
}

static void a_longer_queue_comes_out_of_the_same_budget(void **state)
{
    struct cz_options opt;
    struct err err;

    (void)state;
    defaults(&opt);
    struct cz_engine *e = open_engine(&opt);
    adjust_ok(e, least_of(e) + 5 * MIB);
    uint32_t slots = slots_of(e);
    uint64_t ram = cz_engine_plan(e)->ram;
    /* Ids of a context of 512 tokens, and the most biases and forced tokens: 17 KiB each. */
    assert_int_equal(cz_adjust(e, &(struct cz_limits){ .queue = 200 }, &err), 0);
    assert_true(slots_of(e) < slots);
    assert_int_equal(cz_engine_plan(e)->ram, ram);
    assert_int_equal(cz_adjust(e, &(struct cz_limits){ .queue = 60000 }, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
    assert_int_equal(cz_adjust(e, &(struct cz_limits){ .queue = 32 }, &err), 0);
    assert_int_equal(slots_of(e), slots);
    cz_close(e);
}

struct shaker { /* changes the budget at every layer and step */
    struct cz_engine *e;
    uint64_t least, most, seed;
    uint32_t n_changes;
    bool shaking;
};

static void shake(void *ctx)
{
    struct shaker *s = ctx;

    if (!s->shaking)
        return;
    s->seed = s->seed * 6364136223846793005u + 1442695040888963407u;
    uint32_t before = slots_of(s->e);
    adjust_ok(s->e, s->least + (s->seed >> 20) % (s->most - s->least));
    s->n_changes += slots_of(s->e) != before;
}

static void no_bit_changes_while_the_budget_does(void **state)
{
    struct cz_options opt;
    struct cz_stats stats;
    struct err err;

    (void)state;
    for (int round = 0; round < 3; round++) {
        struct shaker s = { .seed = (uint64_t)round };
        struct cz_watch watch = { .ctx = &s, .between_layers = shake };
        struct trace t;

        defaults(&opt);
        opt.threads = 2;
        opt.token_gap_ms = round == 1 ? 0 : 2000; /* put-downs too */
        opt.prefill_rows = 32;
        if (cz_open(&s.e, &opt, &watch, &err) < 0)
            fail_msg("%s", err.text);
        s.least = least_of(s.e);
        s.most = s.least + 12 * MIB;
        s.shaking = true;
        trace_open(&t, expected.vocab);
        if (round > 0) {
            submit(s.e, NULL, 2, 1, 60, 20);
            submit(s.e, NULL, 3, 2, 90, 10);
        }
        submit(s.e, &t, 1, 0, N_PROMPT, N_NEW);
        run(s.e, &t);
        same_bits(&t, "while the budget changes");
        cz_stats(s.e, &stats);
        assert_true(s.n_changes > 20 || stats.n_pressure > 0);
        assert_true(stats.expert_evictions > 0);
        cz_close(s.e);
        free(t.logits);
    }
}

static void slots_set_by_hand_stay_as_they_were_set(void **state)
{
    struct cz_options opt;
    struct err err;

    (void)state;
    defaults(&opt);
    opt.expert_slots = 20;
    struct cz_engine *e = open_engine(&opt);
    adjust_ok(e, 2 * opt.ram);
    assert_int_equal(slots_of(e), 20);
    assert_int_equal(adjust(e, cz_engine_plan(e)->total - 1, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
    adjust_ok(e, cz_engine_plan(e)->total);
    assert_int_equal(slots_of(e), 20);
    cz_close(e);
}

/* Workers that will take more take it from the slots, and give it back. */
static void what_workers_take_comes_out_of_the_slots(void **state)
{
    struct cz_options opt;
    struct err err;

    (void)state;
    defaults(&opt);
    opt.workers = 1;
    opt.connections = 8;
    opt.http_buffer = 4 * MIB;
    struct cz_engine *e = open_engine(&opt);
    uint64_t least = least_of(e), slot = cz_engine_plan(e)->slot_size;
    adjust_ok(e, least + 2 * MIB + 4 * slot);
    uint32_t before = slots_of(e);

    struct cz_limits limits = { .queue = 32, .http_buffer = 5 * MIB };
    assert_int_equal(cz_adjust(e, &limits, &err), 0); /* of a worker and of the spare one */
    assert_true(slots_of(e) < before);
    assert_true(cz_engine_plan(e)->total <= cz_engine_plan(e)->ram);
    uint32_t fewer = slots_of(e);
    limits = (struct cz_limits){ .queue = 32, .workers = 64 };
    assert_int_equal(cz_adjust(e, &limits, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
    assert_int_equal(slots_of(e), fewer);
    limits = (struct cz_limits){ .queue = 32, .http_buffer = 4 * MIB };
    assert_int_equal(cz_adjust(e, &limits, &err), 0);
    assert_int_equal(slots_of(e), before);
    cz_close(e);
}

static void what_a_running_service_holds_counts_as_available(void **state)
{
    struct cz_options opt;
    struct cz_plan alone, beside;
    struct err err;

    (void)state;
    defaults(&opt);
    assert_int_equal(cz_plan(&alone, &opt, false, &err), 0);
    opt.held = (uint64_t)1 << 50; /* nothing else that happens meanwhile is as large */
    assert_int_equal(cz_plan(&beside, &opt, false, &err), 0);
    assert_true(beside.available >= opt.held && alone.available < opt.held);
    opt.held = UINT64_MAX;
    assert_int_equal(cz_plan(&beside, &opt, false, &err), 0);
    assert_true(beside.available == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_smaller_budget_takes_slots_and_nothing_else),
        cmocka_unit_test(a_longer_queue_comes_out_of_the_same_budget),
        cmocka_unit_test(no_bit_changes_while_the_budget_does),
        cmocka_unit_test(slots_set_by_hand_stay_as_they_were_set),
        cmocka_unit_test(what_workers_take_comes_out_of_the_slots),
        cmocka_unit_test(what_a_running_service_holds_counts_as_available),
    };
    return cmocka_run_group_tests(tests, make_reference, drop_reference);
}
