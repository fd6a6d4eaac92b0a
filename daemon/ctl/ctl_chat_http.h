/* ctl_chat_http: HTTP to one server, in a way that Ctrl-C can end at once.
 *
 * One request at a time, over a connection that is kept. Every wait also watches a descriptor
 * of the caller (a signalfd). Proxies are not used and redirects are not followed: the server
 * is the one that was named. One thread; the only user of libcurl. */
#ifndef DAEMON_CTL_CHAT_HTTP_H
#define DAEMON_CTL_CHAT_HTTP_H

#include "daemon/base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct chat_http;

enum chat_http_end {
    CHAT_HTTP_DONE,        /* an answer with a status came whole */
    CHAT_HTTP_INTERRUPTED, /* the caller's word ended it */
    CHAT_HTTP_NO_SERVER,   /* nobody listens there; *err says why */
    CHAT_HTTP_LOST,        /* the connection broke before the answer was whole */
    CHAT_HTTP_FAILED,      /* anything else; *err */
};

struct chat_http_events {
    void *ctx;
    /* Bytes of an answer of status 200; NULL: they are kept in http's body. -1 ends it. */
    int (*bytes)(void *ctx, const char *bytes, size_t size, struct err *err);
    /* About every tick_ms, and when `watch` is readable. False ends it. */
    bool (*go_on)(void *ctx);
    uint32_t tick_ms;
};

/* url: http or https with a host, without /v1; a slash or /v1 at its end is taken off. key may
 * be NULL. ERR_INPUT for a wrong one of either. */
int chat_http_open(struct chat_http **out, const char *url, const char *key, int watch,
                   struct err *err);
void chat_http_close(struct chat_http *h); /* NULL is fine */
const char *chat_http_base(const struct chat_http *h); /* as it is used: "http://127.0.0.1:8080" */
bool chat_http_is_local(const struct chat_http *h); /* a loopback address, or localhost */

/* GET when body is NULL, else POST of JSON. limit_ms is for the whole answer; 0: none. */
enum chat_http_end chat_http_ask(struct chat_http *h, const char *path, const char *body,
                                 size_t size, uint32_t limit_ms,
                                 const struct chat_http_events *events, struct err *err);
/* Of the last answer. */
long chat_http_status(const struct chat_http *h);
const struct buf *chat_http_body(const struct chat_http *h); /* capped at 1 MiB */

#endif
