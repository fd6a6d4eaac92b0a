/* utf8proc decomposes, knows the classes and composes. Sorting marks is done here, because
 * utf8proc exchanges neighbours, which a long run of marks makes quadratic. */
#include "text/nfc.h"

#include "text/bytes.h"
#include "text/unicode_tables.h"
#include "util/err.h"
#include "util/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Everything below U+0300 is in NFC, is a starter and never joins the character before it.
 * U+0300 is CC 80, and continuation bytes are smaller than CC. */
#define FIRST_LEAD 0xcc

struct code_points {
    int32_t *at; /* owned */
    size_t n, cap;
    int32_t *sorted; /* owned; as large as the longest run of marks so far */
    size_t sorted_cap;
};

bool nfc_may_change(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] >= FIRST_LEAD)
            return true;
    return false;
}

static unsigned combining_class(int32_t cp)
{
    return (unsigned)utf8proc_get_property(cp)->combining_class & 0xff;
}

static int put_decomposed(struct code_points *list, uint32_t cp, struct err *err)
{
    enum { LONGEST = 8 }; /* the longest canonical decomposition has 4 */

    if (list->cap - list->n < LONGEST) {
        size_t cap = list->cap * 2 + LONGEST;
        int32_t *at = realloc(list->at, cap * sizeof *at);
        if (!at)
            return err_set(err, ERR_NOMEM, "%zu characters to normalise", cap);
        list->at = at;
        list->cap = cap;
    }

    utf8proc_ssize_t got = utf8proc_decompose_char((int32_t)cp, list->at + list->n, LONGEST,
                                                   UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, NULL);
    if (got < 0 || got > LONGEST)
        return err_set(err, ERR_INPUT, "utf8proc cannot decompose U+%04X", cp);
    list->n += (size_t)got;
    return 0;
}

/* Sorts n marks by class and keeps the order of equal ones. */
static int sort_marks(struct code_points *list, int32_t *marks, size_t n, struct err *err)
{
    size_t begin[257] = { 0 };
    bool sorted = true;

    for (size_t i = 0; i < n; i++) {
        begin[combining_class(marks[i]) + 1]++;
        sorted = sorted && (i == 0 || combining_class(marks[i - 1]) <= combining_class(marks[i]));
    }
    if (sorted)
        return 0;
    if (list->sorted_cap < n) {
        int32_t *more = realloc(list->sorted, n * sizeof *more);
        if (!more)
            return err_set(err, ERR_NOMEM, "%zu combining marks to sort", n);
        list->sorted = more;
        list->sorted_cap = n;
    }
    for (int class = 0; class < 256; class++)
        begin[class + 1] += begin[class];
    for (size_t i = 0; i < n; i++)
        list->sorted[begin[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, list->sorted, n * sizeof *marks);
    return 0;
}

/* Normalises what was gathered and empties the list. */
static int flush(struct bytes *out, struct code_points *list, struct err *err)
{
    for (size_t i = 0; i < list->n;) {
        size_t end = i;
        while (end < list->n && combining_class(list->at[end]) != 0)
            end++;
        if (end > i + 1 && sort_marks(list, list->at + i, end - i, err) < 0)
            return -1;
        i = end > i ? end : i + 1;
    }

    utf8proc_ssize_t n = utf8proc_normalize_utf32(list->at, (utf8proc_ssize_t)list->n,
                                                  UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (n < 0)
        return err_set(err, ERR_INPUT, "utf8proc cannot compose: %s", utf8proc_errmsg(n));
    if (bytes_reserve(out, (size_t)n * 4, err) < 0)
        return -1;
    for (utf8proc_ssize_t i = 0; i < n; i++)
        out->size += utf8_put(out->at + out->size, (uint32_t)list->at[i]);
    list->n = 0;
    return 0;
}

/* Characters that nothing joins or passes, and that utf8proc would treat otherwise: younger than
 * the reference's Unicode, or U+11A7, which utf8proc 2.8 swallows behind a Hangul syllable. */
static bool stands_alone(uint32_t cp)
{
    return cp == 0x11a7 || unicode_unknown_to_nfc(cp);
}

/* Whether cp never joins a character before it, nor passes one. What does so are combining
 * marks, and vowels and finals of Hangul. */
static bool is_border(uint32_t cp)
{
    if (cp < 0x300)
        return true;
    return unicode_class(cp) != UNICODE_M && (cp < 0x1160 || cp > 0x11ff) &&
           combining_class((int32_t)cp) == 0;
}

size_t nfc_border(const char *text, size_t from, size_t size)
{
    while (size > from) {
        size_t at = size - 1;
        uint32_t cp = 0;
        while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
            at--;
        if (at < from)
            return 0;
        if (utf8_next(text + at, size - at, &cp) > 0 && is_border(cp))
            return at;
        size = at;
    }
    return 0;
}

/* Longer stretches are cut at the next border, for the memory they take. */
enum { LONG_STRETCH = 512 };

/* The end of a stretch that begins at `begin` and can be normalised by itself: before the next
 * character below U+0300, one that stands alone, or a border. */
static int gather(struct code_points *list, const char *text, size_t size, size_t begin,
                  size_t *end, struct err *err)
{
    size_t at = begin;

    while (at < size) {
        uint32_t cp = 0;
        int length = utf8_next(text + at, size - at, &cp);
        if (length <= 0)
            return err_set(err, ERR_INPUT, "invalid UTF-8 at byte %zu", at);
        if (at > begin && cp < 0x300)
            break;
        if (cp >= 0x300 && stands_alone(cp))
            break;
        if (list->n >= LONG_STRETCH && is_border(cp))
            break;
        if (put_decomposed(list, cp, err) < 0)
            return -1;
        at += (size_t)length;
    }
    *end = at;
    return 0;
}

static int append_all(struct bytes *out, struct code_points *list, const char *text, size_t size,
                      struct err *err)
{
    size_t copied = 0, at = 0;

    while (at < size) {
        size_t begin = at, end = 0;
        if ((unsigned char)text[at] < FIRST_LEAD) {
            /* This may be the base of a mark, so it belongs to the stretch that follows. */
            at++;
            while (at < size && ((unsigned char)text[at] & 0xc0) == 0x80)
                at++;
            if (at == size || (unsigned char)text[at] < FIRST_LEAD)
                continue;
        }
        if (bytes_put(out, text + copied, begin - copied, err) < 0 ||
            gather(list, text, size, begin, &end, err) < 0 || flush(out, list, err) < 0)
            return -1;
        copied = end;
        at = end;
        uint32_t cp = 0;
        int length = end < size ? utf8_next(text + end, size - end, &cp) : 0;
        if (length > 0 && cp >= 0x300 && stands_alone(cp)) {
            /* Copied as it is. */
            at += (size_t)length;
            if (bytes_put(out, text + copied, at - copied, err) < 0)
                return -1;
            copied = at;
        }
    }
    return bytes_put(out, text + copied, size - copied, err);
}

int nfc_append(struct bytes *out, const char *text, size_t size, struct err *err)
{
    struct code_points list = { 0 };
    int rc = size ? append_all(out, &list, text, size, err) : 0;

    free(list.at);
    free(list.sorted);
    return rc;
}
