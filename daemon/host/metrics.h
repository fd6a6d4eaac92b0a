/* metrics: what the engine's door counts, and all of it as text.
 *
 * Tables of fixed size: a client can make none of them longer, and no label is a word of a
 * client. The text is the exposition format 0.0.4 of Prometheus. Counters begin with the
 * engine process, all of them together. Door's thread. */
#ifndef DAEMON_METRICS_H
#define DAEMON_METRICS_H

#include "daemon/base/prom.h"
#include "daemon/wire/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct engine_facts;
struct recall_store;

/* Statuses that have a row of their own; the last row is for all others. */
enum { METRICS_STATUSES = 24 };

struct metrics {
    uint64_t http[WIRE_MAX_ROUTES][N_METHODS][METRICS_STATUSES];
    struct prom_histogram http_seconds[WIRE_MAX_ROUTES];
    uint64_t ends[N_ENDS], rejects[N_REJECTS], left[N_PHASES];
    uint64_t tokens[N_TOKEN_KINDS];          /* generated */
    uint64_t calls[REPLY_XML + 1], repairs[N_REPLY_REPAIRS];
    struct prom_histogram queue, prefill, decode, whole, first; /* seconds */
    struct prom_histogram prompt, generated;                    /* tokens */
    double started;  /* Unix seconds */
    int memory;      /* /proc/self/statm, opened before the sandbox; -1: not known */
};

struct metrics_view {
    const char *model;
    bool loaded;                      /* then facts are there */
    bool serving;                     /* and it takes requests */
    const struct engine_facts *facts; /* borrowed */
    const struct cz_stats *stats;     /* borrowed */
    const struct recall_store *recall; /* borrowed */
};

void metrics_init(struct metrics *m);
void metrics_done(struct metrics *m);
void metrics_count(struct metrics *m, const struct wire_count *count); /* that was checked */
/* Generations of a worker that died. */
void metrics_lost(struct metrics *m, uint32_t n);

void metrics_write(struct buf *to, const struct metrics *m, const struct metrics_view *view);

#endif
