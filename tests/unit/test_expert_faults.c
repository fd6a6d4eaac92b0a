/* Orders of experts over a drive that delays, reorders, fails, lies and falls silent. */
#include "kitchen.h"
#include "util/clock.h"

static void a_failed_read_is_tried_once_more(void **state)
{
    (void)state;
    struct kitchen k;

    lay_out(&k, SCATTERED, DTYPE_BF16, 1, 16);
    open_store(&k, 6, 2, 0, true);
    k.fake.fail_one_in = 4;
    k.fake.retries_work = true;
    k.fake.reorder = true;
    k.fake.delay = 2;
    serve_ok(&k, 0, all16, 16);
    assert_true(stats_of(&k).retries > 0);
    assert_int_equal(stats_of(&k).reads, 48 + stats_of(&k).retries);
    close_all(&k);
}

static void a_read_that_fails_twice_fails_the_order_and_not_the_store(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };

    lay_out(&k, PLAIN, DTYPE_BF16, 2, 16);
    open_store(&k, 6, 1, 0, true);
    k.fake.fail_from = k.fake.n_ended + 4;
    k.fake.fail_count = 2;
    assert_int_equal(serve(&k, 1, all16, 16, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    const struct tensor *t = k.f.catalog.expert_tensors[fixture_part(&k.f, 1, 15, PART_DOWN)];
    char offset[32];
    snprintf(offset, sizeof offset, "byte %" PRIu64 " ", t->offset / 4096 * 4096);
    assert_non_null(strstr(err.text, "layer 1 expert 15"));
    assert_non_null(strstr(err.text, "shard-0.safetensors"));
    assert_non_null(strstr(err.text, offset));

    serve_ok(&k, 1, all16, 16);
    serve_ok(&k, 0, all16, 16);
    assert_int_equal(stats_of(&k).retries, 1);
    close_all(&k);
}

static void after_an_error_an_order_gives_no_more_loans(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };
    struct expert_loan first, loan;

    lay_out(&k, PLAIN, DTYPE_BF16, 1, 16);
    open_store(&k, 6, 1, 0, true);
    struct expert_order *o = place_order(&k, 0, all16, 16);
    assert_int_equal(expert_order_next(o, &first, true, &err), 1);
    k.fake.fail_one_in = 1;
    while (expert_order_next(o, &loan, true, &err) == 1)
        expert_order_return(o, &loan);
    assert_int_equal(err.kind, ERR_IO);
    k.fake.fail_one_in = 0;
    assert_int_equal(expert_order_next(o, &loan, true, &err), -1);
    assert_int_equal(expert_order_next(o, &loan, false, &err), -1);
    check_loan(&k, &first);
    expert_order_return(o, &first);
    expert_order_close(o);
    serve_ok(&k, 0, all16, 16);
    close_all(&k);
}

static void a_shard_cut_short_is_an_error_and_the_store_lives(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };

    for (int direct = 0; direct < 2; direct++) {
        lay_out(&k, PLAIN, DTYPE_BF16, 2, 16);
        open_store(&k, 6, 1, 0, direct);
        serve_ok(&k, 0, all16, 2);
        const struct tensor *t = k.f.catalog.expert_tensors[fixture_part(&k.f, 1, 9, PART_DOWN)];
        assert_int_equal(truncate(k.f.files[0].path, (off_t)t->offset + 100), 0);
        assert_int_equal(serve(&k, 1, all16, 16, &err), -1);
        assert_int_equal(err.kind, ERR_IO);
        assert_non_null(strstr(err.text, "cut short"));
        serve_ok(&k, 0, all16, 16);
        close_all(&k);
    }
}

static void a_nan_code_is_refused_with_tensor_and_byte(void **state)
{
    (void)state;
    static const uint8_t nan_codes[2] = { 0x7F, 0xFF };

    for (int i = 0; i < 2; i++) {
        struct kitchen k;
        struct err err = { 0 };

        lay_out(&k, PLAIN, DTYPE_F8_E4M3, 2, 16);
        open_store(&k, 6, 2, 0, true);
        const struct tensor *t = k.f.catalog.expert_tensors[fixture_part(&k.f, 1, 14, PART_UP)];
        fixture_poke(&k.f, 0, t->offset + 6239, &nan_codes[i], 1);
        assert_int_equal(serve(&k, 1, all16, 16, &err), -1);
        assert_int_equal(err.kind, ERR_FORMAT);
        assert_non_null(strstr(err.text, "model.layers.1.mlp.experts.14.up_proj.weight"));
        assert_non_null(strstr(err.text, "element 6239 "));
        assert_int_equal(serve(&k, 1, (const uint16_t[]){ 14 }, 1, &err), -1);
        assert_int_equal(err.kind, ERR_FORMAT);
        serve_ok(&k, 1, all16, 4);
        serve_ok(&k, 0, all16, 16);
        close_all(&k);
    }
}

static void a_nan_code_in_bf16_bytes_is_no_nan(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };
    struct expert_loan loan;
    static const uint8_t byte = 0x7F;

    lay_out(&k, PLAIN, DTYPE_BF16, 1, 16);
    open_store(&k, 6, 2, 0, true);
    const struct tensor *t = k.f.catalog.expert_tensors[fixture_part(&k.f, 0, 14, PART_UP)];
    fixture_poke(&k.f, 0, t->offset + 11, &byte, 1);
    struct expert_order *o = place_order(&k, 0, (const uint16_t[]){ 14 }, 1);
    assert_int_equal(expert_order_next(o, &loan, true, &err), 1);
    assert_int_equal(((const uint8_t *)loan.w->up.data)[11], 0x7F);
    expert_order_return(o, &loan);
    expert_order_close(o);
    close_all(&k);
}

static void a_silent_drive_ends_the_order_in_time(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };

    lay_out(&k, PLAIN, DTYPE_BF16, 2, 16);
    open_store(&k, 4, 1, 80, true);
    serve_ok(&k, 0, all16, 2);
    k.fake.silent = true;
    uint64_t before = clock_ms();
    assert_int_equal(serve(&k, 1, all16, 16, &err), -1);
    assert_in_range(clock_ms() - before, 75, 10000);
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "layer 1 expert 3"));
    assert_non_null(strstr(err.text, "shard-0.safetensors"));

    /* What is resident is still served; the rest fails in its time, also when no slot
     * is left that no read may write into. */
    serve_ok(&k, 0, all16, 2);
    for (int i = 0; i < 5; i++)
        assert_int_equal(serve(&k, 1, all16, 16, &err), -1);
    assert_int_equal(err.kind, ERR_IO);

    fake_io_answer(&k.fake);
    for (uint16_t round = 0; round < 4; round++)
        serve_ok(&k, round % 2, all16, 16);
    assert_int_equal(stats_of(&k).n_used, 4);
    close_all(&k);
}

static void a_silent_drive_does_not_hold_up_closing(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };
    _Atomic uint64_t n_ended = 0;

    lay_out(&k, PLAIN, DTYPE_BF16, 2, 16);
    open_store(&k, 4, 1, 60, true);
    k.fake.io.ended = &n_ended;
    serve_ok(&k, 0, all16, 4);
    assert_int_equal(n_ended, 4);
    k.fake.silent = true;
    assert_int_equal(serve(&k, 1, all16, 16, &err), -1);
    assert_int_equal(n_ended, 4); /* asked for is not read */
    uint64_t before = clock_ms();
    close_all(&k);
    assert_in_range(clock_ms() - before, IO_CLOSE_MS / 2, IO_CLOSE_MS + 10000);
}

static void a_stalled_slot_is_left_alone_until_its_read_ends(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };

    lay_out(&k, PLAIN, DTYPE_BF16, 1, 16);
    open_store(&k, 3, 2, 60, true);
    k.fake.never_once = true;
    assert_int_equal(serve(&k, 0, all16, 16, &err), -1);
    for (int round = 0; round < 3; round++)
        serve_ok(&k, 0, all16, 16); /* through the other slots, content checked */
    fake_io_answer(&k.fake);
    serve_ok(&k, 0, all16, 16);
    serve_ok(&k, 0, all16, 16);
    assert_int_equal(k.fake.n_held, 0);
    close_all(&k);
}

static void every_loan_is_right_whatever_the_drive_does(void **state)
{
    (void)state;
    uint32_t n_loans = 0, n_failed = 0;

    for (uint32_t run = 0; run < 24; run++) {
        struct kitchen k;
        uint64_t seed = run * 77 + 5;

        lay_out(&k, run % 2 ? PLAIN : SCATTERED, run % 3 ? DTYPE_F8_E4M3 : DTYPE_BF16, 3, 16);
        uint32_t slots = 1 + run % 9 + (run % 4 == 3 ? 30 : 0), reads = 1 + run % 4;
        open_store(&k, slots, reads < slots ? reads : slots, 0, run % 5 != 0);
        k.fake.seed = seed;
        k.fake.reorder = run % 2 == 0;
        k.fake.delay = run % 5;
        k.fake.fail_one_in = run % 4 == 1 ? 12 : 0;
        k.fake.room = run % 6 == 5 ? 2 : FAKE_IO_MAX;
        for (int i = 0; i < 60; i++) {
            uint16_t experts[16], layer = (uint16_t)random_below(&seed, 3);
            size_t n = random_order(experts, &seed);
            bool failed;

            n_loans += (uint32_t)live_through(&k, layer, experts, n, &seed, &failed);
            n_failed += failed;
            assert_true(!failed || k.fake.fail_one_in > 0);
        }
        assert_true(stats_of(&k).evictions > 0 || stats_of(&k).n_slots >= 31);
        close_all(&k);
    }
    print_message("%u loans checked, %u orders failed on purpose\n", n_loans, n_failed);
    assert_true(n_loans > 5000);
    assert_true(n_failed > 0);
}

static void threads_and_drives_give_the_same_bytes(void **state)
{
    (void)state;
    for (int run = 0; run < 4; run++) {
        struct kitchen k;
        struct err err = { 0 };
        uint64_t seed = (uint64_t)run + 1;

        lay_out(&k, run % 2 ? PLAIN : SCATTERED, DTYPE_F8_E4M3, 3, 16);
        assert_int_equal(io_open(&k.threads, IO_THREADS, 3, &err), 0);
        open_store(&k, 3 + (uint32_t)run * 9, 3, 10000, run >= 2);
        for (int i = 0; i < 60; i++) {
            uint16_t experts[16], layer = (uint16_t)random_below(&seed, 3);
            size_t n = random_order(experts, &seed);
            bool failed;

            live_through(&k, layer, experts, n, &seed, &failed);
            assert_false(failed);
        }
        close_all(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_read_is_tried_once_more),
        cmocka_unit_test(a_read_that_fails_twice_fails_the_order_and_not_the_store),
        cmocka_unit_test(after_an_error_an_order_gives_no_more_loans),
        cmocka_unit_test(a_shard_cut_short_is_an_error_and_the_store_lives),
        cmocka_unit_test(a_nan_code_is_refused_with_tensor_and_byte),
        cmocka_unit_test(a_nan_code_in_bf16_bytes_is_no_nan),
        cmocka_unit_test(a_silent_drive_ends_the_order_in_time),
        cmocka_unit_test(a_silent_drive_does_not_hold_up_closing),
        cmocka_unit_test(a_stalled_slot_is_left_alone_until_its_read_ends),
        cmocka_unit_test(every_loan_is_right_whatever_the_drive_does),
        cmocka_unit_test(threads_and_drives_give_the_same_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
