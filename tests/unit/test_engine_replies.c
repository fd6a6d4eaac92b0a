/* What becomes of a request besides one reply of sampled tokens: forced ones, logprobs, several
 * choices, and choices that are ended early. Whatever the engine does meanwhile, a reply is that of
 * a plain request whose prompt holds what was forced. */
#include "engine_fixture.h"

#include <math.h>

#ifndef CLOSE_ID
#define CLOSE_ID 250 /* not what the model says by itself */
#endif

enum { CLOSE = CLOSE_ID, MAX_REPLY = 256 };

struct reply {
    uint32_t tokens[MAX_REPLY], n;
    bool forced[MAX_REPLY];
    struct cz_logprobs logprobs[64];
    uint32_t n_logprobs, n_progress;
    bool done, more;
    enum cz_finish finish;
    struct cz_usage usage;
};

struct replies { /* of the request with id 1 */
    struct reply choice[CZ_MAX_CHOICES];
    uint32_t current;
};

static const struct cz_sampling greedy = { .top_p = 1.0f, .repetition_penalty = 1.0f };
static const struct cz_sampling warm = { .temperature = 0.9f, .top_k = 50, .top_p = 0.95f,
                                         .repetition_penalty = 1.05f, .seed = 77 };

static struct cz_request ask(uint32_t n_prompt, uint32_t n_new, const struct cz_sampling *how)
{
    return (struct cz_request){ .id = 1, .prompt = prompt[0], .n_prompt = n_prompt,
                                .max_tokens = n_new, .sampling = *how };
}

static void note(struct replies *to, const struct cz_event *e)
{
    struct reply *r = &to->choice[e->choice];

    if (e->id != 1)
        return;
    if (e->type == CZ_EVENT_FAILED)
        fail_msg("%s", e->err.text);
    if (e->type == CZ_EVENT_PROGRESS) {
        to->choice[to->current].n_progress++;
        return;
    }
    assert_int_equal(e->choice, to->current); /* one after the other, and nothing after its end */
    assert_false(r->done);
    if (e->type == CZ_EVENT_TOKEN) {
        assert_true(r->n < MAX_REPLY);
        r->forced[r->n] = e->forced;
        r->tokens[r->n++] = e->token;
        assert_true(!e->has_logprobs || (!e->forced && e->logprobs.own.token == e->token));
        if (e->has_logprobs && r->n_logprobs < 64)
            r->logprobs[r->n_logprobs++] = e->logprobs;
        return;
    }
    r->done = true;
    r->more = e->more;
    r->finish = e->finish;
    r->usage = e->usage;
    to->current += e->more;
}

static void step(struct cz_engine *e, struct replies *to)
{
    struct cz_event events[16];
    struct err err;
    int n = cz_step(e, events, 16, &err);

    assert_true(n >= 0);
    for (int i = 0; i < n; i++)
        note(to, &events[i]);
}

static void run_out(struct cz_engine *e, struct replies *to)
{
    for (int guard = 0; !cz_idle(e); guard++) {
        assert_true(guard < 100000);
        step(e, to);
    }
    assert_true(to->choice[to->current].done);
}

static void send(struct cz_engine *e, const struct cz_request *r)
{
    struct err err;

    if (cz_submit(e, r, &err) < 0)
        fail_msg("%s", err.text);
}

static void run_alone(struct replies *out, const struct cz_options *opt,
                      const struct cz_request *r)
{
    struct cz_engine *e = open_engine(opt);

    *out = (struct replies){ 0 };
    send(e, r);
    run_out(e, out);
    cz_close(e);
}

static void same_reply(const struct reply *got, const struct reply *want, const char *what)
{
    if (got->n != want->n || memcmp(got->tokens, want->tokens, got->n * sizeof got->tokens[0]) != 0)
        fail_msg("%s: another reply, of %u tokens and not %u", what, got->n, want->n);
    assert_int_equal(got->finish, want->finish);
    assert_int_equal(got->usage.n_generated, want->usage.n_generated);
}

/* ---- what is forced ---- */

/* The reply to a prompt that is the request's with `head` behind it, whole. */
static void follow(struct reply *out, const struct cz_request *r, const uint32_t *head,
                   uint32_t n_head, uint32_t n_new)
{
    static uint32_t whole[N_PROMPT + MAX_REPLY];
    struct cz_request plain = *r;
    struct cz_options opt;
    struct replies got;

    memcpy(whole, r->prompt, r->n_prompt * sizeof *whole);
    memcpy(whole + r->n_prompt, head, n_head * sizeof *whole);
    plain.prompt = whole;
    plain.n_prompt = r->n_prompt + n_head;
    plain.max_tokens = n_new;
    plain.thinking = (struct cz_thinking){ 0 };
    plain.n_forced = plain.n_forced_behind = 0;
    defaults(&opt);
    run_alone(&got, &opt, &plain);
    *out = got.choice[0];
}

static const uint32_t closing[] = { 11, CLOSE, 12, 13 }, words[] = { 21, 22, 23 };

static struct cz_thinking rules(uint32_t budget)
{
    return (struct cz_thinking){ .open = 251, .close = CLOSE, .inside = true, .budget = budget,
                                 .closing = closing, .n_closing = 4 };
}

static void a_budget_closes_the_thinking_and_the_reply_goes_on(void **state)
{
    struct cz_request r = ask(20, 20, &greedy);
    struct cz_options opt;
    struct replies free_one, got;
    struct reply rest;

    (void)state;
    defaults(&opt);
    run_alone(&free_one, &opt, &r);
    r.thinking = rules(5);
    run_alone(&got, &opt, &r);
    const struct reply *c = &got.choice[0];

    assert_int_equal(c->n, 20);
    assert_int_equal(c->finish, CZ_FINISH_LENGTH);
    assert_int_equal(c->usage.n_generated, 20);
    assert_memory_equal(c->tokens, free_one.choice[0].tokens, 5 * sizeof(uint32_t));
    assert_memory_equal(c->tokens + 5, closing, sizeof closing);
    for (uint32_t i = 0; i < c->n; i++)
        assert_int_equal(c->forced[i], i >= 5 && i < 9);
    follow(&rest, &r, c->tokens, 9, 11);
    assert_memory_equal(c->tokens + 9, rest.tokens, 11 * sizeof(uint32_t));
}

static void a_stop_token_inside_is_answered_once_and_ends_the_reply_behind_it(void **state)
{
    struct cz_request r = ask(20, 40, &greedy);
    struct cz_options opt;
    struct replies plain, got;
    struct reply rest;

    (void)state;
    defaults(&opt);
    run_alone(&plain, &opt, &r);
    uint32_t stop = plain.choice[0].tokens[4], first = 0;
    while (plain.choice[0].tokens[first] != stop)
        first++;
    r.stop_ids = &stop;
    r.n_stop_ids = 1;
    r.thinking = rules(CZ_NO_BUDGET);
    run_alone(&got, &opt, &r);
    const struct reply *c = &got.choice[0];

    assert_memory_equal(c->tokens, plain.choice[0].tokens, first * sizeof(uint32_t));
    assert_memory_equal(c->tokens + first, closing, sizeof closing);
    follow(&rest, &r, c->tokens, first + 4, 40 - first - 4); /* stops where a reply would stop */
    assert_int_equal(c->n, first + 4 + rest.n);
    assert_memory_equal(c->tokens + first + 4, rest.tokens, rest.n * sizeof(uint32_t));
    assert_int_equal(c->finish, rest.finish);
    assert_int_equal(c->usage.n_generated, first + 4 + rest.usage.n_generated);

    r.thinking = (struct cz_thinking){ 0 };
    run_alone(&got, &opt, &r);
    assert_int_equal(got.choice[0].n, first);
    assert_int_equal(got.choice[0].finish, CZ_FINISH_STOP);
}

static void forced_tokens_are_as_good_as_a_prompt(void **state)
{
    struct cz_request r = ask(20, 12, &warm);
    struct cz_options opt;
    struct replies got;
    struct reply rest;

    (void)state;
    defaults(&opt);
    r.sampling = greedy;
    r.forced = words;
    r.n_forced = 3;
    run_alone(&got, &opt, &r);
    follow(&rest, &r, words, 3, 9);
    assert_memory_equal(got.choice[0].tokens, words, sizeof words);
    assert_memory_equal(got.choice[0].tokens + 3, rest.tokens, 9 * sizeof(uint32_t));
    assert_int_equal(got.choice[0].n, 12);
    assert_true(got.choice[0].n_progress >= 1);

    /* Instead of a first token that opens no thinking; and not when it does. */
    r.thinking = rules(CZ_NO_BUDGET);
    r.thinking.inside = false;
    r.thinking.may_open = true;
    struct replies again;
    run_alone(&again, &opt, &r);
    same_reply(&again.choice[0], &got.choice[0], "in place of the first token");
    r.n_forced = 0;
    run_alone(&got, &opt, &r);
    r.n_forced = 3;
    r.thinking.open = got.choice[0].tokens[0];
    r.forced_behind = words;
    r.n_forced_behind = 3;
    r.thinking.budget = 2;
    run_alone(&again, &opt, &r);
    const struct reply *c = &again.choice[0];
    assert_memory_equal(c->tokens, got.choice[0].tokens, 3 * sizeof(uint32_t));
    assert_memory_equal(c->tokens + 3, closing, 2 * sizeof(uint32_t)); /* as far as the mark */
    assert_memory_equal(c->tokens + 5, words, sizeof words);
    assert_int_equal(c->n, 12);
}

/* Chunks, neighbours, put downs, and a pool in which sequences are sent back and start over. */
static void what_is_forced_does_not_depend_on_how_it_runs(void **state)
{
    struct cz_request r = ask(50, 24, &warm);
    struct cz_options opt;
    struct replies want, got;
    struct cz_stats stats;

    (void)state;
    defaults(&opt);
    opt.context = 128;
    r.forced_behind = words;
    r.n_forced_behind = 3;
    r.thinking = rules(8);
    run_alone(&want, &opt, &r);
    assert_int_equal(want.choice[0].n, 24);
    opt.prefill_rows = 3; /* what is forced takes several as well */
    run_alone(&got, &opt, &r);
    same_reply(&got.choice[0], &want.choice[0], "in other chunks");
    for (int crowded = 0; crowded < 2; crowded++) {
        defaults(&opt);
        opt.context = 128;
        opt.token_gap_ms = crowded ? 2000 : 0;
        opt.prefill_rows = 16;
        if (crowded)
            opt.kv = kv_of_one_context(&opt);
        struct cz_engine *e = open_engine(&opt);
        got = (struct replies){ 0 };
        submit(e, NULL, 2, 1, 45, 30); /* takes the other's page for its 65th token */
        send(e, &r);
        submit(e, NULL, 3, 2, 20, 6);
        run_out(e, &got);
        cz_stats(e, &stats);
        assert_true(!crowded || stats.n_preempted > 0);
        same_reply(&got.choice[0], &want.choice[0], crowded ? "sent back" : "with neighbours");
        cz_close(e);
    }
}

static void forced_tokens_that_do_not_fit_end_with_the_length(void **state)
{
    struct cz_request r = ask(20, 7, &greedy);
    struct cz_options opt;
    struct replies got;

    (void)state;
    defaults(&opt);
    r.thinking = rules(5); /* two of closing's four tokens have room */
    run_alone(&got, &opt, &r);
    assert_int_equal(got.choice[0].n, 7);
    assert_int_equal(got.choice[0].finish, CZ_FINISH_LENGTH);
    assert_int_equal(got.choice[0].usage.n_generated, 7);
    assert_memory_equal(got.choice[0].tokens + 5, closing, 2 * sizeof(uint32_t));

    r = ask(20, 2, &greedy); /* before anything is sampled */
    r.forced = words;
    r.n_forced = 3;
    r.n_choices = 2;
    run_alone(&got, &opt, &r);
    for (int c = 0; c < 2; c++) {
        assert_int_equal(got.choice[c].n, 2);
        assert_int_equal(got.choice[c].finish, CZ_FINISH_LENGTH);
        assert_memory_equal(got.choice[c].tokens, words, 2 * sizeof(uint32_t));
    }
    r = ask(20, 3, &greedy); /* just */
    r.forced = words;
    r.n_forced = 3;
    run_alone(&got, &opt, &r);
    assert_int_equal(got.choice[0].n, 3);
    assert_int_equal(got.choice[0].finish, CZ_FINISH_LENGTH);
}

/* Far more of them than a caller is told at a time. */
static void many_forced_tokens_are_told_in_order(void **state)
{
    static uint32_t many[100], behind[60];
    struct cz_request r = ask(20, 4 + 160 + 5, &greedy);
    struct cz_options opt;
    struct replies got;

    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        many[i] = i % 90;
    for (uint32_t i = 0; i < 60; i++)
        behind[i] = i % 50;
    many[99] = CLOSE;
    defaults(&opt);
    opt.sequences = 1;
    r.thinking = rules(4);
    r.thinking.closing = many;
    r.thinking.n_closing = 100;
    r.forced_behind = behind;
    r.n_forced_behind = 60;
    run_alone(&got, &opt, &r);
    const struct reply *c = &got.choice[0];
    assert_int_equal(c->n, 4 + 160 + 5);
    assert_memory_equal(c->tokens + 4, many, sizeof many);
    assert_memory_equal(c->tokens + 4 + 100, behind, sizeof behind);
    for (uint32_t i = 0; i < c->n; i++)
        assert_int_equal(c->forced[i], i >= 4 && i < 164);
}

/* ---- logprobs ---- */

static double plain_logprob(const float *logits, uint32_t vocab, uint32_t token)
{
    double most = (double)logits[0], sum = 0.0;

    for (uint32_t i = 0; i < vocab; i++)
        most = fmax(most, (double)logits[i]);
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - most);
    return (double)logits[token] - most - log(sum);
}

static void logprobs_are_of_the_raw_logits_whatever_the_sampling(void **state)
{
    static const struct cz_bias bias[] = { { 3, 4.0f }, { 9, -100.0f } };
    struct cz_request r = ask(40, N_NEW, &warm);
    struct cz_options opt;
    struct replies got = { 0 }, without;
    struct cz_facts facts;
    struct trace t;

    (void)state;
    defaults(&opt);
    r.sampling.presence_penalty = 0.5f;
    r.bias = bias;
    r.n_bias = 2;
    run_alone(&without, &opt, &r);
    struct cz_engine *e = open_engine(&opt);
    cz_facts(e, &facts);
    trace_open(&t, facts.vocab);
    r.logprobs = true;
    r.n_top = 7;
    r.take_logits = take;
    r.logits_ctx = &t;
    send(e, &r);
    run_out(e, &got);
    cz_close(e);
    same_reply(&got.choice[0], &without.choice[0], "asked for logprobs");
    assert_int_equal(without.choice[0].n_logprobs, 0);
    assert_int_equal(got.choice[0].n_logprobs, N_NEW);
    for (uint32_t i = 0; i < N_NEW; i++) {
        const struct cz_logprobs *l = &got.choice[0].logprobs[i];
        const float *row = t.logits + (size_t)(40 - 1 + i) * t.vocab;
        assert_true(fabs((double)l->own.logprob - plain_logprob(row, t.vocab, l->own.token)) < 1e-5);
        assert_int_equal(l->n_top, 7);
        for (uint32_t k = 0; k < 7; k++) {
            uint32_t better = 0;
            for (uint32_t id = 0; id < t.vocab; id++)
                better += row[id] > row[l->top[k].token] ||
                          (row[id] == row[l->top[k].token] && id < l->top[k].token);
            assert_int_equal(better, k);
            assert_true(fabs((double)l->top[k].logprob -
                             plain_logprob(row, t.vocab, l->top[k].token)) < 1e-5);
        }
    }
    free(t.logits);
}

static void forced_tokens_have_no_logprobs(void **state)
{
    struct cz_request r = ask(40, 20, &greedy);
    struct cz_options opt;
    struct replies got;

    (void)state;
    defaults(&opt);
    r.thinking = rules(5);
    r.logprobs = true;
    run_alone(&got, &opt, &r);
    assert_int_equal(got.choice[0].n, 20);
    assert_int_equal(got.choice[0].n_logprobs, 16);
    assert_int_equal(got.choice[0].logprobs[0].n_top, 0);
    assert_int_equal(got.choice[0].logprobs[5].own.token, got.choice[0].tokens[9]);
}

/* ---- choices ---- */

/* Each choice as the request would be with that choice's seed, alone. */
static void expect_choices(struct replies *out, const struct cz_options *opt,
                           const struct cz_request *r)
{
    *out = (struct replies){ 0 };
    for (uint32_t c = 0; c < r->n_choices; c++) {
        struct cz_request one = *r;
        struct replies got;
        one.n_choices = 1;
        one.sampling.seed = cz_choice_seed(r->sampling.seed, c);
        run_alone(&got, opt, &one);
        out->choice[c] = got.choice[0];
    }
}

static void same_choices(const struct replies *got, const struct replies *want, uint32_t n,
                         const char *what)
{
    char which[64];

    assert_int_equal(got->current, n - 1);
    for (uint32_t c = 0; c < n; c++) {
        snprintf(which, sizeof which, "%s: choice %u", what, c);
        same_reply(&got->choice[c], &want->choice[c], which);
        assert_int_equal(got->choice[c].more, c + 1 < n);
    }
}

static void choices_are_requests_of_their_own_after_one_prefill(void **state)
{
    struct cz_request r = ask(40, 9, &warm);
    struct cz_options opt;
    struct replies want, got = { 0 };
    struct cz_stats stats;

    (void)state;
    defaults(&opt);
    opt.prefill_rows = 16;
    r.n_choices = 3;
    r.forced = words;
    r.n_forced = 3;
    expect_choices(&want, &opt, &r);
    assert_memory_not_equal(want.choice[0].tokens, want.choice[1].tokens, 9 * sizeof(uint32_t));
    assert_memory_not_equal(want.choice[1].tokens, want.choice[2].tokens, 9 * sizeof(uint32_t));
    struct cz_engine *e = open_engine(&opt);
    send(e, &r);
    run_out(e, &got);
    cz_stats(e, &stats);
    cz_close(e);
    same_choices(&got, &want, 3, "alone");
    assert_int_equal(stats.prompt_tokens, 40);
    assert_int_equal(stats.generated_tokens, 3 * 9);
    assert_int_equal(stats.n_finished, 1);
    assert_int_equal(stats.kv_pages_used, 0);
    /* One prefill of three chunks, which a point of the state cuts once more; further choices run the
     * prompt's last row and the three forced. */
    assert_int_equal(stats.prefill_steps, 3 + stats.points_kept + 2);
    assert_true(stats.points_kept <= 1 && stats.points_used == 2 * stats.points_kept);
    assert_int_equal(got.choice[0].usage.n_prompt, 40);
    for (uint32_t c = 1; c < 3; c++) {
        const struct cz_usage *u = &got.choice[c].usage;
        assert_true(u->n_prompt == 0 && u->queue_ns == 0 && u->prefill_ns == 0 && u->decode_ns > 0);
        assert_int_equal(got.choice[c].n_progress, 0);
    }
}

static void a_prompt_of_one_token_has_choices_too(void **state)
{
    struct cz_request r = ask(1, 6, &warm);
    struct cz_options opt;
    struct replies want, got;

    (void)state;
    defaults(&opt);
    r.n_choices = 3;
    expect_choices(&want, &opt, &r);
    run_alone(&got, &opt, &r);
    same_choices(&got, &want, 3, "one token");
}

static void choices_sent_back_and_among_neighbours_are_the_same(void **state)
{
    struct cz_request r = ask(50, 24, &warm);
    struct cz_options opt;
    struct replies want, got;
    struct cz_stats stats;

    (void)state;
    defaults(&opt);
    opt.context = 128;
    r.n_choices = 2;
    r.thinking = rules(8);
    expect_choices(&want, &opt, &r);
    for (int crowded = 0; crowded < 2; crowded++) {
        defaults(&opt);
        opt.context = 128;
        opt.prefill_rows = 16;
        opt.token_gap_ms = crowded ? 2000 : 0;
        opt.expert_slots = 8;
        if (crowded)
            opt.kv = kv_of_one_context(&opt);
        struct cz_engine *e = open_engine(&opt);
        got = (struct replies){ 0 };
        submit(e, NULL, 2, 1, 45, 30); /* takes the other's page for its 65th token */
        send(e, &r);
        submit(e, NULL, 3, 2, 33, 4);
        run_out(e, &got);
        cz_stats(e, &stats);
        cz_close(e);
        same_choices(&got, &want, 2, crowded ? "sent back" : "with neighbours");
        assert_true(!crowded || stats.n_preempted > 0);
        assert_int_equal(stats.prompt_tokens, 50 + 45 + 33);
    }
}

/* A family that cannot cut back keeps its point in a place that is free: there is none, or it is lost
 * to somebody who waits for one. */
static void choices_without_a_place_for_their_point_are_the_same(void **state)
{
    struct cz_request r = ask(40, 8, &warm);
    struct cz_options opt;
    struct replies want, got;
    struct cz_stats stats;

    (void)state;
    defaults(&opt);
    r.n_choices = 3;
    expect_choices(&want, &opt, &r);
    for (uint32_t places = 1; places <= 2; places++) {
        opt.sequences = places;
        struct cz_engine *e = open_engine(&opt);
        got = (struct replies){ 0 };
        send(e, &r);
        while (got.choice[0].n < 2)
            step(e, &got);
        submit(e, NULL, 2, 1, 20, 12);
        step(e, &got);
        cz_stats(e, &stats);
        assert_int_equal(stats.running, places);
        run_out(e, &got);
        cz_stats(e, &stats);
        cz_close(e);
        same_choices(&got, &want, 3, places == 1 ? "no place" : "a place that is lost");
        assert_int_equal(stats.n_finished, 2);
        assert_int_equal(stats.prompt_tokens, 40 + 20);
        assert_true(places == 2 || stats.points_kept == 0);
        assert_true(stats.points_used <= stats.points_kept);
    }
}

/* ---- the next, please ---- */

/* What of a choice was said before it was ended is the beginning of what it would have been. */
static void check_cut(const struct reply *got, const struct reply *want)
{
    assert_true(got->done && got->n <= want->n);
    assert_memory_equal(got->tokens, want->tokens, got->n * sizeof(uint32_t));
    if (got->n < want->n) {
        assert_int_equal(got->finish, CZ_FINISH_STOP);
        assert_int_equal(got->usage.n_generated, got->n);
    }
}

struct hurry { /* asks for the next choice at the nth time it is called */
    struct cz_engine *e;
    struct replies *got;
    uint32_t at, calls;
};

static void hurry(void *ctx)
{
    struct hurry *h = ctx;

    if (h->calls++ != h->at)
        return;
    cz_next(h->e, 1, h->got->current);
    cz_next(h->e, 1, h->got->current); /* twice is once */
    cz_next(h->e, 1, h->got->current + 1);
    cz_next(h->e, 99, 0);
}

static void a_choice_can_be_ended_between_any_two_layers(void **state)
{
    struct cz_request r = ask(12, 4, &warm);
    struct cz_options opt;
    struct replies want;
    uint32_t n_early = 0;
    struct replies got;
    struct hurry h = { .got = &got };
    struct cz_watch watch = { .ctx = &h, .between_layers = hurry };
    struct cz_stats stats;
    struct err err;

    (void)state;
    defaults(&opt);
    opt.prefill_rows = 8;
    r.n_choices = 2;
    r.forced = words;
    r.n_forced = 2; /* its rows are a prefill of their own in the second choice */
    expect_choices(&want, &opt, &r);
    assert_int_equal(cz_open(&h.e, &opt, &watch, &err), 0);
    for (uint32_t at = 0;; at++) {
        got = (struct replies){ 0 };
        h.at = at;
        h.calls = 0;
        send(h.e, &r);
        submit(h.e, NULL, 2, 1, 5, 2);
        run_out(h.e, &got);
        cz_stats(h.e, &stats);
        assert_int_equal(got.current, 1);
        for (uint32_t c = 0; c < 2; c++) {
            check_cut(&got.choice[c], &want.choice[c]);
            n_early += got.choice[c].n < want.choice[c].n;
        }
        assert_int_equal(stats.n_finished, 2 * (at + 1));
        assert_int_equal(stats.kv_pages_used, 0);
        if (h.calls <= at)
            break; /* it was never asked: every moment was tried */
        assert_true(at < 1000);
    }
    assert_true(n_early >= 15);
    cz_close(h.e);
}

static void a_choice_can_be_ended_while_it_waits_and_between_steps(void **state)
{
    struct cz_request r = ask(40, 6, &warm);
    struct cz_options opt;
    struct replies want, got = { 0 };

    (void)state;
    defaults(&opt);
    opt.sequences = 1;
    r.n_choices = 2;
    expect_choices(&want, &opt, &r);
    struct cz_engine *e = open_engine(&opt);
    submit(e, NULL, 2, 1, 30, 4);
    step(e, &got);
    send(e, &r);
    cz_next(e, 1, 0); /* it waits behind the other */
    run_out(e, &got);
    assert_int_equal(got.choice[0].n, 0);
    assert_int_equal(got.choice[0].usage.n_prompt, 40);
    same_reply(&got.choice[1], &want.choice[1], "behind a choice that never began");

    got = (struct replies){ 0 };
    send(e, &r);
    while (got.choice[0].n < 2)
        step(e, &got);
    cz_next(e, 1, 0);
    while (!got.choice[0].done)
        step(e, &got);
    cz_next(e, 1, 0); /* late: it has ended */
    run_out(e, &got);
    check_cut(&got.choice[0], &want.choice[0]);
    assert_true(got.choice[0].n < want.choice[0].n);
    same_reply(&got.choice[1], &want.choice[1], "behind one that was ended");

    got = (struct replies){ 0 };
    r.n_choices = 1; /* the last one: as a stop */
    send(e, &r);
    while (got.choice[0].n < 2)
        step(e, &got);
    cz_next(e, 1, 0);
    run_out(e, &got);
    check_cut(&got.choice[0], &want.choice[0]);
    assert_int_equal(got.choice[0].finish, CZ_FINISH_STOP);
    assert_false(got.choice[0].more);
    cz_close(e);
}

/* ---- and the rest ---- */

static void a_cancel_ends_all_choices(void **state)
{
    struct cz_request r = ask(40, 6, &warm);
    struct cz_options opt;
    struct replies got = { 0 };
    struct cz_event events[16];
    struct err err;

    (void)state;
    defaults(&opt);
    struct cz_engine *e = open_engine(&opt);
    r.n_choices = 3;
    send(e, &r);
    while (got.choice[1].n < 2)
        step(e, &got);
    cz_cancel(e, 1);
    assert_true(cz_idle(e));
    assert_int_equal(cz_step(e, events, 16, &err), 0);
    cz_close(e);
}

static void what_cannot_be_asked_for_is_refused(void **state)
{
    struct cz_options opt;
    struct cz_request r = ask(5, 5, &greedy);
    struct err err;

    (void)state;
    defaults(&opt);
    struct cz_engine *e = open_engine(&opt);
    r.n_choices = CZ_MAX_CHOICES + 1;
    assert_int_equal(cz_submit(e, &r, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    r.n_choices = 1;
    r.n_top = CZ_MAX_TOP + 1;
    assert_int_equal(cz_submit(e, &r, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    r.n_top = 0;
    r.thinking = rules(3);
    r.thinking.close = 1u << 30;
    assert_int_equal(cz_submit(e, &r, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    assert_true(cz_idle(e));
    cz_close(e);
}

static void the_pace_is_measured_and_unknown_before(void **state)
{
    struct cz_options opt;
    struct cz_stats stats;
    struct replies got = { 0 };
    struct cz_request r = ask(30, 8, &greedy);

    (void)state;
    defaults(&opt);
    struct cz_engine *e = open_engine(&opt);
    cz_stats(e, &stats);
    assert_true(stats.prefill_ns_per_token == 0 && stats.decode_ns_per_token == 0);
    send(e, &r);
    run_out(e, &got);
    cz_stats(e, &stats);
    cz_close(e);
    /* All of its rows, and all of its steps: the means of what the totals are the sums of. */
    assert_int_equal(stats.prefill_ns_per_token, stats.prefill_ns / (30 - stats.points_kept));
    assert_int_equal(stats.decode_ns_per_token, stats.decode_ns / stats.decode_steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_budget_closes_the_thinking_and_the_reply_goes_on),
        cmocka_unit_test(a_stop_token_inside_is_answered_once_and_ends_the_reply_behind_it),
        cmocka_unit_test(forced_tokens_are_as_good_as_a_prompt),
        cmocka_unit_test(what_is_forced_does_not_depend_on_how_it_runs),
        cmocka_unit_test(forced_tokens_that_do_not_fit_end_with_the_length),
        cmocka_unit_test(many_forced_tokens_are_told_in_order),
        cmocka_unit_test(logprobs_are_of_the_raw_logits_whatever_the_sampling),
        cmocka_unit_test(forced_tokens_have_no_logprobs),
        cmocka_unit_test(choices_are_requests_of_their_own_after_one_prefill),
        cmocka_unit_test(a_prompt_of_one_token_has_choices_too),
        cmocka_unit_test(choices_sent_back_and_among_neighbours_are_the_same),
        cmocka_unit_test(choices_without_a_place_for_their_point_are_the_same),
        cmocka_unit_test(a_choice_can_be_ended_between_any_two_layers),
        cmocka_unit_test(a_choice_can_be_ended_while_it_waits_and_between_steps),
        cmocka_unit_test(a_cancel_ends_all_choices),
        cmocka_unit_test(what_cannot_be_asked_for_is_refused),
        cmocka_unit_test(the_pace_is_measured_and_unknown_before),
    };
#ifdef ONLY
    cmocka_set_test_filter(ONLY);
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
