/* Every stop string has its own matcher (Knuth, Morris and Pratt 1977), fed one whole character
 * at a time. The state of a matcher is how many bytes of its string the text ends with, so the
 * longest state is what must be held back. */
#include "text/stop.h"

#include "text/bytes.h"
#include "util/err.h"
#include "util/utf8.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NOWHERE SIZE_MAX

struct matcher {
    char *string;   /* owned */
    size_t *border; /* owned: [size] longest proper border of the first i + 1 bytes */
    size_t size;
    size_t state; /* < size */
};

struct text_out {
    struct matcher matchers[TEXT_MAX_STOPS];
    size_t n_matchers;
    char cut[4]; /* the beginning of a character */
    size_t n_cut;
    struct bytes text; /* owned; up to `given` it was given out already */
    size_t given;
    size_t ready;      /* up to here it may be given out */
    size_t stop_begin; /* where the first stop string begins; NOWHERE while none was found */
    bool ended;
};

static int matcher_open(struct matcher *m, const struct text_stop *stop, struct err *err)
{
    m->string = malloc(stop->size);
    m->border = calloc(stop->size, sizeof *m->border);
    if (!m->string || !m->border)
        return err_set(err, ERR_NOMEM, "a stop string of %zu bytes", stop->size);
    memcpy(m->string, stop->bytes, stop->size);
    m->size = stop->size;
    for (size_t i = 1, border = 0; i < m->size; i++) {
        while (border && m->string[i] != m->string[border])
            border = m->border[border - 1];
        border += m->string[i] == m->string[border];
        m->border[i] = border;
    }
    return 0;
}

int text_out_open(struct text_out **out, const struct text_stop *stops, size_t n,
                  struct err *err)
{
    struct text_out *o;

    if (n > TEXT_MAX_STOPS)
        return err_set(err, ERR_INPUT, "%zu stop strings (at most %d)", n, TEXT_MAX_STOPS);
    for (size_t i = 0; i < n; i++)
        if (stops[i].size == 0 || !utf8_valid(stops[i].bytes, stops[i].size))
            return err_set(err, ERR_INPUT, "stop string %zu is %s", i,
                           stops[i].size ? "not valid UTF-8" : "empty");

    o = calloc(1, sizeof *o);
    if (!o)
        return err_set(err, ERR_NOMEM, "the text of an answer");
    o->stop_begin = NOWHERE;
    for (size_t i = 0; i < n; i++) {
        o->n_matchers = i + 1;
        if (matcher_open(&o->matchers[i], &stops[i], err) < 0) {
            text_out_close(o);
            return -1;
        }
    }
    *out = o;
    return 0;
}

void text_out_close(struct text_out *o)
{
    if (!o)
        return;
    for (size_t i = 0; i < o->n_matchers; i++) {
        free(o->matchers[i].string);
        free(o->matchers[i].border);
    }
    bytes_done(&o->text);
    free(o);
}

/* Feeds one byte; true when the string is complete. */
static bool matcher_feed(struct matcher *m, char byte)
{
    while (m->state && m->string[m->state] != byte)
        m->state = m->border[m->state - 1];
    m->state += m->string[m->state] == byte;
    if (m->state < m->size)
        return false;
    m->state = m->border[m->size - 1];
    return true;
}

/* Where the text may still turn out to be the beginning of a stop string. */
static size_t open_since(const struct text_out *o)
{
    size_t longest = 0;

    for (size_t i = 0; i < o->n_matchers; i++)
        if (o->matchers[i].state > longest)
            longest = o->matchers[i].state;
    return o->text.size - longest;
}

static void end_text(struct text_out *o)
{
    if (o->stop_begin < o->text.size)
        o->text.size = o->stop_begin;
    o->ready = o->text.size;
    o->ended = true;
}

/* One valid character. A stop string that was found still waits for one that began before it
 * and may become complete. */
static int feed(struct text_out *o, const char *character, size_t size, struct err *err)
{
    if (bytes_put(&o->text, character, size, err) < 0)
        return -1;
    for (size_t i = 0; i < o->n_matchers; i++) {
        bool found = false;
        for (size_t k = 0; k < size; k++)
            found = matcher_feed(&o->matchers[i], character[k]);
        size_t begin = o->text.size - o->matchers[i].size;
        if (found && begin < o->stop_begin)
            o->stop_begin = begin;
    }

    size_t since = open_since(o);
    if (o->stop_begin <= since)
        end_text(o);
    else
        o->ready = since;
    return 0;
}

/* Feeds what is whole of the cut character and keeps the rest; at the end nothing is kept. */
static int settle_cut(struct text_out *o, bool at_end, struct err *err)
{
    while (o->n_cut && !o->ended) {
        int length = utf8_next(o->cut, o->n_cut, NULL);
        if (length == 0 && !at_end)
            return 0;

        size_t taken = length > 0 ? (size_t)length : utf8_bad(o->cut, o->n_cut);
        int rc = length > 0 ? feed(o, o->cut, taken, err) : feed(o, "\xef\xbf\xbd", 3, err);
        if (rc < 0)
            return -1;
        o->n_cut -= taken;
        memmove(o->cut, o->cut + taken, o->n_cut);
    }
    return 0;
}

/* Only once it is more than what must be kept, so that no byte is moved often. */
static void forget_given(struct text_out *o)
{
    if (o->given <= o->text.size - o->given)
        return;
    memmove(o->text.at, o->text.at + o->given, o->text.size - o->given);
    o->text.size -= o->given;
    o->ready -= o->given;
    if (o->stop_begin != NOWHERE)
        o->stop_begin -= o->given;
    o->given = 0;
}

int text_out_put(struct text_out *o, const char *bytes, size_t size, struct err *err)
{
    forget_given(o);
    for (size_t i = 0; i < size && !o->ended; i++) {
        o->cut[o->n_cut++] = bytes[i];
        if (settle_cut(o, false, err) < 0)
            return -1;
    }
    return o->ended && o->stop_begin != NOWHERE;
}

int text_out_finish(struct text_out *o, struct err *err)
{
    forget_given(o);
    if (!o->ended) {
        if (settle_cut(o, true, err) < 0)
            return -1;
        end_text(o);
    }
    return o->stop_begin != NOWHERE;
}

int text_out_release(struct text_out *o, struct err *err)
{
    forget_given(o);
    if (o->ended)
        return o->stop_begin != NOWHERE;
    if (settle_cut(o, true, err) < 0)
        return -1;
    if (o->stop_begin != NOWHERE) {
        end_text(o);
        return 1;
    }
    o->ready = o->text.size;
    for (size_t i = 0; i < o->n_matchers; i++)
        o->matchers[i].state = 0;
    return 0;
}

const char *text_out_text(struct text_out *o, size_t *size)
{
    const char *text = o->text.at ? o->text.at + o->given : "";

    *size = o->ready - o->given;
    o->given = o->ready;
    return text;
}

uint64_t text_out_memory(const struct text_out *o)
{
    uint64_t sum = sizeof *o + o->text.cap;

    for (size_t i = 0; i < o->n_matchers; i++)
        sum += o->matchers[i].size * (1 + sizeof(size_t));
    return sum;
}
