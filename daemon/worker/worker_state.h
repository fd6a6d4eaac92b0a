/* worker_state: what the parts of a worker share. Made by worker.c; one thread. */
#ifndef DAEMON_WORKER_STATE_H
#define DAEMON_WORKER_STATE_H

#include "daemon/base/buf.h"
#include "daemon/worker/client.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

struct chat_format;
struct link;
struct tokenizer;
struct worker;

struct worker {
    const struct conf *conf;
    sd_event *loop;              /* owned */
    struct link *link;           /* owned */
    struct tokenizer *tokenizer; /* owned */
    struct chat_format *format;  /* owned */
    struct clients clients;
    struct quota quota;  /* http.buffer */
    uint32_t n_exchanges; /* requests whose URL came and whose answer is not out */
    bool engine_was_ready;
    bool draining; /* takes no new clients */
    bool replaced; /* draining, but what its connections bring is served as ever */
};

/* For logs and headers: what the engine's state means to a client. */
enum worker_engine {
    WORKER_LOADING,
    WORKER_READY,
    WORKER_DRAINING,
    WORKER_FAILED,
    WORKER_CHANGED,   /* the model's files, while it ran */
    WORKER_ESTRANGED, /* its tokenizer.json is not ours: ids would mean other texts */
};
enum worker_engine worker_engine(struct worker *w);

#endif
