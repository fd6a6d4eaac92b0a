/* worker: one process that owns client connections.
 *
 * sd-event loop around libmicrohttpd (one daemon per listener, in external epoll mode), the
 * link to the engine, the tokenizer. Holds no weights and nothing that outlives a
 * connection. */
#ifndef DAEMON_WORKER_H
#define DAEMON_WORKER_H

#include <stdint.h>

struct conf;
struct err;

struct worker_options {
    const struct conf *conf;
    const int *listeners; /* accepted from; stay open for life */
    uint32_t n_listeners;
    int channel;   /* to the supervisor: PEER, DRAIN, ADJUST come in, READY goes out */
    uint32_t slot; /* which worker this is, for logs */
};

/* How many descriptors it needs, its connections among them. */
uint32_t worker_descriptors(const struct conf *conf, uint32_t n_listeners);
/* Runs until DRAIN is done or the supervisor is gone; the process's exit status. */
int worker_run(const struct worker_options *opt);

#endif
