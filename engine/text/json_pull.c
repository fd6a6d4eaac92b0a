#include "text/json_pull.h"

#include "text/bytes.h"
#include "util/ascii.h"
#include "util/err.h"
#include "util/utf8.h"

#include <stdbool.h>
#include <string.h>

#define MAX_DEPTH 512

static int wrong(const struct json_pull *p, const char *want, struct err *err)
{
    if (p->at == p->end)
        return err_set(err, ERR_FORMAT, "ends at byte %zu where %s must come (cut off?)",
                       (size_t)(p->at - p->text), want);
    return err_set(err, ERR_FORMAT, "byte %zu: %s expected", (size_t)(p->at - p->text), want);
}

char json_pull_peek(struct json_pull *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r'))
        p->at++;
    return p->at < p->end ? *p->at : '\0';
}

int json_pull_enter(struct json_pull *p, char bracket, struct err *err)
{
    if (json_pull_peek(p) != bracket)
        return wrong(p, bracket == '{' ? "an object" : "an array", err);
    p->at++;
    return 0;
}

int json_pull_more(struct json_pull *p, char bracket, size_t *n_seen, struct err *err)
{
    char close = bracket == '{' ? '}' : ']';
    char next = json_pull_peek(p);

    if (next == close) {
        p->at++;
        return 0;
    }
    if (*n_seen > 0) {
        if (next != ',')
            return wrong(p, "a comma or the closing bracket", err);
        p->at++;
        next = json_pull_peek(p);
    }
    if (next == 0 || next == ',' || next == close)
        return wrong(p, "a value", err);
    (*n_seen)++;
    return 1;
}

int json_pull_colon(struct json_pull *p, struct err *err)
{
    if (json_pull_peek(p) != ':')
        return wrong(p, "a colon", err);
    p->at++;
    return 0;
}

int json_pull_u32(struct json_pull *p, uint32_t *out, struct err *err)
{
    char next = json_pull_peek(p);
    uint64_t value = 0;

    if (next < '0' || next > '9')
        return wrong(p, "a number from 0 to 4294967295", err);

    const char *begin = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9' && value <= UINT32_MAX)
        value = value * 10 + (uint64_t)(*p->at++ - '0');
    bool more = p->at < p->end && strchr(".eE0123456789", *p->at) && *p->at;
    if (value > UINT32_MAX || more || (*begin == '0' && p->at > begin + 1)) {
        p->at = begin;
        return wrong(p, "a number from 0 to 4294967295", err);
    }
    *out = (uint32_t)value;
    return 0;
}

static int hex4(struct json_pull *p, uint32_t *out)
{
    int32_t value = p->end - p->at < 4 ? -1 : ascii_hex4(p->at);

    if (value < 0)
        return -1;
    p->at += 4;
    *out = (uint32_t)value;
    return 0;
}

/* p->at is behind the backslash. */
static int read_escape(struct json_pull *p, struct bytes *out, struct err *err)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char text[4];

    if (p->at == p->end)
        return wrong(p, "an escape", err);

    char c = *p->at;
    const char *name = c ? strchr(names, c) : NULL;
    if (name) {
        p->at++;
        return bytes_put(out, &values[name - names], 1, err);
    }
    if (c != 'u')
        return wrong(p, "an escape", err);

    uint32_t cp = 0, low = 0;
    p->at++;
    if (hex4(p, &cp) < 0)
        return wrong(p, "four hexadecimal digits", err);
    if (cp >= 0xd800 && cp < 0xdc00) {
        bool pair = p->end - p->at >= 6 && p->at[0] == '\\' && p->at[1] == 'u';
        if (pair) {
            p->at += 2;
            pair = hex4(p, &low) == 0 && low >= 0xdc00 && low < 0xe000;
        }
        if (!pair)
            return wrong(p, "the second half of a surrogate pair", err);
        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
    } else if (cp >= 0xdc00 && cp < 0xe000) {
        return wrong(p, "no lone surrogate", err);
    }
    return bytes_put(out, text, utf8_put(text, cp), err);
}

int json_pull_string(struct json_pull *p, struct bytes *out, struct err *err)
{
    out->size = 0;
    if (json_pull_peek(p) != '"')
        return wrong(p, "a string", err);
    p->at++;

    const char *plain = p->at;
    for (;;) {
        if (p->at == p->end)
            return wrong(p, "the end of a string", err);
        unsigned char c = (unsigned char)*p->at;
        if (c >= 0x80) {
            int length = utf8_next(p->at, (size_t)(p->end - p->at), NULL);
            if (length <= 0)
                return wrong(p, "valid UTF-8", err);
            p->at += length;
            continue;
        }
        if (c < 0x20)
            return wrong(p, "no raw control character", err);
        if (c != '"' && c != '\\') {
            p->at++;
            continue;
        }
        if (bytes_put(out, plain, (size_t)(p->at - plain), err) < 0)
            return -1;
        p->at++;
        if (c == '"')
            return 0;
        if (read_escape(p, out, err) < 0)
            return -1;
        plain = p->at;
    }
}

static int skip_string(struct json_pull *p, struct err *err)
{
    p->at++;
    while (p->at < p->end && *p->at != '"')
        p->at += *p->at == '\\' && p->end - p->at > 1 ? 2 : 1;
    if (p->at == p->end)
        return wrong(p, "the end of a string", err);
    p->at++;
    return 0;
}

int json_pull_skip(struct json_pull *p, const char **begin, struct err *err)
{
    char open[MAX_DEPTH];
    int depth = 0;

    json_pull_peek(p);
    *begin = p->at;
    do {
        char c = json_pull_peek(p);
        switch (c) {
        case 0:
            return wrong(p, "a value", err);
        case '"':
            if (skip_string(p, err) < 0)
                return -1;
            break;
        case '{':
        case '[':
            if (depth == MAX_DEPTH)
                return wrong(p, "less nesting", err);
            open[depth++] = c == '{' ? '}' : ']';
            p->at++;
            break;
        case '}':
        case ']':
            if (depth == 0 || open[depth - 1] != c)
                return wrong(p, "another bracket", err);
            depth--;
            p->at++;
            break;
        case ',':
        case ':':
            if (depth == 0)
                return wrong(p, "a value", err);
            p->at++;
            break;
        default:
            while (p->at < p->end && !strchr("{}[],:\" \t\r\n", *p->at))
                p->at++;
            if (p->at == p->end || *p->at)
                break;
            return wrong(p, "no NUL byte", err);
        }
    } while (depth > 0);
    return 0;
}
