/* ahead: the requests that have come so far on a connection, looked at while they are still in the
 * socket.
 *
 * libmicrohttpd reads as much as there is, also of requests behind the one it answers, and parses
 * each as soon as it can. So all that it may find is looked at before: how many heads are fine, and
 * where the last of these requests ends. Pure. */
#ifndef DAEMON_AHEAD_H
#define DAEMON_AHEAD_H

#include <stddef.h>
#include <stdint.h>

struct api_error;

struct ahead {
    uint32_t n;
    uint64_t size; /* to the end of the last one, also beyond what has come; 0: nobody can say */
};

/* 1 with *out: at least one head is whole and fine, and no chunk of its body that came is
 * malformed. 0: the first head's end is not there. -1 with *e. Later requests that are not so end
 * the count. */
int ahead_look(struct ahead *out, const char *bytes, size_t size, struct api_error *e);

#endif
