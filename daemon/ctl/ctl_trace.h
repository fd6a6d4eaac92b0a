/* ctl_trace: which experts the layers of a run ordered, written to a file for scripts/cache-replay.
 *
 * JSON lines: a head, a line for each order, an end with what the engine counted
 * (docs/experts.md). A file without its end is of a run that was cut short. One thread. */
#ifndef DAEMON_CTL_TRACE_H
#define DAEMON_CTL_TRACE_H

#include "colizig.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct ctl_trace {
    FILE *file; /* owned; NULL: nobody wants a trace */
    const char *path; /* borrowed */
    uint64_t n_orders;
    bool failed; /* a write did */
    int error;   /* why: its errno */
};

/* Replaces the file. *t is zeroed before. */
int ctl_trace_open(struct ctl_trace *t, const char *path, struct err *err);
/* The head. ERR_INPUT where the model has no routed experts. */
int ctl_trace_begin(struct ctl_trace *t, const char *model_dir, const struct cz_plan *plan,
                    struct err *err);
void ctl_trace_order(struct ctl_trace *t, const struct cz_expert_order *o);
/* What went wrong with writing so far: -1 with *err, or 0. */
int ctl_trace_check(const struct ctl_trace *t, struct err *err);
/* The end, for a run that came to its own. */
int ctl_trace_end(struct ctl_trace *t, const struct cz_stats *stats, struct err *err);
/* Also of a file without its end, and twice. */
int ctl_trace_close(struct ctl_trace *t, struct err *err);

#endif
