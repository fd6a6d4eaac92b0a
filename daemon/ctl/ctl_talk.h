/* ctl_talk: a conversation with a running daemon over its admin socket.
 *
 * One question at a time; the daemon's refusal is an error with its kind and its words. A
 * daemon that is not there is told apart, for it has an exit status of its own. One thread. */
#ifndef DAEMON_CTL_TALK_H
#define DAEMON_CTL_TALK_H

#include "util/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct ctl_args;

#define CTL_SOCKET "/run/colizig/admin.sock"
#define CTL_SOCKET_FLAG \
    { "--socket", "PATH", "the daemon's admin socket (default " CTL_SOCKET ")", NULL }

enum { CTL_PATIENCE_MS = 10 * 1000 }; /* for what the daemon answers at once */

/* What a refusal is to a script: settings may be wrong in all the ways that have an exit status,
 * anything else has simply failed. */
enum ctl_refusal { CTL_REFUSAL_FAILS, CTL_REFUSAL_BY_KIND };

struct ctl_talk {
    const struct ctl_args *args; /* borrowed */
    const char *path;            /* borrowed */
    int fd;                      /* owned; -1: not connected */
    uint32_t send_ms; /* how long connecting and sending may take */
    int wake;       /* borrowed; readable when somebody pressed Ctrl-C; -1: nobody is asked */
    char *reply;    /* owned */
    size_t n_reply; /* bytes of it that came */
    uint64_t id;    /* of the last question */
    bool no_daemon; /* nobody listens */
    bool ended;     /* it closed the connection */
    bool refused;   /* it answered that it will not; the connection is fine */
    enum ctl_refusal refusal;
};

int ctl_talk_open(struct ctl_talk *t, const struct ctl_args *args, struct err *err);
/* Where the socket is not a flag; t->args is NULL. */
int ctl_talk_open_at(struct ctl_talk *t, const char *path, struct err *err);
void ctl_talk_close(struct ctl_talk *t);
int ctl_talk_connect(struct ctl_talk *t, struct err *err);
void ctl_talk_hang_up(struct ctl_talk *t); /* the next question connects anew */

/* Takes question, an object without id; connects if need be. 1 with *data, owned by the caller;
 * 0 when t->wake became readable; -1. */
int ctl_talk_ask(struct ctl_talk *t, json_t *question, uint32_t patience_ms, json_t **data,
                 struct err *err);
/* A further reply to the same question, which said that more would come. */
int ctl_talk_more(struct ctl_talk *t, uint32_t patience_ms, json_t **data, struct err *err);
/* Says what failed. Returns the exit status. */
int ctl_talk_fail(const struct ctl_talk *t, const struct err *err);

/* The whole of most commands: asks one question, shows the answer as JSON or by print, returns
 * the exit status. */
int ctl_talk_once(const struct ctl_args *args, json_t *question, uint32_t patience_ms,
                  enum ctl_refusal refusal, void (*print)(const json_t *data));

#endif
