/* A worker's side of the channel to the engine: requests out, words back in order, one
 * last word. */
#include "daemon/wire/channel.h"
#include "daemon/wire/link.h"
#include "util/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

struct owner {
    char said[512]; /* every callback, as a word */
    struct link *link;
    uint64_t id, cancels; /* a request that its end cancels */
};

static void note(struct owner *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(struct owner *o, const char *fmt, ...)
{
    size_t used = strlen(o->said);
    va_list args;

    va_start(args, fmt);
    vsnprintf(o->said + used, sizeof o->said - used, fmt, args);
    va_end(args);
}

static void accepted(void *owner, uint32_t place)
{
    note(owner, "accepted %u;", place);
}

static void refused(void *owner, enum err_kind kind, uint32_t retry_after_s, const char *text)
{
    note(owner, "refused %s %u %s;", err_kind_name(kind), retry_after_s, text);
}

static void progress(void *owner, uint32_t n_done, uint32_t n_total, uint32_t n_cached)
{
    note(owner, "progress %u/%u (%u);", n_done, n_total, n_cached);
}

static void tokens(void *owner, uint32_t choice, const uint32_t *t, uint32_t n,
                   const struct cz_logprobs *logprobs)
{
    for (uint32_t i = 0; i < n; i++) {
        note(owner, "token %u", t[i]);
        if (choice)
            note(owner, " of %u", choice);
        if (logprobs)
            note(owner, " %u %.1f %u", logprobs[i].own.token, (double)logprobs[i].own.logprob,
                 logprobs[i].n_top);
        note(owner, ";");
    }
}

static void finished(void *owner, uint32_t choice, bool more, enum cz_finish reason,
                     const struct cz_usage *usage)
{
    if (choice || more)
        note(owner, "choice %u %s;", choice, more ? "and more" : "the last");
    note(owner, "finished %d %u;", (int)reason, usage->n_generated);
}

static void failed(void *owner, enum err_kind kind, const char *text, const struct cz_usage *u)
{
    struct owner *o = owner;

    (void)u;
    (void)text;
    note(o, "failed %s;", err_kind_name(kind));
    if (o->cancels)
        link_cancel(o->link, o->cancels);
}

/* The engine's side, as the door would be. */
struct engine {
    struct channel *channel;
    uint32_t n_submits, n_cancels;
    uint64_t last_id;
    uint32_t n_prompt, first, last_stop;
    struct cz_bias last_bias;
    uint32_t n_counts, counted; /* counted: the last one's status */
    uint32_t n_metrics;
    uint32_t n_nexts, next; /* next: the last one's choice */
    struct wire_submit last;
    uint32_t ids[64]; /* all behind it but the biases */
    uint32_t n_recalls, n_remembered;
    struct wire_recall recall; /* the last one, and its first key's message */
    uint32_t message;
};

static void on_frame(void *ctx, const struct wire_head *head, const void *body, size_t size, int fd)
{
    struct engine *e = ctx;
    const struct wire_submit *m = body;
    const uint32_t *prompt = (const uint32_t *)(m + 1);

    (void)size;
    assert_int_equal(fd, -1);
    e->last_id = head->id;
    if (head->type == WIRE_COUNT) {
        e->n_counts++;
        e->counted = ((const struct wire_count *)body)->status;
        return;
    }
    if (head->type == WIRE_METRICS) {
        e->n_metrics++;
        return;
    }
    if (head->type == WIRE_CANCEL) {
        e->n_cancels++;
        return;
    }
    if (head->type == WIRE_NEXT) {
        e->n_nexts++;
        e->next = ((const struct wire_next *)body)->choice;
        return;
    }
    if (head->type == WIRE_REMEMBER) {
        e->n_remembered++;
        return;
    }
    if (head->type == WIRE_RECALL) {
        e->n_recalls++;
        e->recall = *(const struct wire_recall *)body;
        e->message = ((const struct wire_wanted *)((const struct wire_recall *)body + 1))->message;
        return;
    }
    assert_int_equal(head->type, WIRE_SUBMIT);
    e->n_submits++;
    e->last = *m;
    assert_true(size - sizeof *m - m->n_bias * sizeof(struct cz_bias) <= sizeof e->ids);
    memcpy(e->ids, prompt, size - sizeof *m - m->n_bias * sizeof(struct cz_bias));
    e->n_prompt = m->n_prompt;
    e->first = prompt[0];
    if (m->n_stop_ids)
        e->last_stop = prompt[m->n_prompt + m->n_stop_ids - 1];
    if (m->n_bias)
        memcpy(&e->last_bias, (const char *)body + size - sizeof e->last_bias, sizeof e->last_bias);
}

static void on_closed(void *ctx, const struct err *why)
{
    (void)ctx;
    (void)why;
}

struct fixture {
    sd_event *loop;
    struct link *link;
    struct engine engine;
};

static void turn(struct fixture *f)
{
    while (sd_event_run(f->loop, 0) > 0)
        ;
}

static void say(struct fixture *f, uint16_t type, uint64_t id, const void *body, size_t size,
                const void *more, size_t more_size)
{
    const struct channel_part parts[] = { { body, size }, { more, more_size } };
    struct err err;

    assert_int_equal(channel_send(f->engine.channel, type, id, parts, 2, -1, &err), 0);
}

static void attach(struct fixture *f)
{
    struct channel_events events = { .ctx = &f->engine, .frame = on_frame, .closed = on_closed };
    struct err err;
    int pair[2];

    channel_close(f->engine.channel);
    f->engine = (struct engine){ 0 };
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(
        channel_open(&f->engine.channel, f->loop, pair[1], 1 << 20, &events, &err), 0);
    assert_int_equal(link_attach(f->link, pair[0], &err), 0);
    struct wire_hello hello = { .vocab = 100, .state = ENGINE_READY };
    say(f, WIRE_HELLO, 0, &hello, sizeof hello, NULL, 0);
    turn(f);
}

static void begin(struct fixture *f)
{
    struct link_events events = { accepted, refused, progress, tokens, finished, failed };
    struct err err;

    *f = (struct fixture){ 0 };
    assert_true(sd_event_new(&f->loop) >= 0);
    assert_int_equal(link_open(&f->link, f->loop, &events, &err), 0);
}

static void finish(struct fixture *f)
{
    link_close(f->link);
    channel_close(f->engine.channel);
    sd_event_unref(f->loop);
}

static int submit(struct fixture *f, struct owner *o, struct err *err)
{
    static const uint32_t prompt[] = { 7, 8, 9 }, stops[] = { 20, 21 };
    static const struct cz_bias bias[] = { { 5, -100.0f } };
    struct cz_request r = { .prompt = prompt, .n_prompt = 3, .stop_ids = stops, .n_stop_ids = 2,
                            .bias = bias, .n_bias = 1, .max_tokens = 5 };

    o->link = f->link;
    const struct link_from from = { .request = "req_1", .address = "192.0.2.7" };
    return link_submit(f->link, o, &r, &from, &o->id, err);
}

static void without_an_engine_a_request_is_closed_at_once(void **state)
{
    struct fixture f;
    struct owner o = { 0 };
    struct err err;

    (void)state;
    begin(&f);
    assert_false(link_status(f.link)->connected);
    assert_int_equal(submit(&f, &o, &err), -1);
    assert_int_equal(err.kind, ERR_CLOSED);
    assert_int_equal(link_live(f.link), 0);
    finish(&f);
}

static void a_request_arrives_whole_and_hears_its_words_in_order(void **state)
{
    struct fixture f;
    struct owner o = { 0 };
    struct err err;
    struct wire_tokens two = { .n = 2 };
    const uint32_t ids[] = { 11, 12 };

    (void)state;
    begin(&f);
    attach(&f);
    assert_true(link_status(f.link)->connected);
    assert_int_equal(link_status(f.link)->hello.vocab, 100);
    assert_int_equal(submit(&f, &o, &err), 0);
    turn(&f);
    assert_int_equal(f.engine.last_id, o.id);
    assert_int_equal(f.engine.n_prompt, 3);
    assert_int_equal(f.engine.first, 7);
    assert_int_equal(f.engine.last_stop, 21);
    assert_int_equal(f.engine.last_bias.token, 5);

    say(&f, WIRE_ACCEPTED, o.id, &(struct wire_accepted){ 2 }, 4, NULL, 0);
    say(&f, WIRE_PROGRESS, o.id, &(struct wire_progress){ 3, 3, 1 },
        sizeof(struct wire_progress), NULL, 0);
    say(&f, WIRE_TOKENS, o.id, &two, sizeof two, ids, sizeof ids);
    say(&f, WIRE_FINISHED, o.id,
        &(struct wire_finished){ .reason = CZ_FINISH_STOP, .usage = { .n_generated = 3 } },
        sizeof(struct wire_finished), NULL, 0);
    say(&f, WIRE_TOKENS, o.id, &two, sizeof two, ids, sizeof ids); /* after the last word */
    turn(&f);
    assert_string_equal(o.said, "accepted 2;progress 3/3 (1);token 11;token 12;finished 0 3;");
    assert_int_equal(link_live(f.link), 0);
    finish(&f);
}

static void what_a_reply_is_to_be_arrives_whole(void **state)
{
    static const uint32_t prompt[] = { 1, 2 }, stops[] = { 3 }, closing[] = { 4, 5, 6 },
                          forced[] = { 7 }, behind[] = { 8, 9 };
    static const struct cz_bias bias[] = { { 10, 1.5f } };
    static const uint32_t ids[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    static const struct link_from from = { "req_1", "127.0.0.1" };
    struct cz_request r = { .prompt = prompt, .n_prompt = 2, .stop_ids = stops, .n_stop_ids = 1,
                            .bias = bias, .n_bias = 1, .n_choices = 3, .logprobs = true,
                            .n_top = 4, .forced = forced, .n_forced = 1,
                            .forced_behind = behind, .n_forced_behind = 2,
                            .thinking = { .open = 11, .close = 5, .inside = true,
                                          .may_open = true, .call_closes = true, .call = 12,
                                          .budget = 13, .closing = closing, .n_closing = 3 } };
    struct fixture f;
    struct owner o = { 0 };
    struct err err;

    (void)state;
    begin(&f);
    attach(&f);
    assert_int_equal(link_submit(f.link, &o, &r, &from, &o.id, &err), 0);
    turn(&f);
    const struct wire_submit *m = &f.engine.last;
    assert_memory_equal(f.engine.ids, ids, sizeof ids);
    assert_true(f.engine.last_bias.token == 10 && f.engine.last_bias.value == 1.5f);
    assert_true(m->n_choices == 3 && m->logprobs == 1 && m->n_top == 4);
    assert_true(m->think_open == 11 && m->think_close == 5 && m->think_budget == 13);
    assert_true(m->think_inside == 1 && m->think_may_open == 1);
    assert_true(m->think_call == 12 && m->think_call_closes == 1);
    assert_true(m->n_closing == 3 && m->n_forced == 1 && m->n_forced_behind == 2);

    uint32_t *const counts[] = { &r.n_choices, &r.n_top, &r.thinking.n_closing, &r.n_forced,
                                 &r.n_forced_behind };
    static const uint32_t most[] = { CZ_MAX_CHOICES, CZ_MAX_TOP, CZ_MAX_FORCED, CZ_MAX_FORCED,
                                     CZ_MAX_FORCED };
    for (size_t i = 0; i < 5; i++) {
        uint32_t was = *counts[i];
        *counts[i] = most[i] + 1; /* would end the channel, and everybody's requests with it */
        assert_int_equal(link_submit(f.link, &o, &r, &from, &o.id, &err), -1);
        assert_int_equal(err.kind, ERR_INPUT);
        *counts[i] = was;
    }
    turn(&f);
    assert_int_equal(f.engine.n_submits, 1);
    finish(&f);
}

static void a_choice_that_ends_is_the_last_word_only_without_more(void **state)
{
    struct fixture f;
    struct owner o = { 0 };
    struct err err;
    struct wire_tokens one = { .n = 1, .logprobs = 1 }, forced = { .n = 1, .choice = 1 };
    struct wire_finished end = { .reason = CZ_FINISH_STOP, .more = 1,
                                 .usage = { .n_generated = 2 } };
    struct {
        uint32_t id;
        struct cz_logprobs l;
    } told = { 11, { .own = { 11, -0.5f }, .n_top = 2 } };

    (void)state;
    begin(&f);
    attach(&f);
    assert_int_equal(submit(&f, &o, &err), 0);
    link_next(f.link, o.id, 0);
    link_next(f.link, o.id, CZ_MAX_CHOICES); /* there is none */
    link_next(f.link, o.id + 1, 0);          /* whose? */
    turn(&f);
    assert_int_equal(f.engine.n_nexts, 1);
    assert_int_equal(f.engine.last_id, o.id);
    say(&f, WIRE_TOKENS, o.id, &one, sizeof one, &told, sizeof told);
    say(&f, WIRE_FINISHED, o.id, &end, sizeof end, NULL, 0);
    say(&f, WIRE_TOKENS, o.id, &forced, sizeof forced, &told, sizeof told.id);
    turn(&f);
    assert_int_equal(link_live(f.link), 1);
    link_next(f.link, o.id, 1);
    turn(&f);
    assert_int_equal(f.engine.next, 1);
    end.more = 0;
    end.choice = 1;
    say(&f, WIRE_FINISHED, o.id, &end, sizeof end, NULL, 0);
    turn(&f);
    assert_string_equal(o.said, "token 11 11 -0.5 2;choice 0 and more;finished 0 2;"
                                "token 11 of 1;choice 1 the last;finished 0 2;");
    assert_int_equal(link_live(f.link), 0);
    link_next(f.link, o.id, 1);
    turn(&f);
    assert_int_equal(f.engine.n_nexts, 2);
    finish(&f);
}

static void a_refusal_brings_its_kind_and_text(void **state)
{
    struct fixture f;
    struct owner o = { 0 };
    struct err err;

    (void)state;
    begin(&f);
    attach(&f);
    assert_int_equal(submit(&f, &o, &err), 0);
    say(&f, WIRE_REFUSED, o.id,
        &(struct wire_refused){ .kind = ERR_BUSY, .retry_after_s = 4, .text_size = 4 },
        sizeof(struct wire_refused), "full", 4);
    turn(&f);
    assert_string_equal(o.said, "refused busy 4 full;");
    finish(&f);
}

static void after_cancel_no_word_comes(void **state)
{
    struct fixture f;
    struct owner a = { 0 }, b = { 0 };
    struct err err;

    (void)state;
    begin(&f);
    attach(&f);
    assert_int_equal(submit(&f, &a, &err), 0);
    assert_int_equal(submit(&f, &b, &err), 0);
    assert_true(b.id != a.id);
    say(&f, WIRE_ACCEPTED, a.id, &(struct wire_accepted){ 0 }, 4, NULL, 0); /* on its way */
    link_cancel(f.link, a.id);
    link_cancel(f.link, a.id);
    link_cancel(f.link, 12345);
    say(&f, WIRE_ACCEPTED, b.id, &(struct wire_accepted){ 0 }, 4, NULL, 0);
    turn(&f);
    assert_string_equal(a.said, "");
    assert_string_equal(b.said, "accepted 0;");
    assert_int_equal(f.engine.n_cancels, 1);
    assert_int_equal(link_live(f.link), 1);
    finish(&f);
}

static void the_engine_s_end_fails_what_is_live_and_a_new_one_serves(void **state)
{
    struct fixture f;
    struct owner a = { 0 }, b = { 0 }, c = { 0 };
    struct err err;

    (void)state;
    begin(&f);
    attach(&f);
    assert_int_equal(submit(&f, &a, &err), 0);
    assert_int_equal(submit(&f, &b, &err), 0);
    a.cancels = b.id; /* the first one's end cancels the second */
    channel_close(f.engine.channel);
    f.engine.channel = NULL;
    turn(&f);
    assert_string_equal(a.said, "failed closed;");
    assert_string_equal(b.said, "");
    assert_false(link_status(f.link)->connected);
    assert_int_equal(link_live(f.link), 0);

    attach(&f);
    assert_int_equal(submit(&f, &c, &err), 0);
    assert_true(c.id > b.id); /* numbers are never used again */
    turn(&f);
    assert_int_equal(f.engine.n_submits, 1);
    finish(&f);
}

static void a_second_engine_replaces_the_first(void **state)
{
    struct fixture f;
    struct owner a = { 0 };
    struct err err;

    (void)state;
    begin(&f);
    attach(&f);
    assert_int_equal(submit(&f, &a, &err), 0);
    attach(&f);
    assert_string_equal(a.said, "failed closed;");
    assert_true(link_status(f.link)->connected);
    finish(&f);
}

static void a_message_that_is_not_for_workers_ends_the_engine_s_channel(void **state)
{
    struct fixture f;
    struct owner a = { 0 };
    struct err err;

    (void)state;
    begin(&f);
    attach(&f);
    assert_int_equal(submit(&f, &a, &err), 0);
    say(&f, WIRE_CANCEL, a.id, NULL, 0, NULL, 0);
    turn(&f);
    assert_string_equal(a.said, "failed closed;");
    assert_false(link_status(f.link)->connected);
    finish(&f);
}

static void heard(void *owner, const char *text, size_t size)
{
    note(owner, "%.*s;", text ? (int)size : 4, text ? text : "gone");
}

static void metrics_are_said_once_to_whoever_still_listens(void **state)
{
    struct fixture f;
    struct owner a = { 0 }, b = { 0 }, many[17] = { 0 };
    struct err err;

    (void)state;
    begin(&f);
    assert_int_equal(link_ask_metrics(f.link, &a, heard, &err), -1);
    assert_int_equal(err.kind, ERR_CLOSED);
    link_count(f.link, &(struct wire_count){ .status = 503 }); /* nobody counts it */
    attach(&f);
    link_count(f.link, &(struct wire_count){ .status = 200 });
    assert_int_equal(link_ask_metrics(f.link, &a, heard, &err), 0);
    turn(&f);
    assert_int_equal(f.engine.n_counts, 1);
    assert_int_equal(f.engine.counted, 200);
    uint64_t first = f.engine.last_id;
    assert_int_equal(link_ask_metrics(f.link, &b, heard, &err), 0);
    turn(&f);
    assert_true(f.engine.last_id > first);
    link_forget_metrics(f.link, &b);
    say(&f, WIRE_METRICS_TEXT, f.engine.last_id, &(struct wire_text){ 3 }, 4, "two", 3);
    say(&f, WIRE_METRICS_TEXT, first, &(struct wire_text){ 3 }, 4, "one", 3);
    say(&f, WIRE_METRICS_TEXT, first, &(struct wire_text){ 5 }, 4, "again", 5);
    say(&f, WIRE_METRICS_TEXT, 0, &(struct wire_text){ 4 }, 4, "none", 4);
    turn(&f);
    assert_string_equal(a.said, "one;");
    assert_string_equal(b.said, "");

    for (size_t i = 0; i < 16; i++)
        assert_int_equal(link_ask_metrics(f.link, &many[i], heard, &err), 0);
    assert_int_equal(link_ask_metrics(f.link, &many[16], heard, &err), -1);
    assert_int_equal(err.kind, ERR_BUSY);
    channel_close(f.engine.channel);
    f.engine.channel = NULL;
    turn(&f);
    for (size_t i = 0; i < 16; i++)
        assert_string_equal(many[i].said, "gone;");
    assert_string_equal(many[16].said, "");
    finish(&f);
}

static void recalled(void *owner, const struct wire_recalled *m)
{
    if (m)
        note(owner, "recalled %u of %u;", m->n, m->n_looked);
    else
        note(owner, "nothing;");
}

static int ask(struct fixture *f, struct owner *o, const struct wire_wanted *w, struct err *err)
{
    const struct link_question q = { w, 1, 1000 };

    o->link = f->link;
    return link_recall(f->link, o, &q, recalled, err);
}

static void answer(struct fixture *f, uint32_t n_looked)
{
    say(f, WIRE_RECALLED, f->engine.last_id, &(struct wire_recalled){ .n_looked = n_looked },
        sizeof(struct wire_recalled), NULL, 0);
    turn(f);
}

static void questions_about_replies_go_one_by_one(void **state)
{
    static const struct wire_wanted w[] = { { .message = 10 }, { .message = 20 },
                                            { .message = 30 } };
    struct owner a = { 0 }, b = { 0 }, c = { 0 };
    struct fixture f;
    struct err err;

    (void)state;
    begin(&f);
    assert_int_equal(ask(&f, &a, &w[0], &err), -1);
    assert_int_equal(err.kind, ERR_CLOSED);
    attach(&f);
    assert_int_equal(ask(&f, &a, &w[0], &err), 0);
    assert_int_equal(ask(&f, &b, &w[1], &err), 0);
    assert_int_equal(ask(&f, &c, &w[2], &err), 0);
    turn(&f);
    assert_int_equal(f.engine.n_recalls, 1);
    assert_int_equal(f.engine.message, 10);
    assert_int_equal(f.engine.recall.room, 1000);
    link_forget_recall(f.link, &b);
    answer(&f, 1);
    assert_string_equal(a.said, "recalled 0 of 1;");
    assert_int_equal(f.engine.n_recalls, 2);
    assert_int_equal(f.engine.message, 30);
    answer(&f, 2); /* more than was asked */
    assert_string_equal(c.said, "nothing;");
    answer(&f, 1); /* nobody asked */
    assert_string_equal(b.said, "");

    /* Forgotten on its way: its answer is nobody's, and the next one's comes. */
    assert_int_equal(ask(&f, &a, &w[0], &err), 0);
    assert_int_equal(ask(&f, &b, &w[1], &err), 0);
    turn(&f);
    link_forget_recall(f.link, &a);
    answer(&f, 1);
    assert_int_equal(f.engine.message, 20);
    answer(&f, 1);
    assert_string_equal(a.said, "recalled 0 of 1;");
    assert_string_equal(b.said, "recalled 0 of 1;");
    finish(&f);
}

static void the_engine_s_end_answers_every_question_with_nothing(void **state)
{
    static const struct wire_wanted w = { .message = 1 };
    struct owner a = { 0 }, b = { 0 };
    struct fixture f;
    struct err err;

    (void)state;
    begin(&f);
    attach(&f);
    assert_int_equal(ask(&f, &a, &w, &err), 0);
    assert_int_equal(ask(&f, &b, &w, &err), 0);
    channel_close(f.engine.channel);
    f.engine.channel = NULL;
    turn(&f);
    assert_string_equal(a.said, "nothing;");
    assert_string_equal(b.said, "nothing;");
    attach(&f);
    assert_int_equal(ask(&f, &a, &w, &err), 0);
    turn(&f);
    answer(&f, 1);
    assert_string_equal(a.said, "nothing;recalled 0 of 1;");
    finish(&f);
}

static void a_reply_is_told_where_an_engine_is(void **state)
{
    struct {
        struct wire_remember head;
        struct sip_sum key;
    } m = { .head = { .n_keys = 1 } };
    struct fixture f;

    (void)state;
    begin(&f);
    link_remember(f.link, &m.head, sizeof m);
    attach(&f);
    link_remember(f.link, &m.head, sizeof m);
    turn(&f);
    assert_int_equal(f.engine.n_remembered, 1);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_an_engine_a_request_is_closed_at_once),
        cmocka_unit_test(a_request_arrives_whole_and_hears_its_words_in_order),
        cmocka_unit_test(what_a_reply_is_to_be_arrives_whole),
        cmocka_unit_test(a_choice_that_ends_is_the_last_word_only_without_more),
        cmocka_unit_test(a_refusal_brings_its_kind_and_text),
        cmocka_unit_test(after_cancel_no_word_comes),
        cmocka_unit_test(the_engine_s_end_fails_what_is_live_and_a_new_one_serves),
        cmocka_unit_test(a_second_engine_replaces_the_first),
        cmocka_unit_test(a_message_that_is_not_for_workers_ends_the_engine_s_channel),
        cmocka_unit_test(questions_about_replies_go_one_by_one),
        cmocka_unit_test(the_engine_s_end_answers_every_question_with_nothing),
        cmocka_unit_test(a_reply_is_told_where_an_engine_is),
        cmocka_unit_test(metrics_are_said_once_to_whoever_still_listens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
