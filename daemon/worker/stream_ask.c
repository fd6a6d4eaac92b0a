/* What the engine is asked for: the prompt, and what of its answer is decided beforehand. */
#include "daemon/worker/stream_state.h"

#include "daemon/wire/link.h"
#include "daemon/worker/client.h"
#include "daemon/worker/worker_state.h"
#include "util/clock.h"

#include <stdio.h>
#include <string.h>

/* Tokens that are appended instead of being sampled. */
struct forced {
    struct ids closing; /* owned, as the others: of thinking */
    struct ids begin, behind;
};

static void forced_done(struct forced *f)
{
    ids_done(&f->closing);
    ids_done(&f->begin);
    ids_done(&f->behind);
}

static int encode(struct ids *out, const struct tokenizer *t, const char *text, struct err *err)
{
    const struct text_run run = { text, strlen(text), true };

    return tokenizer_encode(t, &run, 1, CZ_MAX_FORCED, out, err);
}

/* ---- thinking ---- */

static int set_thinking(struct cz_request *ask, struct forced *f, const struct stream *s,
                        const struct tokenizer *t, struct err *err)
{
    const struct reply_marks *marks = &s->marks;

    if (marks->think_end == REPLY_NO_MARK || s->start == REPLY_CONTENT)
        return 0;
    if (encode(&f->closing, t, "\n</think>\n\n", err) < 0)
        return -1;
    ask->thinking = (struct cz_thinking){
        .open = marks->think == REPLY_NO_MARK ? CZ_NO_TOKEN : marks->think,
        .close = marks->think_end,
        .inside = s->start == REPLY_REASONING,
        .may_open = s->start == REPLY_SNIFF && marks->think != REPLY_NO_MARK,
        /* As the reader of the reply takes it: the thoughts end where a call begins. */
        .call_closes = s->style != REPLY_NO_TOOLS && marks->call != REPLY_NO_MARK,
        .call = marks->call,
        .budget = s->request.thinking_budget,
        .closing = f->closing.id,
        .n_closing = (uint32_t)f->closing.n,
    };
    return 0;
}

/* ---- tools ---- */

/* The beginning of a call, as the model would write it, up to where it has a choice; a token ends
 * at its end, so what follows is no other token than usual. */
static void write_call(char *to, size_t cap, const struct openai_tools *offer,
                       enum reply_style style)
{
    const struct reply_tool *tool = &offer->tools[offer->named];
    int size = (int)tool->size;

    if (offer->choice == OPENAI_TOOLS_REQUIRED)
        snprintf(to, cap, "%s",
                 style == REPLY_XML ? "<tool_call>\n<function" : "<tool_call>\n{\"name\": \"");
    else if (style == REPLY_XML)
        snprintf(to, cap, "<tool_call>\n<function=%.*s>\n", size, tool->name);
    else
        snprintf(to, cap, "<tool_call>\n{\"name\": \"%.*s\", \"arguments\":", size, tool->name);
}

static int set_call(struct cz_request *ask, struct forced *f, const struct stream *s,
                    const struct tokenizer *t, struct err *err)
{
    const struct openai_tools *offer = &s->request.offer;
    char text[2 + OPENAI_MAX_TOOL_NAME + 64] = "\n\n";

    if (offer->choice != OPENAI_TOOLS_REQUIRED && offer->choice != OPENAI_TOOLS_NAMED)
        return 0;
    write_call(text + 2, sizeof text - 2, offer, s->style);
    if (!ask->thinking.inside && encode(&f->begin, t, text + 2, err) < 0)
        return -1;
    if ((ask->thinking.inside || ask->thinking.may_open) && encode(&f->behind, t, text, err) < 0)
        return -1;
    ask->forced = f->begin.id;
    ask->n_forced = (uint32_t)f->begin.n;
    ask->forced_behind = f->behind.id;
    ask->n_forced_behind = (uint32_t)f->behind.n;
    return 0;
}

/* What a model never says in its own turn, and a call where none is wanted. */
static void ban_marks(struct openai_request *r, const struct tokenizer *t)
{
    static const char *const never[] = { "<tool_response>", "</tool_response>", "<|im_start|>" };
    uint32_t id;

    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (tokenizer_find(t, never[i], &id))
            openai_in_ban(r, id);
    if (r->offer.choice == OPENAI_TOOLS_NONE && tokenizer_find(t, "<tool_call>", &id))
        openai_in_ban(r, id);
}

/* What is filled in ends where the text around it would go on, or another file begin. */
static void stop_at_marks(struct openai_request *r, const struct tokenizer *t)
{
    uint32_t id, k;

    for (uint32_t i = 0; i < PROMPT_GAP_MARKS; i++) {
        if (!prompt_gap_mark(&id, t, i))
            continue;
        for (k = 0; k < r->n_stop_ids && r->stop_ids[k] != id; k++)
            ;
        if (k == r->n_stop_ids && k < CZ_MAX_STOP_IDS)
            r->stop_ids[r->n_stop_ids++] = id;
    }
}

/* ---- asking ---- */

static int ask_engine(struct stream *s, const struct cz_request *ask, struct err *err)
{
    char address[CLIENT_NAME];
    struct link_from from = { .request = s->x->request_id,
                              .address = client_name(address, s->x->client) };

    s->asked_ns = clock_ns();
    s->accepted_ns = s->first_ns = 0;
    s->counted_ns = s->asked_ns;
    s->prompt_usage = (struct cz_usage){ 0 };
    return link_submit(s->x->worker->link, s, ask, &from, &s->link_id, err);
}

int stream_submit(struct stream *s, struct api_error *e)
{
    const struct tokenizer *t = s->x->worker->tokenizer;
    struct prompt *prompt = &s->prompts[s->index];
    struct openai_request *r = &s->request;
    struct forced forced = { 0 };
    struct err err = { 0 };
    int rc = 0;

    s->choice = 0;
    if (stream_open_choice(s, e) < 0)
        return -1;
    if (r->kind == OPENAI_CHAT)
        ban_marks(r, t);
    if (r->fills)
        stop_at_marks(r, t);
    struct cz_request ask = {
        .client = client_key(s->x->client),
        .prompt = prompt->ids.id, .n_prompt = (uint32_t)prompt->n,
        .max_tokens = r->max_tokens, .min_tokens = r->min_tokens, .sampling = r->sampling,
        .stop_ids = r->stop_ids, .n_stop_ids = r->n_stop_ids,
        .bias = r->bias, .n_bias = r->n_bias,
        .n_choices = r->n_choices, .uncached = !r->cache_prompt, .logprobs = r->logprobs, .n_top = r->n_top,
    };
    if (r->kind == OPENAI_CHAT)
        rc = set_thinking(&ask, &forced, s, t, &err) < 0 ? -1 : set_call(&ask, &forced, s, t, &err);
    if (rc == 0)
        rc = ask_engine(s, &ask, &err);
    forced_done(&forced);
    if (rc < 0)
        return api_error_engine(e, err.kind, 0, err.text);
    prompt_sent(prompt);
    s->live = s->counting = true;
    s->waits = false;
    return 0;
}
