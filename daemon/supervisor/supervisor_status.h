/* supervisor_status: what the supervisor says of itself and its children, as JSON.
 *
 * It answers whatever the engine does: phase, processes and restarts, listeners, and memory as
 * planned beside memory as the kernel counts it. Supervisor's thread. */
#ifndef DAEMON_SUPERVISOR_STATUS_H
#define DAEMON_SUPERVISOR_STATUS_H

#include <jansson.h>
#include <stdint.h>

struct child;
struct conf;

struct supervisor_view { /* all borrowed */
    const struct conf *conf;
    const char *phase; /* "starting", "serving", ... */
    const char *reload; /* what a reload is doing; NULL: none is under way */
    const struct child *engine, *const *workers; /* [n_workers] */
    uint32_t n_workers;
    const int *listeners;
    uint32_t n_listeners;
    uint64_t started_ms;
};

/* A new reference, NULL without memory. */
json_t *supervisor_status(const struct supervisor_view *view);

#endif
