#include "daemon/openai/openai_logprobs.h"

#include "util/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { TOKENS, VALUES, TOPS, OFFSETS };

/* What waits of a token, in each list. */
struct entry {
    size_t sizes[OPENAI_LOGPROB_LISTS];
    size_t text; /* bytes of the token */
};

/* ---- lists ---- */

void openai_logprobs_open(struct openai_logprobs *l, bool legacy, struct quota *quota)
{
    *l = (struct openai_logprobs){ .legacy = legacy };
    for (size_t i = 0; i < OPENAI_LOGPROB_LISTS; i++)
        buf_init(&l->lists[i], quota);
}

void openai_logprobs_done(struct openai_logprobs *l)
{
    for (size_t i = 0; i < OPENAI_LOGPROB_LISTS; i++)
        buf_done(&l->lists[i]);
    l->n = 0;
}

void openai_logprobs_clear(struct openai_logprobs *l)
{
    for (size_t i = 0; i < OPENAI_LOGPROB_LISTS; i++)
        l->lists[i].size = 0;
    l->n = 0;
}

bool openai_logprobs_failed(const struct openai_logprobs *l)
{
    bool failed = false;

    for (size_t i = 0; i < OPENAI_LOGPROB_LISTS; i++)
        failed |= l->lists[i].failed;
    return failed;
}

static void put_list(struct buf *to, const char *before, const struct buf *list)
{
    buf_text(to, before);
    buf_put(to, list->data, list->size);
    buf_text(to, "]");
    to->failed |= list->failed;
}

void openai_logprobs_put(struct buf *to, const struct openai_logprobs *l)
{
    if (!l->legacy) {
        put_list(to, "{\"content\":[", &l->lists[TOKENS]);
        buf_text(to, ",\"refusal\":null}");
        return;
    }
    put_list(to, "{\"tokens\":[", &l->lists[TOKENS]);
    put_list(to, ",\"token_logprobs\":[", &l->lists[VALUES]);
    put_list(to, ",\"top_logprobs\":[", &l->lists[TOPS]);
    put_list(to, ",\"text_offset\":[", &l->lists[OFFSETS]);
    buf_text(to, "}");
}

/* ---- entries ---- */

/* JSON has no infinity; this is the number that clients know for it. */
static void put_value(struct buf *to, double value)
{
    buf_printf(to, "%.8g", isfinite(value) ? value : -9999.0);
}

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

static void add_legacy(struct openai_logprobs_held *h, const struct openai_logprob *token,
                       const struct openai_logprob *top, uint32_t n_top)
{
    put_name(&h->lists[TOKENS], token);
    put_value(&h->lists[VALUES], token->value);
    put_tops(&h->lists[TOPS], token, top, n_top);
    bool inside = token->size && ((unsigned char)token->bytes[0] & 0xc0) == 0x80 && h->offset;
    buf_printf(&h->lists[OFFSETS], "%" PRIu64, h->offset - inside); /* of the character it goes on with */
    if (!token->unseen)
        h->offset += characters(token->bytes, token->size);
}

/* ---- what waits ---- */

void openai_logprobs_hold(struct openai_logprobs_held *h, bool legacy, struct quota *quota)
{
    *h = (struct openai_logprobs_held){ .legacy = legacy };
    for (size_t i = 0; i < OPENAI_LOGPROB_LISTS; i++)
        buf_init(&h->lists[i], quota);
    buf_init(&h->entries, quota);
}

void openai_logprobs_let_go(struct openai_logprobs_held *h)
{
    for (size_t i = 0; i < OPENAI_LOGPROB_LISTS; i++)
        buf_done(&h->lists[i]);
    buf_done(&h->entries);
}

void openai_logprobs_drop(struct openai_logprobs_held *h)
{
    for (size_t i = 0; i < OPENAI_LOGPROB_LISTS; i++)
        h->lists[i].size = 0;
    h->entries.size = 0;
    h->offset = 0;
    h->owed = 0;
}

void openai_logprobs_skip(struct openai_logprobs_held *h, const char *bytes, size_t size)
{
    h->offset += characters(bytes, size);
    h->owed -= (int64_t)size;
}

void openai_logprobs_add(struct openai_logprobs_held *h, const struct openai_logprob *token,
                         const struct openai_logprob *top, uint32_t n_top)
{
    struct entry entry = { .text = token->unseen ? 0 : token->size };

    for (size_t i = 0; i < OPENAI_LOGPROB_LISTS; i++)
        entry.sizes[i] = h->lists[i].size;
    if (h->legacy)
        add_legacy(h, token, top, n_top);
    else
        add_entry(&h->lists[TOKENS], token, top, n_top);
    for (size_t i = 0; i < OPENAI_LOGPROB_LISTS; i++)
        entry.sizes[i] = h->lists[i].size - entry.sizes[i];
    buf_put(&h->entries, (const char *)&entry, sizeof entry);
}

/* The first n entries. */
static void tell_entries(struct openai_logprobs *to, struct openai_logprobs_held *h, size_t n)
{
    size_t at[OPENAI_LOGPROB_LISTS] = { 0 };
    struct entry entry;

    for (size_t k = 0; k < n; k++) {
        memcpy(&entry, h->entries.data + k * sizeof entry, sizeof entry);
        for (size_t i = 0; i < OPENAI_LOGPROB_LISTS; i++) {
            if (to->n && entry.sizes[i])
                buf_text(&to->lists[i], ",");
            if (entry.sizes[i])
                buf_put(&to->lists[i], h->lists[i].data + at[i], entry.sizes[i]);
            at[i] += entry.sizes[i];
        }
        to->n++;
    }
    for (size_t i = 0; i < OPENAI_LOGPROB_LISTS; i++) {
        if (at[i])
            buf_drop(&h->lists[i], at[i]);
        to->lists[i].failed |= h->lists[i].failed || h->entries.failed;
    }
    buf_drop(&h->entries, n * sizeof entry);
}

void openai_logprobs_tell(struct openai_logprobs *to, struct openai_logprobs_held *h, size_t size)
{
    size_t n = 0, most = h->entries.size / sizeof(struct entry);
    struct entry entry;

    h->owed += (int64_t)size;
    for (; n < most && h->owed > 0; n++) {
        memcpy(&entry, h->entries.data + n * sizeof entry, sizeof entry);
        h->owed -= (int64_t)entry.text;
    }
    if (n)
        tell_entries(to, h, n);
}

void openai_logprobs_tell_all(struct openai_logprobs *to, struct openai_logprobs_held *h)
{
    if (h->entries.size)
        tell_entries(to, h, h->entries.size / sizeof(struct entry));
}
