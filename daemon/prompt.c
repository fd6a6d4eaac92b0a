#include "daemon/prompt.h"

#include "daemon/slices.h"
#include "text/encoding.h"
#include "util/clock.h"

#include <stdlib.h>

/* Of text, between two looks at the clock: 2 ms at most. */
enum { STEP = 8 << 10 };

static size_t most_ids(uint32_t context)
{
    return context ? (size_t)context * 4 + 1024 : (size_t)1 << 22;
}

static const char *param_of(const struct openai_request *r)
{
    return r->kind == OPENAI_CHAT ? "messages" : "prompt";
}

/* ---- paying ---- */

static int no_room(const struct prompt *p, struct api_error *e)
{
    /* Nobody else holds much: it would be the same the next time. */
    if (p->cost + p->beside >= p->quota->cap / 4 * 3)
        return api_error_set(e, 413, "request_too_large", NULL,
                             "Tokenizing '%s' takes more memory than the server has for all "
                             "requests (http.buffer).", p->param);
    api_error_set(e, 503, "server_overloaded", NULL,
                  "The server's buffers are full. Please try again later.");
    e->retry_after_s = 1;
    return -1;
}

/* Makes the cost what is held now. */
static int pay(struct prompt *p, uint64_t bytes, struct api_error *e)
{
    if (bytes > p->cost && !quota_take(p->quota, bytes - p->cost))
        return no_room(p, e);
    if (bytes < p->cost)
        quota_give(p->quota, p->cost - bytes);
    p->cost = bytes;
    return 0;
}

static uint64_t held(const struct prompt *p)
{
    uint64_t runs = p->runs.n * sizeof *p->runs.run;

    return runs + (p->encoding ? encoding_memory(p->encoding, &p->ids)
                               : p->ids.n * sizeof *p->ids.id);
}

/* What may be held, nobody else taking anything meanwhile. Not 0, which is no bound. */
static uint64_t room(const struct prompt *p)
{
    uint64_t runs = p->runs.n * sizeof *p->runs.run;
    uint64_t free = p->quota ? p->quota->cap - p->quota->used + p->cost : UINT64_MAX;

    return free > runs ? free - runs : 1;
}

/* ---- opening ---- */

static int fail(const struct prompt *p, size_t most, const struct err *err, struct api_error *e)
{
    switch (err->kind) {
    case ERR_TOO_LONG:
        if (!p->context)
            return api_error_field(e, "invalid_value", p->param,
                                   "'%s' has more than %zu tokens; they are not counted further.",
                                   p->param, most);
        return api_error_too_long(e, most + 1, true, p->context, p->param);
    case ERR_BUDGET:
        return no_room(p, e);
    case ERR_INPUT:
    case ERR_UNSUPPORTED:
        return api_error_field(e, "chat_template_error", p->param, "%s", err->text);
    default:
        return api_error_set(e, 500, "internal_error", NULL, "The prompt could not be tokenized.");
    }
}

static void begin(struct prompt *p, const char *param, const struct prompt_rules *rules)
{
    *p = (struct prompt){ .quota = rules->quota, .param = param, .context = rules->context,
                          .must_fit = rules->must_fit, .beside = rules->beside };
}

static int open_encoding(struct prompt *p, const struct text_run *runs, size_t n_runs, size_t most,
                         const struct tokenizer *t, struct api_error *e)
{
    struct err err = { 0 };

    p->most = most;
    if (encoding_open(&p->encoding, t, runs, n_runs, most, 0, &err) < 0)
        return fail(p, most, &err, e);
    return pay(p, held(p), e);
}

static int take_ids(struct prompt *p, const struct openai_prompt *from, size_t most,
                    struct api_error *e)
{
    struct err err = { .kind = ERR_TOO_LONG };

    p->most = most;
    if (from->n_ids > most)
        return fail(p, most, &err, e);
    if (pay(p, from->n_ids * sizeof *from->ids, e) < 0)
        return -1;
    for (size_t i = 0; i < from->n_ids; i++)
        if (ids_put(&p->ids, from->ids[i], &err) < 0)
            return fail(p, most, &err, e);
    return 0;
}

int prompt_open(struct prompt *p, const struct openai_request *r, uint32_t index,
                const struct prompt_rules *rules, struct api_error *e)
{
    size_t most = most_ids(rules->context);
    struct err err = { 0 };

    begin(p, param_of(r), rules);
    if (r->kind == OPENAI_CHAT) {
        if (chat_runs(&p->runs, &r->chat, rules->tokenizer, &err) < 0)
            return fail(p, most, &err, e);
        return open_encoding(p, p->runs.run, p->runs.n, most, rules->tokenizer, e);
    }
    const struct openai_prompt *from = &r->prompts[index];
    if (!from->text.bytes)
        return take_ids(p, from, most, e);
    /* A raw prompt may spell control tokens: that is what the endpoint is for. */
    p->run = (struct text_run){ from->text.bytes, from->text.size, true };
    return open_encoding(p, &p->run, 1, most, rules->tokenizer, e);
}

int prompt_open_text(struct prompt *p, const struct text_run *run, const char *key, size_t most,
                     const struct prompt_rules *rules, struct api_error *e)
{
    begin(p, key, rules);
    p->run = *run;
    return open_encoding(p, &p->run, 1, most, rules->tokenizer, e);
}

/* ---- working ---- */

static void drop_work(struct prompt *p)
{
    encoding_close(p->encoding);
    p->encoding = NULL;
    chat_runs_done(&p->runs);
}

/* 1, 0 or -1, as prompt_step. */
static int encode(struct prompt *p, struct api_error *e)
{
    uint64_t until = clock_ns() + SLICE_NS;
    struct err err = { 0 };
    int more = 1;

    while (more > 0 && clock_ns() < until) {
        more = encoding_step(p->encoding, STEP, room(p), &p->ids, &err);
        if (more < 0)
            return fail(p, p->most, &err, e);
        if (pay(p, held(p), e) < 0)
            return -1;
    }
    return more;
}

int prompt_step(struct prompt *p, struct api_error *e)
{
    int more = p->encoding ? encode(p, e) : 0;

    if (more != 0)
        return more;
    drop_work(p);
    p->n = p->ids.n;
    if (pay(p, held(p), e) < 0)
        return -1;
    if (p->n == 0 && p->must_fit)
        return api_error_field(e, "invalid_value", p->param, "'%s' gives no token at all.",
                               p->param);
    if (p->must_fit && p->context && p->n >= p->context)
        return api_error_too_long(e, p->n, false, p->context, p->param);
    return 0;
}

void prompt_sent(struct prompt *p)
{
    ids_done(&p->ids);
}

void prompt_done(struct prompt *p)
{
    drop_work(p);
    ids_done(&p->ids);
    if (p->cost)
        quota_give(p->quota, p->cost);
    p->cost = 0;
}
