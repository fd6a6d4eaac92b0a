/* listener: one listening socket of a worker, and the libmicrohttpd that serves its clients.
 *
 * Accepts by itself, since http.connections counts for all listeners together: when the worker
 * is full the client that has been idle longest is closed to make room, and while nobody is idle
 * new ones wait in the backlog, or another worker takes them. Worker's thread. */
#ifndef DAEMON_LISTENER_H
#define DAEMON_LISTENER_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

struct err;
struct worker;

struct listener {
    struct worker *worker;
    struct MHD_Daemon *daemon;  /* owned */
    int fd;                     /* borrowed */
    sd_event_source *ready;     /* owned: libmicrohttpd's epoll descriptor */
    sd_event_source *accepting; /* owned */
    uint64_t pause_until_ns;    /* after accepting failed */
    uint64_t alone_until_ns;    /* a new worker lets others accept until the engine has greeted it */
    bool loopback;              /* bound to 127.0.0.0/8 or ::1: Host is checked */
};

int listener_open(struct listener *l, struct worker *w, int fd, struct err *err);
/* After each turn of the loop: whether clients are taken depends on how many there are. Returns
 * in how many milliseconds to look again, UINT64_MAX for no need. */
uint64_t listener_turn(struct listener *l);
void listener_close(struct listener *l);

#endif
