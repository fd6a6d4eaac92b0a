#include "daemon/worker/stream.h"

#include "daemon/base/log.h"
#include "daemon/conf/conf.h"
#include "daemon/openai/json_body.h"
#include "daemon/worker/client.h"
#include "daemon/worker/counting.h"
#include "daemon/worker/stream_state.h"
#include "daemon/worker/worker_state.h"
#include "util/clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

    api_error_full(&e);
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

    api_error_draining(&e);
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
        api_error_no_memory(&e);
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
    if (stream_prepare(s, kind, &e) < 0)
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
