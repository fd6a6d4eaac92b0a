/* head: whether a request's head says one thing to every reader.
 *
 * A proxy before us and we must agree where a request ends, or one client's bytes become another's
 * request. What could be read in two ways (two lengths, a length beside a transfer encoding, two
 * hosts, a blank in a header's name) is refused and ends the connection. Worker's thread. */
#ifndef DAEMON_HEAD_H
#define DAEMON_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct api_error;
struct MHD_Connection;

enum {
    HEAD_MAX = 16 << 10,
    HEAD_MAX_TARGET = 8 << 10,
    /* Of libmicrohttpd's pool for a connection: what is left of it is for the answer's head, and a
     * piece of the body. */
    HEAD_POOL = 32 << 10,
    HEAD_POOL_MAX = 26 << 10,
};

/* A head that libmicrohttpd has taken apart; false with *e. */
bool head_check(struct MHD_Connection *connection, const char *version, struct api_error *e);
/* What follows a head. */
struct head_body {
    uint64_t size; /* 0 for one in chunks, which says so itself */
    bool chunked;
};

/* The bytes that came so far, before libmicrohttpd sees them, whose own refusals are HTML: the
 * size of the head with *body, 0 while its end is not there, -1 with *e. */
ssize_t head_scan(const char *bytes, size_t size, struct head_body *body, struct api_error *e);
/* How many of the bytes are blank lines, which some clients send behind a body. */
size_t head_blank(const char *bytes, size_t size);
/* The path in a target such as "http://host:80/path?query", with *host and its size; a target
 * that is a path is returned as it is, *host being NULL. */
const char *head_target(const char *target, const char **host, size_t *host_size);

#endif
