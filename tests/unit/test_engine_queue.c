/* The engine's queue through the front door: clients take turns, and a full queue of one client
 * locks nobody out. */
#include "engine_fixture.h"

enum { MOST = 64 };

struct seen { /* by request id */
    uint64_t finished[MOST]; /* in this order */
    uint32_t n_finished;
    struct err failed[MOST];
};

static int submit_for(struct cz_engine *e, uint64_t client, uint64_t id, struct err *err)
{
    struct cz_request r = {
        .id = id, .client = client, .prompt = prompt[id % 4], .n_prompt = 5, .max_tokens = 2,
        .sampling = { .top_p = 1.0f, .repetition_penalty = 1.0f },
    };

    return cz_submit(e, &r, err);
}

static void run_all(struct cz_engine *e, struct seen *seen)
{
    struct cz_event events[16];
    struct err err;

    *seen = (struct seen){ 0 };
    for (int guard = 0; !cz_idle(e); guard++) {
        assert_true(guard < 10000);
        int n = cz_step(e, events, 16, &err);
        assert_true(n >= 0);
        for (int i = 0; i < n; i++) {
            assert_true(events[i].id < MOST);
            if (events[i].type == CZ_EVENT_FINISHED)
                seen->finished[seen->n_finished++] = events[i].id;
            if (events[i].type == CZ_EVENT_FAILED)
                seen->failed[events[i].id] = events[i].err;
        }
    }
}

static struct cz_engine *open_queue(uint32_t sequences, uint32_t queue)
{
    struct cz_options opt;

    defaults(&opt);
    opt.sequences = sequences;
    opt.queue = queue;
    return open_engine(&opt);
}

static void thirty_requests_of_one_client_delay_another_by_one(void **state)
{
    struct cz_engine *e = open_queue(1, 32);
    struct cz_event events[16];
    struct seen seen;
    struct err err;

    (void)state;
    for (uint64_t id = 0; id < 30; id++)
        assert_int_equal(submit_for(e, 7, id, &err), 0);
    assert_true(cz_step(e, events, 16, &err) >= 0); /* the first one runs */
    assert_int_equal(submit_for(e, 8, 40, &err), 0);
    assert_int_equal(cz_place(e, 0), 0);
    assert_int_equal(cz_place(e, 1), 1);
    assert_int_equal(cz_place(e, 40), 2);
    assert_int_equal(cz_place(e, 2), 3);
    run_all(e, &seen);
    assert_int_equal(seen.n_finished, 31);
    assert_int_equal(seen.finished[1], 1);
    assert_int_equal(seen.finished[2], 40);
    assert_int_equal(seen.finished[30], 29);
    cz_close(e);
}

static void a_full_queue_of_one_client_lets_another_in(void **state)
{
    struct cz_engine *e = open_queue(1, 6);
    struct cz_event events[16];
    struct cz_stats stats;
    struct seen seen;
    struct err err;

    (void)state;
    assert_int_equal(submit_for(e, 7, 0, &err), 0);
    assert_true(cz_step(e, events, 16, &err) >= 0);
    for (uint64_t id = 1; id <= 6; id++)
        assert_int_equal(submit_for(e, 7, id, &err), 0);
    assert_int_equal(submit_for(e, 7, 7, &err), -1); /* its own requests are safe from itself */
    assert_int_equal(err.kind, ERR_BUSY);

    for (uint64_t id = 10; id < 13; id++) /* until both have three */
        assert_int_equal(submit_for(e, 8, id, &err), 0);
    assert_int_equal(submit_for(e, 8, 13, &err), -1);
    assert_int_equal(err.kind, ERR_BUSY);
    assert_int_equal(submit_for(e, 9, 20, &err), 0);
    cz_stats(e, &stats);
    assert_int_equal(stats.waiting, 6);
    assert_int_equal(stats.n_displaced, 4);

    /* Nobody is lost without a word: four were told, the rest answered. */
    run_all(e, &seen);
    for (uint64_t id = 0; id < MOST; id++) {
        bool gone = id == 4 || id == 5 || id == 6 || id == 12;
        assert_int_equal(seen.failed[id].kind, gone ? ERR_BUSY : ERR_NONE);
    }
    assert_int_equal(seen.n_finished, 7);
    cz_close(e);
}

static void more_newcomers_than_anyone_can_be_told_of_are_refused(void **state)
{
    struct cz_engine *e = open_queue(1, 4);
    struct cz_event events[16];
    struct seen seen;
    struct err err;
    uint32_t n_in = 1;

    (void)state;
    assert_int_equal(submit_for(e, 7, 0, &err), 0);
    assert_true(cz_step(e, events, 16, &err) >= 0);
    for (uint64_t id = 1; id < 60; id++) /* without a step between them */
        if (submit_for(e, id < 5 ? 7 : id, id, &err) == 0)
            n_in++;
        else
            assert_int_equal(err.kind, ERR_BUSY);
    run_all(e, &seen);
    uint32_t n_failed = 0;
    for (uint64_t id = 0; id < MOST; id++)
        n_failed += seen.failed[id].kind == ERR_BUSY;
    assert_int_equal(n_in, seen.n_finished + n_failed);
    assert_true(n_failed > 0);
    cz_close(e);
}

static void turns_do_not_change_a_bit(void **state)
{
    struct cz_options opt;
    struct cz_event events[16];
    struct trace t;
    struct err err;

    (void)state;
    defaults(&opt);
    opt.sequences = 2;
    struct cz_engine *e = open_engine(&opt);
    trace_open(&t, expected.vocab);
    for (uint64_t id = 20; id < 26; id++)
        assert_int_equal(submit_for(e, 7, id, &err), 0);
    assert_true(cz_step(e, events, 16, &err) >= 0);
    submit(e, &t, 1, 0, N_PROMPT, N_NEW);
    for (uint64_t id = 26; id < 32; id++)
        assert_int_equal(submit_for(e, 9, id, &err), 0);
    run(e, &t);
    same_bits(&t, "among clients that take turns");
    cz_close(e);
    free(t.logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thirty_requests_of_one_client_delay_another_by_one),
        cmocka_unit_test(a_full_queue_of_one_client_lets_another_in),
        cmocka_unit_test(more_newcomers_than_anyone_can_be_told_of_are_refused),
        cmocka_unit_test(turns_do_not_change_a_bit),
    };
    return cmocka_run_group_tests(tests, make_reference, drop_reference);
}
