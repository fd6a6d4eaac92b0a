#include "text/json_text.h"

#include "text/bytes.h"
#include "util/utf8.h"

#include <stdio.h>
#include <string.h>

enum { UNIT = 6, PAIR = 12 }; /* "\ud83d", and two of them */

static bool hex(uint32_t *value, char c)
{
    if (c >= '0' && c <= '9')
        *value = *value << 4 | (uint32_t)(c - '0');
    else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        *value = *value << 4 | (uint32_t)((c | 0x20) - 'a' + 10);
    else
        return false;
    return true;
}

static uint32_t unit(const char *escape)
{
    uint32_t value = 0;

    for (int i = 2; i < UNIT; i++)
        hex(&value, escape[i]);
    return value;
}

static int put_code_point(struct bytes *out, uint32_t cp, struct err *err)
{
    char text[4];
    bool surrogate = cp >= 0xd800 && cp < 0xe000;

    return bytes_put(out, text, utf8_put(text, surrogate ? 0xfffd : cp), err);
}

/* A unit, or a pair, is complete. */
static int end_units(struct json_text *t, struct bytes *out, struct err *err)
{
    uint32_t first = unit(t->escape);

    if (t->n == UNIT) {
        if (first >= 0xd800 && first < 0xdc00)
            return 0; /* its other half may follow */
        t->n = 0;
        return put_code_point(out, first, err);
    }
    uint32_t second = unit(t->escape + UNIT);
    if (second >= 0xdc00 && second < 0xe000) {
        t->n = 0;
        return put_code_point(out, 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00), err);
    }
    t->n = UNIT;
    memmove(t->escape, t->escape + UNIT, UNIT);
    return put_code_point(out, first, err) < 0 ? -1 : end_units(t, out, err);
}

int json_text_end(struct json_text *t, struct bytes *out, struct err *err)
{
    size_t half = t->n >= UNIT ? UNIT : 0, n = t->n;

    t->n = 0;
    if (half && put_code_point(out, unit(t->escape), err) < 0)
        return -1;
    return bytes_put(out, t->escape + half, n - half, err);
}

/* A character within an escape: 1 it belongs to it, 0 it does not, -1. */
static int put_escape(struct json_text *t, const char *c, struct bytes *out, struct err *err)
{
    static const char said[] = "\"\\/'bfnrt", meant[] = "\"\\/'\b\f\n\r\t";
    uint8_t place = t->n % UNIT;
    uint32_t ignored = 0;

    if (place == 1 && *c != 'u') {
        const char *found = *c && t->n == 1 ? strchr(said, *c) : NULL;
        if (!found)
            return 0;
        t->n = 0;
        return bytes_put(out, &meant[found - said], 1, err) < 0 ? -1 : 1;
    }
    if (place == 0 ? *c != '\\' : place > 1 && !hex(&ignored, *c))
        return 0;
    t->escape[t->n++] = *c;
    if (t->n == UNIT || t->n == PAIR)
        return end_units(t, out, err) < 0 ? -1 : 1;
    return 1;
}

int json_text_put(bool *ended, struct json_text *t, char quote, const char *c, size_t n,
                  struct bytes *out, struct err *err)
{
    *ended = false;
    if (t->n) {
        /* A simple escape behind half a pair begins anew. */
        if (t->n == UNIT + 1 && *c != 'u') {
            if (put_code_point(out, unit(t->escape), err) < 0)
                return -1;
            t->n = 1;
        }
        int taken = put_escape(t, c, out, err);
        if (taken != 0)
            return taken < 0 ? -1 : 0;
        if (json_text_end(t, out, err) < 0)
            return -1;
    }
    if (*c == quote) {
        *ended = true;
        return 0;
    }
    if (*c == '\\') {
        t->escape[t->n++] = '\\';
        return 0;
    }
    return bytes_put(out, c, n, err);
}

int json_text_escape(struct bytes *out, const char *text, size_t size, struct err *err)
{
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";

    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        const char *found = c ? strchr(special, c) : NULL;
        char escape[8];
        size_t n = 1;
        if (found) {
            escape[0] = '\\';
            escape[1] = letters[found - special];
            n = 2;
        } else if (c < 0x20) {
            snprintf(escape, sizeof escape, "\\u%04x", c);
            n = 6;
        } else {
            escape[0] = (char)c;
        }
        if (bytes_put(out, escape, n, err) < 0)
            return -1;
    }
    return 0;
}

int json_text_quote(struct bytes *out, const char *text, size_t size, struct err *err)
{
    if (bytes_put(out, "\"", 1, err) < 0 || json_text_escape(out, text, size, err) < 0)
        return -1;
    return bytes_put(out, "\"", 1, err);
}
