/* exchange: one HTTP request and its answer.
 *
 * Gathers the body up to its limit, or swallows it when the request was refused already, so
 * that the client can read why and a kept connection stays in step. Every answer carries the
 * common headers. While the answer waits for the engine the connection is suspended; the
 * client is watched meanwhile, and one that leaves is noticed at once. */
#ifndef DAEMON_EXCHANGE_H
#define DAEMON_EXCHANGE_H

#include "daemon/base/buf.h"
#include "daemon/openai/api_error.h"
#include "daemon/worker/bare.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

struct client;
struct exchange;
struct exchange_job;
struct listener;
struct worker;

/* Makes the answer to a request whose body is complete. */
typedef enum MHD_Result (*exchange_serve)(struct exchange *x);

/* Work whose answer comes later; the exchange is suspended meanwhile. */
struct exchange_job_ops {
    enum MHD_Result (*resumed)(struct exchange_job *j); /* answer, or suspend again */
    void (*client_gone)(struct exchange_job *j);        /* nobody waits any more: stop */
    void (*give_up)(struct exchange_job *j); /* time is up at a drain: end with an error */
    void (*close)(struct exchange_job *j);   /* stops and frees */
};
/* The first member of a struct of whoever works. */
struct exchange_job {
    const struct exchange_job_ops *ops;
};

enum exchange_state { EXCHANGE_HEADER, EXCHANGE_BODY, EXCHANGE_WORK, EXCHANGE_ANSWERED };

struct exchange {
    struct listener *listener;         /* borrowed */
    struct worker *worker;             /* borrowed */
    struct client *client;             /* borrowed */
    struct MHD_Connection *connection; /* borrowed */
    enum exchange_state state;
    char request_id[REQUEST_NAME];
    uint64_t started_ns;
    const char *method; /* a literal, for the log */
    char *path;         /* owned: normalised, after /v1 */
    const char *route;  /* a literal, for the log */
    uint32_t route_index; /* of routes.h */
    bool poll;          /* logged for debugging only */
    const char *origin; /* borrowed from libmicrohttpd; NULL unless it is allowed */
    exchange_serve serve;

    struct buf body;
    uint64_t n_received;
    bool refused;
    struct api_error refusal;

    struct buf out; /* the answer, or what of a stream is not sent yet */
    size_t sent;
    int status;            /* of the answer, 0 before */
    const char *type;      /* of the answer, a literal; NULL: JSON */
    uint32_t reject;       /* enum wire_reject: how it was refused */
    bool asked;            /* the engine took it */
    const char *ignored;   /* x-ignored-params, borrowed until the answer; NULL */
    const char *mended;    /* x-mended, likewise */

    bool suspended, gone;
    struct exchange_job *job; /* owned; NULL when the answer comes at once */
};

/* libmicrohttpd's callbacks; cls is the struct listener. */
void *exchange_begin(void *cls, const char *uri, struct MHD_Connection *connection);
enum MHD_Result exchange_handle(void *cls, struct MHD_Connection *connection, const char *url,
                                const char *method, const char *version, const char *data,
                                size_t *size, void **context);
void exchange_completed(void *cls, struct MHD_Connection *connection, void **context,
                        enum MHD_RequestTerminationCode code);

/* Answers with x->out as body, JSON unless x->type says else; with none for 204. */
enum MHD_Result exchange_answer(struct exchange *x, int status);
/* The same with what e adds to the headers: Retry-After and the like. e may be NULL. */
enum MHD_Result exchange_answer_with(struct exchange *x, int status, const struct api_error *e);
enum MHD_Result exchange_refuse(struct exchange *x, const struct api_error *e);
/* Answers 200 with what reader gives, as an event stream. */
enum MHD_Result exchange_answer_stream(struct exchange *x,
                                       MHD_ContentReaderCallback reader);

/* Until resumed neither handler nor reader is called. Resuming one that is not suspended does
 * nothing. */
void exchange_suspend(struct exchange *x);
void exchange_resume(struct exchange *x);
/* While suspended: stops the work and lets go. */
void exchange_client_left(struct exchange *x);
/* The body's time is up: says so on the bare socket, as libmicrohttpd cannot any more. */
void exchange_body_late(struct exchange *x);
/* Likewise, when it cannot read on. */
void exchange_body_stuck(struct exchange *x);
/* At a drain's deadline: a job is to give up; its end: everything is to let go. */
void exchange_give_up(struct exchange *x);
void exchange_let_go(struct exchange *x);
/* The value of a request header, or NULL. */
const char *exchange_header(const struct exchange *x, const char *name);

#endif
