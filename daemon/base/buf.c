#include "daemon/base/buf.h"

#include "util/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 512 };

bool quota_take(struct quota *q, uint64_t bytes)
{
    if (!q)
        return true;
    if (bytes > q->cap || q->used > q->cap - bytes)
        return false;
    q->used += bytes;
    return true;
}

void quota_give(struct quota *q, uint64_t bytes)
{
    if (q)
        q->used -= bytes;
}

void buf_init(struct buf *b, struct quota *quota)
{
    *b = (struct buf){ .quota = quota };
}

void buf_done(struct buf *b)
{
    free(b->data);
    quota_give(b->quota, b->cap);
    buf_init(b, b->quota);
}

void buf_drop(struct buf *b, size_t n)
{
    memmove(b->data, b->data + n, b->size - n);
    b->size -= n;
}

void buf_trim(struct buf *b)
{
    char *data = b->size > 0 && b->size < b->cap ? realloc(b->data, b->size) : NULL;

    if (!data)
        return;
    quota_give(b->quota, b->cap - b->size);
    b->data = data;
    b->cap = b->size;
}

/* Doubles, but takes exactly what is asked where doubling would not be paid for: a body
 * whose length is known is reserved once. */
bool buf_reserve(struct buf *b, size_t more)
{
    if (b->failed)
        return false;
    if (more <= b->cap - b->size)
        return true;
    if (more > SIZE_MAX / 4 - b->size) {
        b->failed = true;
        return false;
    }
    size_t need = b->size + more;
    size_t cap = b->cap ? b->cap * 2 : FIRST_CAP;
    if (cap < need || !quota_take(b->quota, cap - b->cap)) {
        cap = need;
        if (!quota_take(b->quota, cap - b->cap)) {
            b->failed = true;
            return false;
        }
    }
    char *data = realloc(b->data, cap);
    if (!data) {
        quota_give(b->quota, cap - b->cap);
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void buf_put(struct buf *b, const char *bytes, size_t size)
{
    if (size == 0 || !buf_reserve(b, size))
        return;
    memcpy(b->data + b->size, bytes, size);
    b->size += size;
}

void buf_text(struct buf *b, const char *text)
{
    buf_put(b, text, strlen(text));
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    char small[256];
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(small, sizeof small, fmt, args);
    va_end(args);
    if (n < 0) {
        b->failed = true;
    } else if ((size_t)n < sizeof small) {
        buf_put(b, small, (size_t)n);
    } else if (buf_reserve(b, (size_t)n + 1)) {
        va_start(args, fmt);
        vsnprintf(b->data + b->size, (size_t)n + 1, fmt, args);
        va_end(args);
        b->size += (size_t)n;
    }
}

static void put_escape(struct buf *b, unsigned char c)
{
    static const char names[] = "btn\0fr"; /* 8, 9, 10, 12, 13 */

    if (c == '"' || c == '\\')
        buf_put(b, (const char[]){ '\\', (char)c }, 2);
    else if (c >= 8 && c <= 13 && c != 11)
        buf_put(b, (const char[]){ '\\', names[c - 8] }, 2);
    else
        buf_printf(b, "\\u%04x", c);
}

void buf_json_inner(struct buf *b, const char *bytes, size_t size)
{
    size_t from = 0, at = 0;

    if (size == 0)
        return; /* an empty buf has no data */
    while (at < size) {
        unsigned char c = (unsigned char)bytes[at];
        int n = c < 0x80 ? 1 : utf8_next(bytes + at, size - at, NULL);
        if (n > 0 && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            at += (size_t)n;
            continue;
        }
        buf_put(b, bytes + from, at - from);
        if (n <= 0) { /* cut off or wrong: one replacement each */
            buf_text(b, "\xef\xbf\xbd");
            at = n < 0 ? at + 1 : size;
        } else {
            put_escape(b, c);
            at++;
        }
        from = at;
    }
    buf_put(b, bytes + from, at - from);
}

void buf_json(struct buf *b, const char *bytes, size_t size)
{
    buf_put(b, "\"", 1);
    buf_json_inner(b, bytes, size);
    buf_put(b, "\"", 1);
}

void buf_json_text(struct buf *b, const char *text)
{
    if (text)
        buf_json(b, text, strlen(text));
    else
        buf_text(b, "null");
}
