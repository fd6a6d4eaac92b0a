#include "text/json_same.h"

#include "util/ascii.h"
#include "util/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_DIGITS = 400 };

struct reader {
    const struct sip_sum *key;
    const char *at, *end;
};

static bool read_value(struct reader *r, unsigned depth, struct sip_sum *out);

static char peek(struct reader *r)
{
    while (r->at < r->end && memchr(" \t\r\n", *r->at, 4))
        r->at++;
    return r->at < r->end ? *r->at : '\0';
}

static bool take(struct reader *r, char c)
{
    if (peek(r) != c || r->at == r->end)
        return false;
    r->at++;
    return true;
}

/* Each kind of value begins its hash with a letter of its own. */
static struct sip begin(const struct reader *r, char kind)
{
    struct sip s;

    sip_init(&s, r->key);
    sip_put(&s, &kind, 1);
    return s;
}

/* ---- strings ---- */

static bool read_hex4(struct reader *r, uint32_t *out)
{
    int32_t value = r->end - r->at < 4 ? -1 : ascii_hex4(r->at);

    if (value < 0)
        return false;
    r->at += 4;
    *out = (uint32_t)value;
    return true;
}

/* Behind "\u". A pair is one character; half a pair stays what it is. */
static bool read_unicode(struct reader *r, struct sip *s)
{
    uint32_t cp, low;
    char text[4];

    if (!read_hex4(r, &cp))
        return false;
    if (cp >= 0xd800 && cp < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
        const char *back = r->at;
        r->at += 2;
        if (!read_hex4(r, &low))
            return false;
        if (low >= 0xdc00 && low < 0xe000)
            cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
        else
            r->at = back;
    }
    sip_put(s, text, utf8_put(text, cp));
    return true;
}

static bool read_string(struct reader *r, struct sip_sum *out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    struct sip s = begin(r, '"');

    if (!take(r, '"'))
        return false;
    for (;;) {
        const char *from = r->at;
        while (r->at < r->end && *r->at != '"' && *r->at != '\\')
            r->at++;
        sip_put(&s, from, (size_t)(r->at - from));
        if (r->at == r->end)
            return false;
        if (*r->at++ == '"')
            break;
        if (r->at == r->end)
            return false;
        const char *name = memchr(names, *r->at, sizeof names - 1);
        bool unicode = *r->at == 'u';
        r->at++;
        if (name)
            sip_put(&s, &values[name - names], 1);
        else if (!unicode || !read_unicode(r, &s))
            return false;
    }
    *out = sip_sum(&s);
    return true;
}

/* ---- numbers ---- */

/* A number is its digits without zeros at either end, and the power of ten of the last one. */
struct decimal {
    char digits[MAX_DIGITS + 1];
    size_t n;
    int64_t power;
    bool negative;
};

static bool is_digit(const struct reader *r)
{
    return r->at < r->end && *r->at >= '0' && *r->at <= '9';
}

static bool read_digits(struct reader *r, struct decimal *d, bool fraction)
{
    if (!is_digit(r))
        return false;
    for (; is_digit(r); r->at++) {
        if (d->n == MAX_DIGITS)
            return false;
        if (d->n || *r->at != '0')
            d->digits[d->n++] = *r->at;
        d->power -= fraction;
    }
    return true;
}

static bool read_power(struct reader *r, struct decimal *d)
{
    bool negative = false;
    int64_t n = 0;

    if (r->at < r->end && (*r->at == '+' || *r->at == '-'))
        negative = *r->at++ == '-';
    if (!is_digit(r))
        return false;
    for (; is_digit(r); r->at++)
        if (n < 1000000)
            n = n * 10 + (*r->at - '0');
    d->power += negative ? -n : n;
    return true;
}

static bool read_number(struct reader *r, struct sip_sum *out)
{
    struct decimal d = { 0 };
    struct sip s;
    double value;

    if (take(r, '-'))
        d.negative = true;
    if (!read_digits(r, &d, false))
        return false;
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        if (!read_digits(r, &d, true))
            return false;
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        if (!read_power(r, &d))
            return false;
    }
    while (d.n && d.digits[d.n - 1] == '0') {
        d.n--;
        d.power++;
    }
    if (!d.n)
        d = (struct decimal){ 0 };
    /* A whole number is exact. Of others a client keeps what fits into a double, and spells that
     * with as many digits as it likes. */
    if (d.power >= 0) {
        s = begin(r, 'i');
        sip_put_number(&s, (uint64_t)d.power);
        sip_put(&s, d.digits, d.n);
    } else {
        char text[MAX_DIGITS + 32];
        size_t n = d.n;
        memcpy(text, d.digits, n);
        text[n++] = 'e';
        text[n++] = '-';
        char power[24];
        size_t n_power = 0;
        for (uint64_t p = (uint64_t)-d.power; p; p /= 10)
            power[n_power++] = (char)('0' + p % 10);
        while (n_power)
            text[n++] = power[--n_power];
        text[n] = '\0';
        value = strtod(text, NULL);
        s = begin(r, 'd');
        sip_put(&s, &value, sizeof value);
    }
    sip_put(&s, d.negative ? "-" : "+", 1);
    *out = sip_sum(&s);
    return true;
}

/* ---- containers and words ---- */

static bool read_array(struct reader *r, unsigned depth, struct sip_sum *out)
{
    struct sip s = begin(r, '[');
    struct sip_sum element;

    r->at++;
    if (!take(r, ']')) {
        do {
            if (!read_value(r, depth + 1, &element))
                return false;
            sip_put(&s, &element, sizeof element);
        } while (take(r, ','));
        if (!take(r, ']'))
            return false;
    }
    *out = sip_sum(&s);
    return true;
}

static bool read_member(struct reader *r, unsigned depth, struct sip_sum *out)
{
    struct sip s = begin(r, ':');
    struct sip_sum part;

    if (!read_string(r, &part) || !take(r, ':'))
        return false;
    sip_put(&s, &part, sizeof part);
    if (!read_value(r, depth + 1, &part))
        return false;
    sip_put(&s, &part, sizeof part);
    *out = sip_sum(&s);
    return true;
}

static bool read_object(struct reader *r, unsigned depth, struct sip_sum *out)
{
    struct sip_sum sum = { { 0 } }, member;
    struct sip s = begin(r, '{');
    uint64_t n = 0;

    r->at++;
    if (!take(r, '}')) {
        do {
            if (!read_member(r, depth, &member))
                return false;
            sum.half[0] += member.half[0];
            sum.half[1] += member.half[1];
            n++;
        } while (take(r, ','));
        if (!take(r, '}'))
            return false;
    }
    sip_put(&s, &sum, sizeof sum);
    sip_put_number(&s, n);
    *out = sip_sum(&s);
    return true;
}

static bool read_word(struct reader *r, struct sip_sum *out)
{
    static const char *const words[] = { "true", "false", "null" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t size = strlen(words[i]);
        if ((size_t)(r->end - r->at) < size || memcmp(r->at, words[i], size) != 0)
            continue;
        struct sip s = begin(r, words[i][0]);
        r->at += size;
        *out = sip_sum(&s);
        return true;
    }
    return false;
}

static bool read_value(struct reader *r, unsigned depth, struct sip_sum *out)
{
    if (depth > MAX_DEPTH)
        return false;
    switch (peek(r)) {
    case '{':
        return read_object(r, depth, out);
    case '[':
        return read_array(r, depth, out);
    case '"':
        return read_string(r, out);
    case 't':
    case 'f':
    case 'n':
        return read_word(r, out);
    default:
        return read_number(r, out);
    }
}

static bool meaning(struct sip_sum *out, const char *text, size_t size, const struct sip_sum *key)
{
    struct reader r = { .key = key, .at = text, .end = text + size };

    return read_value(&r, 0, out) && peek(&r) == '\0' && r.at == r.end;
}

bool json_same(const char *a, size_t a_size, const char *b, size_t b_size,
               const struct sip_sum *key)
{
    struct sip_sum of_a, of_b;

    if (a_size == b_size && (!a_size || memcmp(a, b, a_size) == 0))
        return true;
    if (!a_size) {
        a = "{}";
        a_size = 2;
    }
    if (!b_size) {
        b = "{}";
        b_size = 2;
    }
    return meaning(&of_a, a, a_size, key) && meaning(&of_b, b, b_size, key) &&
           sip_same(of_a, of_b);
}
