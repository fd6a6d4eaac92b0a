/* door: a connection until its next request's head is whole.
 *
 * libmicrohttpd answers what it cannot parse in HTML, and takes its memory for a connection at once.
 * So a new connection waits here, its bytes looked at but left in the socket, until its head is
 * there and fine; a head that is not gets our own answer. After each answer it comes back.
 * Worker's thread. */
#ifndef DAEMON_DOOR_H
#define DAEMON_DOOR_H

#include <stdbool.h>
#include <stdint.h>

struct client;

/* Something came, or the other side's end. True: the client waits on as before; else it may be gone
 * afterwards. */
bool door_look(struct client *c, uint32_t events);
/* Its time is up: says so where part of a head came, and closes. */
void door_late(struct client *c);

#endif
