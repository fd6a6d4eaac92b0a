#include "daemon/ctl/ctl_chat_answer.h"

#include "daemon/ctl/ctl_chat_sse.h"
#include "util/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TICK_MS = 200 };

struct asking {
    struct chat_answer *a;
    const struct chat_view *view;
    struct chat_sse sse;
    struct chat_think think;
    uint64_t asked_ns, first_ns, last_ns;
    uint32_t n_pieces;
    bool done; /* [DONE] */
};

/* ---- the request ---- */

static json_t *with_soft_switch(const json_t *messages, enum chat_thinking thinking)
{
    json_t *copy = json_deep_copy(messages);
    json_t *last = json_array_get(copy, json_array_size(copy) - 1);
    const char *text = json_string_value(json_object_get(last, "content"));

    if (text)
        json_object_set_new(last, "content",
                            json_sprintf("%s %s", text,
                                         thinking == CHAT_THINK_ON ? "/think" : "/no_think"));
    return copy;
}

static json_t *build(const struct chat_question *q)
{
    bool switched = q->thinking != CHAT_THINK_DEFAULT;
    json_t *root = json_pack("{s:s, s:b, s:{s:b}, s:b}", "model", q->model, "stream", 1,
                             "stream_options", "include_usage", 1, "return_progress", 1);

    json_object_set_new(root, "messages",
                        switched && q->soft_switch ? with_soft_switch(q->messages, q->thinking)
                                                   : json_deep_copy(q->messages));
    if (switched && !q->soft_switch)
        json_object_set_new(root, "chat_template_kwargs",
                            json_pack("{s:b}", "enable_thinking", q->thinking == CHAT_THINK_ON));
    if (q->max_tokens)
        json_object_set_new(root, "max_tokens", json_integer(q->max_tokens));
    if (q->has_temperature)
        json_object_set_new(root, "temperature", json_real((double)q->temperature));
    if (q->has_top_p)
        json_object_set_new(root, "top_p", json_real((double)q->top_p));
    if (q->has_seed)
        json_object_set_new(root, "seed", json_integer((json_int_t)q->seed));
    return root;
}

/* ---- errors ---- */

static void copy_text(char *to, size_t cap, const char *text)
{
    snprintf(to, cap, "%s", text ? text : "");
}

static void take_error(struct chat_answer *a, const json_t *error)
{
    const json_t *code = json_object_get(error, "code");

    if (json_is_string(error)) { /* of servers with a shape of their own */
        copy_text(a->message, sizeof a->message, json_string_value(error));
        return;
    }
    copy_text(a->message, sizeof a->message,
              json_string_value(json_object_get(error, "message")));
    if (json_is_integer(code))
        snprintf(a->code, sizeof a->code, "%lld", (long long)json_integer_value(code));
    else
        copy_text(a->code, sizeof a->code, json_string_value(code));
    a->n_prompt_tokens =
        (uint64_t)json_integer_value(json_object_get(error, "n_prompt_tokens"));
    a->n_ctx = (uint64_t)json_integer_value(json_object_get(error, "n_ctx"));
}

void chat_answer_read_error(struct chat_answer *a, const char *body, size_t size)
{
    json_t *root = json_loadb(body ? body : "", size, JSON_ALLOW_NUL, NULL);
    const json_t *error = json_object_get(root, "error");

    if (error)
        take_error(a, error);
    if (!a->message[0] && size > 0)
        snprintf(a->message, sizeof a->message, "%.*s", size > 300 ? 300 : (int)size, body);
    if (!a->message[0])
        copy_text(a->message, sizeof a->message, "the server gave no reason");
    json_decref(root);
}

bool chat_answer_no_switch(const struct chat_answer *a)
{
    return a->outcome == CHAT_REFUSED && (a->status == 400 || a->status == 422) &&
           (strstr(a->message, "chat_template_kwargs") || strstr(a->message, "enable_thinking") ||
            strstr(a->message, "<think>") || strstr(a->message, "</think>"));
}

/* ---- events ---- */

static void on_part(void *ctx, enum chat_part part, const char *text, size_t size)
{
    struct asking *ask = ctx;
    struct chat_answer *a = ask->a;

    if (part == CHAT_WAS_THOUGHT) {
        buf_put(&a->thought, a->content.size ? a->content.data : "", a->content.size);
        a->content.size = 0;
    } else if (part == CHAT_THOUGHT) {
        buf_put(&a->thought, text, size);
    } else {
        buf_put(&a->content, text, size);
    }
    ask->view->part(ask->view->ctx, part, text, size);
}

static void take_delta(struct asking *ask, const json_t *delta)
{
    const json_t *thought = json_object_get(delta, "reasoning_content");
    const json_t *content = json_object_get(delta, "content");
    size_t n_thought, n_content = json_string_length(content);

    if (!json_is_string(thought))
        thought = json_object_get(delta, "reasoning");
    n_thought = json_string_length(thought);
    if (n_thought + n_content == 0)
        return;
    ask->last_ns = clock_ns();
    if (!ask->first_ns)
        ask->first_ns = ask->last_ns;
    ask->n_pieces++;
    if (n_thought) {
        /* The server splits; a tag in what it calls content is text. */
        ask->think.at = THINK_AFTER;
        ask->think.closed = true;
        on_part(ask, CHAT_THOUGHT, json_string_value(thought), n_thought);
    }
    if (n_content)
        chat_think_put(&ask->think, json_string_value(content), n_content, on_part, ask);
}

static uint32_t count(const json_t *o, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(o, key));

    return n < 0 ? 0 : n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static void take_figures(struct asking *ask, const json_t *root)
{
    const json_t *usage = json_object_get(root, "usage");
    const json_t *timings = json_object_get(root, "timings");
    struct chat_answer *a = ask->a;

    if (json_is_object(usage)) {
        a->has_usage = true;
        a->n_prompt = count(usage, "prompt_tokens");
        a->n_generated = count(usage, "completion_tokens");
        a->n_cached = count(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    }
    if (json_is_object(timings))
        a->tokens_per_s = json_number_value(json_object_get(timings, "predicted_per_second"));
}

static void take_progress(struct asking *ask, const json_t *root)
{
    const json_t *p = json_object_get(root, "prompt_progress");
    struct chat_progress progress = {
        .total = count(p, "total"), .done = count(p, "processed"), .left_ms = count(p, "eta_ms"),
    };

    if (json_is_object(p) && ask->view->progress && !ask->first_ns)
        ask->view->progress(ask->view->ctx, &progress);
}

static int on_event(void *ctx, const char *data, size_t size, struct err *err)
{
    struct asking *ask = ctx;
    json_error_t why;

    if (strcmp(data, "[DONE]") == 0) {
        ask->done = true;
        return 0;
    }
    json_t *root = json_loadb(data, size, JSON_ALLOW_NUL, &why);
    if (!root)
        return err_set(err, ERR_FORMAT, "the server sent an event that is no JSON (%s)", why.text);
    const json_t *error = json_object_get(root, "error");
    if (error && !json_is_null(error)) {
        ask->a->outcome = CHAT_BROKEN;
        take_error(ask->a, error);
    }
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    take_delta(ask, json_object_get(choice, "delta"));
    if (finish)
        copy_text(ask->a->finish, sizeof ask->a->finish, finish);
    take_progress(ask, root);
    take_figures(ask, root);
    json_decref(root);
    if (ask->a->content.failed || ask->a->thought.failed)
        return err_set(err, ERR_NOMEM, "the answer");
    return 0;
}

static int on_bytes(void *ctx, const char *bytes, size_t size, struct err *err)
{
    struct asking *ask = ctx;

    return chat_sse_feed(&ask->sse, bytes, size, on_event, ask, err);
}

static bool go_on(void *ctx)
{
    struct asking *ask = ctx;

    return ask->view->go_on(ask->view->ctx);
}

/* ---- the end ---- */

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0.0;
}

static void judge(struct asking *ask, struct chat_http *http, enum chat_http_end end,
                  const struct err *err)
{
    struct chat_answer *a = ask->a;

    a->status = chat_http_status(http);
    if (a->outcome == CHAT_BROKEN)
        return; /* the server said why, whatever the connection did then */
    if (end == CHAT_HTTP_INTERRUPTED) {
        a->outcome = CHAT_STOPPED;
    } else if (end == CHAT_HTTP_NO_SERVER) {
        a->outcome = CHAT_NO_SERVER;
    } else if (end == CHAT_HTTP_DONE && a->status != 200) {
        a->outcome = CHAT_REFUSED;
        chat_answer_read_error(a, chat_http_body(http)->data, chat_http_body(http)->size);
        return;
    } else if (end == CHAT_HTTP_DONE && ask->done && a->finish[0]) {
        a->outcome = CHAT_ANSWERED;
        return;
    } else {
        a->outcome = CHAT_LOST;
    }
    if (end == CHAT_HTTP_DONE)
        copy_text(a->message, sizeof a->message, "the server ended its answer in the middle");
    else if (end != CHAT_HTTP_INTERRUPTED)
        copy_text(a->message, sizeof a->message, err->text);
}

/* The server's figures count; ours stand in where it gives none. */
static void add_times(const struct asking *ask)
{
    struct chat_answer *a = ask->a;
    double decode_s = seconds(ask->first_ns, ask->last_ns);

    if (!a->has_usage)
        a->n_generated = ask->n_pieces;
    if (ask->first_ns)
        a->first_s = seconds(ask->asked_ns, ask->first_ns);
    if (a->tokens_per_s <= 0.0 && a->n_generated > 1 && decode_s > 0.0)
        a->tokens_per_s = (a->n_generated - 1) / decode_s;
}

void chat_answer_ask(struct chat_answer *out, struct chat_http *http,
                     const struct chat_question *q, const struct chat_view *view)
{
    struct asking ask = { .a = out, .view = view };
    struct chat_http_events events = { .ctx = &ask, .bytes = on_bytes, .go_on = go_on,
                                       .tick_ms = TICK_MS };
    struct err err = { 0 };
    json_t *request = build(q);
    char *body = json_dumps(request, JSON_COMPACT | JSON_REAL_PRECISION(9));

    *out = (struct chat_answer){ .outcome = CHAT_ANSWERED };
    buf_init(&out->content, NULL);
    buf_init(&out->thought, NULL);
    json_decref(request);
    if (!body) {
        out->outcome = CHAT_REFUSED;
        copy_text(out->message, sizeof out->message, "no memory for the request");
        return;
    }
    chat_sse_init(&ask.sse);
    ask.asked_ns = clock_ns();
    enum chat_http_end end =
        chat_http_ask(http, "/v1/chat/completions", body, strlen(body), 0, &events, &err);
    chat_think_end(&ask.think, on_part, &ask);
    judge(&ask, http, end, &err);
    add_times(&ask);
    chat_sse_done(&ask.sse);
    free(body);
}

void chat_answer_done(struct chat_answer *a)
{
    buf_done(&a->content);
    buf_done(&a->thought);
}
