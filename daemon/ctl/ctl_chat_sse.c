#include "daemon/ctl/ctl_chat_sse.h"

#include "util/err.h"

#include <string.h>

void chat_sse_init(struct chat_sse *s)
{
    *s = (struct chat_sse){ 0 };
    buf_init(&s->line, NULL);
    buf_init(&s->data, NULL);
}

void chat_sse_done(struct chat_sse *s)
{
    buf_done(&s->line);
    buf_done(&s->data);
}

static int too_much(struct err *err)
{
    return err_set(err, ERR_FORMAT, "the server sent an event of more than %d MiB",
                   CHAT_SSE_MAX >> 20);
}

static int end_event(struct chat_sse *s, chat_sse_event event, void *ctx, struct err *err)
{
    int rc = 0;

    if (s->has_data) {
        buf_put(&s->data, "", 1);
        if (s->data.failed)
            return err_set(err, ERR_NOMEM, "an event of the server");
        rc = event(ctx, s->data.data, s->data.size - 1, err);
    }
    s->has_data = false;
    s->data.size = 0;
    return rc;
}

static int end_line(struct chat_sse *s, chat_sse_event event, void *ctx, struct err *err)
{
    const char *line = s->line.data;
    size_t size = s->line.size;

    if (size > 0 && line[size - 1] == '\r')
        size--;
    s->line.size = 0;
    if (size == 0)
        return end_event(s, event, ctx, err);
    if (size < 5 || memcmp(line, "data:", 5) != 0)
        return 0;
    size_t from = size > 5 && line[5] == ' ' ? 6 : 5;
    if (s->data.size + size > CHAT_SSE_MAX)
        return too_much(err);
    if (s->has_data)
        buf_put(&s->data, "\n", 1);
    buf_put(&s->data, line + from, size - from);
    s->has_data = true;
    return 0;
}

int chat_sse_feed(struct chat_sse *s, const char *bytes, size_t size, chat_sse_event event,
                  void *ctx, struct err *err)
{
    while (size > 0) {
        const char *end = memchr(bytes, '\n', size);
        size_t n = end ? (size_t)(end - bytes) : size;
        if (s->line.size + n > CHAT_SSE_MAX)
            return too_much(err);
        buf_put(&s->line, bytes, n);
        if (s->line.failed)
            return err_set(err, ERR_NOMEM, "a line of the server");
        if (!end)
            return 0;
        if (end_line(s, event, ctx, err) < 0)
            return -1;
        bytes += n + 1;
        size -= n + 1;
    }
    return 0;
}
