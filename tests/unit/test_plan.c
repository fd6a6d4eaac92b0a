/* The arithmetic of the budget, over made-up models and sizes. */
#include "plan_fixture.h"

static void the_lines_sum_to_the_total_and_stay_within_ram(void **state)
{
    uint64_t seed = 0x9e3779b97f4a7c15;
    (void)state;

    for (int round = 0; round < 400; round++) {
        struct fixture f;
        struct cz_plan p;
        struct err err;

        randomize(&f, &seed);
        f.options.ram = next_random(&seed) % (64 * GIB) + 1;
        int rc = plan_make(&p, &f.in, &err);
        assert_int_equal(sum_of(&p), p.total);
        assert_true(p.n_lines < CZ_PLAN_LINES);
        if (rc == 0) {
            assert_true(p.total <= p.ram);
            assert_true(p.minimum <= p.ram);
        } else {
            assert_int_equal(err.kind, ERR_BUDGET);
            assert_true(p.minimum > p.ram);
        }
    }
}

static void the_printed_minimum_works_and_one_byte_less_is_refused(void **state)
{
    uint64_t seed = 0x2545f4914f6cdd1d;
    (void)state;

    for (int round = 0; round < 400; round++) {
        struct fixture f;
        struct cz_plan p;

        randomize(&f, &seed);
        refused(&f, &p, ERR_BUDGET);
        uint64_t minimum = p.minimum;

        f.options.ram = minimum;
        p = planned(&f);
        assert_int_equal(p.minimum, minimum);
        assert_int_equal(p.total, minimum);
        /* More only where a slot fits into a huge page that is paid for anyway. */
        if (f.shape.n_moe_layers)
            assert_in_range(p.expert_slots,
                            expert_store_min_slots(f.shape.experts_per_token, p.reads_in_flight),
                            p.min_slots + 2 * MIB / p.slot_size);
        assert_true(p.kv_pages >= (p.context + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);

        f.options.ram = minimum - 1;
        refused(&f, &p, ERR_BUDGET);
    }
}

static void more_ram_never_gives_fewer_slots_pages_or_rows(void **state)
{
    uint64_t seed = 0xda942042e4dd58b5;
    (void)state;

    for (int round = 0; round < 30; round++) {
        struct fixture f;
        struct cz_plan before, p;
        struct err err;

        randomize(&f, &seed);
        plan_make(&before, &f.in, &err);
        f.options.ram = before.minimum;
        before = planned(&f);
        for (int step = 0; step < 200; step++) {
            f.options.ram += next_random(&seed) % (step < 100 ? 12 * MIB : GIB);
            p = planned(&f);
            assert_true(p.expert_slots >= before.expert_slots);
            assert_true(p.prefill_rows >= before.prefill_rows);
            before = p;
        }
    }
}

static void most_of_the_extra_ram_becomes_slots(void **state)
{
    struct fixture f;
    struct cz_plan p;
    (void)state;

    big(&f);
    for (uint64_t ram = 6 * GIB; ram <= 24 * GIB; ram += GIB / 2) {
        f.options.ram = ram;
        p = planned(&f);
        /* Less than one more slot's cost is left over. */
        assert_true(p.ram - p.total < 2 * p.slot_size + 4 * MIB);
        uint64_t extra = p.ram - p.minimum;
        assert_true(p.kv_bytes <= extra / 4 + 1640 * MIB); /* one context is 1,536 MiB */
        assert_true(p.slots_bytes >= extra / 2);
    }
}

static void slots_stop_at_the_number_of_experts(void **state)
{
    struct fixture f;
    struct cz_plan p;
    (void)state;

    tiny(&f);
    p = planned(&f);
    assert_int_equal(p.n_experts_total, 24);
    assert_int_equal(p.expert_slots, 24);
    /* What is left makes room for all sequences and the longest chunk. */
    assert_int_equal(p.kv_pages, 4 * 512 / KV_PAGE_TOKENS);
    assert_int_equal(p.prefill_rows, 512);
}

static void a_refusal_names_the_minimum_in_both_spellings(void **state)
{
    struct fixture f;
    struct cz_plan p;
    struct err err;
    char text[16];
    (void)state;

    big(&f);
    f.options.ram = GIB;
    err = refused(&f, &p, ERR_BUDGET);
    assert_non_null(strstr(err.text, size_text(text, sizeof text, p.minimum)));
    /* The exact figure, its commas taken out. */
    char digits[64] = "", expected[32];
    const char *at = strchr(err.text, '(');
    at = strchr(at + 1, '('); /* past "(config)" */
    assert_non_null(at);
    for (size_t n = 0; *++at != ' ' && n < sizeof digits - 1;)
        if (*at != ',')
            digits[n++] = *at;
    snprintf(expected, sizeof expected, "%llu", (unsigned long long)p.minimum);
    assert_string_equal(digits, expected);
    assert_true(p.n_lines > 10); /* shown, so that one sees where it goes */
}

static void every_class_of_bytes_is_a_line(void **state)
{
    static const char *const names[] = {
        "attention", "router", "norms", "head", "token embedding", "dense MLP", "expert scales",
        "KV pool", "activations", "expert outputs", "expert slots", "expert tables", "reading",
        "row buffers", "requests", "checkpoint index", "compute threads", "engine process",
        "supervisor", "workers", "connections", "tokenizers", "client buffers", "page tables",
    };
    struct fixture f;
    struct cz_plan p;
    (void)state;

    big(&f);
    f.in.resident[ROLE_EMBEDDING] = 7;
    f.in.resident[ROLE_DENSE_MLP] = 9;
    p = planned(&f);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!line_of(&p, names[i]))
            fail_msg("no line '%s'", names[i]);
}

static void a_dense_model_needs_no_slots(void **state)
{
    struct fixture f;
    struct cz_plan p;
    (void)state;

    tiny(&f);
    f.shape.n_moe_layers = f.shape.n_experts = f.shape.experts_per_token = 0;
    f.in.slot_size = 0;
    p = planned(&f);
    assert_int_equal(p.expert_slots, 0);
    assert_int_equal(p.kv_pages, 4 * 512 / KV_PAGE_TOKENS);
    assert_null(line_of(&p, "expert slots"));
}

static void an_absurd_shape_is_refused_without_wrapping(void **state)
{
    struct fixture f;
    struct cz_plan p;
    (void)state;

    big(&f);
    f.shape.n_kv_heads = f.shape.head_dim = UINT32_MAX;
    refused(&f, &p, ERR_BUDGET);
    big(&f);
    f.in.resident[ROLE_HEAD] = UINT64_MAX - 5;
    refused(&f, &p, ERR_BUDGET);
}

static void another_budget_changes_the_slots_alone(void **state)
{
    struct fixture f;
    struct cz_plan open, p;
    struct err err;
    (void)state;

    big(&f);
    open = planned(&f);
    uint32_t before = 0;
    for (uint64_t ram = 5 * GIB; ram <= 20 * GIB; ram += GIB / 4) {
        f.in.available = ram / 2; /* what the machine has is the opener's question */
        if (plan_refit(&p, &f.in, &open, ram, UINT32_MAX, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(sum_of(&p), p.total);
        assert_true(p.total <= ram && p.ram == ram);
        assert_true(p.ram - p.total < 2 * p.slot_size + 4 * MIB);
        assert_true(p.expert_slots > before);
        before = p.expert_slots;
        assert_int_equal(p.kv_pages, open.kv_pages);
        assert_int_equal(p.prefill_rows, open.prefill_rows);
        assert_int_equal(p.minimum, open.minimum);
        assert_int_equal(p.available, ram / 2);
        assert_int_equal(p.engine_bytes - p.slots_bytes - (open.engine_bytes - open.slots_bytes),
                         (int64_t)(p.slots_bytes - open.slots_bytes) / 512);
    }
    /* And back to the very plan it had. */
    f.in.available = open.available;
    assert_int_equal(plan_refit(&p, &f.in, &open, open.ram, UINT32_MAX, &err), 0);
    assert_int_equal(p.expert_slots, open.expert_slots);
    assert_int_equal(p.total, open.total);
    assert_int_equal(plan_refit(&p, &f.in, &open, open.ram, open.expert_slots - 7, &err), 0);
    assert_int_equal(p.expert_slots, open.expert_slots - 7); /* as far as there are addresses */
}

static void a_budget_that_cannot_hold_what_is_open_changes_nothing(void **state)
{
    uint64_t seed = 0x1f83d9abfb41bd6b;
    (void)state;

    for (int round = 0; round < 100; round++) {
        struct fixture f;
        struct cz_plan open, p = { .ram = 77 };
        struct err err;

        randomize(&f, &seed);
        plan_make(&open, &f.in, NULL);
        f.options.ram = open.minimum + next_random(&seed) % (8 * GIB);
        open = planned(&f);
        assert_int_equal(plan_refit(&p, &f.in, &open, 1, UINT32_MAX, &err), -1);
        assert_int_equal(err.kind, ERR_BUDGET);
        assert_int_equal(p.ram, 77);
        uint64_t least = 0;
        for (const char *at = strchr(err.text, '(') + 1; *at != ' '; at++)
            if (*at != ',')
                least = least * 10 + (uint64_t)(*at - '0');
        assert_true(least >= open.minimum && least <= open.total);
        assert_int_equal(plan_refit(&p, &f.in, &open, least - 1, UINT32_MAX, &err), -1);
        assert_int_equal(plan_refit(&p, &f.in, &open, least, UINT32_MAX, &err), 0);
        assert_int_equal(p.total, least);
    }
}

/* 48 layers here: 1,812 MB of experts a token; the table gives 2.4 tok/s at a hit rate of
 * 0.5 and 1.6 at 0.21 with 2.5 GB/s from disk, reading overlapped within a layer. */
static void the_estimate_agrees_with_the_derived_table(void **state)
{
    struct cz_plan p = { .n_experts_total = 6144, .expert_slots = 3072,
                         .token_resident_bytes = 1553000000, .token_expert_bytes = 1812000000,
                         .disk_gbps = 2.5, .memory_gbps = 29.1 };
    (void)state;

    plan_estimate(&p);
    assert_true(p.tokens_per_second > 2.3 && p.tokens_per_second < 2.5);
    p.expert_slots = 1290;
    plan_estimate(&p);
    assert_true(p.tokens_per_second > 1.5 && p.tokens_per_second < 1.7);
    p.disk_gbps = 0; /* not probed: nothing is claimed */
    plan_estimate(&p);
    assert_true(p.tokens_per_second == 0.0);
    p.expert_slots = 6144; /* all in memory: the disk does not matter */
    plan_estimate(&p);
    assert_true(p.tokens_per_second > 7.0 && p.tokens_per_second < 7.6);
}

/* Loading has the room of slots, KV pool and scratch; what does not fit in there is paid for. */
static void quantising_borrows_room_or_has_a_line(void **state)
{
    struct fixture f;
    struct cz_plan plain, p;
    (void)state;

    big(&f);
    f.in.other_resident = 1250000001;
    plain = planned(&f);
    assert_int_equal(plain.dense, CZ_DENSE_BF16);
    assert_int_equal(plain.resident_bytes, size_up(622329856 + 811008 + 906000000 + 25165824 +
                                                   7077888, 2 * MIB));
    assert_int_equal(plain.other_resident_bytes, size_up(1250000001, 2 * MIB));
    f.options.dense = CZ_DENSE_FP8;
    f.in.strip_bytes = 5 * MIB;
    p = planned(&f);
    assert_int_equal(p.dense, CZ_DENSE_FP8);
    assert_int_equal(p.total, plain.total);
    assert_int_equal(p.loading_bytes, plain.loading_bytes);

    f.in.strip_bytes = 3 * GIB;
    f.options.ram = 1;
    refused(&f, &p, ERR_BUDGET);
    f.options.ram = 8 * GIB;
    uint64_t room = p.slots_bytes + p.kv_bytes + line_of(&p, "activations")->bytes +
                    line_of(&p, "expert outputs")->bytes + line_of(&p, "requests")->bytes;
    assert_in_range(line_of(&p, "reading")->bytes, 3 * GIB + p.loading_bytes - room,
                    3 * GIB + p.loading_bytes - room + MIB);

    f.options.dense = (enum cz_dense)7;
    assert_non_null(strstr(refused(&f, &p, ERR_INPUT).text, "memory.dense"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lines_sum_to_the_total_and_stay_within_ram),
        cmocka_unit_test(the_printed_minimum_works_and_one_byte_less_is_refused),
        cmocka_unit_test(more_ram_never_gives_fewer_slots_pages_or_rows),
        cmocka_unit_test(most_of_the_extra_ram_becomes_slots),
        cmocka_unit_test(slots_stop_at_the_number_of_experts),
        cmocka_unit_test(a_refusal_names_the_minimum_in_both_spellings),
        cmocka_unit_test(every_class_of_bytes_is_a_line),
        cmocka_unit_test(a_dense_model_needs_no_slots),
        cmocka_unit_test(an_absurd_shape_is_refused_without_wrapping),
        cmocka_unit_test(another_budget_changes_the_slots_alone),
        cmocka_unit_test(a_budget_that_cannot_hold_what_is_open_changes_nothing),
        cmocka_unit_test(the_estimate_agrees_with_the_derived_table),
        cmocka_unit_test(quantising_borrows_room_or_has_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
