/* notify: what we say to systemd and what it gives us; the only user of sd-daemon.
 *
 * Nothing here waits. Where nobody reads what we say, the newest of each kind is kept and tried
 * again every moment, so that READY also reaches a reader that comes late. Without systemd every
 * call is quietly nothing. Supervisor only. */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-event.h>

struct err;

enum { NOTIFY_MAX_FDS = 16 };

struct notify {
    int fd; /* owned; -1: nobody wants to hear */
    struct sockaddr_un to;
    socklen_t to_size;
    uint64_t watchdog_us; /* between signs of life; 0: none are wanted */
    /* What is not taken yet, newest of its kind: READY, RELOADING or STOPPING; a text; the time
     * that we ask for; that we live. Whole lines, or empty. */
    char phase[96], status[640], extend[64];
    bool alive;
    sd_event_source *again, *watchdog; /* owned */
};

/* Listening sockets handed over by systemd. A Unix socket, or one named "admin", is the admin
 * socket; stream sockets of the internet families are for HTTP. */
struct notify_sockets {
    int http[NOTIFY_MAX_FDS]; /* owned by the caller, close-on-exec, not moved */
    uint32_t n_http;
    int admin; /* -1: none */
};
int notify_sockets(struct notify_sockets *out, struct err *err);

/* *n is at rest already when its fd is -1. Begins the signs of life when systemd waits for some.
 * Fails when the environment has garbage where systemd's numbers belong. */
int notify_open(struct notify *n, sd_event *loop, struct err *err);
void notify_close(struct notify *n); /* after a last try */

/* State lines of sd_notify(3): "READY=1\nSTATUS=serving". */
void notify_state(struct notify *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The environment without what systemd meant for the supervisor alone. NULL-terminated and
 * malloc'd; the strings are borrowed from environ. NULL without memory. */
char **notify_environment(void);

#endif
