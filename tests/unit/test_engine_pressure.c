/* The engine in a real memory group that becomes too small for its plan: it gives slots back, the
 * group feels it, and no bit of an answer changes. */
#define MODEL "build/models/tiny-f32"
#include "engine_fixture.h"
#include "memory_group.h"

#include "util/size.h"

#include <time.h>

static struct cz_stats stats_of(const struct cz_engine *e)
{
    struct cz_stats stats;

    cz_stats(e, &stats);
    return stats;
}

/* Until the engine looks again; it does once a second. */
static void tend_until(struct cz_engine *e, enum cz_pressure why)
{
    const struct timespec moment = { .tv_nsec = 50000000 };

    for (int i = 0; i < 400 && stats_of(e).pressure != why; i++) {
        nanosleep(&moment, NULL);
        cz_tend(e);
    }
    assert_int_equal(stats_of(e).pressure, why);
}

static void limit_group(const struct memory_group *g, uint64_t bytes)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRIu64, bytes);
    assert_true(group_write(g->dir, "memory.limit_in_bytes", text));
}

static void slots_go_back_when_the_group_becomes_tight(void **state)
{
    struct memory_group group;
    struct cz_options opt;
    struct trace t;

    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* its shadow memory is pressure of its own */
#endif
    if (!group_enter(&group, 0))
        skip();
    defaults(&opt);
    struct cz_engine *e = open_engine(&opt);
    const struct cz_plan *plan = cz_engine_plan(e);
    trace_open(&t, expected.vocab);
    submit(e, &t, 1, 0, N_PROMPT, N_NEW);
    run(e, &t);
    same_bits(&t, "with room");
    uint64_t before = group_usage(&group);
    assert_int_equal(stats_of(e).expert_slots, plan->n_experts_total);

    /* The floor of a small group is 8 MiB of room: leave 2. */
    limit_group(&group, before + 2 * MIB);
    tend_until(e, CZ_PRESSURE_GROUP);
    struct cz_stats stats = stats_of(e);
    uint64_t after = group_usage(&group);
    assert_int_equal(stats.expert_slots, plan->min_slots);
    assert_int_equal(stats.expert_slots_planned, plan->n_experts_total);
    assert_int_equal(stats.slots_given_back, plan->n_experts_total - plan->min_slots);
    uint64_t given = plan->slots_bytes - size_up(plan->min_slots * plan->slot_size, 2 * MIB);
    assert_true(given >= 4 * MIB);
    assert_true(after + given <= before + 2 * MIB); /* the kernel counts in batches */

    t.done = false;
    t.n_tokens = t.n_rows = 0;
    submit(e, &t, 1, 0, N_PROMPT, N_NEW);
    run(e, &t);
    same_bits(&t, "in a tight group");
    assert_true(stats_of(e).expert_evictions > stats.expert_evictions);

    /* A budget that fits the group is kept to at once. */
    struct err err;
    uint64_t less = plan->total - given;
    assert_int_equal(cz_adjust(e, &(struct cz_limits){ .queue = 32, .ram = less }, &err), 0);
    assert_true(stats_of(e).expert_slots_planned < plan->n_experts_total);
    cz_close(e);
    free(t.logits);
    group_leave(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_go_back_when_the_group_becomes_tight),
    };
    return cmocka_run_group_tests(tests, make_reference, drop_reference);
}
