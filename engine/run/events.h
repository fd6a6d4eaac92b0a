/* events: what the caller is to be told, in the order in which it happened.
 *
 * A ring as large as the most that can be said between two times of asking. Engine thread. */
#ifndef RUN_EVENTS_H
#define RUN_EVENTS_H

#include "colizig.h"

#include <stddef.h>
#include <stdint.h>

struct err;

struct events {
    struct cz_event *ring; /* owned; [cap] */
    uint32_t cap, first, n;
};

int events_open(struct events *out, uint32_t cap, struct err *err);
void events_close(struct events *e); /* also on a zeroed struct */
/* There is room: the caller has seen to that. To be filled further. */
struct cz_event *events_put(struct events *e, uint64_t id, enum cz_event_type type);
/* Hands over up to cap of them; how many. */
int events_take(struct events *e, struct cz_event *to, size_t cap);

#endif
