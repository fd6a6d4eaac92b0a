#include "daemon/ctl/ctl_chat_line.h"

#include "daemon/ctl/ctl_chat_past.h"
#include "daemon/ctl/ctl_chat_signals.h"
#include "util/err.h"
#include "util/utf8.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* Of the rest of a key's sequence. */
enum { KEY_MS = 30 };
/* Of a terminal. libedit keeps a screen of it, and clears and compares it all. */
enum { MOST_CHARACTERS = 1 << 20 };
/* Terminals put these around what is pasted, once asked to. */
static const char paste_begins[] = "\033[200~", paste_ends[] = "\033[201~";
#define PASTES_MARKED "\033[?2004h"
#define PASTES_PLAIN "\033[?2004l"
/* Takes the next character as it is, in libedit's emacs keys. */
enum { QUOTE = 0x16 };

struct chat_line {
    struct chat_signals *signals; /* borrowed */
    EditLine *edit;               /* owned; NULL: no terminal */
    History *history;             /* owned */
    struct chat_past past;
    char prompt[64];
    bool colour;
    struct buf in; /* from a pipe: read, not yet taken; from a terminal: the same of keys */
    bool eof, quiet, terminal;
    enum chat_line_end end; /* why a read ended, when it was not by Enter */
    bool pasting;
    char quoted; /* of a paste: comes after QUOTE */
    struct termios shown; /* while quiet: as it was */
};

static bool too_large(struct winsize *size)
{
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, size) == 0 &&
           (unsigned)size->ws_row * size->ws_col > MOST_CHARACTERS;
}

/* ---- bytes ---- */

/* 1 when there is more in l->in; 0 at the end, or after wait_ms (-1: for ever); -1 when a
 * signal is the reason. */
static int fill(struct chat_line *l, int wait_ms)
{
    struct pollfd wait[2] = { { .fd = STDIN_FILENO, .events = POLLIN },
                              { .fd = l->signals->fd, .events = POLLIN } };
    struct winsize size;

    while (!l->eof) {
        int n = poll(wait, 2, wait_ms);
        if (n == 0)
            return 0;
        if (n > 0 && wait[1].revents && chat_signals_take(l->signals))
            return -1;
        if (l->edit && l->signals->resized && !too_large(&size))
            el_resize(l->edit);
        if (l->edit && l->signals->continued) {
            el_set(l->edit, EL_PREP_TERM, 1);
            el_set(l->edit, EL_REFRESH);
        }
        l->signals->resized = l->signals->continued = false;
        if (n <= 0 || !wait[0].revents)
            continue;
        if (!buf_reserve(&l->in, 4096))
            return 0;
        ssize_t got = read(STDIN_FILENO, l->in.data + l->in.size, 4096);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            l->eof = true;
        else
            l->in.size += (size_t)got;
        return got > 0;
    }
    return 0;
}

static enum chat_line_end why_signalled(const struct chat_line *l)
{
    return l->signals->leave ? CHAT_LINE_LEAVE : CHAT_LINE_CANCEL;
}

/* ---- keys ---- */

/* True, and taken, when the keys that wait spell mark. What looks like its beginning is waited
 * for, but not for long: Escape is also a key. */
static bool takes_mark(struct chat_line *l, const char *mark)
{
    size_t n = strlen(mark);

    for (;;) {
        size_t have = l->in.size < n ? l->in.size : n;
        if (memcmp(l->in.data, mark, have) != 0)
            return false;
        if (have == n) {
            buf_drop(&l->in, n);
            return true;
        }
        if (fill(l, KEY_MS) <= 0)
            return false;
    }
}

static int take_character(struct chat_line *l, wchar_t *c)
{
    uint32_t code = 0;
    int n;

    while ((n = utf8_next(l->in.data, l->in.size, &code)) == 0)
        if (fill(l, KEY_MS) <= 0)
            break;
    if (n <= 0) {
        n = (int)utf8_bad(l->in.data, l->in.size);
        code = 0xfffd;
    }
    buf_drop(&l->in, (size_t)n);
    *c = (wchar_t)code;
    return 1;
}

/* Line breaks and tabs of a paste are text, as if quoted by hand; other control characters
 * would be commands, and are left out. False: nothing of it is to be given. */
static bool paste_character(struct chat_line *l, wchar_t *c)
{
    if (*c == '\r')
        *c = '\n';
    if (*c == '\n' || *c == '\t') {
        l->quoted = (char)*c;
        *c = QUOTE;
        return true;
    }
    return *c >= 0x20 && *c != 0x7f;
}

/* libedit's source of keys. */
static int next_key(EditLine *edit, wchar_t *c)
{
    struct chat_line *l = NULL;

    el_get(edit, EL_CLIENTDATA, &l);
    if (l->quoted) {
        *c = (wchar_t)l->quoted;
        l->quoted = '\0';
        return 1;
    }
    for (;;) {
        int more = l->in.size > 0 ? 1 : fill(l, -1);
        if (more < 0) {
            l->end = why_signalled(l);
            errno = EINTR;
            return -1;
        }
        if (more == 0)
            return 0;
        if (l->in.data[0] == '\033' && takes_mark(l, l->pasting ? paste_ends : paste_begins)) {
            l->pasting = !l->pasting;
            continue;
        }
        take_character(l, c);
        if (!l->pasting || paste_character(l, c))
            return 1;
    }
}

static char *show_prompt(EditLine *edit)
{
    struct chat_line *l = NULL;

    el_get(edit, EL_CLIENTDATA, &l);
    return l->prompt;
}

static void bind_keys(EditLine *edit)
{
    static const char *const keys[][2] = {
        { "^R", "em-inc-search-prev" },      { "\\e[3~", "ed-delete-next-char" },
        { "\\e[1~", "ed-move-to-beg" },      { "\\e[H", "ed-move-to-beg" },
        { "\\e[4~", "ed-move-to-end" },      { "\\e[F", "ed-move-to-end" },
        { "\\e[1;5C", "em-next-word" },      { "\\e[1;5D", "ed-prev-word" },
    };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        el_set(edit, EL_BIND, keys[i][0], keys[i][1], NULL);
}

static int open_editor(struct chat_line *l, struct err *err)
{
    HistEvent event;

    l->edit = el_init("colizigctl", stdin, stdout, stderr);
    l->history = history_init();
    if (!l->edit || !l->history)
        return err_set(err, ERR_NOMEM, "line editing");
    history(l->history, &event, H_SETSIZE, CHAT_LINE_HISTORY);
    history(l->history, &event, H_SETUNIQUE, 1);
    el_set(l->edit, EL_CLIENTDATA, l);
    el_set(l->edit, EL_EDITOR, "emacs");
    el_set(l->edit, EL_SIGNAL, 0);
    el_set(l->edit, EL_HIST, history, l->history);
    el_set(l->edit, EL_PROMPT_ESC, show_prompt, '\1');
    el_set(l->edit, EL_GETCFN, next_key);
    bind_keys(l->edit);
    return 0;
}

static void remember_old(void *ctx, const char *text)
{
    struct chat_line *l = ctx;
    HistEvent event;

    history(l->history, &event, H_ENTER, text);
}

int chat_line_open(struct chat_line **out, struct chat_signals *signals, bool terminal,
                   bool colour, const char *history_path, struct err *note, struct err *err)
{
    struct chat_line *l = calloc(1, sizeof *l);
    struct winsize size;

    if (!l)
        return err_set(err, ERR_NOMEM, "line reading");
    l->signals = signals;
    l->terminal = terminal;
    l->colour = colour;
    l->past.fd = -1;
    buf_init(&l->in, NULL);
    bool edit = terminal && !too_large(&size);
    if (terminal && !edit)
        err_set(note, ERR_INPUT, "a terminal of %u x %u characters: lines are read as they are",
                size.ws_col, size.ws_row);
    if (edit && open_editor(l, err) < 0) {
        chat_line_close(l);
        return -1;
    }
    if (edit && history_path)
        chat_past_open(&l->past, history_path, CHAT_LINE_HISTORY, remember_old, l, note);
    *out = l;
    return 0;
}

void chat_line_close(struct chat_line *l)
{
    if (!l)
        return;
    chat_line_quiet(l, false);
    if (l->edit)
        el_end(l->edit);
    if (l->history)
        history_end(l->history);
    chat_past_close(&l->past);
    buf_done(&l->in);
    free(l);
}

/* ---- lines ---- */

static enum chat_line_end edit_line(struct chat_line *l, const char *prompt, struct buf *out)
{
    int n = 0;

    /* libedit ties an escape to the character behind it: the last one needs one, too. */
    snprintf(l->prompt, sizeof l->prompt, l->colour ? "\1\033[1m\1%.40s\1\033[0m\1 " : "%.40s ",
             prompt);
    l->end = CHAT_LINE_EOF;
    l->quoted = '\0';
    l->pasting = false;
    /* By itself libedit shows the prompt first, and a Ctrl-D that comes in between is the
     * terminal's own end of file, which nobody then reads. */
    el_set(l->edit, EL_PREP_TERM, 1);
    fputs(PASTES_MARKED, stdout);
    fflush(stdout);
    const char *line = el_gets(l->edit, &n);
    fputs(PASTES_PLAIN, stdout);
    if (!line || n <= 0) {
        el_reset(l->edit);
        fputc('\n', stdout);
        fflush(stdout);
        return l->end;
    }
    fflush(stdout);
    size_t size = (size_t)n;
    if (line[size - 1] == '\n')
        size--;
    buf_put(out, line, size);
    return out->failed ? CHAT_LINE_FAILED : CHAT_LINE_TEXT;
}

static enum chat_line_end plain_line(struct chat_line *l, struct buf *out)
{
    size_t seen = 0;

    for (;;) {
        char *end = l->in.size > seen ? memchr(l->in.data + seen, '\n', l->in.size - seen) : NULL;
        if (end || (l->eof && l->in.size > 0)) {
            size_t size = end ? (size_t)(end - l->in.data) : l->in.size;
            size_t whole = end ? size + 1 : size;
            if (size > 0 && l->in.data[size - 1] == '\r')
                size--;
            buf_put(out, l->in.data, size);
            buf_drop(&l->in, whole);
            return out->failed ? CHAT_LINE_FAILED : CHAT_LINE_TEXT;
        }
        seen = l->in.size;
        if (seen > CHAT_LINE_MAX || l->in.failed)
            return CHAT_LINE_FAILED;
        if (fill(l, -1) < 0)
            return why_signalled(l);
        if (l->eof && l->in.size == 0)
            return CHAT_LINE_EOF;
    }
}

enum chat_line_end chat_line_read(struct chat_line *l, const char *prompt, struct buf *out)
{
    struct winsize size;

    if (chat_signals_take(l->signals))
        return why_signalled(l);
    /* libedit asks the terminal before every line. */
    if (l->edit && !too_large(&size))
        return edit_line(l, prompt, out);
    if (l->terminal) {
        printf("%s ", prompt);
        fflush(stdout);
    }
    return plain_line(l, out);
}

void chat_line_remember(struct chat_line *l, const char *text)
{
    if (!l->history || !*text || *text == ' ')
        return;
    remember_old(l, text);
    chat_past_add(&l->past, text);
}

void chat_line_quiet(struct chat_line *l, bool quiet)
{
    if (!l->edit || quiet == l->quiet)
        return;
    if (!quiet) {
        tcsetattr(STDIN_FILENO, TCSADRAIN, &l->shown);
        l->quiet = false;
        return;
    }
    if (tcgetattr(STDIN_FILENO, &l->shown) < 0)
        return;
    struct termios mode = l->shown;
    mode.c_lflag &= ~(tcflag_t)(ECHO | ICANON); /* Ctrl-C stays a signal */
    l->quiet = tcsetattr(STDIN_FILENO, TCSADRAIN, &mode) == 0;
}
