#include "daemon/worker/prompt.h"

#include "daemon/worker/slices.h"
#include "text/encoding.h"
#include "text/jinja.h"
#include "util/clock.h"

#include <stdlib.h>
#include <string.h>

/* Of text, between two looks at the clock: 2 ms at most. */
enum { STEP = 8 << 10 };
/* Of a rendering, whatever http.buffer has. */
#define RENDER_MEMORY (UINT64_C(64) << 20)

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
    return api_error_full(e);
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

/* Beside the encoding, which counts the ids that it finds itself. */
static uint64_t held_beside(const struct prompt *p)
{
    return (p->mem ? jinja_mem_used(p->mem) : 0) +
           (p->encoding ? p->n_before : p->ids.n) * sizeof *p->ids.id;
}

static uint64_t held(const struct prompt *p)
{
    return held_beside(p) + (p->encoding ? encoding_memory(p->encoding, &p->ids) : 0);
}

/* What may be held, nobody else taking anything meanwhile. Not 0, which is no bound. */
static uint64_t room(const struct prompt *p)
{
    uint64_t beside = held_beside(p);
    uint64_t free = p->quota ? p->quota->cap - p->quota->used + p->cost : UINT64_MAX;

    return free > beside ? free - beside : 1;
}

/* ---- failing and beginning ---- */

static int fail(const struct prompt *p, const struct err *err, struct api_error *e)
{
    size_t most = p->most;

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

static void begin(struct prompt *p, const char *param, size_t most,
                  const struct prompt_rules *rules)
{
    *p = (struct prompt){ .quota = rules->quota, .param = param, .tokenizer = rules->tokenizer,
                          .context = rules->context, .must_fit = rules->must_fit,
                          .beside = rules->beside, .most = most };
}

/* The next part that is text, its ids taken where it is none. */
static int open_part(struct prompt *p, struct api_error *e)
{
    struct err err = { .kind = ERR_TOO_LONG };

    for (; p->part < p->n_parts; p->part++) {
        const struct text_part *part = &p->parts[p->part];
        if (p->ids.n > p->most || part->n_ids > p->most - p->ids.n)
            return fail(p, &err, e);
        if (pay(p, held(p) + part->n_ids * sizeof *part->ids, e) < 0)
            return -1;
        for (size_t i = 0; i < part->n_ids; i++)
            if (ids_put(&p->ids, part->ids[i], &err) < 0)
                return fail(p, &err, e);
        if (part->n_runs == 0)
            continue;
        p->n_before = p->ids.n;
        if (encoding_open(&p->encoding, p->tokenizer, part->runs, part->n_runs, p->most, p->ids.n,
                          &err) < 0)
            return fail(p, &err, e);
        return pay(p, held(p), e);
    }
    return 0;
}

static int open_whole(struct prompt *p, const struct text_run *runs, size_t n_runs,
                      struct api_error *e)
{
    p->whole = (struct text_part){ .runs = runs, .n_runs = n_runs };
    prompt_replace(p, &p->whole, 1);
    return open_part(p, e);
}

static int take_ids(struct prompt *p, const struct openai_prompt *from, struct api_error *e)
{
    p->whole = (struct text_part){ .ids = from->ids, .n_ids = from->n_ids };
    prompt_replace(p, &p->whole, 1);
    return open_part(p, e);
}

/* ---- filling a gap ---- */

static const char *const gap_marks[PROMPT_GAP_MARKS] = { "<|fim_prefix|>", "<|fim_suffix|>",
                                                         "<|fim_middle|>", "<|fim_pad|>",
                                                         "<|repo_name|>", "<|file_sep|>" };

bool prompt_gap_mark(uint32_t *id, const struct tokenizer *t, uint32_t number)
{
    return number < PROMPT_GAP_MARKS && tokenizer_find(t, gap_marks[number], id);
}

/* Before the gap, behind it, and then what is wanted: models were taught it in this order. */
static int open_gap(struct prompt *p, const struct openai_prompt *from,
                    const struct openai_text *suffix, struct api_error *e)
{
    uint32_t id;

    for (uint32_t i = 0; i < 3; i++)
        if (!prompt_gap_mark(&id, p->tokenizer, i))
            return api_error_field(e, "unsupported_parameter", "suffix",
                                   "'suffix' is not supported: this model's tokenizer has no %s.",
                                   gap_marks[i]);
    for (uint32_t i = 0; i < 3; i++)
        p->gap[2 * i] = (struct text_run){ gap_marks[i], strlen(gap_marks[i]), true };
    p->gap[1] = (struct text_run){ from->text.bytes, from->text.size, true };
    p->gap[3] = (struct text_run){ suffix->bytes, suffix->size, true };
    if (from->text.bytes)
        return open_whole(p, p->gap, 5, e);
    prompt_gap_mark(&p->opening, p->tokenizer, 0);
    p->around[0] = (struct text_part){ .ids = &p->opening, .n_ids = 1 };
    p->around[1] = (struct text_part){ .ids = from->ids, .n_ids = from->n_ids,
                                       .runs = p->gap + 2, .n_runs = 3 };
    prompt_replace(p, p->around, 2);
    return open_part(p, e);
}

/* ---- rendering ---- */

/* A limit of ours is a fault of the template or the conversation; a lack of buffers is not. */
static int render_failed(const struct prompt *p, uint64_t limit, const struct err *err,
                         struct api_error *e)
{
    if (err->kind != ERR_BUDGET)
        return fail(p, err, e);
    if (limit < RENDER_MEMORY && jinja_mem_full(p->mem))
        return no_room(p, e);
    return api_error_field(e, "chat_template_error", p->param, "%s", err->text);
}

static bool has_user(const struct chat *chat)
{
    for (size_t i = 0; i < chat->n_messages; i++)
        if (chat->messages[i].role == CHAT_USER)
            return true;
    return chat->messages[chat->n_messages - 1].role == CHAT_SYSTEM;
}

static int render(struct prompt *p, const struct openai_request *r,
                  const struct chat_format *format, struct api_error *e)
{
    struct jinja_limits limits = { .memory = room(p) };
    struct err err = { 0 };

    if (chat_format_abilities(format)->needs_user && !has_user(&r->chat))
        return api_error_field(e, "missing_user_message", p->param,
                               "'messages' holds no message of the role 'user', which the model's "
                               "chat template needs.");
    if (limits.memory > RENDER_MEMORY)
        limits.memory = RENDER_MEMORY;
    if (!(p->mem = jinja_mem_open(&limits)))
        return api_error_no_memory(e);
    if (openai_render(&p->chat, r, format, p->mem, &err) < 0)
        return render_failed(p, limits.memory, &err, e);
    return pay(p, held(p), e);
}

/* ---- opening ---- */

int prompt_open(struct prompt *p, const struct openai_request *r, uint32_t index,
                const struct prompt_rules *rules, struct api_error *e)
{
    begin(p, param_of(r), most_ids(rules->context), rules);
    if (r->kind == OPENAI_CHAT) {
        if (render(p, r, rules->format, e) < 0)
            return -1;
        return open_whole(p, p->chat.run, p->chat.n, e);
    }
    const struct openai_prompt *from = &r->prompts[index];
    if (r->fills)
        return open_gap(p, from, &r->suffix, e);
    if (!from->text.bytes)
        return take_ids(p, from, e);
    /* A raw prompt may spell control tokens: that is what the endpoint is for. */
    p->run = (struct text_run){ from->text.bytes, from->text.size, true };
    return open_whole(p, &p->run, 1, e);
}

int prompt_open_text(struct prompt *p, const struct text_run *run, const char *key, size_t most,
                     const struct prompt_rules *rules, struct api_error *e)
{
    begin(p, key, most, rules);
    p->run = *run;
    return open_whole(p, &p->run, 1, e);
}

void prompt_replace(struct prompt *p, const struct text_part *parts, size_t n_parts)
{
    encoding_close(p->encoding);
    p->encoding = NULL;
    p->ids.n = 0;
    p->parts = parts;
    p->n_parts = n_parts;
    p->part = 0;
}

/* ---- working ---- */

static void drop_work(struct prompt *p)
{
    encoding_close(p->encoding);
    p->encoding = NULL;
    jinja_mem_close(p->mem);
    p->mem = NULL;
    p->chat.run = NULL;
    p->chat.n = 0;
}

/* The part under way: 1, 0 or -1, as prompt_step. */
static int encode(struct prompt *p, uint64_t until, struct api_error *e)
{
    struct err err = { 0 };
    int more = 1;

    while (more > 0 && clock_ns() < until) {
        more = encoding_step(p->encoding, STEP, room(p), &p->ids, &err);
        if (more < 0)
            return fail(p, &err, e);
        if (pay(p, held(p), e) < 0)
            return -1;
    }
    return more;
}

int prompt_step(struct prompt *p, struct api_error *e)
{
    uint64_t until = clock_ns() + SLICE_NS;
    int more;

    while (p->part < p->n_parts) {
        if (!p->encoding && open_part(p, e) < 0)
            return -1;
        if (!p->encoding)
            break;
        if ((more = encode(p, until, e)) != 0)
            return more;
        encoding_close(p->encoding);
        p->encoding = NULL;
        p->part++;
    }
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
