/* admin: the Unix socket that colizigctl talks to.
 *
 * One JSON object per line each way:
 *   {"id":1,"cmd":"stats"} -> {"id":1,"ok":true,"data":{...}}
 *                          or {"id":1,"ok":false,"error":{"kind":"busy","message":"..."}}
 * `status`, `reload`, `drain`, `budget` and `log` are the supervisor's, also while the engine is
 * down; the rest is relayed to the engine. A client has one command under way at a time.
 * Supervisor's thread. */
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
    /* These begin something; admin_answer with id brings the reply, perhaps much later. */
    int (*ask)(void *ctx, uint64_t id, const char *question, struct err *err); /* a JSON line */
    int (*reload)(void *ctx, uint64_t id, struct err *err);
    int (*budget)(void *ctx, uint64_t id, uint64_t ram, struct err *err);
    /* These are done at once. */
    int (*drain)(void *ctx, uint32_t timeout_ms, struct err *err); /* 0: http.drain_timeout */
    int (*set_log)(void *ctx, int level, struct err *err); /* until the next reload */
};

/* Binds path with mode 0660. A socket file that nobody listens on is replaced; ERR_IO when
 * another daemon has it. */
int admin_listen(int *fd, const char *path, struct err *err);
int admin_open(struct admin **out, sd_event *loop, int fd, const struct admin_ops *ops,
               struct err *err); /* takes fd */
void admin_close(struct admin *a); /* NULL is fine */
/* text: the data as JSON when kind is ERR_NONE, else a message. */
void admin_answer(struct admin *a, uint64_t id, enum err_kind kind, const char *text,
                  size_t size);
/* The engine is gone: no question will be answered. */
void admin_fail_questions(struct admin *a);

#endif
