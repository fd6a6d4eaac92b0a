/* slices: long work on the worker's thread, a slice at a time, others being served between.
 *
 * Worker's thread. */
#ifndef DAEMON_SLICES_H
#define DAEMON_SLICES_H

#include <systemd/sd-event.h>

struct err;

/* What a slice should take. */
#define SLICE_NS UINT64_C(10000000)

/* Zero it. Its owner must not move. */
struct slices {
    sd_event *loop;          /* borrowed */
    sd_event_source *source; /* owned; NULL while nothing is under way */
    int (*go_on)(void *ctx);
    void *ctx;
};

/* Calls go_on each time round the loop until it does not return 1. */
int slices_start(struct slices *s, sd_event *loop, int (*go_on)(void *ctx), void *ctx,
                 struct err *err);
void slices_stop(struct slices *s); /* also from go_on */

#endif
