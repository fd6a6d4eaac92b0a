#include "daemon/worker/remembering.h"

#include "daemon/wire/link.h"
#include "util/err.h"

#include <string.h>

static bool has_failed(const struct remembering *r)
{
    uint64_t size = r->ids.size + r->reasoning.size + r->calls.size + r->call_text.size;

    return r->ids.failed || r->reasoning.failed || r->calls.failed || r->call_text.failed ||
           r->keys.failed || size > r->prompt->most;
}

void remembering_done(struct remembering *r)
{
    buf_done(&r->ids);
    buf_done(&r->reasoning);
    buf_done(&r->calls);
    buf_done(&r->call_text);
    buf_done(&r->keys);
    *r = (struct remembering){ 0 };
}

void remembering_begin(struct remembering *r, const struct remembered_prompt *prompt,
                       uint32_t call_end, struct quota *quota)
{
    remembering_done(r);
    if (!prompt->on)
        return;
    r->prompt = prompt;
    r->call_end = call_end;
    buf_init(&r->ids, quota);
    buf_init(&r->reasoning, quota);
    buf_init(&r->calls, quota);
    buf_init(&r->call_text, quota);
    buf_init(&r->keys, quota);
    r->content = conversation_content_begin(&prompt->secret);
    r->conversation = prompt->conversation;
    conversation_say(&r->conversation);
}

/* What cannot be kept is let go of at once. */
static void check(struct remembering *r)
{
    if (r->prompt && has_failed(r))
        remembering_done(r);
}

void remembering_token(struct remembering *r, uint32_t id)
{
    if (!r->prompt)
        return;
    buf_put(&r->ids, (const char *)&id, sizeof id);
    r->n_ids++;
    if (id == r->call_end)
        r->n_whole = r->n_ids;
    check(r);
}

static struct wire_reply_call *last_call(struct remembering *r)
{
    return (struct wire_reply_call *)(void *)(r->calls.data + r->calls.size) - 1;
}

static void begin_call(struct remembering *r, const struct reply_part *part, const char *call_id)
{
    struct wire_reply_call call = { .name_size = (uint32_t)part->size };
    struct sip_sum key = conversation_call_key(&r->prompt->secret, CONVERSATION_EVERYBODY,
                                               call_id, strlen(call_id));

    buf_put(&r->calls, (const char *)&call, sizeof call);
    buf_put(&r->call_text, part->text, part->size);
    /* One more is the conversation's. */
    if (r->keys.size / sizeof key + 1 < WIRE_MAX_REPLY_KEYS)
        buf_put(&r->keys, (const char *)&key, sizeof key);
    if (r->calls.size / sizeof call > WIRE_MAX_REPLY_CALLS)
        r->calls.failed = true;
}

void remembering_part(struct remembering *r, const struct reply_part *part, const char *call_id)
{
    if (!r->prompt)
        return;
    switch (part->kind) {
    case REPLY_TEXT_REASONING:
        buf_put(&r->reasoning, part->text, part->size);
        break;
    case REPLY_TEXT_CONTENT:
        sip_put(&r->content, part->text, part->size);
        conversation_content(&r->conversation, part->text, part->size);
        r->content_size += part->size;
        break;
    case REPLY_CALL:
        begin_call(r, part, call_id);
        break;
    case REPLY_ARGUMENTS:
        buf_put(&r->call_text, part->text, part->size);
        if (!r->calls.failed && r->calls.size)
            last_call(r)->arguments_size += (uint32_t)part->size;
        break;
    case REPLY_CALL_END:
        r->n_whole = r->n_ids;
        break;
    }
    check(r);
}

void remembering_end_here(struct remembering *r)
{
    r->ended_here = true;
}

/* ---- the end ---- */

/* How many of the ids may be shown again in the place of the reply: all of them; those up to the
 * last call, when what followed was dropped; none, when a stop string hides some, or the model's
 * thinking has no end. */
static size_t count_ids(const struct remembering *r, const struct reply *parser,
                        const struct reply_result *result)
{
    if (result->by_stop_string || reply_token_kind(parser) == REPLY_TEXT_REASONING)
        return 0;
    return r->ended_here ? r->n_whole : r->n_ids;
}

static void put_conversation(struct remembering *r)
{
    const struct wire_reply_call *c = (const struct wire_reply_call *)(const void *)r->calls.data;
    const char *text = r->call_text.data;

    conversation_said(&r->conversation, r->content_size);
    for (size_t i = 0; i < r->calls.size / sizeof *c; i++) {
        conversation_call(&r->conversation, text, c[i].name_size);
        text += (size_t)c[i].name_size + c[i].arguments_size;
    }
    struct sip_sum key = conversation_key(&r->conversation);
    buf_put(&r->keys, (const char *)&key, sizeof key);
}

static void tell(struct remembering *r, size_t n_ids, struct link *link)
{
    const struct remembered_prompt *p = r->prompt;
    struct wire_remember m = {
        .after = p->after,
        .content = sip_sum(&r->content),
        .n_keys = (uint32_t)(r->keys.size / sizeof(struct sip_sum)),
        .n_calls = (uint32_t)(r->calls.size / sizeof(struct wire_reply_call)),
        .n_ids = (uint32_t)n_ids,
        .tail_size = p->tail_size,
        .reasoning_size = (uint32_t)r->reasoning.size,
        .text_size = (uint32_t)(p->tail_size + r->reasoning.size + r->call_text.size),
    };
    struct buf whole;

    buf_init(&whole, r->ids.quota);
    buf_put(&whole, (const char *)&m, sizeof m);
    buf_put(&whole, r->keys.data, r->keys.size);
    buf_put(&whole, r->calls.data, r->calls.size);
    buf_put(&whole, r->ids.data, n_ids * sizeof(uint32_t));
    buf_put(&whole, p->tail, p->tail_size);
    buf_put(&whole, r->reasoning.data, r->reasoning.size);
    buf_put(&whole, r->call_text.data, r->call_text.size);
    struct err none;
    if (!whole.failed && whole.size <= p->most &&
        wire_check_remember(whole.data, whole.size, &none) == 0)
        link_remember(link, (const struct wire_remember *)(const void *)whole.data, whole.size);
    buf_done(&whole);
}

void remembering_finish(struct remembering *r, const struct reply *parser, bool cut,
                        struct link *link)
{
    struct reply_result result;

    if (!r->prompt)
        return;
    reply_result(parser, &result);
    /* A reply that broke off in the middle of a thought or a call is not one that was given. */
    bool broken = cut && !result.by_stop_string &&
                  (result.unfinished_call || reply_token_kind(parser) == REPLY_TEXT_REASONING);
    size_t n_ids = count_ids(r, parser, &result);
    if (!broken && (n_ids || r->reasoning.size)) {
        put_conversation(r);
        if (!has_failed(r))
            tell(r, n_ids, link);
    }
    remembering_done(r);
}
