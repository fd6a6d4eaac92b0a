#include "daemon/stream.h"

#include "daemon/client.h"
#include "daemon/conf.h"
#include "daemon/counting.h"
#include "daemon/json_body.h"
#include "daemon/log.h"
#include "daemon/stream_state.h"
#include "daemon/worker_state.h"
#include "text/chat.h"
#include "util/clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    /* One reader may leave this share of http.buffer unread before it is let go. */
    OUT_SHARE = 8,
    /* Sent bytes are dropped from the front once they are this many, and half of all. */
    OUT_DROP = 16 << 10,
};

static struct stream *stream_of(struct exchange_job *j)
{
    return (struct stream *)(void *)j;
}

/* ---- ends ---- */

void stream_cancel(struct stream *s)
{
    if (s->live)
        link_cancel(s->x->worker->link, s->link_id);
    s->live = false;
}

static void stop_keepalive(struct stream *s)
{
    s->keepalive = sd_event_source_disable_unref(s->keepalive);
}

/* Whatever is under way for this request. */
static void stop(struct stream *s)
{
    stream_cancel(s);
    slices_stop(&s->reading);
    recalling_stop(&s->recalling);
    stop_keepalive(s);
}

/* What the prompts hold is of no use any more. */
static void drop_prompts(struct stream *s)
{
    for (uint32_t i = 0; i < OPENAI_MAX_PROMPTS; i++)
        prompt_done(&s->prompts[i]);
    recalling_done(&s->recalling);
}

/* Whatever the client waits for is there: headers, bytes or an error. */
static void wake(struct stream *s)
{
    exchange_resume(s->x);
}

void stream_fail(struct stream *s, const struct api_error *e)
{
    if (s->ended || s->broken || s->failed)
        return;
    counting_end(s, END_ERROR, NULL, true);
    stop(s);
    drop_prompts(s);
    if (s->answered) {
        log_line(LOG_LEVEL_WARNING, "stream broken: code=%s id=%s", e->code ? e->code : "-",
                 s->x->request_id);
        openai_out_error(&s->x->out, e);
        s->broken = true;
    } else {
        s->error = *e;
        s->failed = true;
    }
    wake(s);
}

void stream_fail_full(struct stream *s)
{
    struct api_error e;

    api_error_set(&e, 503, "server_overloaded", NULL,
                  "The server's buffers are full. Please try again later.");
    e.retry_after_s = 1;
    stream_fail(s, &e);
}

/* A reader so slow that its reply fills the buffers is let go, for the others' sake. */
bool stream_is_full(struct stream *s)
{
    struct exchange *x = s->x;
    bool too_much = s->answered && x->out.size - x->sent > x->worker->quota.cap / OUT_SHARE;

    if (!x->out.failed && !too_much)
        return false;
    if (!s->answered) {
        stream_fail_full(s);
        return true;
    }
    log_line(LOG_LEVEL_WARNING, "client dropped: its unread reply fills http.buffer id=%s",
             x->request_id);
    client_shut(x->client);
    exchange_let_go(x);
    return true;
}

static void client_gone(struct exchange_job *j)
{
    struct stream *s = stream_of(j);

    counting_end(s, END_CANCELLED, NULL, true);
    stop(s);
    drop_prompts(s);
}

static void close_stream(struct exchange_job *j)
{
    struct stream *s = stream_of(j);

    counting_end(s, END_CANCELLED, NULL, true);
    stop(s);
    drop_prompts(s);
    stream_close_choice(s);
    remembering_done(&s->remembering);
    openai_logprobs_let_go(&s->held);
    openai_logprobs_done(&s->logprobs);
    for (uint32_t i = 0; i < s->n_choices; i++)
        openai_choice_done(&s->choices[i]);
    free(s->choices);
    quota_give(&s->x->worker->quota, s->choices_cost);
    openai_in_done(&s->request);
    free(s);
}

static void give_up(struct exchange_job *j)
{
    struct api_error e;

    api_error_set(&e, 503, "draining", NULL, "The server is shutting down.");
    e.retry_after_s = 10;
    e.close = true;
    stream_fail(stream_of(j), &e);
}

/* ---- keeping alive ---- */

void stream_note_put(struct stream *s)
{
    s->put_ns = clock_ns();
    wake(s);
}

static int keep_alive(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct stream *s = ctx;
    uint64_t wait_ns = (uint64_t)s->x->worker->conf->keepalive_ms * 1000000;
    uint64_t now = clock_ns(), due = s->put_ns + wait_ns;

    (void)usec;
    if (now >= due) {
        /* With unread bytes before it a keepalive keeps nobody alive. */
        if (s->x->sent == s->x->out.size) {
            openai_out_noop(&s->x->out, &s->reply, stream_index(s), NULL);
            if (stream_is_full(s))
                return 0;
        }
        stream_note_put(s);
        due = s->put_ns + wait_ns;
    }
    sd_event_source_set_time(source, due / 1000);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

void stream_start_keepalive(struct stream *s)
{
    struct worker *w = s->x->worker;

    if (!w->conf->keepalive_ms || s->keepalive)
        return;
    if (sd_event_add_time(w->loop, &s->keepalive, CLOCK_MONOTONIC,
                          clock_ns() / 1000 + (uint64_t)w->conf->keepalive_ms * 1000, 10000,
                          keep_alive, s) < 0)
        log_line(LOG_LEVEL_WARNING, "no keepalive timer id=%s", s->x->request_id);
}

/* ---- asking the engine ---- */

static int engine_is_there(struct worker *w, struct api_error *e)
{
    switch (worker_engine(w)) {
    case WORKER_READY:
        return 0;
    case WORKER_LOADING:
        api_error_set(e, 503, "model_loading", NULL, "The model is still loading.");
        e->retry_after_s = 5;
        return -1;
    case WORKER_DRAINING:
        api_error_set(e, 503, "draining", NULL, "The server is shutting down.");
        e->retry_after_s = 10;
        return -1;
    case WORKER_CHANGED:
        api_error_set(e, 503, "engine_error", NULL, "The engine failed: %s",
                      link_status(w->link)->hello.fault);
        e->retry_after_s = 30;
        return -1;
    case WORKER_ESTRANGED:
        api_error_set(e, 503, "engine_error", NULL,
                      "tokenizer.json changed since the engine loaded the model; reload it.");
        e->retry_after_s = 30;
        return -1;
    default:
        api_error_set(e, 503, "engine_unavailable", NULL, "The engine is being restarted.");
        e->retry_after_s = 5;
        return -1;
    }
}

/* What decides an answer; of a chat the template too. */
static uint64_t fingerprint(const struct stream *s, const struct wire_hello *hello)
{
    if (s->request.kind != OPENAI_CHAT)
        return hello->fingerprint;
    return hello->fingerprint ^ chat_format_fingerprint(s->x->worker->format);
}

static void name_reply(struct stream *s, const struct wire_hello *hello)
{
    struct openai_reply *r = &s->reply;
    const char *prefix = s->request.kind == OPENAI_CHAT ? "chatcmpl-" : "cmpl-";

    *r = (struct openai_reply){ .kind = s->request.kind, .created = time(NULL),
                                .model = s->x->worker->conf->model_name,
                                .fingerprint = fingerprint(s, hello),
                                .include_usage = s->request.include_usage,
                                .service_tier = s->request.service_tier,
                                .legacy_call = s->request.offer.legacy,
                                .logprobs = s->request.logprobs,
                                .running = s->request.timings_per_token ? &s->running : NULL };
    memcpy(r->id, prefix, strlen(prefix));
    openai_out_random(r->id + strlen(prefix), 28);
}

/* ---- reading the prompts ---- */

/* What is known of a chat once it is rendered. */
static void note_rendered(struct stream *s)
{
    const struct chat_rendered *chat = &s->prompts[0].chat;

    if (s->request.kind != OPENAI_CHAT)
        return;
    s->start = chat->start;
    s->x->mended = openai_mended_text(s->mended, s->request.mended | chat->mended);
}

/* A chat is answered in the way of the model's template, if that has one for what is wanted. */
static int check_style(struct stream *s, struct api_error *e)
{
    const struct worker *w = s->x->worker;
    const struct openai_tools *offer = &s->request.offer;

    if (s->request.kind != OPENAI_CHAT)
        return 0;
    s->style = chat_format_style(w->format);
    reply_marks_find(&s->marks, w->tokenizer);
    if (offer->choice == OPENAI_TOOLS_NONE)
        return 0;
    if (s->style == REPLY_NO_TOOLS)
        return api_error_field(e, "unsupported_parameter", offer->legacy ? "functions" : "tools",
                               "This model's chat template does not show tools.");
    if (offer->choice != OPENAI_TOOLS_AUTO && s->marks.call == REPLY_NO_MARK)
        return api_error_field(e, "unsupported_parameter",
                               offer->legacy ? "function_call" : "tool_choice",
                               "This model's tokenizer has no mark for calls; none can be forced.");
    return 0;
}

/* 1 while there is more to read; 0 when the engine has the first prompt; -1. */
static int read_prompts(struct stream *s, struct api_error *e)
{
    const struct wire_hello *hello = &link_status(s->x->worker->link)->hello;
    struct prompt_rules rules = { .tokenizer = s->x->worker->tokenizer,
                                  .format = s->x->worker->format,
                                  .quota = &s->x->worker->quota, .context = hello->context,
                                  .must_fit = true,
                                  .beside = s->request.cost + s->recalling.cost };
    uint64_t until = clock_ns() + SLICE_NS;

    for (uint32_t i = 0; i < s->n_read; i++)
        rules.beside += s->prompts[i].cost;
    while (s->n_read < s->n_prompts) {
        struct prompt *p = &s->prompts[s->n_read];
        if (!p->param) {
            if (prompt_open(p, &s->request, s->n_read, &rules, e) < 0)
                return -1;
            recalling_apply(&s->recalling, s->x->worker, &s->request, p, &s->remembered);
        }
        int more = prompt_step(p, e);
        if (more != 0)
            return more;
        rules.beside += p->cost;
        s->n_read++;
        if (s->n_read < s->n_prompts && clock_ns() >= until)
            return 1;
    }
    recalling_done(&s->recalling);
    note_rendered(s);
    if (openai_in_settle(&s->request, e) < 0)
        return -1;
    return stream_submit(s, e);
}

static int go_on_reading(void *ctx)
{
    struct stream *s = ctx;
    struct api_error e;
    int more = read_prompts(s, &e);

    if (more == 1)
        return 1;
    slices_stop(&s->reading);
    if (more < 0)
        stream_fail(s, &e);
    return 0;
}

static void start_reading(void *ctx)
{
    struct stream *s = ctx;
    struct api_error e;
    struct err err;

    if (go_on_reading(s) == 1 &&
        slices_start(&s->reading, s->x->worker->loop, go_on_reading, s, &err) < 0) {
        api_error_set(&e, 500, "internal_error", NULL, "%s", err.text);
        stream_fail(s, &e);
    }
}

/* Where a reply that is sent at once comes together. */
static int open_choices(struct stream *s, struct api_error *e)
{
    struct quota *quota = &s->x->worker->quota;
    uint32_t n = s->n_prompts * s->request.n_choices;
    uint64_t cost = n * sizeof *s->choices;

    openai_logprobs_hold(&s->held, s->request.kind == OPENAI_COMPLETION, quota);
    openai_logprobs_open(&s->logprobs, s->request.kind == OPENAI_COMPLETION, quota);
    if (s->request.stream)
        return 0;
    if (!quota_take(quota, cost)) {
        api_error_set(e, 503, "server_overloaded", NULL,
                      "The server's buffers are full. Please try again later.");
        e->retry_after_s = 1;
        return -1;
    }
    s->choices_cost = cost;
    s->choices = calloc(n, sizeof *s->choices);
    if (!s->choices)
        return api_error_set(e, 500, "internal_error", NULL, "Out of memory.");
    for (; s->n_choices < n; s->n_choices++)
        openai_choice_open(&s->choices[s->n_choices], s->request.kind, quota);
    return 0;
}

static int prepare(struct stream *s, enum openai_kind kind, struct api_error *e)
{
    struct exchange *x = s->x;
    const struct wire_hello *hello = &link_status(x->worker->link)->hello;
    struct openai_rules rules = { x->worker->conf, hello, &x->worker->quota };
    struct err err;

    if (engine_is_there(x->worker, e) < 0)
        return -1;
    if (openai_in_read(&s->request, kind, &x->body, &rules, e) < 0)
        return -1;
    if (check_style(s, e) < 0)
        return -1;
    s->n_prompts = kind == OPENAI_CHAT ? 1 : s->request.n_prompts;
    name_reply(s, hello);
    if (open_choices(s, e) < 0)
        return -1;
    if (recalling_start(&s->recalling, x->worker, &s->request, RECALLING_PATIENCE_MS,
                        start_reading, s))
        return 0;
    int more = read_prompts(s, e);
    if (more == 1 && slices_start(&s->reading, x->worker->loop, go_on_reading, s, &err) < 0)
        return api_error_set(e, 500, "internal_error", NULL, "%s", err.text);
    return more < 0 ? -1 : 0;
}

/* ---- answering ---- */

/* What libmicrohttpd sends next of a stream; it never waits here. */
static ssize_t read_stream(void *ctx, uint64_t pos, char *to, size_t cap)
{
    struct exchange *x = ctx;
    struct stream *s = stream_of(x->job);
    size_t n = x->out.size - x->sent;

    (void)pos;
    if (x->gone)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n > 0) {
        n = n < cap ? n : cap;
        memcpy(to, x->out.data + x->sent, n);
        x->sent += n;
        if (x->sent == x->out.size || (x->sent > OUT_DROP && x->sent > x->out.size / 2)) {
            buf_drop(&x->out, x->sent);
            x->sent = 0;
        }
        if (x->out.size == 0 && x->out.cap > OUT_DROP)
            buf_done(&x->out);
        return (ssize_t)n;
    }
    if (s->broken) /* no clean end: a proxy is to see that it broke off */
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (s->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    exchange_suspend(x);
    return 0;
}

static enum MHD_Result resumed(struct exchange_job *j)
{
    struct stream *s = stream_of(j);
    struct exchange *x = s->x;

    if (s->failed)
        return exchange_refuse(x, &s->error);
    if (s->request.stream) {
        s->answered = true;
        return exchange_answer_stream(x, read_stream);
    }
    if (s->ended)
        return exchange_answer(x, 200);
    exchange_suspend(x);
    return MHD_YES;
}

/* ---- one prompt after the other ---- */

static void add_usage(struct cz_usage *sum, const struct cz_usage *u)
{
    sum->n_prompt += u->n_prompt;
    sum->n_cached += u->n_cached;
    sum->n_generated += u->n_generated;
    sum->queue_ns += u->queue_ns;
    sum->prefill_ns += u->prefill_ns;
    sum->decode_ns += u->decode_ns;
}

static void complete(struct stream *s)
{
    struct buf *out = &s->x->out;

    stop_keepalive(s);
    if (!s->request.stream) {
        openai_out_reply(out, &s->reply, s->choices, s->n_choices, &s->usage);
    } else {
        if (s->request.include_usage)
            openai_out_usage(out, &s->reply, &s->usage);
        openai_out_done(out);
    }
    if (stream_is_full(s))
        return;
    s->ended = true;
    wake(s);
}

static enum wire_end end_of(const char *finish)
{
    if (strcmp(finish, "length") == 0)
        return END_LENGTH;
    return strcmp(finish, "stop") == 0 ? END_STOP : END_TOOL_CALLS;
}

static void log_choice(const struct stream *s, const char *finish, const struct cz_usage *u)
{
    log_line(LOG_LEVEL_INFO, "generated id=%s prompt=%" PRIu32 " cached=%" PRIu32 " tokens=%" PRIu32
             " finish=%s queue_ms=%" PRIu64 " prefill_ms=%" PRIu64 " decode_ms=%" PRIu64,
             s->x->request_id, u->n_prompt, u->n_cached, u->n_generated, finish,
             u->queue_ns / 1000000, u->prefill_ns / 1000000, u->decode_ns / 1000000);
}

/* After a choice, or the last one of a prompt. */
static void go_on(struct stream *s, bool more)
{
    struct api_error e;
    int rc;

    if (more) {
        s->choice++;
        rc = stream_open_choice(s, &e);
        if (rc == 0)
            stream_put_echo(s);
    } else {
        s->index++;
        rc = stream_submit(s, &e);
    }
    if (rc < 0)
        stream_fail(s, &e);
    else
        stream_is_full(s);
}

void stream_end_choice(struct stream *s, const char *finish, const struct cz_usage *usage,
                       bool own, bool more)
{
    bool last = !more && s->index + 1 == s->n_prompts;

    if (!more)
        s->live = false;
    add_usage(&s->usage.engine, usage);
    add_usage(&s->prompt_usage, usage);
    log_choice(s, finish, usage);
    if (!s->request.stream) {
        struct openai_choice *c = &s->choices[stream_index(s)];
        c->finish = finish;
        openai_logprobs_tell_all(&c->logprobs, &s->held);
        if (openai_choice_failed(c)) {
            stream_fail_full(s);
            return;
        }
    }
    if (!more)
        counting_end(s, end_of(finish), &s->prompt_usage, own);
    if (s->request.stream) {
        openai_logprobs_tell_all(&s->logprobs, &s->held);
        openai_out_finish(&s->x->out, &s->reply, stream_index(s), finish, &s->logprobs,
                          last && !s->request.include_usage ? &s->usage : NULL);
        if (stream_is_full(s))
            return;
        stream_note_put(s);
    }
    if (last)
        complete(s);
    else
        go_on(s, more);
}

/* ---- beginning ---- */

static const struct exchange_job_ops job_ops = {
    .resumed = resumed,
    .client_gone = client_gone,
    .give_up = give_up,
    .close = close_stream,
};

static bool looks_like_json(const struct exchange *x)
{
    const char *type = exchange_header(x, "Content-Type");

    /* "curl -d" sends a form's type with whatever it is given. */
    return !type || strcasestr(type, "json") ||
           json_body_first(x->body.data, x->body.size) == '{';
}

static enum MHD_Result begin(struct exchange *x, enum openai_kind kind)
{
    struct stream *s = calloc(1, sizeof *s);
    struct api_error e;

    if (!s) {
        api_error_set(&e, 500, "internal_error", NULL, "Out of memory.");
        return exchange_refuse(x, &e);
    }
    s->job.ops = &job_ops;
    s->x = x;
    x->job = &s->job;
    if (!looks_like_json(x)) {
        api_error_set(&e, 415, "unsupported_media_type", NULL,
                      "The body is not JSON; send application/json.");
        return exchange_refuse(x, &e);
    }
    if (prepare(s, kind, &e) < 0)
        return exchange_refuse(x, &e);
    x->ignored = s->request.ignored;
    exchange_suspend(x);
    return MHD_YES;
}

enum MHD_Result stream_chat(struct exchange *x)
{
    return begin(x, OPENAI_CHAT);
}

enum MHD_Result stream_completion(struct exchange *x)
{
    return begin(x, OPENAI_COMPLETION);
}
