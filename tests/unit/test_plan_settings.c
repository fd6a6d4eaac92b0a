/* What is set by hand, what is left on auto, profiles, and what is refused by its key. */
#include "plan_fixture.h"

static void slots_set_by_hand_are_kept_or_refused(void **state)
{
    struct fixture f;
    struct cz_plan p;
    struct err err;
    (void)state;

    big(&f);
    f.options.expert_slots = 100;
    p = planned(&f);
    assert_int_equal(p.expert_slots, 100);

    f.options.expert_slots = p.min_slots;
    p = planned(&f);
    f.options.expert_slots = p.min_slots - 1;
    err = refused(&f, &p, ERR_INPUT);
    assert_non_null(strstr(err.text, "expert_slots"));

    f.options.expert_slots = 48 * 128 + 1;
    err = refused(&f, &p, ERR_INPUT);

    f.options.expert_slots = 6144; /* 29 GB */
    err = refused(&f, &p, ERR_BUDGET);
    assert_non_null(strstr(err.text, "lower memory.expert_slots"));
    f.options.ram = p.minimum;
    p = planned(&f);
    assert_int_equal(p.expert_slots, 6144);
}

static void kv_set_by_hand_is_kept_or_refused(void **state)
{
    struct fixture f;
    struct cz_plan p;
    struct err err;
    (void)state;

    big(&f);
    f.options.context = 4096;
    uint64_t page = kv_pool_page_size(&f.shape, DTYPE_BF16);
    f.options.kv = 64 * page;
    p = planned(&f);
    assert_int_equal(p.kv_pages, 64);
    f.options.kv = 64 * page - 1;
    err = refused(&f, &p, ERR_INPUT);
    assert_non_null(strstr(err.text, "memory.kv"));
    f.options.kv = 100 * GIB;
    err = refused(&f, &p, ERR_BUDGET);
}

static void a_context_is_the_default_or_what_the_model_allows(void **state)
{
    struct fixture f;
    struct cz_plan p;
    (void)state;

    big(&f);
    p = planned(&f);
    assert_int_equal(p.context, 16384);
    f.options.context = 40960;
    f.options.ram = 16 * GIB;
    p = planned(&f);
    assert_int_equal(p.context, 40960);
    f.options.context = 40961;
    refused(&f, &p, ERR_INPUT);
    f.options.context = 3;
    refused(&f, &p, ERR_INPUT);
    tiny(&f);
    p = planned(&f);
    assert_int_equal(p.context, 512);
}

static void what_is_not_built_is_refused_by_name(void **state)
{
    struct fixture f;
    struct cz_plan p;
    struct err err;
    (void)state;

    big(&f);
    f.options.vram = GIB;
    err = refused(&f, &p, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "vram"));
    big(&f);
    f.options.device = CZ_DEVICE_CUDA;
    err = refused(&f, &p, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "cuda"));
    big(&f);
    f.options.profile = CZ_PROFILE_GPU;
    err = refused(&f, &p, ERR_INPUT);
    assert_non_null(strstr(err.text, "gpu"));
}

static void options_out_of_range_are_refused_by_key(void **state)
{
    static const struct {
        size_t field;
        uint32_t value;
        const char *key;
    } cases[] = {
        { offsetof(struct cz_options, sequences), 0, "engine.sequences" },
        { offsetof(struct cz_options, sequences), 1000000, "engine.sequences" },
        { offsetof(struct cz_options, queue), 1000000, "engine.queue" },
        { offsetof(struct cz_options, threads), 1000000, "engine.threads" },
        { offsetof(struct cz_options, workers), 1000, "http.workers" },
        { offsetof(struct cz_options, connections), 1000000, "http.connections" },
        { offsetof(struct cz_options, prefill_rows), 1000000, "engine.prefill_rows" },
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        struct cz_plan p;

        big(&f);
        memcpy((char *)&f.options + cases[i].field, &cases[i].value, sizeof(uint32_t));
        struct err err = refused(&f, &p, ERR_INPUT);
        assert_non_null(strstr(err.text, cases[i].key));
    }
    struct fixture f;
    struct cz_plan p;
    big(&f);
    f.options.ram = UINT64_MAX;
    refused(&f, &p, ERR_INPUT);
}

static void automatic_ram_leaves_a_reserve(void **state)
{
    struct fixture f;
    struct cz_plan p;
    (void)state;

    big(&f);
    f.options.ram = 0;
    p = planned(&f);
    assert_int_equal(p.ram, 20 * GIB - 20 * GIB / 8);
    assert_string_equal(p.ram_source, "machine");
    f.in.available = 6 * GIB;
    p = planned(&f);
    assert_int_equal(p.ram, 5 * GIB);
    f.in.available_source = "cgroup v2";
    p = planned(&f);
    assert_int_equal(p.ram, 6 * GIB - 6 * GIB / 16);
    assert_string_equal(p.ram_source, "cgroup v2");
    f.in.available = 100 * MIB;
    refused(&f, &p, ERR_BUDGET);
}

static void profiles_set_what_is_left_on_auto(void **state)
{
    struct fixture f;
    struct cz_plan p;
    (void)state;

    big(&f);
    f.options.ram = 0;
    f.options.profile = CZ_PROFILE_TINY;
    p = planned(&f);
    assert_int_equal(p.ram, 5 * GIB);
    assert_int_equal(p.context, 4096);
    assert_int_equal(p.kv_pages, 4096 / KV_PAGE_TOKENS);
    assert_int_equal(p.prefill_rows, 64);

    f.options.profile = CZ_PROFILE_LAPTOP;
    p = planned(&f);
    assert_int_equal(p.ram, 10 * GIB);
    assert_int_equal(p.context, 8192);
    assert_true(p.kv_pages <= 2 * 8192 / KV_PAGE_TOKENS);

    f.options.profile = CZ_PROFILE_DESKTOP;
    p = planned(&f);
    assert_int_equal(p.ram, 15 * GIB);

    f.options.context = 2048; /* a value set by hand wins */
    f.options.ram = 6 * GIB;
    p = planned(&f);
    assert_int_equal(p.ram, 6 * GIB);
    assert_int_equal(p.context, 2048);
}

static void a_profile_is_raised_to_the_minimum(void **state)
{
    struct fixture f;
    struct cz_plan p;
    (void)state;

    big(&f);
    f.options.ram = 0;
    f.options.profile = CZ_PROFILE_TINY;
    f.in.available = 6 * GIB;
    p = planned(&f);
    assert_true(p.minimum > 6 * GIB / 4);
    assert_int_equal(p.ram, p.minimum);
}

static void a_tool_pays_for_no_workers(void **state)
{
    struct fixture f;
    struct cz_plan p;
    (void)state;

    big(&f);
    p = planned(&f);
    assert_int_equal(line_of(&p, "tokenizers")->bytes, 2 * f.in.tokenizer_bytes);
    assert_int_equal(line_of(&p, "client buffers")->bytes, 2 * f.options.http_buffer);
    assert_non_null(line_of(&p, "supervisor"));
    f.options.workers = 0;
    p = planned(&f);
    assert_null(line_of(&p, "tokenizers"));
    assert_null(line_of(&p, "client buffers"));
    assert_null(line_of(&p, "supervisor"));
}

/* A record and an answer may be an eighth of it, or 1 MiB; each worker and a spare one may have an
 * answer on its way. */
static void memory_for_replies_is_a_line(void **state)
{
    struct fixture f;
    struct cz_plan p, none;
    (void)state;

    big(&f);
    f.options.reasoning_memory = 0;
    none = planned(&f);
    assert_null(line_of(&none, "reasoning memory"));
    assert_int_equal(none.reasoning_bytes, 0);
    f.options.reasoning_memory = 4 * MIB;
    p = planned(&f);
    assert_int_equal(line_of(&p, "reasoning memory")->bytes, 4 * MIB);
    assert_int_equal(line_of(&p, "recalled replies")->bytes, 3 * (MIB / 2));
    assert_in_range(p.minimum - none.minimum, 4 * MIB + 3 * (MIB / 2), 6 * MIB);
    f.options.ram = p.minimum;
    p = planned(&f);
    f.options.reasoning_memory = 0;
    f.options.ram = none.minimum;
    none = planned(&f);
    assert_in_range(p.engine_bytes - none.engine_bytes, 4 * MIB + 3 * (MIB / 2), 6 * MIB);
    f.options.ram = 8 * GIB;
    f.options.reasoning_memory = 100 * MIB;
    p = planned(&f);
    assert_int_equal(line_of(&p, "reasoning memory")->bytes, 100 * MIB);
    assert_int_equal(line_of(&p, "recalled replies")->bytes, 3 * MIB);

    f.options.reasoning_memory = CZ_MEMORY_AUTO;
    p = planned(&f);
    assert_int_equal(p.reasoning_bytes, 64 * MIB);
    assert_int_equal(p.minimum, none.minimum);
    f.options.ram = none.minimum;
    p = planned(&f);
    assert_null(line_of(&p, "reasoning memory"));
    f.options.ram = none.minimum + 400 * MIB;
    p = planned(&f);
    assert_in_range(p.reasoning_bytes, 4 * MIB, 12 * MIB);
    f.options.expert_slots = p.min_slots; /* they cannot grow, and KV pages are all there */
    f.options.ram = 16 * GIB;
    p = planned(&f);
    assert_int_equal(p.reasoning_bytes, 64 * MIB);
    f.options.workers = 0;
    p = planned(&f);
    assert_int_equal(p.reasoning_bytes, 0);

    f.options.reasoning_memory = MIB - 1;
    assert_non_null(strstr(refused(&f, &p, ERR_INPUT).text, "memory.reasoning"));
    f.options.reasoning_memory = UINT64_MAX - 1;
    assert_non_null(strstr(refused(&f, &p, ERR_INPUT).text, "memory.reasoning"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_set_by_hand_are_kept_or_refused),
        cmocka_unit_test(kv_set_by_hand_is_kept_or_refused),
        cmocka_unit_test(a_context_is_the_default_or_what_the_model_allows),
        cmocka_unit_test(what_is_not_built_is_refused_by_name),
        cmocka_unit_test(options_out_of_range_are_refused_by_key),
        cmocka_unit_test(automatic_ram_leaves_a_reserve),
        cmocka_unit_test(profiles_set_what_is_left_on_auto),
        cmocka_unit_test(a_profile_is_raised_to_the_minimum),
        cmocka_unit_test(a_tool_pays_for_no_workers),
        cmocka_unit_test(memory_for_replies_is_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
