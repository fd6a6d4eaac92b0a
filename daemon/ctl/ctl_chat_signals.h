/* ctl_chat_signals: signals as something to wait for.
 *
 * Ctrl-C means different things while a line is typed, while an answer comes and while a
 * daemon of our own loads; so signals are blocked and read, where somebody waits, from a
 * descriptor. Ctrl-Z stops us as ever. One thread, before others start. */
#ifndef DAEMON_CTL_CHAT_SIGNALS_H
#define DAEMON_CTL_CHAT_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

struct err;

struct chat_signals {
    int fd; /* owned; readable when one came */
    sigset_t before; /* the mask that children get */
    bool interrupt; /* SIGINT came; whoever acts on it clears it */
    bool leave;     /* SIGTERM or SIGHUP: for good */
    bool resized;   /* SIGWINCH */
    bool continued; /* after a stop: the terminal is to be set up again */
};

int chat_signals_open(struct chat_signals *s, struct err *err);
void chat_signals_close(struct chat_signals *s);
/* Takes what came; never waits. True when there is a reason to stop waiting. */
bool chat_signals_take(struct chat_signals *s);

#endif
