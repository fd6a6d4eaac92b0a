/* ctl_chat: what the parts of `colizigctl chat` share: one session with one server.
 *
 * ctl_chat.c makes and ends it, ctl_chat_turn.c asks questions, ctl_chat_repl.c is the loop of
 * a person, ctl_chat_once.c the single question of a script. One thread. */
#ifndef DAEMON_CTL_CHAT_H
#define DAEMON_CTL_CHAT_H

#include "daemon/ctl/ctl_chat_answer.h"
#include "daemon/ctl/ctl_chat_draw.h"
#include "daemon/ctl/ctl_chat_signals.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct chat_http;
struct chat_private;
struct ctl_args;
struct err;

struct chat_session {
    const struct ctl_args *args;
    struct chat_signals signals;
    struct chat_draw draw;
    struct chat_http *http;       /* owned */
    struct chat_private *private; /* owned; NULL: somebody else's daemon */
    const char *socket;           /* borrowed; the admin socket, NULL: none is asked */
    char model[256];              /* as the server names it */
    uint64_t context;             /* 0: not said */

    struct chat_question sampling; /* messages and model are filled in for each turn */
    char *system;                  /* owned; NULL: none */
    json_t *messages;              /* owned; user, assistant, user, ... without the system's */
    char *last;                    /* owned; the last question, for another try */
    bool last_kept;                /* it stands in messages */

    uint64_t n_turns, n_generated;
    double generating_s;
};

/* ---- ctl_chat_connect.c ---- */

/* Waits until the server serves, showing how far it has loaded, and learns model and context.
 * Returns an exit status; unless EXIT_FINE, *err says why (ERR_CANCELLED: Ctrl-C). */
int chat_connect(struct chat_session *s, struct err *err);

/* ---- ctl_chat_turn.c ---- */

struct chat_turn {
    struct chat_answer answer;
    double hit_rate;   /* of experts in memory during it; -1: not known */
    uint64_t n_others; /* requests of others in that time */
};

/* Asks and shows the answer; keeps question and answer in the conversation unless something
 * went wrong. chat_turn_done frees. */
void chat_turn_ask(struct chat_session *s, const char *question, struct chat_turn *turn);
void chat_turn_done(struct chat_turn *turn);
/* A line of figures; for a turn that went wrong, what happened and what one can do. */
void chat_turn_tell(struct chat_session *s, const struct chat_turn *turn);
int chat_turn_status(const struct chat_turn *turn); /* exit status */

void chat_forget_all(struct chat_session *s);
/* Returns how many turns there were to forget. */
size_t chat_forget_oldest(struct chat_session *s, size_t n_turns);
void chat_forget_last(struct chat_session *s);

/* ---- the two ways to use it; both return an exit status ---- */

int chat_repl(struct chat_session *s);
int chat_once(struct chat_session *s, const char *prompt);

#endif
