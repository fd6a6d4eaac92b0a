/* link: the engine as a worker sees it.
 *
 * Requests go out, answers come in by callback on the worker's event loop. The engine may
 * die and come back: link_status tells, and every request that was live then gets `failed`
 * with ERR_CLOSED. Callbacks may submit and cancel. Request numbers are given by link_submit and never reused. Worker's thread. */
#ifndef DAEMON_LINK_H
#define DAEMON_LINK_H

#include "colizig.h"
#include "daemon/wire/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

struct link;

struct link_events { /* owner is what link_submit was given */
    void (*accepted)(void *owner, uint32_t place);
    void (*refused)(void *owner, enum err_kind kind, uint32_t retry_after_s, const char *text);
    void (*progress)(void *owner, uint32_t n_done, uint32_t n_total, uint32_t n_cached);
    /* logprobs [n], or NULL: none were asked for, or these tokens were forced */
    void (*tokens)(void *owner, uint32_t choice, const uint32_t *tokens, uint32_t n,
                   const struct cz_logprobs *logprobs);
    /* more: another choice follows, so this is not the last word */
    void (*finished)(void *owner, uint32_t choice, bool more, enum cz_finish reason,
                     const struct cz_usage *usage);
    void (*failed)(void *owner, enum err_kind kind, const char *text, const struct cz_usage *u);
};

struct link_status {
    bool connected;          /* an engine is there */
    struct wire_hello hello; /* its last word; state says loading, ready or draining */
};

int link_open(struct link **out, sd_event *loop, const struct link_events *events,
              struct err *err);
void link_close(struct link *l); /* NULL is fine */
/* A new engine's end of a channel (from PEER); takes fd. */
int link_attach(struct link *l, int fd, struct err *err);
const struct link_status *link_status(const struct link *l);

/* Sends SUBMIT; *id names the request for link_cancel. ERR_CLOSED: no engine; ERR_BUSY: the
 * outbox is full. Exactly one of refused, finished (without more) or failed is the last word on it,
 * unless it is cancelled first: after link_cancel no callback comes. */
struct link_from { /* who asks, for lists and logs */
    const char *request, *address;
};
int link_submit(struct link *l, void *owner, const struct cz_request *r,
                const struct link_from *from, uint64_t *id, struct err *err);
void link_cancel(struct link *l, uint64_t id);
/* Enough of this choice: finished comes for it, as for every choice, and until then its tokens may.
 * Then the next begins. Nothing happens to a choice that has ended. */
void link_next(struct link *l, uint64_t id, uint32_t choice);

/* Something to count. Where no engine is there to do it, it is not counted: its counters
 * begin anew with the next one. */
void link_count(struct link *l, const struct wire_count *count);
/* Asks for all metrics. said is called once, with NULL when the engine goes away first, unless
 * link_forget_metrics was called before. ERR_CLOSED, ERR_BUSY as link_submit. */
typedef void (*link_metrics_said)(void *owner, const char *text, size_t size);
int link_ask_metrics(struct link *l, void *owner, link_metrics_said said, struct err *err);
void link_forget_metrics(struct link *l, void *owner);

/* ---- replies that are remembered: wire_reply.h ---- */

/* A reply that has ended. Where no engine is there to keep it, nobody does. */
void link_remember(struct link *l, const struct wire_remember *m, size_t size);
/* Asks which of wanted (n of them, borrowed until then) are remembered, in an answer of at most
 * `room` bytes. One question is under way at a time, others wait behind it. said is called once,
 * with NULL when the engine goes away first, unless link_forget_recall was called before; the answer
 * is borrowed during the call. It may ask anew. ERR_CLOSED: no engine. */
typedef void (*link_recalled)(void *owner, const struct wire_recalled *m);
struct link_question {
    const struct wire_wanted *wanted;
    uint32_t n; /* at most WIRE_MAX_WANTED */
    uint32_t room;
};
int link_recall(struct link *l, void *owner, const struct link_question *q, link_recalled said,
                struct err *err);
void link_forget_recall(struct link *l, void *owner);

uint32_t link_live(const struct link *l); /* requests without their last word */

#endif
