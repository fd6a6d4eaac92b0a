/* conf_diff: what a reload changes, key by key, and whom each key concerns.
 *
 * Compares two finished configs by the table in conf_keys.c, which says for every key who has to
 * begin anew when it changes. Supervisor's thread. */
#ifndef DAEMON_CONF_DIFF_H
#define DAEMON_CONF_DIFF_H

#include "daemon/conf/conf_keys.h"

enum { CONF_MAX_DIFF = 64 }; /* more than there are keys */

struct conf_diff {
    const struct conf_key *keys[CONF_MAX_DIFF]; /* in the table's order */
    uint32_t n;
    unsigned changes; /* of enum conf_change, of all of them */
};

void conf_diff(struct conf_diff *out, const struct conf *from, const struct conf *to);
bool conf_diff_has(const struct conf_diff *d, const char *section, const char *name);
/* Gives *to the values of *from for all keys of one kind of change. */
int conf_keep(struct conf *to, const struct conf *from, enum conf_change change, struct err *err);

#endif
