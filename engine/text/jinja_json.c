/* JSON into values. jansson holds no integer beyond 64 bits and no lone surrogate, and templates
 * print numbers back as they came, so this reads by itself. */
#include "text/jinja_value.h"

#include "util/ascii.h"
#include "util/err.h"
#include "util/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 256, MAX_NUMBER = 1 << 12 };

struct reader {
    struct jinja_mem *m;
    const char *text;
    size_t at, size;
    uint32_t depth;
    struct err *err;
};

static const struct jinja_value *bad(struct reader *r, const char *what)
{
    err_set(r->err, ERR_INPUT, "JSON: %s at byte %zu", what, r->at);
    return NULL;
}

static const struct jinja_value *no_memory(struct reader *r)
{
    err_set(r->err, ERR_BUDGET, "JSON: more memory than there is for a template");
    return NULL;
}

static void skip_space(struct reader *r)
{
    while (r->at < r->size && (r->text[r->at] == ' ' || r->text[r->at] == '\t' ||
                               r->text[r->at] == '\n' || r->text[r->at] == '\r'))
        r->at++;
}

static bool take(struct reader *r, char c)
{
    skip_space(r);
    if (r->at >= r->size || r->text[r->at] != c)
        return false;
    r->at++;
    return true;
}

/* ---- strings ---- */

static int hex4(const char *s, size_t left, uint32_t *out)
{
    int32_t value = left < 4 ? -1 : ascii_hex4(s);

    *out = value < 0 ? 0 : (uint32_t)value;
    return value < 0 ? -1 : 0;
}

/* The character of "\uXXXX", or of two that make one; half a pair becomes U+FFFD. *used counts
 * bytes after "\u". */
static int escaped(const char *s, size_t left, uint32_t *cp, size_t *used)
{
    uint32_t low;

    if (hex4(s, left, cp) < 0)
        return -1;
    *used = 4;
    if (*cp < 0xd800 || *cp > 0xdfff)
        return 0;
    if (*cp < 0xdc00 && left >= 10 && s[4] == '\\' && s[5] == 'u' &&
        hex4(s + 6, left - 6, &low) == 0 && low >= 0xdc00 && low <= 0xdfff) {
        *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
        *used = 10;
        return 0;
    }
    *cp = 0xfffd;
    return 0;
}

/* s[0, n) without its quotes, known to be valid but for its escapes. Never longer than n. */
static const struct jinja_value *unescape(struct reader *r, const char *s, size_t n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char *out = jinja_take(r->m, n);
    size_t size = 0, used;
    uint32_t cp;

    if (!out)
        return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '\\') {
            out[size++] = s[i];
            continue;
        }
        const char *known = i + 1 < n && s[i + 1] ? strchr(from, s[i + 1]) : NULL;
        if (known) {
            out[size++] = to[known - from];
            i++;
        } else if (i + 1 < n && s[i + 1] == 'u' &&
                   escaped(s + i + 2, n - i - 2, &cp, &used) == 0) {
            size += utf8_put(out + size, cp);
            i += 1 + used;
        } else {
            return bad(r, "a wrong escape in the string before");
        }
    }
    const struct jinja_value *v = jinja_str(r->m, out, size, false);
    return v ? v : no_memory(r);
}

static const struct jinja_value *read_string(struct reader *r)
{
    bool escapes = false;

    if (!take(r, '"'))
        return bad(r, "a string is missing");
    size_t from = r->at;
    for (; r->at < r->size && r->text[r->at] != '"'; r->at++) {
        if ((unsigned char)r->text[r->at] < 0x20)
            return bad(r, "a control character in a string");
        if (r->text[r->at] == '\\') {
            escapes = true;
            r->at++;
        }
    }
    if (r->at >= r->size)
        return bad(r, "a string without an end");
    size_t n = r->at - from;
    r->at++;
    if (!utf8_valid(r->text + from, n))
        return bad(r, "invalid UTF-8 in the string before");
    if (escapes)
        return unescape(r, r->text + from, n);
    const struct jinja_value *v = jinja_str(r->m, r->text + from, n, false);
    return v ? v : no_memory(r);
}

/* ---- numbers ---- */

static bool digits(struct reader *r)
{
    size_t from = r->at;

    while (r->at < r->size && r->text[r->at] >= '0' && r->text[r->at] <= '9')
        r->at++;
    return r->at > from;
}

static const struct jinja_value *whole_number(struct reader *r, const char *text, size_t n)
{
    errno = 0;
    long long i = strtoll(text, NULL, 10);
    if (errno == 0)
        return jinja_int(r->m, i);
    return jinja_digits(r->m, r->text + r->at - n, n);
}

static const struct jinja_value *read_number(struct reader *r)
{
    char text[64], *copy = text;
    size_t from = r->at;
    bool whole = true;

    if (r->text[r->at] == '-')
        r->at++;
    size_t first = r->at;
    if (!digits(r) || (r->text[first] == '0' && r->at > first + 1))
        return bad(r, "no number");
    if (r->at < r->size && r->text[r->at] == '.') {
        whole = false;
        r->at++;
        if (!digits(r))
            return bad(r, "no number");
    }
    if (r->at < r->size && (r->text[r->at] == 'e' || r->text[r->at] == 'E')) {
        whole = false;
        r->at++;
        if (r->at < r->size && (r->text[r->at] == '+' || r->text[r->at] == '-'))
            r->at++;
        if (!digits(r))
            return bad(r, "no number");
    }
    size_t n = r->at - from;
    if (n > MAX_NUMBER)
        return bad(r, "a number of too many digits");
    if (n >= sizeof text && !(copy = jinja_take(r->m, n + 1)))
        return no_memory(r);
    memcpy(copy, r->text + from, n);
    copy[n] = '\0';
    const struct jinja_value *v = whole ? whole_number(r, copy, n)
                                        : jinja_float(r->m, strtod(copy, NULL));
    return v ? v : no_memory(r);
}

/* ---- containers ---- */

static const struct jinja_value *read_value(struct reader *r);

static const struct jinja_value *read_list(struct reader *r)
{
    struct jinja_value *list = jinja_list(r->m);

    if (!list)
        return no_memory(r);
    if (take(r, ']'))
        return list;
    do {
        const struct jinja_value *v = read_value(r);
        if (!v)
            return NULL;
        if (jinja_list_add(r->m, list, v) < 0)
            return no_memory(r);
    } while (take(r, ','));
    return take(r, ']') ? list : bad(r, "',' or ']' is missing");
}

static const struct jinja_value *read_dict(struct reader *r)
{
    struct jinja_value *dict = jinja_dict(r->m);

    if (!dict)
        return no_memory(r);
    if (take(r, '}'))
        return dict;
    do {
        const struct jinja_value *key = read_string(r);
        if (!key)
            return NULL;
        if (!take(r, ':'))
            return bad(r, "':' is missing");
        const struct jinja_value *v = read_value(r);
        if (!v)
            return NULL;
        if (jinja_map_set(r->m, dict->map, key, v) < 0)
            return no_memory(r);
    } while (take(r, ','));
    return take(r, '}') ? dict : bad(r, "',' or '}' is missing");
}

static const struct jinja_value *read_word(struct reader *r)
{
    static const struct {
        const char *word;
        const struct jinja_value *value;
    } words[] = { { "null", &jinja_none }, { "true", &jinja_true }, { "false", &jinja_false } };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].word);
        if (r->size - r->at >= n && memcmp(r->text + r->at, words[i].word, n) == 0) {
            r->at += n;
            return words[i].value;
        }
    }
    return bad(r, "no value");
}

static const struct jinja_value *read_value(struct reader *r)
{
    const struct jinja_value *v;

    skip_space(r);
    if (r->at >= r->size)
        return bad(r, "the text ends early");
    char c = r->text[r->at];
    if (c == '"')
        return read_string(r);
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(r);
    if (c != '[' && c != '{')
        return read_word(r);
    if (r->depth == MAX_DEPTH)
        return bad(r, "too deep");
    r->depth++;
    r->at++;
    v = c == '[' ? read_list(r) : read_dict(r);
    r->depth--;
    return v;
}

const struct jinja_value *jinja_json(struct jinja_mem *m, const char *text, size_t size,
                                     struct err *err)
{
    struct reader r = { .m = m, .text = text, .size = size, .err = err };
    const struct jinja_value *v = read_value(&r);

    if (!v)
        return NULL;
    skip_space(&r);
    return r.at == size ? v : bad(&r, "more text after the value");
}
