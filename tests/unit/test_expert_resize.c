/* A store that grows and shrinks while it works: who stays, who leaves, what the kernel gets
 * back. Every loan is checked byte by byte, before and after. */
#include "kitchen.h"
#include "memory_group.h"

#include "util/clock.h"

static void resize_ok(struct kitchen *k, uint32_t n_slots)
{
    struct err err = { 0 };

    if (expert_store_resize(k->store, n_slots, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(stats_of(k).n_slots, n_slots);
}

static void what_is_warm_stays_as_far_as_slots_go(void **state)
{
    (void)state;
    struct kitchen k;
    static const uint16_t hot[4] = { 2, 4, 8, 15 };

    lay_out(&k, PLAIN, DTYPE_F8_E4M3, 2, 16);
    open_growing(&k, 32, 32, 2, 0, true);
    for (uint16_t layer = 0; layer < 2; layer++) /* all, so that hot ones lie high and low */
        serve_ok(&k, layer, all16, 16);
    for (int token = 0; token < 20; token++)
        for (uint16_t layer = 0; layer < 2; layer++)
            serve_ok(&k, layer, hot, 4);
    uint64_t misses = stats_of(&k).misses;
    for (uint32_t slots = 31; slots >= 8; slots--) {
        resize_ok(&k, slots);
        assert_int_equal(stats_of(&k).n_used, slots); /* nobody left who need not */
        for (uint16_t layer = 0; layer < 2; layer++)
            serve_ok(&k, layer, hot, 4);
    }
    assert_int_equal(stats_of(&k).misses, misses);
    assert_int_equal(stats_of(&k).evictions, 32 - 8);
    resize_ok(&k, 32);
    assert_int_equal(stats_of(&k).n_used, 8);
    for (uint16_t layer = 0; layer < 2; layer++)
        serve_ok(&k, layer, all16, 16);
    assert_int_equal(stats_of(&k).misses, misses + 24);
    close_all(&k);
}

static void an_order_fits_any_number_of_slots_it_may_be_given(void **state)
{
    (void)state;
    uint64_t seed = 9;
    uint32_t n_loans = 0;

    for (int run = 0; run < 6; run++) {
        struct kitchen k;

        lay_out(&k, run % 2 ? PLAIN : SCATTERED, run % 3 ? DTYPE_F8_E4M3 : DTYPE_BF16, 3, 16);
        open_growing(&k, 5, 48, 2, 0, true);
        k.fake.reorder = true;
        k.fake.delay = (uint32_t)run;
        k.fake.room = run == 5 ? 2 : FAKE_IO_MAX;
        k.fake.fail_one_in = run == 4 ? 15 : 0;
        for (int i = 0; i < 120; i++) {
            uint16_t experts[16], layer = (uint16_t)random_below(&seed, 3);
            size_t n = random_order(experts, &seed);
            bool failed;

            /* Orders are given up halfway now and then: their reads are under way meanwhile. */
            n_loans += (uint32_t)live_through(&k, layer, experts, n, &seed, &failed);
            assert_true(!failed || k.fake.fail_one_in > 0);
            resize_ok(&k, 2 + random_below(&seed, 47));
        }
        close_all(&k);
    }
    print_message("%u loans checked\n", n_loans);
    assert_true(n_loans > 3000);
}

static void less_than_the_least_or_more_than_all_is_refused(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };

    lay_out(&k, PLAIN, DTYPE_BF16, 1, 16);
    open_growing(&k, 8, 12, 2, 0, true);
    serve_ok(&k, 0, all16, 16);
    assert_int_equal(stats_of(&k).most_slots, 12);
    assert_int_equal(expert_store_resize(k.store, 13, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
    assert_int_equal(expert_store_resize(k.store, 1, &err), -1); /* two reads at once need two */
    assert_int_equal(err.kind, ERR_BUDGET);
    assert_int_equal(stats_of(&k).n_slots, 8);
    assert_int_equal(stats_of(&k).n_used, 8);
    expert_store_drop_reserve(k.store);
    assert_int_equal(stats_of(&k).most_slots, 8);
    assert_int_equal(expert_store_resize(k.store, 9, &err), -1);
    resize_ok(&k, 2);
    serve_ok(&k, 0, all16, 16);
    close_all(&k);
}

static void a_slot_of_a_silent_drive_is_not_given_back(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };

    lay_out(&k, PLAIN, DTYPE_BF16, 2, 16);
    open_growing(&k, 6, 6, 1, 60, true);
    serve_ok(&k, 0, all16, 5);
    k.fake.silent = true; /* the sixth slot, the highest, is read into */
    assert_int_equal(serve(&k, 1, all16, 16, &err), -1);
    uint64_t before = clock_ms();
    assert_int_equal(expert_store_resize(k.store, 4, &err), -1);
    assert_in_range(clock_ms() - before, 0, 10000);
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "shard-0.safetensors"));
    assert_int_equal(stats_of(&k).n_slots, 6);
    serve_ok(&k, 0, all16, 5); /* nothing left */

    fake_io_answer(&k.fake);
    serve_ok(&k, 1, all16, 1);
    resize_ok(&k, 4);
    for (uint16_t round = 0; round < 4; round++)
        serve_ok(&k, round % 2, all16, 16);
    close_all(&k);
}

#ifdef __SANITIZE_THREAD__
enum { SHADOWED = 1 }; /* memory of its own comes with each byte, and is counted too */
#else
enum { SHADOWED = 0 };
#endif

/* What the plan calls given back, the kernel calls so too. */
static void given_back_means_that_the_kernel_has_it(void **state)
{
    (void)state;
    if (SHADOWED)
        skip();
    struct memory_group group;
    struct kitchen k;
    uint64_t anonymous[3], charged[3];
    static const uint32_t slots[3] = { 16, 5, 16 };

    lay_out_sized(&k, PLAIN, DTYPE_BF16, 1, 16, 1200, 1151); /* 8.3 MB each */
    bool grouped = group_enter(&group, 0);
    uint64_t anonymous_before = own_anonymous(), charged_before = grouped ? group_usage(&group) : 0;
    open_growing(&k, 16, 16, 2, 0, true);
    serve_ok(&k, 0, all16, 16);
    for (int i = 0; i < 3; i++) {
        resize_ok(&k, slots[i]);
        anonymous[i] = own_anonymous() - anonymous_before;
        charged[i] = grouped ? group_usage(&group) - charged_before : 0;
        serve_ok(&k, 0, all16, 5);
    }
    if (grouped)
        group_leave(&group);
    for (int i = 0; i < 3; i++) {
        uint64_t planned = size_up(slots[i] * k.map->slot_size, 2 * MIB);

        assert_in_range(anonymous[i], planned - MIB, planned + 2 * MIB);
        if (grouped)
            assert_in_range(charged[i], planned - MIB, planned + 8 * MIB);
    }
    close_all(&k);
    if (!grouped)
        skip(); /* the process's own figures held; the group's were not to be had */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_warm_stays_as_far_as_slots_go),
        cmocka_unit_test(an_order_fits_any_number_of_slots_it_may_be_given),
        cmocka_unit_test(less_than_the_least_or_more_than_all_is_refused),
        cmocka_unit_test(a_slot_of_a_silent_drive_is_not_given_back),
        cmocka_unit_test(given_back_means_that_the_kernel_has_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
