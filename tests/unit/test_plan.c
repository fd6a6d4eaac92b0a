/* The arithmetic of the budget, over made-up models and sizes. */
#include "store/plan.h"

#include "colizig.h"
#include "store/expert_store.h"
#include "store/kv_pool.h"
#include "util/err.h"
#include "util/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Activations of a few row vectors, K outputs a row, and the tokens of every request. */
static uint64_t run_size(const struct model_shape *shape, const struct family *family,
                         uint32_t context, uint32_t sequences, uint32_t queue,
                         uint32_t prefill_rows, uint32_t logit_rows, uint64_t *choices)
{
    uint64_t n_rows = prefill_rows + sequences;

    (void)family;
    *choices = n_rows * shape->experts_per_token * shape->hidden * 4;
    return n_rows * shape->hidden * 4 * 6 + (uint64_t)logit_rows * shape->vocab * 4 + *choices +
           ((uint64_t)sequences + queue) * context * 4;
}

struct fixture {
    struct cz_options options;
    struct model_shape shape;
    struct plan_input in;
};

/* Qwen3-30B-A3B in FP8: 48 layers x 128 experts of 4.5 MiB. */
static void big(struct fixture *f)
{
    *f = (struct fixture){
        .options = { .sequences = 4, .queue = 32, .workers = 2,
                     .connections = 256, .http_buffer = 64 * MIB,
                     .ram = 8 * GIB, .direct_io = true },
        .shape = { .vocab = 151936, .hidden = 2048, .n_layers = 48, .n_heads = 32,
                   .n_kv_heads = 4, .head_dim = 128, .n_experts = 128, .experts_per_token = 8,
                   .expert_width = 768, .dense_width = 6144, .n_moe_layers = 48,
                   .max_positions = 40960, .fp8 = true,
                   .kv_values_per_token = 2ull * 48 * 4 * 128 },
    };
    f->in = (struct plan_input){
        .options = &f->options,
        .shape = &f->shape,
        .resident = { [ROLE_HEAD] = 622329856, [ROLE_NORM] = 811008, [ROLE_ATTENTION] = 906000000,
                      [ROLE_ROUTER] = 25165824, [ROLE_EXPERT] = 7077888 },
        .slot_size = 4730880,
        .row_store_bytes = 16 * 8192,
        .tokenizer_bytes = 20 * MIB,
        .run_size = run_size,
        .available = 20 * GIB,
        .available_source = "machine",
        .auto_threads = 2,
    };
}

static void tiny(struct fixture *f)
{
    big(f);
    f->shape = (struct model_shape){
        .vocab = 512, .hidden = 64, .n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16,
        .n_experts = 8, .experts_per_token = 2, .expert_width = 32, .n_moe_layers = 3,
        .max_positions = 512, .kv_values_per_token = 2 * 3 * 2 * 16,
    };
    memset(f->in.resident, 0, sizeof f->in.resident);
    f->in.resident[ROLE_ATTENTION] = 73728;
    f->in.resident[ROLE_HEAD] = 65536;
    f->in.slot_size = 16384;
    f->options.ram = 1 * GIB;
}

static uint64_t sum_of(const struct cz_plan *p)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < p->n_lines; i++)
        sum += p->lines[i].bytes;
    return sum;
}

static const struct cz_plan_line *line_of(const struct cz_plan *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_lines; i++)
        if (strcmp(p->lines[i].name, name) == 0)
            return &p->lines[i];
    return NULL;
}

/* xorshift64: the same inputs on every machine. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint32_t between(uint64_t *state, uint32_t low, uint32_t high)
{
    return low + (uint32_t)(next_random(state) % (high - low + 1));
}

static void randomize(struct fixture *f, uint64_t *state)
{
    big(f);
    struct model_shape *s = &f->shape;
    s->vocab = between(state, 100, 160000);
    s->hidden = between(state, 16, 4096);
    s->n_layers = between(state, 1, 96);
    s->n_moe_layers = between(state, 0, s->n_layers);
    s->n_experts = s->n_moe_layers ? between(state, 1, 256) : 0;
    s->experts_per_token = s->n_experts ? between(state, 1, s->n_experts < 10 ? s->n_experts : 10)
                                        : 0;
    s->max_positions = between(state, 16, 50000);
    s->n_kv_heads = between(state, 1, 16);
    s->head_dim = between(state, 2, 128);
    s->fp8 = next_random(state) & 1;
    f->in.slot_size = s->n_moe_layers ? (uint64_t)between(state, 1, 3000) * 4096 : 0;
    for (int role = 0; role < N_ROLES; role++)
        f->in.resident[role] = next_random(state) % (900 * MIB);
    f->in.tokenizer_bytes = next_random(state) % (40 * MIB);
    struct cz_options *o = &f->options;
    o->sequences = between(state, 1, 16);
    o->queue = between(state, 0, 64);
    o->workers = between(state, 0, 8);
    o->http_buffer = next_random(state) % (128 * MIB);
    o->context = next_random(state) & 1 ? 0 : between(state, 16, s->max_positions);
    o->prefill_rows = next_random(state) & 1 ? 0 : between(state, 1, 2048);
    o->kv_dtype = next_random(state) & 1 ? CZ_KV_F32 : CZ_KV_BF16;
    o->ram = 1; /* asks for the minimum */
}

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
        struct err err;

        randomize(&f, &seed);
        assert_int_equal(plan_make(&p, &f.in, &err), -1);
        assert_int_equal(err.kind, ERR_BUDGET);
        uint64_t minimum = p.minimum;

        f.options.ram = minimum;
        assert_int_equal(plan_make(&p, &f.in, &err), 0);
        assert_int_equal(p.minimum, minimum);
        assert_int_equal(p.total, minimum);
        /* More only where a slot fits into a huge page that is paid for anyway. */
        if (f.shape.n_moe_layers)
            assert_in_range(p.expert_slots,
                            expert_store_min_slots(f.shape.experts_per_token, p.reads_in_flight),
                            p.min_slots + 2 * MIB / p.slot_size);
        assert_true(p.kv_pages >= (p.context + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);

        f.options.ram = minimum - 1;
        assert_int_equal(plan_make(&p, &f.in, &err), -1);
        assert_int_equal(err.kind, ERR_BUDGET);
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
        assert_int_equal(plan_make(&before, &f.in, &err), 0);
        for (int step = 0; step < 200; step++) {
            f.options.ram += next_random(&seed) % (step < 100 ? 12 * MIB : GIB);
            assert_int_equal(plan_make(&p, &f.in, &err), 0);
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
    struct err err;
    (void)state;

    big(&f);
    for (uint64_t ram = 6 * GIB; ram <= 24 * GIB; ram += GIB / 2) {
        f.options.ram = ram;
        assert_int_equal(plan_make(&p, &f.in, &err), 0);
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
    struct err err;
    (void)state;

    tiny(&f);
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(p.n_experts_total, 24);
    assert_int_equal(p.expert_slots, 24);
    /* What is left makes room for all sequences and the longest chunk. */
    assert_int_equal(p.kv_pages, 4 * 512 / KV_PAGE_TOKENS);
    assert_int_equal(p.prefill_rows, 512);
}

static void slots_set_by_hand_are_kept_or_refused(void **state)
{
    struct fixture f;
    struct cz_plan p;
    struct err err;
    (void)state;

    big(&f);
    f.options.expert_slots = 100;
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(p.expert_slots, 100);

    f.options.expert_slots = p.min_slots;
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    f.options.expert_slots = p.min_slots - 1;
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    assert_non_null(strstr(err.text, "expert_slots"));

    f.options.expert_slots = 48 * 128 + 1;
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);

    f.options.expert_slots = 6144; /* 29 GB */
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
    assert_non_null(strstr(err.text, "lower memory.expert_slots"));
    f.options.ram = p.minimum;
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(p.expert_slots, 6144);
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
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
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
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(p.kv_pages, 64);
    f.options.kv = 64 * page - 1;
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    assert_non_null(strstr(err.text, "memory.kv"));
    f.options.kv = 100 * GIB;
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
}

static void a_context_is_the_default_or_what_the_model_allows(void **state)
{
    struct fixture f;
    struct cz_plan p;
    struct err err;
    (void)state;

    big(&f);
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(p.context, 16384);
    f.options.context = 40960;
    f.options.ram = 16 * GIB;
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(p.context, 40960);
    f.options.context = 40961;
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    f.options.context = 3;
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    tiny(&f);
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
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
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "vram"));
    big(&f);
    f.options.device = CZ_DEVICE_CUDA;
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "cuda"));
    big(&f);
    f.options.profile = CZ_PROFILE_GPU;
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
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
        struct err err;

        big(&f);
        memcpy((char *)&f.options + cases[i].field, &cases[i].value, sizeof(uint32_t));
        assert_int_equal(plan_make(&p, &f.in, &err), -1);
        assert_int_equal(err.kind, ERR_INPUT);
        assert_non_null(strstr(err.text, cases[i].key));
    }
    struct fixture f;
    struct cz_plan p;
    struct err err;
    big(&f);
    f.options.ram = UINT64_MAX;
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
}

static void automatic_ram_leaves_a_reserve(void **state)
{
    struct fixture f;
    struct cz_plan p;
    struct err err;
    (void)state;

    big(&f);
    f.options.ram = 0;
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(p.ram, 20 * GIB - 20 * GIB / 8);
    assert_string_equal(p.ram_source, "machine");
    f.in.available = 6 * GIB;
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(p.ram, 5 * GIB);
    f.in.available_source = "cgroup v2";
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(p.ram, 6 * GIB - 6 * GIB / 16);
    assert_string_equal(p.ram_source, "cgroup v2");
    f.in.available = 100 * MIB;
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
}

static void profiles_set_what_is_left_on_auto(void **state)
{
    struct fixture f;
    struct cz_plan p;
    struct err err;
    (void)state;

    big(&f);
    f.options.ram = 0;
    f.options.profile = CZ_PROFILE_TINY;
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(p.ram, 5 * GIB);
    assert_int_equal(p.context, 4096);
    assert_int_equal(p.kv_pages, 4096 / KV_PAGE_TOKENS);
    assert_int_equal(p.prefill_rows, 64);

    f.options.profile = CZ_PROFILE_LAPTOP;
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(p.ram, 10 * GIB);
    assert_int_equal(p.context, 8192);
    assert_true(p.kv_pages <= 2 * 8192 / KV_PAGE_TOKENS);

    f.options.profile = CZ_PROFILE_DESKTOP;
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(p.ram, 15 * GIB);

    f.options.context = 2048; /* a value set by hand wins */
    f.options.ram = 6 * GIB;
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(p.ram, 6 * GIB);
    assert_int_equal(p.context, 2048);
}

static void a_profile_is_raised_to_the_minimum(void **state)
{
    struct fixture f;
    struct cz_plan p;
    struct err err;
    (void)state;

    big(&f);
    f.options.ram = 0;
    f.options.profile = CZ_PROFILE_TINY;
    f.in.available = 6 * GIB;
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_true(p.minimum > 6 * GIB / 4);
    assert_int_equal(p.ram, p.minimum);
}

static void a_tool_pays_for_no_workers(void **state)
{
    struct fixture f;
    struct cz_plan p;
    struct err err;
    (void)state;

    big(&f);
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(line_of(&p, "tokenizers")->bytes, 2 * f.in.tokenizer_bytes);
    assert_int_equal(line_of(&p, "client buffers")->bytes, 2 * f.options.http_buffer);
    assert_non_null(line_of(&p, "supervisor"));
    f.options.workers = 0;
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_null(line_of(&p, "tokenizers"));
    assert_null(line_of(&p, "client buffers"));
    assert_null(line_of(&p, "supervisor"));
}

static void every_class_of_bytes_is_a_line(void **state)
{
    static const char *const names[] = {
        "attention", "router", "norms", "head", "token embedding", "dense MLP", "expert scales",
        "KV pool", "activations", "expert outputs", "expert slots", "reading",
        "row buffers", "requests", "checkpoint index", "compute threads", "engine process",
        "supervisor", "workers", "connections", "tokenizers", "client buffers", "page tables",
    };
    struct fixture f;
    struct cz_plan p;
    struct err err;
    (void)state;

    big(&f);
    f.in.resident[ROLE_EMBEDDING] = 7;
    f.in.resident[ROLE_DENSE_MLP] = 9;
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!line_of(&p, names[i]))
            fail_msg("no line '%s'", names[i]);
}

static void a_dense_model_needs_no_slots(void **state)
{
    struct fixture f;
    struct cz_plan p;
    struct err err;
    (void)state;

    tiny(&f);
    f.shape.n_moe_layers = f.shape.n_experts = f.shape.experts_per_token = 0;
    f.in.slot_size = 0;
    assert_int_equal(plan_make(&p, &f.in, &err), 0);
    assert_int_equal(p.expert_slots, 0);
    assert_int_equal(p.kv_pages, 4 * 512 / KV_PAGE_TOKENS);
    assert_null(line_of(&p, "expert slots"));
}

static void an_absurd_shape_is_refused_without_wrapping(void **state)
{
    struct fixture f;
    struct cz_plan p;
    struct err err;
    (void)state;

    big(&f);
    f.shape.n_kv_heads = f.shape.head_dim = UINT32_MAX;
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
    big(&f);
    f.in.resident[ROLE_HEAD] = UINT64_MAX - 5;
    assert_int_equal(plan_make(&p, &f.in, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lines_sum_to_the_total_and_stay_within_ram),
        cmocka_unit_test(the_printed_minimum_works_and_one_byte_less_is_refused),
        cmocka_unit_test(more_ram_never_gives_fewer_slots_pages_or_rows),
        cmocka_unit_test(most_of_the_extra_ram_becomes_slots),
        cmocka_unit_test(slots_stop_at_the_number_of_experts),
        cmocka_unit_test(slots_set_by_hand_are_kept_or_refused),
        cmocka_unit_test(a_refusal_names_the_minimum_in_both_spellings),
        cmocka_unit_test(kv_set_by_hand_is_kept_or_refused),
        cmocka_unit_test(a_context_is_the_default_or_what_the_model_allows),
        cmocka_unit_test(what_is_not_built_is_refused_by_name),
        cmocka_unit_test(options_out_of_range_are_refused_by_key),
        cmocka_unit_test(automatic_ram_leaves_a_reserve),
        cmocka_unit_test(profiles_set_what_is_left_on_auto),
        cmocka_unit_test(a_profile_is_raised_to_the_minimum),
        cmocka_unit_test(a_tool_pays_for_no_workers),
        cmocka_unit_test(every_class_of_bytes_is_a_line),
        cmocka_unit_test(a_dense_model_needs_no_slots),
        cmocka_unit_test(an_absurd_shape_is_refused_without_wrapping),
        cmocka_unit_test(the_estimate_agrees_with_the_derived_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
