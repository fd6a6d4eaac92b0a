#include "daemon/stream.h"

#include "daemon/client.h"
#include "daemon/conf.h"
#include "daemon/exchange.h"
#include "daemon/json_body.h"
#include "daemon/log.h"
#include "daemon/openai_in.h"
#include "daemon/openai_out.h"
#include "daemon/prompt.h"
#include "daemon/worker_state.h"
#include "text/stop.h"
#include "util/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    /* One reader may leave this share of http.buffer unread before it is let go. */
    OUT_SHARE = 8,
    /* Sent bytes are dropped from the front once they are this many, and half of all. */
    OUT_DROP = 16 << 10,
};

struct stream {
    struct exchange *x; /* borrowed; owns us */
    struct openai_request request;
    struct openai_reply reply;
    struct ids prompts[OPENAI_MAX_PROMPTS]; /* owned */
    uint32_t n_prompts;

    /* the prompt under way */
    uint32_t index;
    uint64_t link_id;
    bool live;              /* the engine has it */
    struct text_out *text;  /* owned */
    uint32_t n_tokens;      /* came so far */
    uint64_t asked_ns, accepted_ns, first_ns, told_ns;

    struct openai_choice choices[OPENAI_MAX_PROMPTS]; /* texts of a reply sent at once */
    struct cz_usage usage;                            /* summed over prompts */
    bool answered; /* the status line is out of our hands */
    bool ended;    /* everything is written */
    bool broken;   /* an error event is written; the connection ends after it */
    bool failed;   /* error is the answer */
    struct api_error error;
    sd_event_source *keepalive; /* owned; streams only */
    uint64_t put_ns;            /* when something was last written */
};

/* ---- ends ---- */

static void drop_request(struct stream *s)
{
    if (s->live)
        link_cancel(s->x->worker->link, s->link_id);
    s->live = false;
}

static void stop_keepalive(struct stream *s)
{
    s->keepalive = sd_event_source_disable_unref(s->keepalive);
}

/* Whatever the client waits for is there: headers, bytes or an error. */
static void wake(struct stream *s)
{
    exchange_resume(s->x);
}

static void fail(struct stream *s, const struct api_error *e)
{
    if (s->ended || s->broken || s->failed)
        return;
    drop_request(s);
    stop_keepalive(s);
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

static void fail_full(struct stream *s)
{
    struct api_error e;

    api_error_set(&e, 503, "server_overloaded", NULL,
                  "The server's buffers are full. Please try again later.");
    e.retry_after_s = 1;
    fail(s, &e);
}

/* A reader so slow that its reply fills the buffers is let go, for the others' sake. */
static bool out_is_full(struct stream *s)
{
    struct exchange *x = s->x;
    bool too_much = s->answered && x->out.size - x->sent > x->worker->quota.cap / OUT_SHARE;

    if (!x->out.failed && !too_much)
        return false;
    if (!s->answered) {
        fail_full(s);
        return true;
    }
    log_line(LOG_LEVEL_WARNING, "client dropped: its unread reply fills http.buffer id=%s",
             x->request_id);
    x->gone = true;
    stream_client_gone(s);
    client_shut(x->client);
    wake(s);
    return true;
}

void stream_client_gone(struct stream *s)
{
    drop_request(s);
    stop_keepalive(s);
}

void stream_close(struct stream *s)
{
    if (!s)
        return;
    drop_request(s);
    stop_keepalive(s);
    text_out_close(s->text);
    for (uint32_t i = 0; i < OPENAI_MAX_PROMPTS; i++) {
        ids_done(&s->prompts[i]);
        buf_done(&s->choices[i].text);
    }
    openai_in_done(&s->request);
    free(s);
}

void stream_give_up(struct stream *s)
{
    struct api_error e;

    api_error_set(&e, 503, "draining", NULL, "The server is shutting down.");
    e.retry_after_s = 10;
    e.close = true;
    fail(s, &e);
}

/* ---- keeping alive ---- */

static void note_put(struct stream *s)
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
            openai_out_noop(&s->x->out, &s->reply, s->index, NULL);
            if (out_is_full(s))
                return 0;
        }
        note_put(s);
        due = s->put_ns + wait_ns;
    }
    sd_event_source_set_time(source, due / 1000);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

static void start_keepalive(struct stream *s)
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

static int submit(struct stream *s, struct api_error *e)
{
    const struct ids *prompt = &s->prompts[s->index];
    struct openai_request *r = &s->request;
    struct cz_request ask = { .prompt = prompt->id, .n_prompt = (uint32_t)prompt->n,
                              .max_tokens = r->max_tokens, .min_tokens = r->min_tokens,
                              .sampling = r->sampling, .stop_ids = r->stop_ids,
                              .n_stop_ids = r->n_stop_ids, .bias = r->bias,
                              .n_bias = r->n_bias };
    struct text_stop stops[OPENAI_MAX_STOPS];
    struct err err;

    for (uint32_t i = 0; i < r->n_stops; i++)
        stops[i] = (struct text_stop){ r->stops[i].bytes, r->stops[i].size };
    text_out_close(s->text);
    s->text = NULL;
    if (text_out_open(&s->text, stops, r->n_stops, &err) < 0)
        return api_error_set(e, 500, "internal_error", NULL, "%s", err.text);
    s->n_tokens = 0;
    s->accepted_ns = s->first_ns = 0;
    s->asked_ns = clock_ns();
    if (link_submit(s->x->worker->link, s, &ask, &s->link_id, &err) < 0)
        return api_error_engine(e, err.kind, 0, err.text);
    s->live = true;
    return 0;
}

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
    default:
        api_error_set(e, 503, "engine_unavailable", NULL, "The engine is being restarted.");
        e->retry_after_s = 5;
        return -1;
    }
}

static void name_reply(struct stream *s, const struct wire_hello *hello)
{
    struct openai_reply *r = &s->reply;
    const char *prefix = s->request.kind == OPENAI_CHAT ? "chatcmpl-" : "cmpl-";

    *r = (struct openai_reply){ .kind = s->request.kind, .created = time(NULL),
                                .model = s->x->worker->conf->model_name,
                                .fingerprint = hello->fingerprint,
                                .include_usage = s->request.include_usage,
                                .service_tier = s->request.service_tier };
    memcpy(r->id, prefix, strlen(prefix));
    openai_out_random(r->id + strlen(prefix), 28);
}

static int prepare(struct stream *s, enum openai_kind kind, struct api_error *e)
{
    struct exchange *x = s->x;
    const struct wire_hello *hello = &link_status(x->worker->link)->hello;
    struct openai_rules rules = { x->worker->conf, hello, &x->worker->quota };

    if (engine_is_there(x->worker, e) < 0)
        return -1;
    if (openai_in_read(&s->request, kind, x->body.data, x->body.size, &rules, e) < 0)
        return -1;
    buf_done(&x->body);
    s->n_prompts = kind == OPENAI_CHAT ? 1 : s->request.n_prompts;
    for (uint32_t i = 0; i < s->n_prompts; i++)
        if (prompt_tokens(&s->prompts[i], &s->request, i, x->worker->tokenizer, hello->context,
                          true, e) < 0)
            return -1;
    if (openai_in_settle(&s->request, e) < 0)
        return -1;
    name_reply(s, hello);
    return submit(s, e);
}

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
    s->x = x;
    x->stream = s;
    for (uint32_t i = 0; i < OPENAI_MAX_PROMPTS; i++)
        buf_init(&s->choices[i].text, &x->worker->quota);
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

/* ---- answering ---- */

/* What libmicrohttpd sends next of a stream; it never waits here. */
static ssize_t read_stream(void *ctx, uint64_t pos, char *to, size_t cap)
{
    struct exchange *x = ctx;
    struct stream *s = x->stream;
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

enum MHD_Result stream_resumed(struct stream *s)
{
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

/* ---- text ---- */

static void put_text(struct stream *s, const char *text, size_t size)
{
    if (size == 0)
        return;
    if (!s->request.stream) {
        buf_put(&s->choices[s->index].text, text, size);
        return;
    }
    openai_out_delta(&s->x->out, &s->reply, s->index, text, size);
    note_put(s);
}

static void put_echo(struct stream *s)
{
    const struct openai_prompt *p = &s->request.prompts[s->index];
    struct buf text;

    if (!s->request.echo)
        return;
    if (p->text.bytes) {
        put_text(s, p->text.bytes, p->text.size);
        return;
    }
    buf_init(&text, &s->x->worker->quota);
    for (size_t i = 0; i < p->n_ids; i++) {
        size_t size;
        const char *piece = tokenizer_piece(s->x->worker->tokenizer, p->ids[i], &size);
        buf_put(&text, piece, size);
    }
    if (text.failed)
        s->x->out.failed = true;
    put_text(s, text.data, text.size);
    buf_done(&text);
}

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
        openai_out_reply(out, &s->reply, s->choices, s->n_prompts, &s->usage);
    } else {
        if (s->request.include_usage)
            openai_out_usage(out, &s->reply, &s->usage);
        openai_out_done(out);
    }
    if (out_is_full(s))
        return;
    s->ended = true;
    wake(s);
}

/* The prompt under way is done. */
static void end_prompt(struct stream *s, const char *finish, const struct cz_usage *usage)
{
    bool last = s->index + 1 == s->n_prompts;
    struct api_error e;

    s->live = false;
    add_usage(&s->usage, usage);
    log_line(LOG_LEVEL_INFO, "generated id=%s prompt=%" PRIu32 " cached=%" PRIu32 " tokens=%" PRIu32
             " finish=%s queue_ms=%" PRIu64 " prefill_ms=%" PRIu64 " decode_ms=%" PRIu64,
             s->x->request_id, usage->n_prompt, usage->n_cached, usage->n_generated, finish,
             usage->queue_ns / 1000000, usage->prefill_ns / 1000000, usage->decode_ns / 1000000);
    s->choices[s->index].finish = finish;
    if (s->choices[s->index].text.failed) {
        fail_full(s);
        return;
    }
    if (s->request.stream) {
        openai_out_finish(&s->x->out, &s->reply, s->index, finish,
                          last && !s->request.include_usage ? &s->usage : NULL);
        if (out_is_full(s))
            return;
        note_put(s);
    }
    if (last) {
        complete(s);
        return;
    }
    s->index++;
    if (submit(s, &e) < 0)
        fail(s, &e);
}

/* A cancelled request gets no figures from the engine; these are ours. */
static struct cz_usage own_usage(const struct stream *s)
{
    uint64_t now = clock_ns();
    uint64_t start = s->accepted_ns ? s->accepted_ns : s->asked_ns;

    return (struct cz_usage){ .n_prompt = (uint32_t)s->prompts[s->index].n,
                              .n_generated = s->n_tokens,
                              .prefill_ns = s->first_ns - start, .decode_ns = now - s->first_ns };
}

/* ---- what the engine says ---- */

static void on_accepted(void *owner, uint32_t place)
{
    struct stream *s = owner;

    s->accepted_ns = s->told_ns = clock_ns();
    log_line(LOG_LEVEL_DEBUG, "accepted id=%s place=%" PRIu32, s->x->request_id, place);
    if (s->request.stream && s->index == 0) {
        start_keepalive(s);
        if (s->reply.kind == OPENAI_CHAT)
            openai_out_role(&s->x->out, &s->reply);
        note_put(s);
    }
    put_echo(s);
    out_is_full(s);
}

static void on_refused(void *owner, enum err_kind kind, uint32_t retry_after_s, const char *text)
{
    struct stream *s = owner;
    struct api_error e;

    s->live = false;
    api_error_engine(&e, kind, retry_after_s, text);
    if (kind == ERR_TOO_LONG)
        api_error_too_long(&e, s->prompts[s->index].n, false,
                           link_status(s->x->worker->link)->hello.context,
                           s->request.kind == OPENAI_CHAT ? "messages" : "prompt");
    fail(s, &e);
}

static void on_progress(void *owner, uint32_t n_done, uint32_t n_total)
{
    struct stream *s = owner;
    uint64_t now = clock_ns();
    struct openai_progress p = { .total = n_total, .processed = n_done,
                                 .time_ms = (now - s->accepted_ns) / 1000000 };

    if (!s->request.stream || !s->request.return_progress || now < s->told_ns + 1000000000u)
        return;
    s->told_ns = now;
    openai_out_noop(&s->x->out, &s->reply, s->index, &p);
    if (!out_is_full(s))
        note_put(s);
}

static void fail_text(struct stream *s, const struct err *err)
{
    struct api_error e;

    api_error_set(&e, 500, "internal_error", NULL, "%s", err->text);
    fail(s, &e);
}

static void put_new_text(struct stream *s)
{
    size_t size;
    const char *text = text_out_text(s->text, &size);

    put_text(s, text, size);
}

/* 1 when the text ends with this token; 0; -1 when the request is over for another reason. */
static int take_token(struct stream *s, uint32_t token)
{
    const struct tokenizer *t = s->x->worker->tokenizer;
    size_t size = 0;
    const char *piece = tokenizer_is_special(t, token) ? "" : tokenizer_piece(t, token, &size);
    struct err err;
    int stopped = text_out_put(s->text, piece, size, &err);

    s->n_tokens++;
    if (stopped < 0) {
        fail_text(s, &err);
        return -1;
    }
    put_new_text(s);
    return out_is_full(s) ? -1 : stopped;
}

static void on_tokens(void *owner, const uint32_t *tokens, uint32_t n)
{
    struct stream *s = owner;
    int stopped = 0;

    if (!s->first_ns)
        s->first_ns = clock_ns();
    for (uint32_t i = 0; i < n && stopped == 0; i++)
        stopped = take_token(s, tokens[i]);
    if (stopped <= 0)
        return;
    struct cz_usage usage = own_usage(s);
    drop_request(s);
    end_prompt(s, "stop", &usage);
}

static void on_finished(void *owner, enum cz_finish reason, const struct cz_usage *usage)
{
    struct stream *s = owner;
    struct err err;

    s->live = false;
    int stopped = text_out_finish(s->text, &err);
    if (stopped < 0) {
        fail_text(s, &err);
        return;
    }
    put_new_text(s);
    if (!out_is_full(s))
        end_prompt(s, reason == CZ_FINISH_LENGTH && !stopped ? "length" : "stop", usage);
}

static void on_failed(void *owner, enum err_kind kind, const char *text, const struct cz_usage *u)
{
    struct stream *s = owner;
    struct api_error e;

    (void)u;
    s->live = false;
    api_error_engine(&e, kind, 0, text);
    fail(s, &e);
}

const struct link_events stream_events = {
    .accepted = on_accepted,
    .refused = on_refused,
    .progress = on_progress,
    .tokens = on_tokens,
    .finished = on_finished,
    .failed = on_failed,
};
