/* notify: what we say to systemd and what it gives us; the only user of sd-daemon.
 *
 * Without systemd every call is quietly nothing. Supervisor only. */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

#include <stdint.h>

struct err;

enum { NOTIFY_MAX_FDS = 16 };

/* Listening sockets handed over by systemd. A Unix socket, or one named "admin", is the admin
 * socket; stream sockets of the internet families are for HTTP. */
struct notify_sockets {
    int http[NOTIFY_MAX_FDS]; /* owned by the caller, close-on-exec, not moved */
    uint32_t n_http;
    int admin; /* -1: none */
};
int notify_sockets(struct notify_sockets *out, struct err *err);

/* State lines of sd_notify(3): "READY=1\nSTATUS=serving". */
void notify_state(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The environment without what systemd meant for the supervisor alone. NULL-terminated and
 * malloc'd; the strings are borrowed from environ. NULL without memory. */
char **notify_environment(void);

#endif
