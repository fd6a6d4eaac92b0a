/* conf_seal: the effective config in a memfd that nobody can change any more.
 *
 * It is what children are started with. Supervisor's thread. */
#ifndef DAEMON_CONF_SEAL_H
#define DAEMON_CONF_SEAL_H

struct conf;
struct err;

/* The descriptor lies above CHILD_PARK_ABOVE and is close-on-exec. */
int conf_seal(int *out, const struct conf *conf, struct err *err);

#endif
