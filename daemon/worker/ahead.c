#include "daemon/worker/ahead.h"

#include "daemon/openai/api_error.h"
#include "daemon/worker/head.h"

#include <stdbool.h>
#include <string.h>
#include <sys/types.h>

/* ---- chunks ---- */

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "1f4", "1f4;name=value": 1 with *size, 0 when the line says something else, -1 when there is more
 * of it to come. *at goes behind the line. */
static int chunk_size(const char *bytes, size_t size, size_t *at, uint64_t *chunk)
{
    size_t i = *at;
    uint64_t n = 0;

    for (; i < size && digit(bytes[i]) >= 0; i++) {
        if (n >> 60)
            return 0;
        n = n << 4 | (uint64_t)digit(bytes[i]);
    }
    if (i == size)
        return -1;
    if (i == *at || (bytes[i] != ';' && bytes[i] != '\r' && bytes[i] != '\n'))
        return 0;
    const char *end = memchr(bytes + i, '\n', size - i);
    if (bytes[i] == '\r' && i + 1 < size && bytes[i + 1] != '\n')
        return 0;
    if (!end)
        return -1;
    *at = (size_t)(end - bytes) + 1;
    *chunk = n;
    return 1;
}

/* The line break behind a chunk. */
static int chunk_end(const char *bytes, size_t size, size_t *at)
{
    size_t i = *at;

    if (i < size && bytes[i] == '\r')
        i++;
    if (i == size)
        return -1;
    *at = i + 1;
    return bytes[i] == '\n';
}

/* Fields behind the last chunk, to an empty line: 1, or -1 when there are more to come. What they
 * say is nobody's concern. */
static int trailer(const char *bytes, size_t size, size_t *at)
{
    for (;;) {
        const char *end = memchr(bytes + *at, '\n', size - *at);
        if (!end)
            return -1;
        size_t from = *at, n = (size_t)(end - bytes) - from;
        *at = from + n + 1;
        if (n == 0 || (n == 1 && bytes[from] == '\r'))
            return 1;
    }
}

/* A body in chunks: 1 with *at behind it, 0 when it is malformed, -1 when there is more of it to
 * come. */
static int skip_chunks(const char *bytes, size_t size, size_t *at)
{
    for (;;) {
        uint64_t chunk;
        int rc = chunk_size(bytes, size, at, &chunk);
        if (rc != 1)
            return rc;
        if (chunk == 0)
            return trailer(bytes, size, at);
        if (chunk >= size - *at)
            return -1;
        *at += chunk;
        rc = chunk_end(bytes, size, at);
        if (rc != 1)
            return rc;
    }
}

/* ---- requests ---- */

/* One: as ahead_look, *size as there. */
static int look_at_one(uint64_t *out, const char *bytes, size_t size, struct api_error *e)
{
    struct head_body body;
    ssize_t head = head_scan(bytes, size, &body, e);
    size_t at;

    if (head <= 0)
        return (int)head;
    *out = (uint64_t)head + body.size;
    if (!body.chunked)
        return 1;
    at = (size_t)head;
    int rc = skip_chunks(bytes, size, &at);
    *out = rc == 1 ? at : 0;
    if (rc != 0)
        return 1;
    api_error_set(e, 400, "invalid_request", NULL, "The body is not made of chunks.");
    e->close = true;
    return -1;
}

int ahead_look(struct ahead *out, const char *bytes, size_t size, struct api_error *e)
{
    struct ahead a = { 0 };
    struct api_error later;
    uint64_t one;
    int rc = look_at_one(&one, bytes, size, e);

    if (rc <= 0)
        return rc;
    do {
        a.n++;
        a.size = one ? a.size + one : 0;
        if (a.size >= size || a.size == 0)
            break;
        a.size += head_blank(bytes + a.size, size - a.size);
    } while (look_at_one(&one, bytes + a.size, size - a.size, &later) > 0);
    *out = a;
    return 1;
}
