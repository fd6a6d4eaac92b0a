/* ctl_chat_admin: how the experts did, from the daemon's admin socket, if it may be asked.
 *
 * Everything here is an extra: no socket, no permission or no answer within half a second is
 * no error, only nothing to show. One thread. */
#ifndef DAEMON_CTL_CHAT_ADMIN_H
#define DAEMON_CTL_CHAT_ADMIN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct chat_counters {
    bool known;
    uint64_t hits, misses, submitted, generated, running, waiting;
};

/* The data of "stats", owned by the caller, or NULL. path NULL: nobody is asked. */
json_t *chat_admin_stats(const char *path);
struct chat_counters chat_admin_counters(const char *path);
/* The share of experts that were in memory between the two looks, or -1: not known, or the
 * socket is another daemon's, which did not see these n_generated tokens. *n_others: requests
 * of others in that time. */
double chat_admin_hit_rate(const struct chat_counters *before, const struct chat_counters *after,
                           uint32_t n_generated, uint64_t *n_others);

#endif
