/* Orders and loans of experts: waves, what is read and how often, who stays. */
#include "kitchen.h"

static void an_order_larger_than_the_cache_still_completes(void **state)
{
    (void)state;
    for (uint32_t slots = 1; slots <= 5; slots++) {
        for (enum layout layout = PLAIN; layout <= SCATTERED; layout++) {
            struct kitchen k;

            lay_out(&k, layout, DTYPE_BF16, 2, 16);
            open_store(&k, slots, 1, 0, true);
            for (uint16_t round = 0; round < 4; round++)
                serve_ok(&k, round % 2, all16, 16);
            assert_int_equal(stats_of(&k).orders, 4);
            assert_int_equal(stats_of(&k).hits + stats_of(&k).misses, 64);
            assert_int_equal(stats_of(&k).n_used, slots);
            close_all(&k);
        }
    }
}

static void each_expert_of_an_order_is_read_once(void **state)
{
    (void)state;
    struct kitchen k;

    lay_out(&k, SCATTERED, DTYPE_F8_E4M3, 2, 16);
    open_store(&k, 4, 2, 0, true);
    for (uint16_t round = 0; round < 6; round++) {
        uint64_t reads = stats_of(&k).reads, misses = stats_of(&k).misses;

        serve_ok(&k, round % 2, all16, 16);
        assert_int_equal(stats_of(&k).reads - reads,
                         (stats_of(&k).misses - misses) * k.extents);
        assert_true(stats_of(&k).misses - misses <= 16);
    }
    close_all(&k);
}

static void what_is_resident_comes_first_and_costs_no_read(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };
    struct expert_loan loan;

    lay_out(&k, PLAIN, DTYPE_F8_E4M3, 1, 16);
    open_store(&k, 8, 2, 0, true);
    serve_ok(&k, 0, (const uint16_t[]){ 5, 6, 7 }, 3);
    uint64_t bytes = stats_of(&k).read_bytes;
    assert_true(bytes >= 3 * k.map->weight_bytes);

    k.fake.silent = true;
    struct expert_order *o = place_order(&k, 0, (const uint16_t[]){ 1, 7, 2, 5, 6 }, 5);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(expert_order_next(o, &loan, false, &err), 1);
        assert_true(loan.id.expert >= 5);
        check_loan(&k, &loan);
        expert_order_return(o, &loan);
    }
    assert_int_equal(expert_order_next(o, &loan, false, &err), 3);
    fake_io_answer(&k.fake);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(expert_order_next(o, &loan, true, &err), 1);
        check_loan(&k, &loan);
        expert_order_return(o, &loan);
    }
    assert_int_equal(expert_order_next(o, &loan, true, &err), 0);
    expert_order_close(o);
    assert_int_equal(stats_of(&k).hits, 3);
    assert_int_equal(stats_of(&k).misses, 5);
    close_all(&k);
}

static void two_is_said_only_while_every_slot_is_lent(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };
    struct expert_loan loans[3], more;

    lay_out(&k, PLAIN, DTYPE_BF16, 1, 16);
    open_store(&k, 3, 2, 0, true);
    struct expert_order *o = place_order(&k, 0, all16, 16);

    for (int i = 0; i < 3; i++)
        assert_int_equal(expert_order_next(o, &loans[i], true, &err), 1);
    assert_int_equal(expert_order_next(o, &more, true, &err), 2);
    assert_int_equal(expert_order_next(o, &more, false, &err), 2);
    for (int left = 13; left > 0; left--) {
        for (int i = 0; i < 3; i++)
            check_loan(&k, &loans[i]); /* a loan stays what it was */
        expert_order_return(o, &loans[left % 3]);
        assert_int_equal(expert_order_next(o, &loans[left % 3], true, &err), 1);
    }
    for (int i = 0; i < 3; i++)
        expert_order_return(o, &loans[i]);
    assert_int_equal(expert_order_next(o, &more, true, &err), 0);
    expert_order_close(o);
    assert_int_equal(stats_of(&k).misses, 16);
    assert_int_equal(stats_of(&k).reads, 16);
    close_all(&k);
}

static void reads_under_way_are_limited(void **state)
{
    (void)state;
    struct kitchen k;

    lay_out(&k, SCATTERED, DTYPE_F32, 1, 16);
    open_store(&k, 16, 3, 0, true);
    k.fake.delay = 4;
    serve_ok(&k, 0, all16, 16);
    assert_true(k.fake.most_held <= 3 * k.extents);
    assert_true(k.fake.most_held >= 2 * k.extents); /* and really several at once */
    assert_true(k.fake.most_bytes <= 12 << 20);
    close_all(&k);
}

static void a_crowded_io_is_no_fault(void **state)
{
    (void)state;
    struct kitchen k;

    lay_out(&k, SCATTERED, DTYPE_F32, 1, 16);
    open_store(&k, 16, 4, 0, true);
    k.fake.room = 1;
    k.fake.delay = 1;
    serve_ok(&k, 0, all16, 16);
    close_all(&k);
}

static void a_large_expert_comes_in_pieces(void **state)
{
    (void)state;
    struct kitchen k;
    static const uint16_t both[2] = { 1, 0 };

    lay_out_sized(&k, PLAIN, DTYPE_BF16, 1, 2, 1200, 1151); /* 8.3 MB each */
    open_store(&k, 2, 2, 0, true);
    k.fake.reorder = true;
    k.fake.delay = 3;
    k.fake.fail_one_in = 2;
    k.fake.retries_work = true;
    serve_ok(&k, 0, both, 2);
    assert_int_equal(stats_of(&k).reads, 4 + stats_of(&k).retries);
    assert_true(k.fake.most_bytes <= 12 << 20);
    assert_true(k.fake.most_held >= 2);
    close_all(&k);
}

static void computing_slowly_costs_no_warm_expert_more_than_needed(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };
    struct expert_loan loan;
    struct expert_order *o;

    lay_out(&k, PLAIN, DTYPE_BF16, 2, 16);
    open_store(&k, 16, 2, 0, true);
    serve_ok(&k, 0, all16, 16);
    o = place_order(&k, 1, all16, 16); /* the drive is at once done with each read */
    for (int i = 0; i < 16; i++) {
        assert_int_equal(expert_order_next(o, &loan, true, &err), 1);
        expert_order_return(o, &loan);
    }
    expert_order_close(o);
    assert_int_equal(stats_of(&k).n_used, 16);
    uint64_t misses = stats_of(&k).misses;
    serve_ok(&k, 0, all16, 16);
    assert_true(stats_of(&k).misses - misses <= 5); /* two read, two ready, one lent */
    close_all(&k);
}

static void nearly_all_slots_are_used_once_enough_was_asked_for(void **state)
{
    (void)state;
    struct kitchen k;

    lay_out(&k, PLAIN, DTYPE_F8_E4M3, 4, 16);
    open_store(&k, 40, 2, 0, true);
    for (uint16_t layer = 0; layer < 4; layer++)
        for (uint16_t i = 0; i < 16; i += 4)
            serve_ok(&k, layer, all16 + i, 4);
    assert_int_equal(stats_of(&k).n_used, 40);
    close_all(&k);

    lay_out(&k, PLAIN, DTYPE_F8_E4M3, 4, 16); /* sweeps fill free slots as well */
    open_store(&k, 40, 2, 0, true);
    for (uint16_t layer = 0; layer < 4; layer++)
        serve_ok(&k, layer, all16, 16);
    assert_int_equal(stats_of(&k).n_used, 40);
    close_all(&k);
}

static void a_sweep_leaves_the_hot_experts_in_their_slots(void **state)
{
    (void)state;
    struct kitchen k;
    static const uint16_t hot[4] = { 2, 4, 8, 15 };

    lay_out(&k, PLAIN, DTYPE_BF16, 4, 16);
    open_store(&k, 22, 2, 0, true);
    for (int token = 0; token < 20; token++)
        for (uint16_t layer = 0; layer < 4; layer++)
            serve_ok(&k, layer, hot, 4);
    for (int sweep = 0; sweep < 3; sweep++)
        for (uint16_t layer = 0; layer < 4; layer++)
            serve_ok(&k, layer, all16, 16);
    uint64_t misses = stats_of(&k).misses;
    for (uint16_t layer = 0; layer < 4; layer++)
        serve_ok(&k, layer, hot, 4);
    assert_int_equal(stats_of(&k).misses, misses);
    close_all(&k);
}

static void an_order_may_be_closed_with_reads_under_way(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };
    struct expert_loan loan;

    lay_out(&k, SCATTERED, DTYPE_BF16, 2, 16);
    open_store(&k, 5, 2, 0, true);
    k.fake.delay = 3;
    k.fake.reorder = true;
    for (uint32_t taken = 0; taken < 6; taken++) {
        struct expert_order *o = place_order(&k, (uint16_t)(taken % 2), all16, 16);

        for (uint32_t i = 0; i < taken; i++) {
            assert_int_equal(expert_order_next(o, &loan, true, &err), 1);
            check_loan(&k, &loan);
            expert_order_return(o, &loan);
        }
        expert_order_close(o);
    }
    serve_ok(&k, 0, all16, 16);
    expert_order_close(place_order(&k, 1, all16, 16));
    close_all(&k); /* and the store too */
}

static void too_few_slots_are_refused_with_the_number_needed(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };

    lay_out(&k, PLAIN, DTYPE_BF16, 1, 16);
    open_store(&k, 10, 2, 0, true);
    struct expert_store_options opt = {
        .map = k.map, .drives = k.drives, .io = &k.fake.io, .n_slots = 9,
        .reads_in_flight = 2, .experts_per_token = 8,
    };
    struct expert_store *s = NULL;
    assert_int_equal(expert_store_min_slots(8, 2), 10);
    assert_int_equal(expert_store_open(&s, &opt, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
    assert_non_null(strstr(err.text, "10"));
    opt.n_slots = 10;
    assert_int_equal(expert_store_open(&s, &opt, &err), 0);
    expert_store_close(s);
    close_all(&k);
}

static void hints_change_nothing_that_is_answered(void **state)
{
    (void)state;
    struct kitchen k;
    static const struct expert_id ids[2] = { { 0, 3 }, { 1, 4 } };

    lay_out(&k, PLAIN, DTYPE_BF16, 2, 16);
    open_store(&k, 4, 2, 0, true);
    expert_store_hint(k.store, ids, 2);
    serve_ok(&k, 0, all16, 16);
    assert_int_equal(stats_of(&k).hinted, 2);
    close_all(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_order_larger_than_the_cache_still_completes),
        cmocka_unit_test(each_expert_of_an_order_is_read_once),
        cmocka_unit_test(what_is_resident_comes_first_and_costs_no_read),
        cmocka_unit_test(two_is_said_only_while_every_slot_is_lent),
        cmocka_unit_test(reads_under_way_are_limited),
        cmocka_unit_test(a_crowded_io_is_no_fault),
        cmocka_unit_test(a_large_expert_comes_in_pieces),
        cmocka_unit_test(computing_slowly_costs_no_warm_expert_more_than_needed),
        cmocka_unit_test(nearly_all_slots_are_used_once_enough_was_asked_for),
        cmocka_unit_test(a_sweep_leaves_the_hot_experts_in_their_slots),
        cmocka_unit_test(an_order_may_be_closed_with_reads_under_way),
        cmocka_unit_test(too_few_slots_are_refused_with_the_number_needed),
        cmocka_unit_test(hints_change_nothing_that_is_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
