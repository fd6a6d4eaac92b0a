#include "run/events.h"

#include "util/err.h"

#include <assert.h>
#include <stdlib.h>

int events_open(struct events *out, uint32_t cap, struct err *err)
{
    struct events e = { .ring = calloc(cap, sizeof *e.ring), .cap = cap };

    if (!e.ring)
        return err_set(err, ERR_NOMEM, "room for %u events", cap);
    *out = e;
    return 0;
}

void events_close(struct events *e)
{
    free(e->ring);
    *e = (struct events){ 0 };
}

struct cz_event *events_put(struct events *e, uint64_t id, enum cz_event_type type)
{
    assert(e->n < e->cap);
    struct cz_event *event = &e->ring[(e->first + e->n++) % e->cap];

    *event = (struct cz_event){ .id = id, .type = type };
    return event;
}

int events_take(struct events *e, struct cz_event *to, size_t cap)
{
    int n = 0;

    for (; e->n > 0 && (size_t)n < cap; n++, e->n--) {
        to[n] = e->ring[e->first];
        e->first = (e->first + 1) % e->cap;
    }
    return n;
}
