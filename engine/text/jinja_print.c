/* Values as Python's str, repr and json.dumps spell them. */
#include "text/jinja_value.h"

#include "util/utf8.h"

#include <math.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { MAX_DEPTH = 300 };

size_t jinja_float_text(char buf[JINJA_FLOAT_TEXT], double d)
{
    char digits[32];
    int precision = 0, exponent;

    if (isnan(d) || isinf(d))
        return (size_t)snprintf(buf, JINJA_FLOAT_TEXT, "%s", isnan(d) ? "nan" : d > 0 ? "inf" : "-inf");
    /* The fewest digits that read back as the same number. */
    do
        snprintf(digits, sizeof digits, "%.*e", precision, d);
    while (strtod(digits, NULL) != d && ++precision < 17);
    exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int after = precision > exponent ? precision - exponent : 1;
        return (size_t)snprintf(buf, JINJA_FLOAT_TEXT, "%.*f", after, d);
    }
    /* "1e+22", never "1.0e+22": as C has it. */
    return (size_t)snprintf(buf, JINJA_FLOAT_TEXT, "%s", digits);
}

struct printer {
    struct jinja_writer w;
    const struct jinja_dumps *json; /* NULL: repr */
    const char **why;
    uint32_t depth;
};

static int unable(struct printer *p, const char *why)
{
    if (p->why)
        *p->why = why;
    return -1;
}

static void put(struct printer *p, const char *literal)
{
    jinja_write(&p->w, literal, strlen(literal), false);
}

static void put_number(struct printer *p, const struct jinja_value *v)
{
    char text[JINJA_FLOAT_TEXT];
    size_t n = 0;

    if (v->type == JINJA_BIG) {
        jinja_write_str(&p->w, v);
        return;
    }
    if (v->type == JINJA_INT)
        n = (size_t)snprintf(text, sizeof text, "%" PRId64, v->i);
    else if (p->json && !isfinite(v->d))
        n = (size_t)snprintf(text, sizeof text, "%s",
                             isnan(v->d) ? "NaN" : v->d > 0 ? "Infinity" : "-Infinity");
    else
        n = jinja_float_text(text, v->d);
    jinja_write_copy(&p->w, text, n, false);
}

/* ---- strings ---- */

/* What Python's repr writes as an escape. */
static bool is_printable(uint32_t cp)
{
    if (cp == ' ')
        return true;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    default:
        return true;
    }
}

/* The escape of one character, or 0 when it stands for itself. */
static size_t repr_escape(char out[16], uint32_t cp, char quote)
{
    if (cp == (unsigned char)quote || cp == '\\')
        return (size_t)snprintf(out, 16, "\\%c", (char)cp);
    if (cp == '\n' || cp == '\r' || cp == '\t')
        return (size_t)snprintf(out, 16, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
    if (is_printable(cp))
        return 0;
    return (size_t)snprintf(out, 16, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x",
                            cp);
}

static size_t json_escape(char out[16], uint32_t cp, bool ascii)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    const char *known = cp > 0 && cp < 0x80 ? strchr(from, (int)cp) : NULL;

    if (known)
        return (size_t)snprintf(out, 16, "\\%c", to[known - from]);
    if (cp < 0x20 || (ascii && cp >= 0x7f && cp < 0x10000))
        return (size_t)snprintf(out, 16, "\\u%04x", cp);
    if (ascii && cp >= 0x10000)
        return (size_t)snprintf(out, 16, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                                0xdc00 + ((cp - 0x10000) & 0x3ff));
    return 0;
}

static size_t escape_of(char out[16], uint32_t cp, char quote, const struct printer *p)
{
    return p->json ? json_escape(out, cp, p->json->ascii) : repr_escape(out, cp, quote);
}

/* What is between the quotes, in one piece: text of which every fourth byte is escaped would be
 * more pieces than text. to NULL: only its size, and whether there is an escape. */
static size_t escape_all(char *to, const char *s, size_t size, char quote, const struct printer *p,
                         bool *escaped)
{
    size_t out = 0;
    char escape[16];

    for (size_t i = 0; i < size;) {
        uint32_t cp;
        int n = utf8_next(s + i, size - i, &cp);
        size_t step = n > 0 ? (size_t)n : 1;
        size_t k = escape_of(escape, n > 0 ? cp : 0xfffd, quote, p);
        *escaped |= k > 0;
        if (to)
            memcpy(to + out, k ? escape : s + i, k ? k : step);
        out += k ? k : step;
        i += step;
    }
    return out;
}

static int put_quoted(struct printer *p, const struct jinja_value *v)
{
    const char *s = jinja_str_flat(p->w.m, v);
    bool escaped = false;
    char quote = '"';

    if (!s)
        return -1;
    if (!p->json && (!memchr(s, '\'', v->s.size) || memchr(s, '"', v->s.size)))
        quote = '\'';
    put(p, quote == '"' ? "\"" : "'");
    size_t size = escape_all(NULL, s, v->s.size, quote, p, &escaped);
    if (escaped) {
        char *text = jinja_take(p->w.m, size);
        if (!text)
            return -1;
        escape_all(text, s, v->s.size, quote, p, &escaped);
        s = text;
    }
    jinja_write(&p->w, s, size, false);
    put(p, quote == '"' ? "\"" : "'");
    return 0;
}

/* ---- containers ---- */

static int print(struct printer *p, const struct jinja_value *v);

static void put_break(struct printer *p)
{
    static const char spaces[] = "                                ";

    if (!p->json || p->json->indent < 0)
        return;
    put(p, "\n");
    for (uint64_t left = (uint64_t)p->json->indent * p->depth; left && !p->w.full;) {
        size_t n = left < sizeof spaces - 1 ? (size_t)left : sizeof spaces - 1;
        jinja_write(&p->w, spaces, n, false);
        left -= n;
    }
}

static void put_between(struct printer *p)
{
    if (p->json && p->json->item_separator)
        jinja_write_str(&p->w, p->json->item_separator);
    else
        put(p, p->json && p->json->indent >= 0 ? "," : ", ");
    put_break(p);
}

static int put_items(struct printer *p, const struct jinja_value *v, const char *open,
                     const char *close)
{
    put(p, open);
    if (v->items->n == 0) {
        put(p, close);
        return 0;
    }
    p->depth++;
    put_break(p);
    for (size_t i = 0; i < v->items->n; i++) {
        if (i)
            put_between(p);
        if (print(p, v->items->item[i]) < 0)
            return -1;
    }
    p->depth--;
    put_break(p);
    if (!p->json && v->type == JINJA_TUPLE && v->items->n == 1)
        put(p, ",");
    put(p, close);
    return 0;
}

/* JSON has string keys only, and Python makes them of what is simple. */
static int put_key(struct printer *p, const struct jinja_value *key)
{
    if (!p->json || key->type == JINJA_STR)
        return print(p, key);
    if (key->type != JINJA_BOOL && key->type != JINJA_NONE && key->type != JINJA_INT &&
        key->type != JINJA_BIG && key->type != JINJA_FLOAT)
        return unable(p, "keys must be str, int, float, bool or None");
    put(p, "\"");
    if (print(p, key) < 0)
        return -1;
    put(p, "\"");
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const struct jinja_entry *x = a, *y = b;

    return jinja_compare(NULL, x->key, y->key, &(struct jinja_effort){ 0 }); /* texts */
}

static const struct jinja_entry *entries_of(struct printer *p, const struct jinja_map *map)
{
    if (!p->json || !p->json->sort_keys)
        return map->entry;
    struct jinja_entry *sorted = jinja_take(p->w.m, map->n * sizeof *sorted);
    if (!sorted)
        return NULL;
    for (size_t i = 0; i < map->n; i++) {
        if (map->entry[i].key->type != JINJA_STR || map->entry[i].key->s.n > 1)
            return NULL;
        sorted[i] = map->entry[i];
    }
    qsort(sorted, map->n, sizeof *sorted, by_key);
    return sorted;
}

static int put_map(struct printer *p, const struct jinja_map *map)
{
    const struct jinja_entry *entry = map->n ? entries_of(p, map) : NULL;

    put(p, "{");
    if (map->n == 0) {
        put(p, "}");
        return 0;
    }
    if (!entry)
        return unable(p, "keys that cannot be sorted");
    p->depth++;
    put_break(p);
    for (size_t i = 0; i < map->n; i++) {
        if (i)
            put_between(p);
        if (put_key(p, entry[i].key) < 0)
            return -1;
        if (p->json && p->json->key_separator)
            jinja_write_str(&p->w, p->json->key_separator);
        else
            put(p, ": ");
        if (print(p, entry[i].value) < 0)
            return -1;
    }
    p->depth--;
    put_break(p);
    put(p, "}");
    return 0;
}

static int print(struct printer *p, const struct jinja_value *v)
{
    if (p->w.full)
        return -1;
    if (p->depth > MAX_DEPTH)
        return unable(p, "a value that is too deep");
    switch (v->type) {
    case JINJA_NONE:
        put(p, p->json ? "null" : "None");
        return 0;
    case JINJA_BOOL:
        put(p, p->json ? (v->on ? "true" : "false") : (v->on ? "True" : "False"));
        return 0;
    case JINJA_INT:
    case JINJA_BIG:
    case JINJA_FLOAT:
        put_number(p, v);
        return 0;
    case JINJA_STR:
        return put_quoted(p, v);
    case JINJA_LIST:
        return put_items(p, v, "[", "]");
    case JINJA_TUPLE:
        return p->json ? put_items(p, v, "[", "]") : put_items(p, v, "(", ")");
    case JINJA_DICT:
        return put_map(p, v->map);
    case JINJA_UNDEFINED:
        if (!p->json) {
            put(p, "Undefined");
            return 0;
        }
        break;
    default:
        break;
    }
    return unable(p, p->json ? "a value that JSON does not have" : "a value without a spelling");
}

const struct jinja_value *jinja_to_str(struct jinja_mem *m, const struct jinja_value *v,
                                       const char **why)
{
    struct printer p = { .w = { .m = m }, .why = why };

    *why = NULL;
    if (v->type == JINJA_STR)
        return v;
    if (v->type == JINJA_UNDEFINED)
        return jinja_str(m, "", 0, true);
    return print(&p, v) < 0 ? NULL : jinja_written(&p.w);
}

const struct jinja_value *jinja_to_json(struct jinja_mem *m, const struct jinja_value *v,
                                        const struct jinja_dumps *how, const char **why)
{
    struct printer p = { .w = { .m = m }, .json = how, .why = why };

    *why = NULL;
    return print(&p, v) < 0 ? NULL : jinja_written(&p.w);
}
