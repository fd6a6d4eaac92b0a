/* ctl_chat_past: the file of earlier questions.
 *
 * One JSON string a line, so that a question of several lines stays one entry. Mode 0600,
 * whatever it was. Appended to line by line, so that several chats may share it and one that
 * is killed loses nothing; cut to its newest entries when it has grown to twice that. */
#ifndef DAEMON_CTL_CHAT_PAST_H
#define DAEMON_CTL_CHAT_PAST_H

#include <stdbool.h>
#include <stddef.h>

struct err;

struct chat_past {
    int fd; /* owned; -1: none is kept */
};

/* Gives the newest `most` entries, oldest first, to each. */
int chat_past_open(struct chat_past *p, const char *path, size_t most,
                   void (*each)(void *ctx, const char *text), void *ctx, struct err *err);
void chat_past_close(struct chat_past *p);
void chat_past_add(struct chat_past *p, const char *text);

/* $XDG_STATE_HOME/colizig/chat-history, or the same below ~/.local/state. Makes the
 * directories, mode 0700. False where there is no home or the path is too long. */
bool chat_past_path(char *buf, size_t cap);

#endif
