#include "formats/json_scan.h"

#include "util/ascii.h"
#include "util/utf8.h"

#include <string.h>

enum { MAX_DEPTH = 64 };

void json_scan_init(struct json_scan *s, char *text, uint64_t size)
{
    *s = (struct json_scan){ .begin = text, .at = text, .end = text + size };
}

static bool fail(struct json_scan *s, const char *fault)
{
    s->fault = fault;
    return false;
}

static void skip_space(struct json_scan *s)
{
    while (s->at < s->end &&
           (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t'))
        s->at++;
}

/* The next character, or NUL at the end (a real NUL is a fault wherever it is met). */
static char peek(const struct json_scan *s)
{
    return s->at < s->end ? *s->at : '\0';
}

bool json_scan_take(struct json_scan *s, char c)
{
    skip_space(s);
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

bool json_scan_expect(struct json_scan *s, char c)
{
    if (json_scan_take(s, c))
        return true;
    switch (c) {
    case '{':
        return fail(s, "an object must begin here");
    case '[':
        return fail(s, "an array must begin here");
    case ':':
        return fail(s, "':' is missing");
    default:
        return fail(s, "not what must stand here");
    }
}

bool json_scan_more(struct json_scan *s, char closing)
{
    s->fault = NULL;
    if (json_scan_take(s, ','))
        return true;
    if (json_scan_take(s, closing))
        return false;
    return fail(s, s->at == s->end ? "the text ends too early" : "',' or a closing bracket is missing");
}

/* Four hex digits behind "\u". */
static bool hex4(struct json_scan *s, uint32_t *out)
{
    int32_t value = s->end - s->at < 4 ? -1 : ascii_hex4(s->at);

    if (value < 0)
        return fail(s, "\\u needs four hex digits");
    s->at += 4;
    *out = (uint32_t)value;
    return true;
}

static bool unicode_escape(struct json_scan *s, char **to)
{
    uint32_t cp, low;

    if (!hex4(s, &cp))
        return false;
    if (cp >= 0xDC00 && cp <= 0xDFFF)
        return fail(s, "half of a surrogate pair");
    if (cp >= 0xD800 && cp <= 0xDBFF) {
        if (s->end - s->at < 2 || s->at[0] != '\\' || s->at[1] != 'u')
            return fail(s, "half of a surrogate pair");
        s->at += 2;
        if (!hex4(s, &low))
            return false;
        if (low < 0xDC00 || low > 0xDFFF)
            return fail(s, "half of a surrogate pair");
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
    }
    *to += utf8_put(*to, cp); /* at most 4 bytes for the 6 or 12 that were read */
    return true;
}

static bool escape(struct json_scan *s, char **to)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char c = peek(s);

    s->at++;
    if (c == 'u')
        return unicode_escape(s, to);
    const char *found = c ? strchr(names, c) : NULL;
    if (!found) {
        s->at--;
        return fail(s, "an unknown escape");
    }
    *(*to)++ = values[found - names];
    return true;
}

static bool is_plain(char c)
{
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x80 && c != '"' && c != '\\';
}

/* Decoded text is never longer than its source, so writing stays behind reading. */
static bool string_body(struct json_scan *s, char **end)
{
    char *to = s->at;

    while (to < s->end && is_plain(*to)) /* nearly always all of it: nothing moves */
        to++;
    s->at = to;
    while (s->at < s->end) {
        unsigned char c = (unsigned char)*s->at;
        if (c == '"') {
            *end = to;
            s->at++;
            return true;
        }
        if (c < 0x20)
            return fail(s, "a control character in a string");
        if (c == '\\') {
            s->at++;
            if (!escape(s, &to))
                return false;
            continue;
        }
        int n = c < 0x80 ? 1 : utf8_next(s->at, (size_t)(s->end - s->at), NULL);
        if (n <= 0)
            return fail(s, "a string is not UTF-8");
        for (; n > 0; n--)
            *to++ = *s->at++;
    }
    return fail(s, "a string is not closed");
}

bool json_scan_string(struct json_scan *s, char **out, size_t *size)
{
    char *begin, *end;

    if (!json_scan_take(s, '"'))
        return fail(s, "a string must begin here");
    begin = s->at;
    if (!string_body(s, &end))
        return false;
    *end = '\0'; /* at the latest where the closing quote was */
    *out = begin;
    *size = (size_t)(end - begin);
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool json_scan_u64(struct json_scan *s, uint64_t *out)
{
    uint64_t value = 0;

    skip_space(s);
    const char *start = s->at;
    if (!is_digit(peek(s)))
        return fail(s, "a whole number, not negative, must stand here");
    for (; is_digit(peek(s)); s->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*s->at - '0'), &value))
            return fail(s, "a number that does not fit 64 bits");
    if (*start == '0' && s->at - start > 1)
        return fail(s, "a number with a leading zero");
    if (peek(s) == '.' || peek(s) == 'e' || peek(s) == 'E')
        return fail(s, "a fraction or an exponent where a whole number must stand");
    *out = value;
    return true;
}

static bool digits(struct json_scan *s)
{
    if (!is_digit(peek(s)))
        return fail(s, "a digit is missing");
    while (is_digit(peek(s)))
        s->at++;
    return true;
}

static bool skip_number(struct json_scan *s)
{
    if (peek(s) == '-')
        s->at++;
    if (peek(s) == '0')
        s->at++;
    else if (!digits(s))
        return false;
    if (peek(s) == '.') {
        s->at++;
        if (!digits(s))
            return false;
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        if (!digits(s))
            return false;
    }
    return true;
}

static bool skip_word(struct json_scan *s, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return false;
    s->at += n;
    return true;
}

static bool skip_scalar(struct json_scan *s)
{
    char *text;
    size_t size;

    skip_space(s);
    if (peek(s) == '"')
        return json_scan_string(s, &text, &size);
    if (peek(s) == '-' || is_digit(peek(s)))
        return skip_number(s);
    if (skip_word(s, "true") || skip_word(s, "false") || skip_word(s, "null"))
        return true;
    return fail(s, "a value must stand here");
}

static bool skip_key(struct json_scan *s)
{
    char *text;
    size_t size;

    return json_scan_string(s, &text, &size) && json_scan_expect(s, ':');
}

bool json_scan_skip(struct json_scan *s)
{
    char closing[MAX_DEPTH]; /* of the brackets that are open */
    uint32_t depth = 0;

    for (;;) {
        bool object = json_scan_take(s, '{');
        if (object || json_scan_take(s, '[')) {
            if (depth == MAX_DEPTH)
                return fail(s, "nested too deep");
            closing[depth++] = object ? '}' : ']';
            if (!json_scan_take(s, closing[depth - 1])) {
                if (object && !skip_key(s))
                    return false;
                continue;
            }
            depth--;
        } else if (!skip_scalar(s)) {
            return false;
        }
        /* A value is complete: close what ends with it, then go on to the next one. */
        while (depth > 0 && !json_scan_more(s, closing[depth - 1])) {
            if (s->fault)
                return false;
            depth--;
        }
        if (depth == 0)
            return true;
        if (closing[depth - 1] == '}' && !skip_key(s))
            return false;
    }
}

bool json_scan_null(struct json_scan *s)
{
    skip_space(s);
    return skip_word(s, "null");
}

bool json_scan_done(struct json_scan *s)
{
    skip_space(s);
    return s->at == s->end;
}
