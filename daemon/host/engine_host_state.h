/* engine_host_state: what the parts of the door share.
 *
 * engine_host.c is the process and hears supervisor and engine, engine_peers.c talks to workers,
 * engine_change.c drains and adjusts, engine_recall.c remembers replies. The door's thread. */
#ifndef DAEMON_ENGINE_HOST_STATE_H
#define DAEMON_ENGINE_HOST_STATE_H

#include "daemon/conf/conf.h"
#include "daemon/host/engine_answers.h"
#include "daemon/host/engine_thread.h"
#include "daemon/host/metrics.h"
#include "daemon/host/recall_store.h"
#include "daemon/host/requests.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/wire/wire.h"

#include <systemd/sd-event.h>

enum { N_PEERS = CONF_MAX_WORKERS + 1 }; /* one more while workers are replaced */

struct channel;
struct channel_part;
struct host;

struct peer {
    struct host *host;
    struct channel *channel; /* NULL: nobody is there */
    uint32_t slot, generation;
    uint64_t recall_id;         /* a question that waits */
    struct wire_recall *recall; /* owned; NULL: none */
};

struct host {
    const struct conf *conf;
    sd_event *loop;
    struct channel *supervisor;
    struct engine_thread *engine;
    sd_event_source *words, *pulse, *deadline;
    struct peer peers[N_PEERS];
    struct requests requests;
    bool places_moved, placing; /* the queue's order changed; the engine is asked for it */
    enum wire_engine_state state;
    bool short_of_memory; /* and the journal was told */
    struct engine_answers answers; /* loaded: the engine thread's facts may be read */
    bool stopping; /* the engine thread was told to end */
    uint32_t percent;
    uint32_t running, waiting; /* as workers were told */
    uint64_t row_ns, token_ns; /* likewise: prefill_ns_per_token, decode_ns_per_token */
    struct metrics metrics;
    struct recall_store recall; /* replies; closed until the plan is known */
    struct sip_sum secret;      /* of their keys, for workers */
    sd_event_source *recalls;   /* owned: answers those who wait */
    uint32_t queue, most_queue; /* engine.queue as it is now, and what the door is made for */
    struct engine_order adjust; /* under way in the engine; id 0: none */
    int status; /* of the process */
    struct sandbox sandbox;
    char fault[200]; /* with ENGINE_FAILED: why */
};

/* ---- engine_host.c ---- */

void host_answer(void *ctx, uint64_t id, enum err_kind kind, const char *text, size_t size);

/* ---- engine_peers.c ---- */

void peers_take(struct host *h, const struct wire_peer *m, int fd);
void peers_hello(struct host *h); /* state or facts have changed */
/* Every request ends so; waits a moment for it to be read. */
void peers_fail(struct host *h, enum err_kind kind, const char *text);
/* These may lose the worker, and cancel its requests. */
void peer_send(struct peer *p, uint16_t type, uint64_t id, const struct channel_part *parts,
               size_t n_parts);
void peer_refuse(struct peer *p, uint64_t peer_id, enum err_kind kind, uint32_t retry_after_s,
                 const char *text);
void peer_fail(struct peer *p, uint64_t peer_id, enum err_kind kind, const char *text,
               const struct cz_usage *usage);
void peers_cancel(struct host *h, struct request *r);

/* ---- engine_recall.c ---- */

void recall_open(struct host *h); /* the plan is known */
void recall_close(struct host *h);
void recall_remember(struct host *h, const struct wire_remember *m, size_t size);
void recall_ask(struct peer *p, uint64_t id, const struct wire_recall *m, size_t size);
void recall_forget(struct peer *p); /* it is gone */

/* ---- engine_change.c ---- */

void change_drain(struct host *h, const struct wire_drain *m);
void change_go_on(struct host *h); /* a request has ended: a drain may be done */
void change_adjust(struct host *h, uint64_t id, const struct wire_adjust *m);
void change_adjusted(struct host *h, const struct engine_word *word);

#endif
