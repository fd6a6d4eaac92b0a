/* listen: addresses as text, and the sockets behind them.
 *
 * "127.0.0.1:8080", "[::1]:8080", "localhost:8080" (127.0.0.1), ":8080" and "*:8080" (every
 * IPv4 address). Port 0 takes a free one. Before threads start. */
#ifndef DAEMON_LISTEN_H
#define DAEMON_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

struct err;

struct listen_address {
    struct sockaddr_storage address;
    socklen_t size;
};

int listen_parse(struct listen_address *out, const char *text, struct err *err);
bool listen_is_loopback(const struct listen_address *a);
/* Bound, listening, non-blocking, close-on-exec. */
int listen_open(int *fd, const struct listen_address *a, struct err *err);
/* The address a socket really has, as text; at most cap bytes. Returns buf. */
const char *listen_name(char *buf, size_t cap, int fd);

#endif
