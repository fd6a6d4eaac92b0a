#include "daemon/openai/json_read.h"

#include "daemon/base/buf.h"
#include "util/ascii.h"
#include "util/utf8.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PASSED_STEP = 256 << 10 };

/* Objects and arrays that are open, the innermost last; each is held by the one before it. */
struct stack {
    json_t *open[JSON_READ_DEPTH];
    size_t n;
    json_t *root;
    json_t *digits; /* owned: of integers beyond 64 bits, by their values' addresses; NULL: none */
};

/* No key of a client: it is no UTF-8. */
#define DIGITS_KEY "\xff"

static void digits_key(char key[24], const json_t *v)
{
    snprintf(key, 24, "%" PRIxPTR, (uintptr_t)v);
}

/* A string in the bytes, as it is meant. */
struct text {
    const char *bytes;
    size_t size;
};

static bool fail(struct json_read *r, const char *problem)
{
    r->problem = problem;
    return false;
}

static bool pay(struct json_read *r, uint64_t bytes)
{
    if (quota_take(r->quota, bytes)) {
        r->cost += bytes;
        return true;
    }
    r->lacking = bytes;
    return false;
}

static void skip_blank(struct json_read *r)
{
    while (r->at < r->size && (r->bytes[r->at] == ' ' || r->bytes[r->at] == '\n' ||
                               r->bytes[r->at] == '\r' || r->bytes[r->at] == '\t'))
        r->at++;
}

/* The byte at hand, 0 at the end: NUL is nothing JSON may hold there either. */
static char peek(const struct json_read *r)
{
    return r->at < r->size ? r->bytes[r->at] : 0;
}

static bool take(struct json_read *r, char c)
{
    if (peek(r) != c)
        return false;
    r->at++;
    return true;
}

/* ---- strings ---- */

/* The unit of "\uXXXX" at place at, -1 when that is none. */
static int unit_at(const struct json_read *r, size_t at)
{
    if (r->size - at < 6 || r->bytes[at] != '\\' || r->bytes[at + 1] != 'u')
        return -1;
    return ascii_hex4(r->bytes + at + 2);
}

static bool take_unit(struct json_read *r, size_t *to)
{
    int unit = unit_at(r, r->at), low;

    if (unit < 0)
        return fail(r, "\\u needs four hexadecimal digits");
    r->at += 6;
    uint32_t cp = (uint32_t)unit;
    if (unit >= 0xd800 && unit <= 0xdfff) {
        low = unit <= 0xdbff ? unit_at(r, r->at) : -1;
        cp = 0xfffd;
        if (low >= 0xdc00 && low <= 0xdfff) {
            cp = 0x10000 + ((uint32_t)(unit - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
            r->at += 6;
        }
    }
    *to += utf8_put(r->bytes + *to, cp); /* at most what the escape took */
    return true;
}

static bool take_escape(struct json_read *r, size_t *to)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char c = r->size - r->at > 1 ? r->bytes[r->at + 1] : 0;
    const char *found = c ? strchr(names, c) : NULL;

    if (c == 'u')
        return take_unit(r, to);
    if (!found)
        return fail(r, "an escape that JSON does not have");
    r->bytes[(*to)++] = meant[found - names];
    r->at += 2;
    return true;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* Bytes that stand for themselves, and whole characters. */
static bool take_run(struct json_read *r, size_t *to)
{
    size_t from = r->at;

    for (;;) {
        while (r->at < r->size && is_plain((unsigned char)r->bytes[r->at]))
            r->at++;
        if (r->at == r->size || (unsigned char)r->bytes[r->at] < 0x80)
            break;
        int n = utf8_next(r->bytes + r->at, r->size - r->at, NULL);
        if (n <= 0)
            return fail(r, "bytes that are not UTF-8");
        r->at += (size_t)n;
    }
    if (*to != from)
        memmove(r->bytes + *to, r->bytes + from, r->at - from);
    *to += r->at - from;
    return true;
}

/* From the opening quote to past the closing one. */
static bool take_text(struct json_read *r, struct text *out)
{
    size_t to = ++r->at;

    *out = (struct text){ r->bytes + to, 0 };
    for (;;) {
        if (!take_run(r, &to))
            return false;
        char c = peek(r);
        if (c == '"')
            break;
        if (c != '\\')
            return fail(r, r->at == r->size ? "a string that does not end"
                                            : "a control character in a string");
        if (!take_escape(r, &to))
            return false;
    }
    r->at++;
    out->size = (size_t)(r->bytes + to - out->bytes);
    return true;
}

/* ---- numbers ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void take_digits(struct json_read *r)
{
    while (is_digit(peek(r)))
        r->at++;
}

/* Moves over a number by RFC 8259's grammar. */
static bool pass_number(struct json_read *r, bool *integer)
{
    *integer = true;
    take(r, '-');
    if (!is_digit(peek(r)))
        return fail(r, "no JSON value");
    if (!take(r, '0'))
        take_digits(r);
    if (take(r, '.')) {
        *integer = false;
        if (!is_digit(peek(r)))
            return fail(r, "a number without a digit after its point");
        take_digits(r);
    }
    if (!take(r, 'e') && !take(r, 'E'))
        return true;
    *integer = false;
    if (!take(r, '+'))
        take(r, '-');
    if (!is_digit(peek(r)))
        return fail(r, "a number without a digit in its exponent");
    take_digits(r);
    return true;
}

/* What an integer meant, beside the double it became. The value is held too: a doubled key would
 * free it, and another get its address. */
static bool keep_digits(struct json_read *r, struct stack *s, json_t *v, const char *text)
{
    char key[24];

    if (!pay(r, JSON_COST_MEMBER + JSON_COST_ARRAY + 2 * JSON_COST_ELEMENT + sizeof key +
                    strlen(text) + 1))
        return false;
    if (!s->digits && !(s->digits = json_object()))
        return fail(r, "no memory");
    json_t *pair = json_array();
    digits_key(key, v);
    if (json_array_append_new(pair, json_string_nocheck(text)) < 0 ||
        json_array_append(pair, v) < 0) {
        json_decref(pair);
        return fail(r, "no memory");
    }
    if (json_object_set_new_nocheck(s->digits, key, pair) < 0)
        return fail(r, "no memory");
    return true;
}

static json_t *read_number(struct json_read *r, struct stack *s)
{
    char text[JSON_READ_NUMBER + 1];
    size_t from = r->at;
    bool integer;

    if (!pass_number(r, &integer))
        return NULL;
    size_t size = r->at - from;
    if (size > JSON_READ_NUMBER) {
        fail(r, "a number of more than 1024 characters");
        return NULL;
    }
    memcpy(text, r->bytes + from, size);
    text[size] = '\0';
    errno = 0;
    long long whole = integer ? strtoll(text, NULL, 10) : 0;
    if (integer && errno == 0)
        return json_integer(whole);
    double real = strtod(text, NULL);
    json_t *v = json_real(isinf(real) ? copysign(DBL_MAX, real) : real);
    if (integer && v && !keep_digits(r, s, v, text)) {
        json_decref(v);
        return NULL;
    }
    return v;
}

/* ---- values ---- */

static json_t *read_word(struct json_read *r, struct stack *s)
{
    static const char *const words[] = { "true", "false", "null" };

    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if (r->size - r->at < n || memcmp(r->bytes + r->at, words[i], n) != 0)
            continue;
        r->at += n;
        return i == 0 ? json_true() : i == 1 ? json_false() : json_null();
    }
    return read_number(r, s);
}

static json_t *read_string(struct json_read *r)
{
    struct text text;

    if (!take_text(r, &text) || !pay(r, text.size + 1))
        return NULL;
    return json_stringn_nocheck(text.bytes, text.size);
}

static json_t *read_one(struct json_read *r, struct stack *s)
{
    switch (peek(r)) {
    case '"':
        return read_string(r);
    case '{':
        r->at++;
        return pay(r, JSON_COST_OBJECT) ? json_object() : NULL;
    case '[':
        r->at++;
        return pay(r, JSON_COST_ARRAY) ? json_array() : NULL;
    default:
        return read_word(r, s);
    }
}

/* Reads a value and puts it where it belongs: under key, at the end of an array, or as the root. */
static bool add_value(struct json_read *r, struct stack *s, const struct text *key)
{
    json_t *in = s->n ? s->open[s->n - 1] : NULL, *v = read_one(r, s);
    int rc = 0;

    if (!v)
        return r->problem || r->lacking ? false : fail(r, "no memory");
    bool opens = json_is_object(v) || json_is_array(v);
    if (!in)
        s->root = v;
    else if (key)
        rc = json_object_setn_new_nocheck(in, key->bytes, key->size, v);
    else
        rc = json_array_append_new(in, v);
    if (rc < 0)
        return fail(r, "no memory");
    if (!opens)
        return true;
    if (s->n == JSON_READ_DEPTH)
        return fail(r, "nests deeper than 512 levels");
    s->open[s->n++] = v;
    return true;
}

static bool add_member(struct json_read *r, struct stack *s)
{
    struct text key;

    if (peek(r) != '"')
        return fail(r, "no key in quotes");
    if (!take_text(r, &key))
        return false;
    if (memchr(key.bytes, '\0', key.size))
        return fail(r, "a key that holds NUL");
    skip_blank(r);
    if (!take(r, ':'))
        return fail(r, "no colon after a key");
    skip_blank(r);
    return pay(r, JSON_COST_MEMBER + key.size) && add_value(r, s, &key);
}

/* What comes next in the innermost open value: another one, or its end. */
static bool go_on(struct json_read *r, struct stack *s, bool *first)
{
    bool object = json_is_object(s->open[s->n - 1]);
    size_t depth = s->n;

    skip_blank(r);
    if (take(r, object ? '}' : ']')) {
        s->n--;
        *first = false;
        return true;
    }
    if (!*first && !take(r, ','))
        return fail(r, r->at == r->size ? "the end, with a value still open"
                                        : "no comma between values");
    skip_blank(r);
    if (object ? !add_member(r, s) : !(pay(r, JSON_COST_ELEMENT) && add_value(r, s, NULL)))
        return false;
    *first = s->n > depth;
    return true;
}

json_t *json_read(struct json_read *r)
{
    struct stack s = { .n = 0 };
    size_t told = 0;
    bool first = true, fine;

    skip_blank(r);
    fine = pay(r, JSON_COST_ELEMENT) && add_value(r, &s, NULL);
    while (fine && s.n > 0) {
        fine = go_on(r, &s, &first);
        if (r->passed && r->at - told >= PASSED_STEP) {
            r->passed(r->ctx, r->at);
            told = r->at;
        }
    }
    skip_blank(r);
    if (fine && r->at < r->size)
        fine = fail(r, "something after the value");
    if (fine && s.digits && json_is_object(s.root) &&
        json_object_set_nocheck(s.root, DIGITS_KEY, s.digits) < 0)
        fine = fail(r, "no memory");
    json_decref(s.digits);
    if (!fine) {
        json_decref(s.root);
        return NULL;
    }
    return s.root;
}

const char *json_read_digits(const json_t *root, const json_t *v)
{
    const json_t *digits = json_object_get(root, DIGITS_KEY);
    char key[24];

    if (!digits || !json_is_real(v))
        return NULL;
    digits_key(key, v);
    return json_string_value(json_array_get(json_object_get(digits, key), 0));
}
