/* ctl_chat_line: what a person types.
 *
 * On a terminal lines are edited, with history; pasted text is one line whatever breaks it
 * holds. From a pipe or a file, and from a terminal that says it has more than a million
 * characters, lines are read as they are. Every wait also watches the signals.
 * One thread; the only user of libedit. */
#ifndef DAEMON_CTL_CHAT_LINE_H
#define DAEMON_CTL_CHAT_LINE_H

#include "daemon/base/buf.h"

#include <stdbool.h>

struct err;
struct chat_line;
struct chat_signals;

enum chat_line_end {
    CHAT_LINE_TEXT,
    CHAT_LINE_EOF,    /* Ctrl-D, or the end of the input */
    CHAT_LINE_CANCEL, /* Ctrl-C */
    CHAT_LINE_LEAVE,  /* SIGTERM or SIGHUP */
    CHAT_LINE_FAILED, /* a line of more than CHAT_LINE_MAX, or no memory */
};

enum { CHAT_LINE_MAX = 16 << 20, CHAT_LINE_HISTORY = 1000 };

/* history: a path, or NULL for none. When it cannot be used the chat goes on without, and
 * *note says why. */
int chat_line_open(struct chat_line **out, struct chat_signals *signals, bool terminal,
                   bool colour, const char *history, struct err *note, struct err *err);
void chat_line_close(struct chat_line *l); /* NULL is fine */
/* Appends the line, without its end, to out. A blank follows the prompt. */
enum chat_line_end chat_line_read(struct chat_line *l, const char *prompt, struct buf *out);
/* For the arrow keys and the file, unless it begins with a blank. */
void chat_line_remember(struct chat_line *l, const char *text);
/* While an answer comes the terminal shows nothing of what is typed; it is read afterwards. */
void chat_line_quiet(struct chat_line *l, bool quiet);

#endif
