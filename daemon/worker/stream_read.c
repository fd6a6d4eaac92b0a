/* From a body to what the engine can be asked: fields, earlier replies, prompts as token ids. */
#include "daemon/worker/stream.h"

#include "daemon/conf/conf.h"
#include "daemon/worker/stream_state.h"
#include "daemon/worker/worker_state.h"
#include "text/chat.h"
#include "util/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- may it be asked ---- */

static int engine_is_there(struct worker *w, struct api_error *e)
{
    switch (worker_engine(w)) {
    case WORKER_READY:
        return 0;
    case WORKER_LOADING:
        return api_error_loading(e);
    case WORKER_DRAINING:
        return api_error_draining(e);
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
        return api_error_full(e);
    }
    s->choices_cost = cost;
    s->choices = calloc(n, sizeof *s->choices);
    if (!s->choices)
        return api_error_no_memory(e);
    for (; s->n_choices < n; s->n_choices++)
        openai_choice_open(&s->choices[s->n_choices], s->request.kind, quota);
    return 0;
}

int stream_prepare(struct stream *s, enum openai_kind kind, struct api_error *e)
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
