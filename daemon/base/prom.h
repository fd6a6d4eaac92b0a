/* prom: figures in the text exposition format 0.0.4 of Prometheus.
 *
 * Names are written with "colizig_" before them. Names, labels and helps are words of ours, never
 * of a client; only prom_label escapes. Any thread. */
#ifndef DAEMON_PROM_H
#define DAEMON_PROM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;

enum { PROM_BOUNDS = 16 }; /* buckets of a histogram at most, without +Inf */

/* Counts below bounds that whoever observes and writes agrees on. All zero is an empty one. */
struct prom_histogram {
    uint64_t buckets[PROM_BOUNDS + 1]; /* not cumulated; the last is +Inf */
    double sum;
    uint64_t n;
};

/* bounds: n of them, rising, n <= PROM_BOUNDS. */
void prom_observe(struct prom_histogram *h, const double *bounds, size_t n, double value);

void prom_head(struct buf *to, const char *name, const char *type, const char *help);
/* The inside of a label's quotes. */
void prom_label(struct buf *to, const char *value);

/* Each with its head. */
void prom_one(struct buf *to, const char *name, const char *type, const char *help, double value);
void prom_gauge(struct buf *to, const char *name, const char *help, uint64_t value);
void prom_counter(struct buf *to, const char *name, const char *help, uint64_t value);
void prom_histogram(struct buf *to, const char *name, const char *help, const double *bounds,
                    size_t n, const struct prom_histogram *h);

/* One line below a head. */
void prom_labelled(struct buf *to, const char *name, const char *label, const char *value,
                   uint64_t n);
/* The lines of one histogram below a head; label: "" or "route=\"/models\",". */
void prom_buckets(struct buf *to, const char *name, const char *label, const double *bounds,
                  size_t n, const struct prom_histogram *h);

/* Which program this is, whether its engine answers, and whether it serves: all that is known
 * without an engine. */
void prom_service(struct buf *to, bool engine, bool serving);

#endif
