/* buf: bytes that grow, paid for out of a quota, and JSON text written into them.
 *
 * All bodies and unsent output of a worker come out of one quota (http.buffer). Failure is
 * sticky: after one put failed every later one does nothing, so a writer checks `failed` once,
 * at the end. Worker's thread. */
#ifndef DAEMON_BUF_H
#define DAEMON_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct quota {
    uint64_t used, cap;
};
bool quota_take(struct quota *q, uint64_t bytes); /* false, taking nothing, when over the cap */
void quota_give(struct quota *q, uint64_t bytes);

struct buf {
    char *data; /* owned; not terminated */
    size_t size, cap;
    struct quota *quota; /* borrowed; NULL: unlimited */
    bool failed;         /* no memory, or the quota is used up */
};

void buf_init(struct buf *b, struct quota *quota);
void buf_done(struct buf *b); /* may be used again afterwards */
void buf_drop(struct buf *b, size_t n); /* the first n bytes */
void buf_trim(struct buf *b); /* gives back what is not used */
bool buf_reserve(struct buf *b, size_t more);
void buf_put(struct buf *b, const char *bytes, size_t size);
void buf_text(struct buf *b, const char *text);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A JSON string with its quotes. Invalid UTF-8 becomes U+FFFD; the result is on one line. */
void buf_json(struct buf *b, const char *bytes, size_t size);
void buf_json_inner(struct buf *b, const char *bytes, size_t size); /* without the quotes */
void buf_json_text(struct buf *b, const char *text); /* NULL writes null */

#endif
