#include "text/jinja_text.h"

#include "text/jinja_run.h"
#include "util/utf8.h"

#include <string.h>
#include <utf8proc.h>

/* ---- cutting ---- */

static int add_part(struct jinja_run *r, struct jinja_items *items, const struct jinja_value *s,
                    size_t from, size_t to)
{
    if (jinja_items_add(r->m, items, jinja_str_part(r->m, s, from, to)) == 0)
        return 0;
    jinja_fail_memory(r);
    return -1;
}

static void turn(struct jinja_items *items)
{
    for (size_t i = 0; i < items->n / 2; i++) {
        const struct jinja_value *v = items->item[i];
        items->item[i] = items->item[items->n - 1 - i];
        items->item[items->n - 1 - i] = v;
    }
}

/* The white space that begins at `at`: its bytes. */
static size_t space_at(const char *s, size_t at, size_t size)
{
    size_t from = at;
    uint32_t cp;
    int n;

    while (at < size && (n = utf8_next(s + at, size - at, &cp)) > 0 && jinja_is_space(cp))
        at += (size_t)n;
    return at - from;
}

static size_t word_at(const char *s, size_t at, size_t size)
{
    size_t from = at;
    uint32_t cp;

    while (at < size) {
        int n = utf8_next(s + at, size - at, &cp);
        if (n > 0 && jinja_is_space(cp))
            break;
        at += n > 0 ? (size_t)n : 1;
    }
    return at - from;
}

static const struct jinja_value *split_words(struct jinja_run *r, const struct jinja_value *s,
                                             int64_t most, bool from_right)
{
    const char *flat = jinja_str_flat(r->m, s);
    struct jinja_items *items;
    const struct jinja_value *out = jinja_new_items(r, JINJA_LIST, &items);
    size_t size = s->s.size, at = 0;

    if (!flat || !out)
        return jinja_fail_memory(r);
    if (from_right && most >= 0)
        return jinja_fail_unbuilt(r, "rsplit at white space with a limit");
    for (at = space_at(flat, 0, size); at < size; at += space_at(flat, at, size)) {
        if (most >= 0 && (int64_t)items->n == most) {
            const struct jinja_value *rest = jinja_str_part(r->m, s, at, size);
            rest = rest ? jinja_str_strip(r->m, rest, false, true, NULL) : NULL;
            return jinja_items_add(r->m, items, rest) < 0 ? jinja_fail_memory(r) : out;
        }
        size_t n = word_at(flat, at, size);
        if (add_part(r, items, s, at, at + n) < 0)
            return NULL;
        at += n;
    }
    return out;
}

const struct jinja_value *jinja_text_split(struct jinja_run *r, const struct jinja_value *s,
                                           const struct jinja_value *by, int64_t most,
                                           bool from_right)
{
    if (!by)
        return split_words(r, s, most, from_right);
    if (by->s.size == 0)
        return jinja_fail(r, "empty separator");
    if (from_right && jinja_work(r, s->s.size, by->s.size) < 0)
        return NULL;

    const char *flat = jinja_str_flat(r->m, s), *sep = jinja_str_flat(r->m, by), *found;
    struct jinja_items *items;
    const struct jinja_value *out = jinja_new_items(r, JINJA_LIST, &items);
    size_t n = by->s.size, from = 0, to = s->s.size;

    if (!flat || !sep || !out)
        return jinja_fail_memory(r);
    if (!from_right) {
        while ((most < 0 || (int64_t)items->n < most) &&
               (found = memmem(flat + from, to - from, sep, n))) {
            if (add_part(r, items, s, from, (size_t)(found - flat)) < 0)
                return NULL;
            from = (size_t)(found - flat) + n;
        }
        return add_part(r, items, s, from, to) < 0 ? NULL : out;
    }
    for (size_t at = to; at >= n && (most < 0 || (int64_t)items->n < most);) {
        if (memcmp(flat + at - n, sep, n) != 0) {
            at--;
            continue;
        }
        if (add_part(r, items, s, at, to) < 0)
            return NULL;
        to = at - n;
        at = to;
    }
    if (add_part(r, items, s, 0, to) < 0)
        return NULL;
    turn(items);
    return out;
}

/* Bytes of the end of line at `at`, as Python's splitlines knows them; 0: none. */
static size_t line_end(const char *s, size_t at, size_t size)
{
    uint32_t cp;
    int n = utf8_next(s + at, size - at, &cp);

    if (n <= 0)
        return 0;
    if (cp == '\r' && at + 1 < size && s[at + 1] == '\n')
        return 2;
    return (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
                   cp == 0x2029
               ? (size_t)n
               : 0;
}

const struct jinja_value *jinja_text_lines(struct jinja_run *r, const struct jinja_value *s,
                                           bool keep_ends)
{
    const char *flat = jinja_str_flat(r->m, s);
    struct jinja_items *items;
    const struct jinja_value *out = jinja_new_items(r, JINJA_LIST, &items);
    size_t from = 0, at = 0;

    if (!flat || !out)
        return jinja_fail_memory(r);
    while (at < s->s.size) {
        size_t n = line_end(flat, at, s->s.size);
        if (n == 0) {
            int k = utf8_next(flat + at, s->s.size - at, NULL);
            at += k > 0 ? (size_t)k : 1;
            continue;
        }
        if (add_part(r, items, s, from, at + (keep_ends ? n : 0)) < 0)
            return NULL;
        from = at += n;
    }
    if (from < s->s.size && add_part(r, items, s, from, s->s.size) < 0)
        return NULL;
    return out;
}

/* ---- putting together ---- */

const struct jinja_value *jinja_text_join(struct jinja_run *r, const struct jinja_items *items,
                                          const struct jinja_value *between)
{
    struct jinja_writer w = { .m = r->m };

    for (size_t i = 0; i < items->n; i++) {
        if (i)
            jinja_write_str(&w, between);
        jinja_write_str(&w, items->item[i]);
    }
    return jinja_made(r, jinja_written(&w));
}

/* Python puts it between all characters, and at both ends. */
static const struct jinja_value *replace_nothing(struct jinja_run *r, const struct jinja_value *s,
                                                 const struct jinja_value *by, int64_t most)
{
    const struct jinja_items *all = jinja_walked(r, s);
    struct jinja_writer w = { .m = r->m };

    if (!all)
        return NULL;
    for (size_t i = 0; i <= all->n; i++) {
        if (most < 0 || (int64_t)i < most)
            jinja_write_str(&w, by);
        if (i < all->n)
            jinja_write_str(&w, all->item[i]);
    }
    return jinja_made(r, jinja_written(&w));
}

const struct jinja_value *jinja_text_replace(struct jinja_run *r, const struct jinja_value *s,
                                             const struct jinja_value *from,
                                             const struct jinja_value *to, int64_t most)
{
    if (from->s.size == 0)
        return replace_nothing(r, s, to, most);
    const struct jinja_value *parts = jinja_text_split(r, s, from, most, false);
    return parts ? jinja_text_join(r, parts->items, to) : NULL;
}

/* ---- letters ---- */

static bool is_cased(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

/* One to one, which leaves out what few letters become two ("ß" stays as it is). */
static uint32_t mapped(uint32_t cp, bool upper)
{
    return (uint32_t)(upper ? utf8proc_toupper((utf8proc_int32_t)cp)
                            : utf8proc_tolower((utf8proc_int32_t)cp));
}

const struct jinja_value *jinja_text_case(struct jinja_run *r, const struct jinja_value *s,
                                          enum jinja_case as)
{
    struct jinja_writer w = { .m = r->m };
    bool first = true, in_word = false;

    for (size_t i = 0; i < s->s.n; i++) {
        const struct text_run *seg = &s->s.seg[i];
        /* A letter may grow from two bytes to three. */
        char *out = jinja_take(r->m, 2 * seg->size);
        size_t size = 0;
        if (!out)
            return jinja_fail_memory(r);
        for (size_t at = 0; at < seg->size;) {
            uint32_t cp;
            int n = utf8_next(seg->bytes + at, seg->size - at, &cp);
            if (n <= 0) {
                out[size++] = seg->bytes[at++];
                continue;
            }
            bool upper = as == CASE_UPPER || (as == CASE_TITLE && !in_word) ||
                         (as == CASE_FIRST && first);
            size += utf8_put(out + size, mapped(cp, upper));
            in_word = is_cased(cp);
            first = false;
            at += (size_t)n;
        }
        jinja_write(&w, out, size, seg->trusted);
    }
    return jinja_made(r, jinja_written(&w));
}

int64_t jinja_text_find(struct jinja_run *r, const struct jinja_value *s,
                        const struct jinja_value *what, bool last)
{
    const char *flat = jinja_str_flat(r->m, s), *sub = jinja_str_flat(r->m, what);
    size_t n = what->s.size, size = s->s.size, at = SIZE_MAX;

    if (!flat || !sub || n > size)
        return -1;
    if (n == 0) {
        at = last ? size : 0;
    } else if (last) {
        for (size_t i = size - n + 1; i > 0 && at == SIZE_MAX; i--)
            if (memcmp(flat + i - 1, sub, n) == 0)
                at = i - 1;
    } else {
        const char *found = memmem(flat, size, sub, n);
        at = found ? (size_t)(found - flat) : SIZE_MAX;
    }
    if (at == SIZE_MAX)
        return -1;
    const struct jinja_value *before = jinja_str_part(r->m, s, 0, at);
    return before ? (int64_t)jinja_str_length(before) : -1;
}

static bool in_class(uint32_t cp, enum jinja_class of)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    bool alpha = c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL ||
                 c == UTF8PROC_CATEGORY_LT || c == UTF8PROC_CATEGORY_LM ||
                 c == UTF8PROC_CATEGORY_LO;

    switch (of) {
    case CLASS_SPACE:
        return jinja_is_space(cp);
    case CLASS_ALPHA:
        return alpha;
    case CLASS_DIGIT:
        return c == UTF8PROC_CATEGORY_ND;
    case CLASS_ALNUM:
        return alpha || c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL ||
               c == UTF8PROC_CATEGORY_NO;
    }
    return false;
}

bool jinja_text_all(struct jinja_run *r, const struct jinja_value *s, enum jinja_class of)
{
    const char *flat = jinja_str_flat(r->m, s);

    if (!flat || s->s.size == 0)
        return false;
    for (size_t at = 0; at < s->s.size;) {
        uint32_t cp;
        int n = utf8_next(flat + at, s->s.size - at, &cp);
        if (n <= 0 || !in_class(cp, of))
            return false;
        at += (size_t)n;
    }
    return true;
}
