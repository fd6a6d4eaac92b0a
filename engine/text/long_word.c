/* Why windows give the same tokens. Let u and v be two texts with BPE(u) = (..., x) and
 * BPE(v) = (y, ...). If BPE(xy) = (x, y), then BPE(uv) = BPE(u) BPE(v). For merging uv does, as
 * long as it has crossed no border, within any stretch between two borders of tokens exactly
 * what merging that stretch alone does, in the same order: the best pair of the whole is the
 * best of its stretch. So the first pair that is merged across the border of u and v would be
 * merged when x and y are merged by themselves, and there it is not.
 *
 * And what BPE gives for a text, it gives in part for each stretch between two of its borders. So
 * of a window's tokens all but the last few are kept; the next window begins at their end, and
 * when it begins with the token that was expected there, or passes the test above, both fit
 * together. When they do not, some tokens are taken back and the window grows at both ends. */
#include "text/long_word.h"

#include "text/vocab.h"
#include "util/err.h"

#include <string.h>

/* The end of a text changes the tokens before it. This share of a window is merged again in the
 * next one. */
enum { OVERLAP = 4 };

void long_word_begin(struct long_word *w, const struct ids *out)
{
    w->text.size = 0;
    w->expected = BPE_NONE;
    w->first = out->n;
    w->wants = LONG_WORD_WINDOW;
    w->n_retreats = 0;
}

size_t long_word_wants(const struct long_word *w)
{
    return w->wants > w->text.size ? w->wants - w->text.size : 0;
}

int long_word_put(struct long_word *w, const char *bytes, size_t size, struct err *err)
{
    return bytes_put(&w->text, bytes, size, err);
}

static int grow(struct long_word *w, size_t wants, struct err *err)
{
    if (wants > BPE_MOST || w->text.size > BPE_MOST)
        return err_set(err, ERR_UNSUPPORTED, "a word whose tokens hang together over more than "
                                             "%d bytes", BPE_MOST);
    w->wants = wants;
    return 1;
}

/* Whether token x before the border stays apart from y behind it. Uses the end of found. */
static int fits(struct long_word *w, const struct vocab *v, uint32_t x, uint32_t y,
                struct bpe_scratch *scratch, struct err *err)
{
    const struct piece *left = &v->pieces[x], *right = &v->pieces[y];
    size_t n = w->found.n;

    w->pair.size = 0;
    if (left->size + right->size > BPE_MOST)
        return 0;
    if (bytes_put(&w->pair, v->bytes + left->at, left->size, err) < 0 ||
        bytes_put(&w->pair, v->bytes + right->at, right->size, err) < 0 ||
        bpe_encode(&v->bpe, w->pair.at, w->pair.size, scratch, &w->found, err) < 0)
        return -1;
    int same = w->found.n == n + 2 && w->found.id[n] == x && w->found.id[n + 1] == y;
    w->found.n = n;
    return same;
}

/* Takes back twice as many tokens each time. */
static int retreat(struct long_word *w, const struct vocab *v, struct ids *out, struct err *err)
{
    size_t n = out->n - w->first, more = (size_t)1 << w->n_retreats++, size = 0;

    n = n < more ? n : more;
    for (size_t i = 0; i < n; i++)
        size += v->pieces[out->id[out->n - 1 - i]].size;
    if (bytes_reserve(&w->text, size, err) < 0)
        return -1;
    memmove(w->text.at + size, w->text.at, w->text.size);
    w->text.size += size;
    for (size_t i = 0; i < n; i++) {
        const struct piece *piece = &v->pieces[out->id[--out->n]];
        size -= piece->size;
        memcpy(w->text.at + size, v->bytes + piece->at, piece->size);
    }
    w->expected = out->n == w->first ? BPE_NONE : out->id[out->n];
    return grow(w, w->text.size + LONG_WORD_WINDOW, err);
}

static int keep(struct ids *out, const struct ids *found, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids_put(out, found->id[i], err) < 0)
            return -1;
    return 0;
}

int long_word_step(struct long_word *w, const struct vocab *v, struct bpe_scratch *scratch,
                   bool last, struct ids *out, struct err *err)
{
    size_t n = 0, at = 0;
    int fit = 1;

    w->found.n = 0;
    if (bpe_encode(&v->bpe, w->text.at, w->text.size, scratch, &w->found, err) < 0)
        return -1;
    if (out->n > w->first && w->found.id[0] != w->expected)
        fit = fits(w, v, out->id[out->n - 1], w->found.id[0], scratch, err);
    if (fit <= 0)
        return fit < 0 ? -1 : retreat(w, v, out, err);
    if (last)
        return keep(out, &w->found, w->found.n, err);

    size_t until = w->text.size - w->text.size / OVERLAP;
    while (n + 1 < w->found.n && at < until)
        at += v->pieces[w->found.id[n++]].size;
    if (n == 0) /* all one token so far */
        return grow(w, w->text.size * 2, err);
    if (keep(out, &w->found, n, err) < 0)
        return -1;
    w->expected = w->found.id[n];
    memmove(w->text.at, w->text.at + at, w->text.size - at);
    w->text.size -= at;
    w->wants = LONG_WORD_WINDOW;
    w->n_retreats = 0;
    return 1;
}

uint64_t long_word_memory(const struct long_word *w)
{
    return w->text.cap + w->pair.cap + w->found.cap * sizeof *w->found.id;
}

void long_word_done(struct long_word *w)
{
    bytes_done(&w->text);
    bytes_done(&w->pair);
    ids_done(&w->found);
}
