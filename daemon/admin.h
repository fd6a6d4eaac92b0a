/* admin: the Unix socket that colizigctl talks to.
 *
 * One JSON object per line each way:
 *   {"id":1,"cmd":"stats"} -> {"id":1,"ok":true,"data":{...}}
 *                          or {"id":1,"ok":false,"error":{"kind":"busy","message":"..."}}
 * Answers `status` itself, also while the engine is down, and relays `stats`, `plan` and
 * `inspect` to the engine. A client has one command under way at a time. Supervisor's thread. */
#ifndef DAEMON_ADMIN_H
#define DAEMON_ADMIN_H

#include "util/err.h"

#include <jansson.h>
#include <stdint.h>
#include <systemd/sd-event.h>

struct admin;

struct admin_ops {
    void *ctx;
    json_t *(*status)(void *ctx); /* a new reference */
    /* Sends the question on; admin_answer brings the reply. */
    int (*ask)(void *ctx, uint64_t id, const char *question, struct err *err);
};

/* Binds path with mode 0660. A socket file that nobody listens on is replaced; ERR_IO when
 * another daemon has it. */
int admin_listen(int *fd, const char *path, struct err *err);
int admin_open(struct admin **out, sd_event *loop, int fd, const struct admin_ops *ops,
               struct err *err); /* takes fd */
void admin_close(struct admin *a); /* NULL is fine */
/* text: the data as JSON; size 0 when there is none yet. */
void admin_answer(struct admin *a, uint64_t id, const char *text, size_t size);
/* The engine is gone: no question will be answered. */
void admin_fail_questions(struct admin *a);

#endif
