/* admin_client: one client of the admin socket: its lines, its replies, its time.
 *
 * It is in one state, and each state has an end: what waits for a line is closed after ten
 * minutes, what waits for an answer is told so, what does not read is dropped. A reply is
 * whole before the next line is looked at, so there is never more than one of each. Shared by
 * admin.c and admin_commands.c alone; supervisor's thread. */
#ifndef DAEMON_ADMIN_CLIENT_H
#define DAEMON_ADMIN_CLIENT_H

#include "daemon/admin/admin.h"
#include "daemon/admin/admin_line.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ADMIN_MAX_LINE = 64 << 10, /* without its line feed */
    ADMIN_MAX_REPLY = 4 << 20,
    ADMIN_ANSWER_MS = 5 * 1000, /* the door answers in milliseconds; past this it hangs */
};

struct admin_shared {
    sd_event *loop;
    struct admin_ops ops;
    int fd; /* that clients connect to */
    uint64_t last_question;
};

/* WATCHING may also have a question under way. */
enum admin_state { ADMIN_FREE, ADMIN_IDLE, ADMIN_ASKING, ADMIN_WRITING, ADMIN_WATCHING,
                   ADMIN_LEAVING };

struct admin_client {
    struct admin_shared *shared; /* borrowed */
    enum admin_state state;
    int fd; /* owned */
    sd_event_source *io;
    sd_event_source *deadline; /* of the state; NULL while WATCHING */
    sd_event_source *ticker;   /* of a watch */
    char *in;                  /* owned; [cap_in], as much as its line needs so far */
    size_t n_in, cap_in;
    char *out; /* owned; what the socket did not take yet */
    size_t n_out, sent;
    struct admin_line line; /* under way */
    uint64_t question;      /* 0: none */
    uint64_t asked_ms;
    bool of_engine; /* the question fails when the engine does */
    bool watching;
    bool must_go; /* once its reply is written */
};

/* Any of these may end in ADMIN_FREE: the connection is gone. */
void admin_client_welcome(struct admin_client *c, int fd); /* of a free place; takes fd */
void admin_client_drop(struct admin_client *c);
void admin_client_enter(struct admin_client *c, enum admin_state state, uint64_t limit_ms);
void admin_client_idle(struct admin_client *c);
void admin_client_reply(struct admin_client *c, json_t *rest); /* all but the id; takes rest */
void admin_client_data(struct admin_client *c, json_t *data);  /* takes data; NULL: no memory */
void admin_client_error(struct admin_client *c, enum err_kind kind, const char *message);
/* The last reply, to a client that must go. */
void admin_client_away(struct admin_client *c, enum err_kind kind, const char *message);
json_t *admin_error_json(enum err_kind kind, const char *message);
/* Looks at the next line that is there, one for each turn of the loop: a client that sends
 * thousands keeps nobody waiting. */
void admin_client_read_lines(struct admin_client *c);

/* ---- admin_commands.c ---- */

void admin_command(struct admin_client *c); /* c->line */
void admin_command_answer(struct admin_client *c, enum err_kind kind, const char *text,
                          size_t size);
void admin_command_end_watch(struct admin_client *c);

#endif
