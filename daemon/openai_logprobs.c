#include "daemon/openai_logprobs.h"

#include "util/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void openai_logprobs_open(struct openai_logprobs *l, bool legacy, struct quota *quota)
{
    *l = (struct openai_logprobs){ .legacy = legacy };
    buf_init(&l->tokens, quota);
    buf_init(&l->values, quota);
    buf_init(&l->tops, quota);
    buf_init(&l->offsets, quota);
}

void openai_logprobs_done(struct openai_logprobs *l)
{
    buf_done(&l->tokens);
    buf_done(&l->values);
    buf_done(&l->tops);
    buf_done(&l->offsets);
    l->n = 0;
}

void openai_logprobs_clear(struct openai_logprobs *l)
{
    l->tokens.size = l->values.size = l->tops.size = l->offsets.size = 0;
    l->n = 0;
}

bool openai_logprobs_failed(const struct openai_logprobs *l)
{
    return l->tokens.failed || l->values.failed || l->tops.failed || l->offsets.failed;
}

/* JSON has no infinity; this is the number that clients know for it. */
static void put_value(struct buf *to, double value)
{
    buf_printf(to, "%.8g", isfinite(value) ? value : -9999.0);
}

/* ---- chat ---- */

static void put_entry(struct buf *to, const struct openai_logprob *p)
{
    buf_text(to, "{\"token\":");
    buf_json(to, p->bytes, p->size);
    buf_text(to, ",\"bytes\":[");
    for (size_t i = 0; i < p->size; i++)
        buf_printf(to, i ? ",%u" : "%u", (unsigned char)p->bytes[i]);
    buf_text(to, "],\"logprob\":");
    put_value(to, p->value);
}

static void add_entry(struct buf *to, const struct openai_logprob *token,
                      const struct openai_logprob *top, uint32_t n_top)
{
    put_entry(to, token);
    buf_text(to, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < n_top; i++) {
        if (i)
            buf_text(to, ",");
        put_entry(to, &top[i]);
        buf_text(to, "}");
    }
    buf_text(to, "]}");
}

/* ---- completions ---- */

/* Text, or for a part of a character "bytes:\xe2\x80", which no two tokens share. */
static void put_name(struct buf *to, const struct openai_logprob *p)
{
    if (utf8_valid(p->bytes, p->size)) {
        buf_json(to, p->bytes, p->size);
        return;
    }
    buf_text(to, "\"bytes:");
    for (size_t i = 0; i < p->size; i++)
        buf_printf(to, "\\\\x%02x", (unsigned char)p->bytes[i]);
    buf_text(to, "\"");
}

static bool is_same(const struct openai_logprob *a, const struct openai_logprob *b)
{
    return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

/* An object by text, so each text once: the likeliest, and the token itself among them. */
static void put_tops(struct buf *to, const struct openai_logprob *token,
                     const struct openai_logprob *top, uint32_t n_top)
{
    buf_text(to, "{");
    put_name(to, token);
    buf_text(to, ":");
    put_value(to, token->value);
    for (uint32_t i = 0; i < n_top; i++) {
        bool again = is_same(&top[i], token);
        for (uint32_t k = 0; k < i && !again; k++)
            again = is_same(&top[i], &top[k]);
        if (again)
            continue;
        buf_text(to, ",");
        put_name(to, &top[i]);
        buf_text(to, ":");
        put_value(to, top[i].value);
    }
    buf_text(to, "}");
}

/* Characters that begin here: the text may be cut anywhere. */
static uint64_t characters(const char *bytes, size_t size)
{
    uint64_t n = 0;

    for (size_t i = 0; i < size; i++)
        n += ((unsigned char)bytes[i] & 0xc0) != 0x80;
    return n;
}

void openai_logprobs_skip(struct openai_logprobs *l, const char *bytes, size_t size)
{
    l->offset += characters(bytes, size);
}

static void add_legacy(struct openai_logprobs *l, const struct openai_logprob *token,
                       const struct openai_logprob *top, uint32_t n_top)
{
    put_name(&l->tokens, token);
    put_value(&l->values, token->value);
    put_tops(&l->tops, token, top, n_top);
    buf_printf(&l->offsets, "%" PRIu64, l->offset);
    if (!token->unseen)
        l->offset += characters(token->bytes, token->size);
}

/* ---- both ---- */

void openai_logprobs_add(struct openai_logprobs *l, const struct openai_logprob *token,
                         const struct openai_logprob *top, uint32_t n_top)
{
    if (l->n++) {
        buf_text(&l->tokens, ",");
        if (l->legacy) {
            buf_text(&l->values, ",");
            buf_text(&l->tops, ",");
            buf_text(&l->offsets, ",");
        }
    }
    if (l->legacy)
        add_legacy(l, token, top, n_top);
    else
        add_entry(&l->tokens, token, top, n_top);
}

static void move_list(struct buf *to, struct buf *from, bool comma)
{
    if (comma)
        buf_text(to, ",");
    buf_put(to, from->data, from->size);
    to->failed |= from->failed;
}

void openai_logprobs_move(struct openai_logprobs *to, struct openai_logprobs *from)
{
    bool comma = to->n > 0;

    if (from->n == 0)
        return;
    move_list(&to->tokens, &from->tokens, comma);
    if (to->legacy) {
        move_list(&to->values, &from->values, comma);
        move_list(&to->tops, &from->tops, comma);
        move_list(&to->offsets, &from->offsets, comma);
    }
    to->n += from->n;
    openai_logprobs_clear(from);
}

static void put_list(struct buf *to, const char *before, const struct buf *list)
{
    buf_text(to, before);
    buf_put(to, list->data, list->size);
    buf_text(to, "]");
}

void openai_logprobs_put(struct buf *to, const struct openai_logprobs *l)
{
    if (!l->legacy) {
        put_list(to, "{\"content\":[", &l->tokens);
        buf_text(to, ",\"refusal\":null}");
        return;
    }
    put_list(to, "{\"tokens\":[", &l->tokens);
    put_list(to, ",\"token_logprobs\":[", &l->values);
    put_list(to, ",\"top_logprobs\":[", &l->tops);
    put_list(to, ",\"text_offset\":[", &l->offsets);
    buf_text(to, "}");
}
