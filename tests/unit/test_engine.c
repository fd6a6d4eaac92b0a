/* The engine through its front door, on tiny checkpoints: an answer depends on the request
 * alone. Every case runs the same prompt and compares all logits bit for bit. */
#include "engine_fixture.h"

#include <glob.h>
#include <time.h>
#include <unistd.h>

static void threads_do_not_change_a_bit(void **state)
{
    struct cz_options opt;
    struct cz_stats stats;

    (void)state;
    for (uint32_t threads = 1; threads <= 5; threads++) {
        char what[32];
        defaults(&opt);
        opt.threads = threads;
        snprintf(what, sizeof what, "%u threads", threads);
        check_alone(&opt, what, &stats);
        assert_int_equal(stats.threads, threads);
        if (threads > 1)
            assert_true(stats.pool_jobs > 0);
    }
}

static void prefill_chunks_do_not_change_a_bit(void **state)
{
    static const uint32_t rows[] = { 1, 7, 64, N_PROMPT };
    struct cz_options opt;
    struct cz_stats stats;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char what[32];
        defaults(&opt);
        opt.prefill_rows = rows[i];
        opt.threads = 2;
        snprintf(what, sizeof what, "chunks of %u", rows[i]);
        check_alone(&opt, what, &stats);
        if (rows[i] > 1)
            assert_true(stats.multi_row_products > 0);
    }
}

static void cache_size_does_not_change_a_bit(void **state)
{
    struct cz_options opt;
    struct cz_stats stats;
    struct cz_plan plan;
    struct err err;

    (void)state;
    defaults(&opt);
    assert_int_equal(cz_plan(&plan, &opt, false, &err), 0);
    uint32_t all = plan.n_experts_total;

    for (uint32_t slots = 0; slots < 3; slots++) {
        char what[32];
        defaults(&opt);
        opt.threads = 2;
        opt.expert_slots = slots == 0 ? plan.min_slots : slots == 1 ? all / 2 : all;
        snprintf(what, sizeof what, "%u slots of %u", opt.expert_slots, all);
        check_alone(&opt, what, &stats);
        assert_int_equal(stats.expert_slots, opt.expert_slots);
        if (slots < 2)
            assert_true(stats.expert_evictions > 0);
        else
            assert_int_equal(stats.expert_misses, stats.expert_slots_used);
    }
}

static void buffered_reads_do_not_change_a_bit(void **state)
{
    struct cz_options opt;
    struct cz_stats stats;

    (void)state;
    defaults(&opt);
    opt.direct_io = false;
    check_alone(&opt, "buffered reads", &stats);
    assert_false(stats.direct_io);
}

/* Three neighbours of other lengths come and go while the one we look at runs, with a token gap
 * of zero: its prefill is put down at every layer as soon as a neighbour decodes. */
static void neighbours_and_put_downs_do_not_change_a_bit(void **state)
{
    struct cz_options opt;
    struct cz_stats stats;
    struct trace t;
    struct cz_event events[16];
    struct err err;

    (void)state;
    defaults(&opt);
    opt.threads = 2;
    opt.token_gap_ms = 0;
    opt.prefill_rows = 32;
    opt.expert_slots = 8;
    struct cz_engine *e = open_engine(&opt);
    trace_open(&t, expected.vocab);
    submit(e, NULL, 2, 1, 80, 60);
    for (int i = 0; i < 6; i++)
        assert_true(cz_step(e, events, 16, &err) >= 0);
    submit(e, &t, 1, 0, N_PROMPT, N_NEW);
    submit(e, NULL, 3, 2, 20, 5);
    assert_true(cz_step(e, events, 16, &err) >= 0);
    submit(e, NULL, 4, 3, 120, 30);
    run(e, &t);
    same_bits(&t, "with neighbours");
    cz_stats(e, &stats);
    assert_true(stats.put_downs >= 4);
    assert_true(stats.multi_row_products > 0);
    assert_int_equal(stats.n_finished, 4);
    cz_close(e);
    free(t.logits);
}

static void neighbours_in_mixed_steps_do_not_change_a_bit(void **state)
{
    struct cz_options opt;
    struct cz_stats stats;
    struct trace t;
    struct cz_event events[16];
    struct err err;

    (void)state;
    defaults(&opt);
    opt.token_gap_ms = 60000;
    opt.prefill_rows = 16;
    struct cz_engine *e = open_engine(&opt);
    trace_open(&t, expected.vocab);
    submit(e, NULL, 2, 1, 40, 100);
    for (int i = 0; i < 8; i++)
        assert_true(cz_step(e, events, 16, &err) >= 0);
    submit(e, &t, 1, 0, N_PROMPT, N_NEW);
    run(e, &t);
    same_bits(&t, "in mixed steps");
    cz_stats(e, &stats);
    assert_true(stats.mixed_steps > 0);
    cz_close(e);
    free(t.logits);
}

/* The least that the plan prints, alone and in company; a mebibyte less is refused by name. */
static void at_the_printed_minimum_not_a_bit_changes(void **state)
{
    struct cz_options opt;
    struct cz_stats stats;
    struct cz_plan plan;
    struct cz_engine *e;
    struct trace t;
    struct err err;

    (void)state;
    defaults(&opt);
    opt.threads = 2;
    assert_int_equal(cz_plan(&plan, &opt, false, &err), 0);
    opt.ram = plan.minimum;
    check_alone(&opt, "at the minimum", &stats);
    assert_true(stats.expert_evictions > 0);

    e = open_engine(&opt);
    trace_open(&t, expected.vocab);
    for (uint32_t i = 1; i < 4; i++)
        submit(e, NULL, i + 1, i, 40 * i, 30);
    submit(e, &t, 1, 0, N_PROMPT, N_NEW);
    run(e, &t);
    same_bits(&t, "at the minimum, with neighbours");
    cz_close(e);
    free(t.logits);

    opt.ram = plan.minimum - (1 << 20);
    assert_int_equal(cz_open(&e, &opt, NULL, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
}

struct canceller {
    struct cz_engine *e;
    uint64_t id;
    int after;
};

static void cancel_later(void *ctx)
{
    struct canceller *c = ctx;

    if (c->after-- == 0)
        cz_cancel(c->e, c->id);
}

static void a_cancel_between_layers_leaves_the_others_alone(void **state)
{
    struct cz_options opt;
    struct cz_stats stats;
    struct err err;

    (void)state;
    for (int after = 0; after < 12; after += 3) {
        struct canceller c = { .id = 2, .after = after };
        struct cz_watch watch = { .ctx = &c, .between_layers = cancel_later };
        struct trace t;

        defaults(&opt);
        opt.prefill_rows = 300;
        if (cz_open(&c.e, &opt, &watch, &err) < 0)
            fail_msg("%s", err.text);
        trace_open(&t, expected.vocab);
        submit(c.e, NULL, 2, 1, 60, 20);
        submit(c.e, &t, 1, 0, N_PROMPT, N_NEW);
        run(c.e, &t);
        same_bits(&t, "beside a cancelled request");
        cz_stats(c.e, &stats);
        assert_int_equal(stats.n_cancelled, 1);
        assert_int_equal(stats.kv_pages_used, 0);

        /* And what it leaves behind serves the next request as a fresh engine would. */
        t.done = false;
        t.n_tokens = t.n_rows = 0;
        submit(c.e, &t, 1, 0, N_PROMPT, N_NEW);
        run(c.e, &t);
        same_bits(&t, "after a cancelled request");
        cz_close(c.e);
        free(t.logits);
    }
}

static void a_lone_cancelled_request_stops_within_a_layer(void **state)
{
    struct cz_options opt;
    struct cz_stats stats;
    struct err err;
    struct cz_event events[16];
    struct canceller c = { .id = 1, .after = 1 };
    struct cz_watch watch = { .ctx = &c, .between_layers = cancel_later };

    (void)state;
    defaults(&opt);
    assert_int_equal(cz_open(&c.e, &opt, &watch, &err), 0);
    submit(c.e, NULL, 1, 0, N_PROMPT, N_NEW);
    assert_int_equal(cz_step(c.e, events, 16, &err), 0);
    assert_true(cz_idle(c.e));
    cz_stats(c.e, &stats);
    assert_int_equal(stats.layers, 2);
    cz_close(c.e);
}

/* A pool of one context for four sequences that want one each: all finish, one after the other
 * sent back, with the bits of a run alone. */
static void sequences_that_outgrow_the_pool_take_turns(void **state)
{
    struct cz_options opt;
    struct cz_stats stats;
    struct trace t;
    struct cz_plan plan;
    struct err err;

    (void)state;
    defaults(&opt);
    opt.context = 256;
    opt.kv = kv_of_one_context(&opt);
    assert_int_equal(cz_plan(&plan, &opt, false, &err), 0);
    struct cz_engine *e = open_engine(&opt);
    trace_open(&t, expected.vocab);
    for (uint32_t i = 1; i < 4; i++)
        submit(e, NULL, i + 1, i, 30 + i, 200);
    submit(e, &t, 1, 0, N_PROMPT, N_NEW);
    run(e, &t);
    same_bits(&t, "in a crowded pool");
    cz_stats(e, &stats);
    assert_int_equal(stats.kv_pages, 256 / plan.kv_page_tokens);
    assert_true(stats.n_preempted > 0);
    assert_int_equal(stats.n_finished, 4);
    cz_close(e);
    free(t.logits);
}

static void four_decoding_sequences_order_each_layer_once(void **state)
{
    struct cz_options opt;
    struct cz_stats before, after;
    struct cz_model_info info;
    struct cz_event events[16];
    struct err err;

    (void)state;
    defaults(&opt);
    assert_int_equal(cz_inspect(&info, MODEL, &err), 0);
    struct cz_engine *e = open_engine(&opt);
    for (uint32_t i = 0; i < 4; i++)
        submit(e, NULL, i + 1, i, 20, 40);
    cz_stats(e, &before);
    while (before.generated_tokens < 8) {
        assert_true(cz_step(e, events, 16, &err) >= 0);
        cz_stats(e, &before);
    }
    assert_int_equal(before.running, 4);
    for (int i = 0; i < 10; i++)
        assert_true(cz_step(e, events, 16, &err) >= 0);
    cz_stats(e, &after);
    assert_int_equal(after.decode_steps - before.decode_steps, 10);
    assert_int_equal(after.expert_orders - before.expert_orders, 10 * info.n_moe_layers);
    assert_int_equal(after.generated_tokens - before.generated_tokens, 40);
    cz_close(e);
}

static void a_prefill_of_500_rows_reads_each_expert_at_most_once_per_layer(void **state)
{
    static uint32_t longer[500];
    struct cz_options opt;
    struct cz_stats stats;
    struct cz_model_info info;
    struct trace t = { 0 };
    struct cz_plan plan;
    struct err err;

    (void)state;
    defaults(&opt);
    assert_int_equal(cz_inspect(&info, MODEL, &err), 0);
    assert_int_equal(cz_plan(&plan, &opt, false, &err), 0);
    opt.prefill_rows = 500;
    opt.expert_slots = plan.min_slots;
    struct cz_engine *e = open_engine(&opt);
    for (uint32_t i = 0; i < 500; i++)
        longer[i] = (i * 29 + i * i % 17) % 300;
    struct cz_request r = { .id = 1, .prompt = longer, .n_prompt = 500, .max_tokens = 1,
                            .sampling = { .top_p = 1.0f, .repetition_penalty = 1.0f } };
    assert_int_equal(cz_submit(e, &r, &err), 0);
    run(e, &t);
    cz_stats(e, &stats);
    /* The last row is a step of its own where the state before it is kept. */
    assert_int_equal(stats.steps, 1 + stats.points_kept);
    assert_true(stats.expert_misses <= stats.steps * info.n_experts * info.n_moe_layers);
    assert_int_equal(stats.expert_orders, stats.steps * info.n_moe_layers);
    assert_true(stats.expert_evictions > 0);
    cz_close(e);
}

static void lists_of_experts_add_up_to_the_counters(void **state)
{
    struct cz_expert_layer layers[64];
    struct cz_expert_heat hottest[4096];
    struct cz_options opt;
    struct cz_stats stats;
    struct cz_model_info info;
    struct trace t = { 0 };
    struct err err;

    (void)state;
    defaults(&opt);
    opt.expert_slots = 10;
    assert_int_equal(cz_inspect(&info, MODEL, &err), 0);
    struct cz_engine *e = open_engine(&opt);
    assert_int_equal(cz_expert_hottest(e, hottest, 4096), 0); /* nobody asked yet */
    submit(e, NULL, 1, 0, 3, 20);
    run(e, &t);
    cz_stats(e, &stats);

    uint64_t hits = 0, misses = 0, evictions = 0, resident = 0;
    assert_int_equal(cz_expert_layers(e, layers, 64), info.n_moe_layers);
    for (uint32_t i = 0; i < info.n_moe_layers; i++) {
        hits += layers[i].hits;
        misses += layers[i].misses;
        evictions += layers[i].evictions;
        resident += layers[i].n_resident;
        assert_int_equal(layers[i].n_experts, info.n_experts);
        assert_true(i == 0 || layers[i].layer > layers[i - 1].layer);
    }
    assert_int_equal(hits, stats.expert_hits);
    assert_int_equal(misses, stats.expert_misses);
    assert_int_equal(evictions, stats.expert_evictions);
    assert_int_equal(resident, stats.expert_slots_used);
    assert_int_equal(cz_expert_layers(e, layers, 1), 1);

    uint32_t n = cz_expert_hottest(e, hottest, 4096), n_resident = 0;
    assert_true(n > 10);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(hottest[i].heat > 0.0f && hottest[i].heat <= 1.0f);
        assert_true(i == 0 || hottest[i].heat <= hottest[i - 1].heat);
        n_resident += hottest[i].resident;
    }
    assert_true(n_resident > 0 && n_resident <= 10);
    struct cz_expert_heat first[5];
    assert_int_equal(cz_expert_hottest(e, first, 5), 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(first[i].layer, hottest[i].layer);
        assert_int_equal(first[i].expert, hottest[i].expert);
    }
    cz_close(e);
}

static void every_read_that_ends_is_seen_to_end(void **state)
{
    _Atomic uint64_t n_ended = 0;
    struct cz_watch watch = { .reads_ended = &n_ended };
    struct cz_options opt;
    struct cz_engine *e;
    struct cz_stats stats;
    struct cz_model_parts parts;
    struct trace t = { 0 };
    struct err err;

    (void)state;
    defaults(&opt);
    assert_int_equal(cz_inspect_parts(&parts, MODEL, &err), 0);
    assert_int_equal(cz_open(&e, &opt, &watch, &err), 0);
    uint64_t loaded = n_ended;
    assert_true(loaded > 0);
    submit(e, NULL, 1, 0, 40, 3);
    run(e, &t);
    cz_stats(e, &stats);
    /* An expert is one read here; of the rows that were put in, those of a step that share pages
     * of the drive are one, and there were at least three steps. */
    assert_in_range(n_ended - loaded, stats.expert_misses + 3,
                    stats.expert_misses + (40 + 2) * (1 + parts.table_rows_per_token));
    cz_close(e);
}

static void a_seed_decides_and_neighbours_do_not(void **state)
{
    uint32_t seen[3][16];
    struct cz_options opt;
    struct cz_event events[16];
    struct err err;

    (void)state;
    defaults(&opt);
    for (int round = 0; round < 3; round++) {
        struct cz_engine *e = open_engine(&opt);
        uint32_t n = 0;
        struct cz_request r = {
            .id = 1, .prompt = prompt[0], .n_prompt = 10, .max_tokens = 16,
            .sampling = { .temperature = 1.0f, .top_p = 0.95f, .top_k = 40,
                          .repetition_penalty = 1.1f, .seed = round == 2 ? 8 : 7 },
        };
        if (round == 1)
            submit(e, NULL, 2, 1, 30, 30);
        assert_int_equal(cz_submit(e, &r, &err), 0);
        while (!cz_idle(e)) {
            int got = cz_step(e, events, 16, &err);
            assert_true(got >= 0);
            for (int i = 0; i < got; i++)
                if (events[i].id == 1 && events[i].type == CZ_EVENT_TOKEN)
                    seen[round][n++] = events[i].token;
        }
        assert_int_equal(n, 16);
        cz_close(e);
    }
    assert_memory_equal(seen[0], seen[1], sizeof seen[0]);
    assert_memory_not_equal(seen[0], seen[2], sizeof seen[0]);
}

static void shards_that_change_underneath_fail_every_request(void **state)
{
    char dir[] = "/tmp/colizig-engine-XXXXXX", command[256], pattern[128];
    glob_t shard;
    struct cz_options opt;
    struct cz_event events[16];
    struct err err;
    struct timespec second = { .tv_sec = 1, .tv_nsec = 100000000 };

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(command, sizeof command, "cp -rL " MODEL "/. %s", dir);
    assert_int_equal(system(command), 0);
    defaults(&opt);
    opt.model_dir = dir;
    struct cz_engine *e = open_engine(&opt);
    submit(e, NULL, 1, 0, 20, 200);
    submit(e, NULL, 2, 1, 20, 200);
    assert_true(cz_step(e, events, 16, &err) > 0);

    snprintf(pattern, sizeof pattern, "%s/model-00002-of-*.safetensors", dir);
    assert_int_equal(glob(pattern, 0, NULL, &shard), 0);
    FILE *f = fopen(shard.gl_pathv[0], "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    fputc(0x11, f);
    fclose(f);
    nanosleep(&second, NULL);

    int failed = 0;
    for (int guard = 0; !cz_idle(e); guard++) {
        assert_true(guard < 10);
        int n = cz_step(e, events, 16, &err);
        assert_true(n >= 0);
        for (int i = 0; i < n; i++) {
            if (events[i].type != CZ_EVENT_FAILED)
                continue;
            failed++;
            assert_int_equal(events[i].err.kind, ERR_IO);
            assert_non_null(strstr(events[i].err.text, strrchr(shard.gl_pathv[0], '/') + 1));
        }
    }
    assert_int_equal(failed, 2);
    struct cz_request r = { .id = 3, .prompt = prompt[0], .n_prompt = 5,
                            .sampling = { .top_p = 1.0f, .repetition_penalty = 1.0f } };
    assert_int_equal(cz_submit(e, &r, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    cz_close(e);
    globfree(&shard);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void requests_that_cannot_run_are_refused(void **state)
{
    struct cz_options opt;
    struct err err;
    uint32_t bad = 1u << 30;

    (void)state;
    defaults(&opt);
    opt.queue = 2;
    opt.sequences = 1;
    struct cz_engine *e = open_engine(&opt);
    struct cz_request r = { .id = 1, .prompt = &bad, .n_prompt = 1,
                            .sampling = { .top_p = 1.0f, .repetition_penalty = 1.0f } };
    assert_int_equal(cz_submit(e, &r, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    r.n_prompt = 0;
    assert_int_equal(cz_submit(e, &r, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);

    uint32_t *longer = calloc(512, sizeof *longer);
    r.prompt = longer;
    r.n_prompt = 512;
    assert_int_equal(cz_submit(e, &r, &err), -1);
    assert_int_equal(err.kind, ERR_TOO_LONG);
    r.n_prompt = 5;
    r.sampling.temperature = -1.0f;
    assert_int_equal(cz_submit(e, &r, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    r.sampling.temperature = 0.0f;
    for (r.id = 1; r.id <= 3; r.id++)
        assert_int_equal(cz_submit(e, &r, &err), 0);
    assert_int_equal(cz_submit(e, &r, &err), -1);
    assert_int_equal(err.kind, ERR_BUSY);
    free(longer);
    cz_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(prefill_chunks_do_not_change_a_bit),
        cmocka_unit_test(cache_size_does_not_change_a_bit),
        cmocka_unit_test(buffered_reads_do_not_change_a_bit),
        cmocka_unit_test(neighbours_and_put_downs_do_not_change_a_bit),
        cmocka_unit_test(neighbours_in_mixed_steps_do_not_change_a_bit),
        cmocka_unit_test(at_the_printed_minimum_not_a_bit_changes),
        cmocka_unit_test(a_cancel_between_layers_leaves_the_others_alone),
        cmocka_unit_test(a_lone_cancelled_request_stops_within_a_layer),
        cmocka_unit_test(sequences_that_outgrow_the_pool_take_turns),
        cmocka_unit_test(four_decoding_sequences_order_each_layer_once),
        cmocka_unit_test(a_prefill_of_500_rows_reads_each_expert_at_most_once_per_layer),
        cmocka_unit_test(lists_of_experts_add_up_to_the_counters),
        cmocka_unit_test(every_read_that_ends_is_seen_to_end),
        cmocka_unit_test(a_seed_decides_and_neighbours_do_not),
        cmocka_unit_test(shards_that_change_underneath_fail_every_request),
        cmocka_unit_test(requests_that_cannot_run_are_refused),
    };
#ifdef ONLY
    cmocka_set_test_filter(ONLY);
#endif
    return cmocka_run_group_tests(tests, make_reference, drop_reference);
}
