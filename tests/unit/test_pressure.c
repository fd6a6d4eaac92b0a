/* How many slots follow from what the kernel says, second by second on a clock of our own. */
#include "run/pressure.h"

#include "util/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define SLOT (4 * MIB)

/* A machine of 32 GiB, a group of 16, and a service that has planned 1,000 slots of 4 MiB in it.
 * What it holds follows from the slots; others take the rest. */
struct world {
    struct pressure p;
    uint64_t now_ms;
    uint32_t slots, planned, least;
    uint64_t group_others, machine_others; /* bytes that others hold */
    uint64_t leaked;                       /* that we hold without a plan */
    uint64_t swapped;
    uint32_t machine_stall, group_stall;
    bool grouped;
};

#define FIXED (2 * GIB)
#define GROUP (16 * GIB)
#define MACHINE (32 * GIB)
#define GROUP_FLOOR (256 * MIB)    /* a thirty-second would be 512 */
#define MACHINE_FLOOR (1 * GIB)

static struct world world(void)
{
    return (struct world){ .now_ms = 5000, .slots = 1000, .planned = 1000, .least = 10,
                           .group_others = 1 * GIB, .machine_others = 1 * GIB, .grouped = true };
}

static uint64_t own(const struct world *w)
{
    return FIXED + w->slots * SLOT + w->leaked;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t group_room(const struct world *w)
{
    return less(GROUP, own(w) + w->group_others);
}

static uint64_t machine_free(const struct world *w)
{
    return less(MACHINE, own(w) + w->machine_others);
}

/* One look, a second later. */
static void look(struct world *w)
{
    struct machine_memory m = {
        .total = MACHINE, .limit = w->grouped ? GROUP : UINT64_MAX, .free = machine_free(w),
        .group_room = w->grouped ? group_room(w) : UINT64_MAX, .own = own(w),
        .swapped = w->swapped, .machine_stall = w->machine_stall, .group_stall = w->group_stall,
    };
    const struct pressure_slots s = {
        .now = w->slots, .planned = w->planned, .least = w->least, .size = SLOT,
        .process = FIXED + w->slots * SLOT,
    };

    w->now_ms += 1000;
    w->slots = pressure_judge(&w->p, &m, &s, w->now_ms);
    assert_in_range(w->slots, w->least, w->planned);
}

static void look_for(struct world *w, uint32_t seconds)
{
    while (seconds--)
        look(w);
}

/* Others take whatever is given back, until there is nothing more to give. */
static void squeeze(struct world *w)
{
    w->group_others = GROUP;
    look_for(w, 20);
    assert_int_equal(w->slots, w->least);
}

static void with_room_nothing_ever_happens(void **state)
{
    struct world w = world();

    (void)state;
    look_for(&w, 1000);
    assert_int_equal(w.slots, 1000);
    assert_int_equal(w.p.why, CZ_PRESSURE_NONE);
    assert_int_equal(w.p.n_times, 0);
}

static void a_group_near_its_limit_gets_room_in_one_go(void **state)
{
    struct world w = world();

    (void)state;
    look(&w);
    w.group_others = GROUP - own(&w) - 100 * MIB;
    look(&w);
    assert_int_equal(w.p.why, CZ_PRESSURE_GROUP);
    assert_true(group_room(&w) >= GROUP_FLOOR);
    assert_true(group_room(&w) < 2 * GROUP_FLOOR); /* and no more than that */
    uint32_t slots = w.slots;
    look_for(&w, 600); /* between the marks nothing moves */
    assert_int_equal(w.slots, slots);
    assert_int_equal(w.p.n_times, 1);
}

static void a_machine_that_runs_out_gets_room_in_one_go(void **state)
{
    struct world w = world();

    (void)state;
    w.grouped = false;
    look(&w);
    w.machine_others = MACHINE - own(&w) - 200 * MIB;
    look(&w);
    assert_int_equal(w.p.why, CZ_PRESSURE_MACHINE);
    assert_in_range(machine_free(&w), MACHINE_FLOOR, 2 * MACHINE_FLOOR);
}

static void the_least_is_kept_whatever_happens(void **state)
{
    struct world w = world();

    (void)state;
    look(&w);
    squeeze(&w);
    assert_int_equal(w.p.why, CZ_PRESSURE_GROUP);
    assert_int_equal(w.p.n_times, 1);
    w.planned = w.least; /* nothing to give at all, and still it is told and ends */
    look_for(&w, 5);
    w.group_others = 0;
    look_for(&w, 120);
    assert_int_equal(w.p.why, CZ_PRESSURE_NONE);
}

static void slots_come_back_slowly_once_it_is_long_over(void **state)
{
    struct world w = world();

    (void)state;
    look(&w);
    squeeze(&w);
    w.group_others = 1 * GIB;
    look_for(&w, 59);
    assert_int_equal(w.slots, w.least);
    uint32_t seconds = 0, before = w.slots, steps = 0;
    for (; w.slots < w.planned; seconds++, before = w.slots) {
        look(&w);
        assert_true(w.slots - before <= 31);
        steps += w.slots > before;
        assert_true(seconds < 300);
    }
    assert_in_range(steps, 32, 33);
    assert_in_range(seconds, 31 * 5, 35 * 5);
    assert_int_equal(w.p.why, CZ_PRESSURE_NONE);
}

static void growing_stops_where_the_room_does(void **state)
{
    struct world w = world();

    (void)state;
    look(&w);
    squeeze(&w);
    w.group_others = GROUP - FIXED - 500 * SLOT; /* room for some five hundred */
    look_for(&w, 1200);
    assert_in_range(w.slots, 300, 499);
    assert_in_range(group_room(&w), 2 * GROUP_FLOOR, 2 * GROUP_FLOOR + 2 * SLOT);
    assert_int_equal(w.p.n_times, 1);
    assert_int_equal(w.p.why, CZ_PRESSURE_GROUP);
}

/* A neighbour that takes whatever is freed as soon as it is: we must not give and take for ever. */
static void memory_does_not_go_back_and_forth(void **state)
{
    struct world w = world();
    uint32_t n_changes = 0;

    (void)state;
    look(&w);
    for (uint32_t second = 0; second < 24 * 3600; second++) {
        uint32_t before = w.slots;

        w.group_others = w.p.grown_ms && w.now_ms - w.p.grown_ms < 3000
                             ? GROUP - own(&w) - 10 * MIB : second < 5 ? GROUP : 1 * GIB;
        look(&w);
        n_changes += w.slots != before;
    }
    /* Waits double up to half an hour: some 50 rounds of giving and taking in a day at most. */
    assert_in_range(n_changes, 20, 120);
}

static void being_swapped_out_gives_back_and_old_swap_does_not(void **state)
{
    struct world w = world();

    (void)state;
    w.swapped = 300 * MIB; /* before we looked */
    look_for(&w, 100);
    assert_int_equal(w.slots, 1000);
    w.swapped += 64 * MIB;
    look(&w);
    assert_int_equal(w.p.why, CZ_PRESSURE_SWAP);
    assert_in_range(w.slots, 960, 970);
    uint32_t slots = w.slots;
    look_for(&w, 30);
    assert_int_equal(w.slots, slots);
    for (int i = 0; i < 40; i++) {
        w.swapped += 8 * MIB;
        look(&w);
    }
    assert_int_equal(w.slots, w.least);
}

static void waiting_counts_where_it_is_our_wait(void **state)
{
    struct world w = world();

    (void)state;
    w.machine_stall = 5000; /* somebody else's limit: there is plenty */
    look_for(&w, 20);
    assert_int_equal(w.slots, 1000);
    w.machine_stall = 0;
    w.group_stall = 1500;
    look(&w);
    assert_int_equal(w.p.why, CZ_PRESSURE_STALL);
    assert_true(w.slots < 1000);
    w.group_stall = 500; /* not calm yet */
    uint32_t slots = w.slots;
    look_for(&w, 300);
    assert_int_equal(w.slots, slots);
    w.group_stall = 0;
    look_for(&w, 300);
    assert_int_equal(w.slots, 1000);
}

static void what_we_hold_without_a_plan_comes_out_of_the_slots(void **state)
{
    struct world w = world();

    (void)state;
    w.leaked = 500 * MIB; /* there from the start: a sanitizer's, a library's */
    look_for(&w, 10);
    assert_int_equal(w.slots, 1000);
    w.leaked += 1 * GIB;
    look(&w);
    assert_int_equal(w.p.why, CZ_PRESSURE_PROCESS);
    assert_in_range(w.slots, 1000 - 256 - 1, 1000 - 256 + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_room_nothing_ever_happens),
        cmocka_unit_test(a_group_near_its_limit_gets_room_in_one_go),
        cmocka_unit_test(a_machine_that_runs_out_gets_room_in_one_go),
        cmocka_unit_test(the_least_is_kept_whatever_happens),
        cmocka_unit_test(slots_come_back_slowly_once_it_is_long_over),
        cmocka_unit_test(growing_stops_where_the_room_does),
        cmocka_unit_test(memory_does_not_go_back_and_forth),
        cmocka_unit_test(being_swapped_out_gives_back_and_old_swap_does_not),
        cmocka_unit_test(waiting_counts_where_it_is_our_wait),
        cmocka_unit_test(what_we_hold_without_a_plan_comes_out_of_the_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
