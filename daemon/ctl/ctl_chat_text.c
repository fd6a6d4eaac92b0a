#include "daemon/ctl/ctl_chat_text.h"

#include "util/utf8.h"

#include <inttypes.h>
#include <string.h>

#define OPEN_TAG "<think>"
#define CLOSE_TAG "</think>"

/* ---- thoughts ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void give(struct chat_think *t, const char *text, size_t size, chat_part_put put, void *ctx)
{
    while (t->trim && size > 0 && (*text == '\n' || *text == '\r')) {
        text++;
        size--;
    }
    if (size == 0)
        return;
    t->trim = false;
    put(ctx, t->at == THINK_INSIDE ? CHAT_THOUGHT : CHAT_ANSWER, text, size);
}

/* The tag that would mean something here, or NULL. */
static const char *awaited(const struct chat_think *t)
{
    switch (t->at) {
    case THINK_START:
        return OPEN_TAG;
    case THINK_INSIDE:
        return CLOSE_TAG;
    default:
        return t->closed ? NULL : CLOSE_TAG;
    }
}

static void take_tag(struct chat_think *t, chat_part_put put, void *ctx)
{
    if (t->at == THINK_START) {
        t->at = THINK_INSIDE;
        t->opened = true;
    } else {
        if (!t->opened)
            put(ctx, CHAT_WAS_THOUGHT, "", 0);
        t->at = THINK_AFTER;
        t->closed = true;
    }
    t->trim = true;
}

/* Held bytes were no tag; they are text. */
static void release(struct chat_think *t, chat_part_put put, void *ctx)
{
    size_t n = t->n_held;

    t->n_held = 0;
    give(t, t->held, n, put, ctx);
}

static void take_byte(struct chat_think *t, const char *c, chat_part_put put, void *ctx)
{
    /* At the start both tags have a meaning; the slash tells which. */
    if (t->at == THINK_START && t->n_held == 1 && *c == '/')
        t->at = THINK_ANSWER;
    const char *tag = awaited(t);
    if (tag && *c == tag[t->n_held]) {
        t->held[t->n_held++] = *c;
        if (tag[t->n_held] == '\0') {
            t->n_held = 0;
            take_tag(t, put, ctx);
        }
        return;
    }
    if (t->at == THINK_START && t->n_held == 0 && is_space(*c)) {
        give(t, c, 1, put, ctx);
        return;
    }
    if (t->at == THINK_START)
        t->at = THINK_ANSWER;
    release(t, put, ctx);
    tag = awaited(t);
    if (tag && *c == tag[0])
        t->held[t->n_held++] = *c;
    else
        give(t, c, 1, put, ctx);
}

void chat_think_put(struct chat_think *t, const char *text, size_t size, chat_part_put put,
                    void *ctx)
{
    while (size > 0) {
        /* Runs that hold no tag go out in one piece. */
        const char *mark = t->at == THINK_START || t->n_held ? text : memchr(text, '<', size);
        size_t plain = !awaited(t) || !mark ? size : (size_t)(mark - text);
        if (plain > 0) {
            release(t, put, ctx);
            give(t, text, plain, put, ctx);
            text += plain;
            size -= plain;
            continue;
        }
        /* A character of several bytes is no tag's: it is given whole. */
        int whole = utf8_next(text, size, NULL);
        if (whole > 1) {
            if (t->at == THINK_START)
                t->at = THINK_ANSWER;
            release(t, put, ctx);
            give(t, text, (size_t)whole, put, ctx);
        } else {
            whole = 1;
            take_byte(t, text, put, ctx);
        }
        text += whole;
        size -= (size_t)whole;
    }
}

void chat_think_end(struct chat_think *t, chat_part_put put, void *ctx)
{
    release(t, put, ctx);
}

/* ---- control characters ---- */

/* Of writing direction: they let text look like other text. */
static bool turns_direction(uint32_t c)
{
    return (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

static void put_character(struct buf *to, uint32_t c)
{
    char out[4];

    buf_put(to, out, utf8_put(out, c));
}

void chat_harmless(struct buf *to, const char *text, size_t size)
{
    while (size > 0) {
        uint32_t c = 0;
        int n = utf8_next(text, size, &c);
        if (n <= 0) {
            n = (int)utf8_bad(text, size);
            put_character(to, 0xfffd);
        } else if (c == '\r' && size > 1 && text[1] == '\n') {
            /* the LF comes next */
        } else if (c < 0x20 && c != '\n' && c != '\t') {
            put_character(to, 0x2400 + c);
        } else if (c == 0x7f) {
            put_character(to, 0x2421);
        } else if ((c >= 0x80 && c < 0xa0) || turns_direction(c)) {
            buf_printf(to, "<U+%04" PRIX32 ">", c);
        } else {
            buf_put(to, text, (size_t)n);
        }
        text += n;
        size -= (size_t)n;
    }
}
