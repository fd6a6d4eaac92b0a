/* ctl_chat_sse: server-sent events out of a stream of bytes.
 *
 * Only data is of interest: the lines of one event are joined, comments and other fields are
 * passed over. Lines may end in LF or CRLF and may be cut anywhere. One thread. */
#ifndef DAEMON_CTL_CHAT_SSE_H
#define DAEMON_CTL_CHAT_SSE_H

#include "daemon/base/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct err;

enum { CHAT_SSE_MAX = 4 << 20 }; /* of one event */

struct chat_sse {
    struct buf line, data; /* owned */
    bool has_data;
};

/* data is zero-terminated. Returning -1 with *err filled ends the feeding. */
typedef int (*chat_sse_event)(void *ctx, const char *data, size_t size, struct err *err);

void chat_sse_init(struct chat_sse *s);
void chat_sse_done(struct chat_sse *s);
/* ERR_FORMAT for an event larger than CHAT_SSE_MAX; what the event function returned. */
int chat_sse_feed(struct chat_sse *s, const char *bytes, size_t size, chat_sse_event event,
                  void *ctx, struct err *err);

#endif
