#include "text/reader.h"

#include "text/nfc.h"
#include "text/tokenizer.h"
#include "util/err.h"
#include "util/utf8.h"

#include <string.h>

/* ---- places ---- */

struct place place_at(const struct text_run *runs, size_t n_runs, size_t run, size_t at)
{
    while (run < n_runs && at >= runs[run].size) {
        at -= runs[run].size;
        run++;
    }
    return (struct place){ run, run < n_runs ? at : 0 };
}

bool place_before(struct place a, struct place b)
{
    return a.run < b.run || (a.run == b.run && a.at < b.at);
}

/* ---- characters ---- */

static int put_replacement(struct reader *r, struct err *err)
{
    return bytes_put(&r->held, "\xef\xbf\xbd", 3, err);
}

/* How many bytes at the beginning are whole characters. */
static size_t whole(const char *text, size_t size)
{
    size_t at = 0;

    while (at < size) {
        int length = (unsigned char)text[at] < 0x80 ? 1 : utf8_next(text + at, size - at, NULL);
        if (length <= 0)
            break;
        at += (size_t)length;
    }
    return at;
}

/* The character that began before, or U+FFFD for what began; *used of the bytes go with it. */
static int finish_cut(struct reader *r, const char *text, size_t size, size_t *used,
                      struct err *err)
{
    char all[sizeof r->cut * 2];
    size_t n = size < sizeof r->cut ? size : sizeof r->cut, cut = r->n_cut;

    memcpy(all, r->cut, cut);
    memcpy(all + cut, text, n);
    int length = utf8_next(all, cut + n, NULL);
    if (length == 0) { /* still not whole: n is all there is */
        memcpy(r->cut + cut, text, n);
        r->n_cut += n;
        *used = n;
        return 0;
    }
    size_t taken = length > 0 ? (size_t)length : utf8_bad(all, cut + n);
    /* What began was good as far as it went, so it is never less that is taken. */
    *used = taken - cut;
    r->n_cut = 0;
    return length > 0 ? bytes_put(&r->held, all, taken, err) : put_replacement(r, err);
}

/* Bytes of one run into held, mended. */
static int take(struct reader *r, const char *text, size_t size, struct err *err)
{
    size_t at = 0;

    if (r->n_cut && size && finish_cut(r, text, size, &at, err) < 0)
        return -1;
    while (at < size) {
        size_t good = whole(text + at, size - at);
        if (bytes_put(&r->held, text + at, good, err) < 0)
            return -1;
        at += good;
        if (at == size)
            break;
        if (utf8_next(text + at, size - at, NULL) == 0) {
            r->n_cut = size - at;
            memcpy(r->cut, text + at, r->n_cut);
            break;
        }
        at += utf8_bad(text + at, size - at);
        if (put_replacement(r, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- portions ---- */

/* Gives the first n bytes of what is held. */
static int give(struct reader *r, size_t n, struct bytes *out, struct err *err)
{
    if (n == 0)
        return 0;
    bool change = r->nfc && nfc_may_change(r->held.at, n);
    int rc = change ? nfc_append(out, r->held.at, n, err) : bytes_put(out, r->held.at, n, err);
    if (rc < 0)
        return -1;
    r->held.size -= n;
    memmove(r->held.at, r->held.at + n, r->held.size);
    r->searched = 0;
    return 0;
}

void reader_init(struct reader *r, const struct text_run *runs, size_t n_runs, bool nfc)
{
    *r = (struct reader){ .runs = runs, .n_runs = n_runs, .nfc = nfc };
    r->at = place_at(runs, n_runs, 0, 0);
}

int reader_next(struct reader *r, struct place limit, bool ends, size_t most, struct bytes *out,
                bool *more, struct err *err)
{
    while (most > 0 && place_before(r->at, limit)) {
        const struct text_run *run = &r->runs[r->at.run];
        size_t until = r->at.run == limit.run ? limit.at : run->size;
        size_t n = until - r->at.at < most ? until - r->at.at : most;
        if (take(r, run->bytes + r->at.at, n, err) < 0)
            return -1;
        r->at = place_at(r->runs, r->n_runs, r->at.run, r->at.at + n);
        most -= n;
    }
    *more = place_before(r->at, limit);
    if (ends && !*more) {
        if (r->n_cut && put_replacement(r, err) < 0)
            return -1;
        r->n_cut = 0;
        return give(r, r->held.size, out, err);
    }
    if (!r->nfc)
        return give(r, r->held.size, out, err);
    size_t border = nfc_border(r->held.at, r->searched, r->held.size);
    if (border > 0)
        return give(r, border, out, err);
    r->searched = r->held.size;
    return 0;
}

void reader_move(struct reader *r, struct place to)
{
    r->at = to;
    r->n_cut = 0;
    r->held.size = 0;
    r->searched = 0;
}

uint64_t reader_memory(const struct reader *r)
{
    return r->held.cap;
}

void reader_done(struct reader *r)
{
    bytes_done(&r->held);
}
