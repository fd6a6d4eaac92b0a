/* Strings as rows of segments. Segments are cut between characters only where the text is: what
 * comes in is valid UTF-8, and parts are taken at borders of characters. */
#include "text/jinja_value.h"

#include "util/utf8.h"

#include <string.h>

static const struct jinja_value empty = { .type = JINJA_STR };

const struct jinja_value *jinja_str(struct jinja_mem *m, const char *bytes, size_t size,
                                    bool trusted)
{
    if (size == 0)
        return &empty;
    struct jinja_value *v = jinja_new(m, JINJA_STR);
    struct text_run *seg = jinja_take(m, sizeof *seg);
    if (!v || !seg)
        return NULL;
    *seg = (struct text_run){ bytes, size, trusted };
    v->s = (struct jinja_str){ .size = size, .n = 1, .seg = seg };
    return v;
}

/* A row that ends with these segments and has room for more. */
static struct jinja_row *row_of(struct jinja_mem *m, const struct jinja_str *s, size_t more)
{
    if (s->row && s->seg == s->row->seg && s->n == s->row->n && more <= s->row->cap - s->row->n)
        return s->row;
    struct jinja_row *row = jinja_take(m, sizeof *row);
    size_t cap = s->n + more < 4 ? 4 : 2 * (s->n + more);
    if (!row)
        return NULL;
    row->seg = jinja_take(m, cap * sizeof *row->seg);
    if (!row->seg)
        return NULL;
    if (s->n)
        memcpy(row->seg, s->seg, s->n * sizeof *row->seg);
    row->n = s->n;
    row->cap = cap;
    return row;
}

const struct jinja_value *jinja_str_join(struct jinja_mem *m, const struct jinja_value *a,
                                         const struct jinja_value *b)
{
    if (!a || !b)
        return NULL;
    if (a->s.size == 0 || b->s.size == 0)
        return a->s.size == 0 ? b : a;
    struct jinja_row *row = row_of(m, &a->s, b->s.n);
    struct jinja_value *v = jinja_new(m, JINJA_STR);
    if (!row || !v)
        return NULL;
    memcpy(row->seg + row->n, b->s.seg, b->s.n * sizeof *row->seg);
    row->n += b->s.n;
    v->s = (struct jinja_str){ .size = a->s.size + b->s.size, .n = row->n, .seg = row->seg,
                               .row = row };
    return v;
}

const struct jinja_value *jinja_str_part(struct jinja_mem *m, const struct jinja_value *s,
                                         size_t from, size_t to)
{
    if (from == 0 && to == s->s.size)
        return s;
    if (from >= to)
        return &empty;
    struct jinja_writer w = { .m = m };
    size_t at = 0;
    for (size_t i = 0; i < s->s.n && at < to; i++) {
        const struct text_run *seg = &s->s.seg[i];
        size_t begin = from > at ? from - at : 0;
        size_t end = to - at < seg->size ? to - at : seg->size;
        if (begin < end)
            jinja_write(&w, seg->bytes + begin, end - begin, seg->trusted);
        at += seg->size;
    }
    return jinja_written(&w);
}

const char *jinja_str_flat(struct jinja_mem *m, const struct jinja_value *s)
{
    if (s->s.n == 0)
        return "";
    if (s->s.n == 1)
        return s->s.seg[0].bytes;
    char *flat = jinja_take(m, s->s.size);
    for (size_t i = 0, at = 0; flat && i < s->s.n; at += s->s.seg[i++].size)
        memcpy(flat + at, s->s.seg[i].bytes, s->s.seg[i].size);
    return flat;
}

bool jinja_str_equal(const struct jinja_value *a, const struct jinja_value *b)
{
    size_t i = 0, j = 0, in_a = 0, in_b = 0;

    if (a->s.size != b->s.size)
        return false;
    while (i < a->s.n && j < b->s.n) {
        size_t left_a = a->s.seg[i].size - in_a, left_b = b->s.seg[j].size - in_b;
        size_t n = left_a < left_b ? left_a : left_b;
        if (memcmp(a->s.seg[i].bytes + in_a, b->s.seg[j].bytes + in_b, n) != 0)
            return false;
        in_a += n;
        in_b += n;
        if (in_a == a->s.seg[i].size) {
            i++;
            in_a = 0;
        }
        if (in_b == b->s.seg[j].size) {
            j++;
            in_b = 0;
        }
    }
    return true;
}

bool jinja_str_is(const struct jinja_value *v, const char *literal)
{
    struct text_run run = { literal, strlen(literal), true };
    struct jinja_value other = { .type = JINJA_STR, .s = { .size = run.size, .n = run.size != 0,
                                                           .seg = &run } };

    return v->type == JINJA_STR && jinja_str_equal(v, &other);
}

size_t jinja_str_length(const struct jinja_value *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->s.n; i++)
        for (size_t j = 0; j < s->s.seg[i].size; j++)
            n += ((unsigned char)s->s.seg[i].bytes[j] & 0xc0) != 0x80;
    return n;
}

bool jinja_is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

/* Whether the character at s is one of chars; *size is its length. */
static bool strips(const char *s, size_t left, const char *chars, size_t n_chars, size_t *size)
{
    uint32_t cp = 0, other;
    int n = utf8_next(s, left, &cp), k;

    *size = n > 0 ? (size_t)n : 1;
    if (!chars)
        return n > 0 && jinja_is_space(cp);
    for (size_t i = 0; i < n_chars; i += k > 0 ? (size_t)k : 1) {
        k = utf8_next(chars + i, n_chars - i, &other);
        if (k > 0 && n > 0 && other == cp)
            return true;
    }
    return false;
}

const struct jinja_value *jinja_str_strip(struct jinja_mem *m, const struct jinja_value *s,
                                          bool left, bool right, const struct jinja_value *chars)
{
    const char *set = chars ? jinja_str_flat(m, chars) : NULL;
    size_t n_set = chars ? chars->s.size : 0, from = 0, to = s->s.size, size;

    if (chars && !set)
        return NULL;
    for (size_t i = 0; left && i < s->s.n; i++) {
        const struct text_run *seg = &s->s.seg[i];
        size_t at = 0;
        while (at < seg->size && strips(seg->bytes + at, seg->size - at, set, n_set, &size))
            at += size;
        from += at;
        if (at < seg->size)
            break;
    }
    for (size_t i = s->s.n; right && i > 0 && to > from; i--) {
        const struct text_run *seg = &s->s.seg[i - 1];
        size_t at = seg->size;
        while (at > 0) {
            size_t begin = at - 1;
            while (begin > 0 && ((unsigned char)seg->bytes[begin] & 0xc0) == 0x80)
                begin--;
            if (!strips(seg->bytes + begin, at - begin, set, n_set, &size))
                break;
            at = begin;
        }
        to -= seg->size - at;
        if (at > 0)
            break;
    }
    return jinja_str_part(m, s, from, to < from ? from : to);
}

/* ---- writing ---- */

void jinja_write(struct jinja_writer *w, const char *bytes, size_t size, bool trusted)
{
    if (size == 0 || w->full)
        return;
    if (w->cap && size > w->cap - w->size) {
        w->full = true;
        return;
    }
    w->size += size;
    if (w->row && w->row->n > 0) {
        struct text_run *last = &w->row->seg[w->row->n - 1];
        if (last->trusted == trusted && last->bytes + last->size == bytes) {
            last->size += size;
            return;
        }
    }
    if (!w->row || w->row->n == w->row->cap) {
        struct jinja_str have = { 0 };
        if (w->row)
            have = (struct jinja_str){ .n = w->row->n, .seg = w->row->seg };
        w->row = row_of(w->m, &have, 1);
        if (!w->row) {
            w->full = true;
            return;
        }
    }
    w->row->seg[w->row->n++] = (struct text_run){ bytes, size, trusted };
}

void jinja_write_copy(struct jinja_writer *w, const char *bytes, size_t size, bool trusted)
{
    if (size == 0 || w->full)
        return;
    char *copy = jinja_take(w->m, size);
    if (!copy) {
        w->full = true;
        return;
    }
    memcpy(copy, bytes, size);
    jinja_write(w, copy, size, trusted);
}

void jinja_write_str(struct jinja_writer *w, const struct jinja_value *s)
{
    for (size_t i = 0; i < s->s.n; i++)
        jinja_write(w, s->s.seg[i].bytes, s->s.seg[i].size, s->s.seg[i].trusted);
}

const struct jinja_value *jinja_written(struct jinja_writer *w)
{
    if (w->full)
        return NULL;
    if (w->size == 0)
        return &empty;
    struct jinja_value *v = jinja_new(w->m, JINJA_STR);
    if (v)
        v->s = (struct jinja_str){ .size = w->size, .n = w->row->n, .seg = w->row->seg,
                                   .row = w->row };
    return v;
}
