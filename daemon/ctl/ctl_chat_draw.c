#include "daemon/ctl/ctl_chat_draw.h"

#include "util/clock.h"
#include "util/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define GREY "\033[90m"
#define RED "\033[31m"
#define PLAIN "\033[0m"

/* A box narrower than this is a column of syllables; then lines are the terminal's to break. */
enum { MIN_BOX = 12, LINE_MAX_SHOWN = 400 };

void chat_draw_init(struct chat_draw *d, FILE *answers, FILE *notes)
{
    const char *kind = getenv("TERM"), *no = getenv("NO_COLOR");

    *d = (struct chat_draw){ .answers = answers, .notes = notes };
    buf_init(&d->word, NULL);
    buf_init(&d->safe, NULL);
    d->terminal = notes && isatty(fileno(notes)) && kind && strcmp(kind, "dumb") != 0;
    d->colour = d->terminal && !(no && *no);
    chat_draw_measure(d);
}

void chat_draw_measure(struct chat_draw *d)
{
    struct winsize size = { 0 };

    d->columns = 0;
    if (d->terminal && ioctl(fileno(d->notes), TIOCGWINSZ, &size) == 0)
        d->columns = size.ws_col;
}

static void colour(const struct chat_draw *d, const char *code)
{
    if (d->colour)
        fputs(code, d->notes);
}

/* ---- the box ---- */

static const char *side(const struct chat_draw *d)
{
    return d->terminal ? "\u2502 " : "| ";
}

static bool breaks_lines(const struct chat_draw *d)
{
    return d->columns >= MIN_BOX;
}

static unsigned room(const struct chat_draw *d)
{
    return d->columns - 3; /* the side, and one column that no terminal wraps at */
}

static void new_line(struct chat_draw *d)
{
    colour(d, PLAIN);
    fputc('\n', d->notes);
    colour(d, GREY);
    fputs(side(d), d->notes);
    d->used = 0;
}

static unsigned width_of(uint32_t c)
{
    int n = wcwidth((wchar_t)c);

    return n < 0 ? 1 : (unsigned)n;
}

static unsigned word_width(const struct buf *word)
{
    unsigned n = 0;
    uint32_t c;

    for (size_t i = 0; i < word->size;) {
        int size = utf8_next(word->data + i, word->size - i, &c);
        if (size <= 0)
            break;
        n += width_of(c);
        i += (size_t)size;
    }
    return n;
}

static void put_word(struct chat_draw *d)
{
    unsigned n = word_width(&d->word);
    uint32_t c;

    if (breaks_lines(d) && d->used > 0 && d->used + n > room(d))
        new_line(d);
    for (size_t i = 0; i < d->word.size;) {
        int size = utf8_next(d->word.data + i, d->word.size - i, &c);
        if (size <= 0)
            break;
        if (breaks_lines(d) && d->used + width_of(c) > room(d))
            new_line(d);
        fwrite(d->word.data + i, 1, (size_t)size, d->notes);
        d->used += width_of(c);
        i += (size_t)size;
    }
    d->word.size = 0;
}

static void open_box(struct chat_draw *d)
{
    d->in_box = true;
    d->opened_ns = clock_ns();
    d->used = 0;
    d->word.size = 0;
    colour(d, GREY);
    fputs(d->terminal ? "\u256d thinking\n" : "[thinking]\n", d->notes);
    fputs(side(d), d->notes);
}

/* By words: a piece that ends in the middle of one waits for the rest. */
static void put_thought(struct chat_draw *d, const char *text, size_t size)
{
    if (!d->in_box)
        open_box(d);
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\n') {
            put_word(d);
            new_line(d);
        } else if (text[i] == ' ' || text[i] == '\t') {
            put_word(d);
            if (breaks_lines(d) && d->used + 1 > room(d))
                new_line(d);
            fputc(' ', d->notes);
            d->used++;
        } else {
            buf_put(&d->word, text + i, 1);
        }
    }
}

static void close_box(struct chat_draw *d)
{
    double seconds = (double)(clock_ns() - d->opened_ns) / 1e9;

    if (!d->in_box)
        return;
    put_word(d);
    fputc('\n', d->notes);
    fprintf(d->notes, d->terminal ? "\u2570 thought for %.1f s" : "[thought for %.1f s]", seconds);
    colour(d, PLAIN);
    fputc('\n', d->notes);
    fflush(d->notes);
    d->in_box = false;
}

/* ---- the answer ---- */

static void put_answer(struct chat_draw *d, const char *text, size_t size)
{
    close_box(d);
    if (fwrite(text, 1, size, d->answers) != size && !d->write_error)
        d->write_error = errno;
    d->last = text[size - 1];
}

static void was_thought(struct chat_draw *d)
{
    if (d->last && d->last != '\n')
        fputc('\n', d->answers);
    fflush(d->answers);
    d->last = 0;
    chat_draw_note(d, "%s", d->terminal ? "\u2570 all of this was a thought"
                                        : "[all of this was a thought]");
}

void chat_draw_part(struct chat_draw *d, enum chat_part part, const char *text, size_t size)
{
    chat_draw_no_status(d);
    if (part == CHAT_WAS_THOUGHT) {
        was_thought(d);
        return;
    }
    if (part == CHAT_ANSWER && d->exact) {
        put_answer(d, text, size);
        return;
    }
    d->safe.size = 0;
    chat_harmless(&d->safe, text, size);
    if (d->safe.failed || d->safe.size == 0)
        return;
    if (part == CHAT_ANSWER)
        put_answer(d, d->safe.data, d->safe.size);
    else if (d->notes)
        put_thought(d, d->safe.data, d->safe.size);
}

void chat_draw_end(struct chat_draw *d)
{
    chat_draw_no_status(d);
    close_box(d);
    if (d->last && d->last != '\n')
        fputc('\n', d->answers);
    d->last = 0;
    chat_draw_flush(d);
}

/* ---- lines of our own ---- */

void chat_draw_status(struct chat_draw *d, const char *fmt, ...)
{
    char line[LINE_MAX_SHOWN];
    va_list args;

    if (!d->terminal || d->in_box || d->last)
        return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    d->safe.size = 0;
    chat_harmless(&d->safe, line, strlen(line));
    /* ASCII but for what a server said; a line that wraps could not be taken back. */
    size_t most = d->columns > 1 ? d->columns - 1 : 79;
    fputs("\r\033[K", d->notes);
    colour(d, GREY);
    if (!d->safe.failed)
        fwrite(d->safe.data, 1, d->safe.size < most ? d->safe.size : most, d->notes);
    colour(d, PLAIN);
    fflush(d->notes);
    d->status_shown = true;
}

void chat_draw_no_status(struct chat_draw *d)
{
    if (!d->status_shown)
        return;
    fputs("\r\033[K", d->notes);
    fflush(d->notes);
    d->status_shown = false;
}

static void put_line(struct chat_draw *d, FILE *to, const char *code, const char *fmt,
                     va_list args)
{
    char line[1024];
    bool coloured = d->colour && to == d->notes;

    chat_draw_no_status(d);
    vsnprintf(line, sizeof line, fmt, args);
    d->safe.size = 0;
    chat_harmless(&d->safe, line, strlen(line));
    if (d->safe.failed)
        return;
    fprintf(to, "%s%.*s%s\n", coloured ? code : "", (int)d->safe.size,
            d->safe.data ? d->safe.data : "", coloured ? PLAIN : "");
    fflush(to);
}

void chat_draw_note(struct chat_draw *d, const char *fmt, ...)
{
    va_list args;

    if (!d->notes)
        return;
    va_start(args, fmt);
    put_line(d, d->notes, GREY, fmt, args);
    va_end(args);
}

void chat_draw_fault(struct chat_draw *d, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    put_line(d, d->notes ? d->notes : stderr, RED, fmt, args);
    va_end(args);
}

bool chat_draw_flush(struct chat_draw *d)
{
    if (d->notes)
        fflush(d->notes);
    if (!d->write_error && fflush(d->answers) != 0)
        d->write_error = errno;
    return !d->write_error;
}

bool chat_draw_all_written(struct chat_draw *d)
{
    if (chat_draw_flush(d))
        return true;
    if (d->write_error != EPIPE)
        chat_draw_fault(d, "the answer cannot be written: %s", strerror(d->write_error));
    return false;
}

void chat_draw_done(struct chat_draw *d)
{
    if (d->notes)
        chat_draw_end(d);
    buf_done(&d->word);
    buf_done(&d->safe);
}
