#include "daemon/admin/admin_client.h"

#include "daemon/admin/admin_peer.h"
#include "daemon/base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { IDLE_MS = 10 * 60 * 1000, UNREAD_MS = 30 * 1000, LEAVING_MS = 2 * 1000,
       LINE_ROOM = 4096 };

void admin_client_drop(struct admin_client *c)
{
    c->io = sd_event_source_disable_unref(c->io);
    c->deadline = sd_event_source_disable_unref(c->deadline);
    c->ticker = sd_event_source_disable_unref(c->ticker);
    if (c->fd >= 0)
        close(c->fd);
    free(c->in);
    free(c->out);
    admin_line_done(&c->line);
    *c = (struct admin_client){ .shared = c->shared, .fd = -1 };
}

/* ---- states ---- */

static int on_deadline(sd_event_source *source, uint64_t usec, void *ctx);

/* A client with a command under way is not read: it may send more than we keep, and may close
 * its writing side before the reply is there. */
void admin_client_enter(struct admin_client *c, enum admin_state state, uint64_t limit_ms)
{
    uint32_t events = state == ADMIN_WRITING ? EPOLLOUT : state == ADMIN_ASKING ? 0 : EPOLLIN;

    c->state = state;
    c->deadline = sd_event_source_disable_unref(c->deadline);
    if (sd_event_source_set_io_events(c->io, events) < 0 ||
        (limit_ms && sd_event_add_time_relative(c->shared->loop, &c->deadline, CLOCK_MONOTONIC,
                                                limit_ms * 1000, 0, on_deadline, c) < 0))
        admin_client_drop(c); /* no memory: it would wait for ever */
}

void admin_client_idle(struct admin_client *c)
{
    admin_client_enter(c, ADMIN_IDLE, IDLE_MS);
}

/* What comes after a reply. */
static void written(struct admin_client *c)
{
    free(c->out);
    c->out = NULL;
    c->n_out = c->sent = 0;
    if (c->must_go) {
        /* Closing now would throw away what it has not read yet, if it still sends. */
        shutdown(c->fd, SHUT_WR);
        admin_client_enter(c, ADMIN_LEAVING, LEAVING_MS);
    } else if (c->watching) {
        admin_client_enter(c, ADMIN_WATCHING, 0);
    } else {
        admin_client_idle(c);
    }
}

/* ---- replies ---- */

static void write_some(struct admin_client *c)
{
    while (c->sent < c->n_out) {
        ssize_t n = send(c->fd, c->out + c->sent, c->n_out - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            admin_client_drop(c);
            return;
        }
        c->sent += (size_t)n;
    }
    written(c);
}

void admin_client_reply(struct admin_client *c, json_t *rest)
{
    json_t *reply = json_object();

    json_object_set(reply, "id", c->line.id ? c->line.id : json_null());
    bool whole = json_object_update(reply, rest) == 0;
    json_decref(rest);
    char *text = whole ? json_dumps(reply, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    size_t size = text ? strlen(text) : 0;

    json_decref(reply);
    c->question = 0;
    if (!text) { /* no memory even to say so */
        admin_client_drop(c);
        return;
    }
    if (size >= ADMIN_MAX_REPLY) {
        free(text);
        admin_client_error(c, ERR_TOO_LONG, "the reply is larger than 4 MiB");
        return;
    }
    if (!c->watching)
        admin_line_done(&c->line);
    text[size] = '\n'; /* in place of the zero byte */
    c->out = text;
    c->n_out = size + 1;
    c->sent = 0;
    admin_client_enter(c, ADMIN_WRITING, UNREAD_MS);
    if (c->state == ADMIN_WRITING)
        write_some(c);
}

json_t *admin_error_json(enum err_kind kind, const char *message)
{
    json_t *text = json_string(message);

    return json_pack("{s:s,s:o}", "kind", err_kind_name(kind), "message",
                     text ? text : json_string("the reason is no UTF-8"));
}

void admin_client_error(struct admin_client *c, enum err_kind kind, const char *message)
{
    admin_client_reply(c, json_pack("{s:b,s:o}", "ok", 0, "error",
                                    admin_error_json(kind, message)));
}

void admin_client_data(struct admin_client *c, json_t *data)
{
    if (!data)
        admin_client_error(c, ERR_NOMEM, "no memory for the reply");
    else
        admin_client_reply(c, json_pack("{s:b,s:o}", "ok", 1, "data", data));
}

void admin_client_away(struct admin_client *c, enum err_kind kind, const char *message)
{
    admin_line_done(&c->line);
    c->watching = false;
    c->must_go = true;
    admin_client_error(c, kind, message);
}

/* ---- lines ---- */

static bool reads(const struct admin_client *c)
{
    return c->state == ADMIN_IDLE || c->state == ADMIN_WATCHING;
}

static char *line_end(const struct admin_client *c)
{
    return c->n_in ? memchr(c->in, '\n', c->n_in) : NULL;
}

/* The line leaves the buffer before it is obeyed: an operation may answer within its call. */
static void take_line(struct admin_client *c, const char *end)
{
    size_t size = (size_t)(end - c->in);
    struct err why;

    if (c->watching)
        admin_command_end_watch(c);
    int rc = size ? admin_line_parse(&c->line, c->in, size, &why) : 0;
    c->n_in -= size + 1;
    memmove(c->in, end + 1, c->n_in);
    if (c->n_in == 0 && c->cap_in > LINE_ROOM) {
        free(c->in);
        c->in = NULL;
        c->cap_in = 0;
    }
    if (rc < 0)
        admin_client_error(c, why.kind, why.text);
    else if (size)
        admin_command(c);
    else if (c->state == ADMIN_WATCHING)
        admin_client_idle(c); /* an empty line ended it */
}

void admin_client_read_lines(struct admin_client *c)
{
    if (reads(c) && line_end(c))
        take_line(c, line_end(c));
    if (!reads(c))
        return;
    if (line_end(c))
        sd_event_source_set_io_events(c->io, EPOLLIN | EPOLLOUT); /* others first, then the next */
    else if (c->n_in > ADMIN_MAX_LINE)
        admin_client_away(c, ERR_INPUT, "a line has at most 64 KiB");
    else
        sd_event_source_set_io_events(c->io, EPOLLIN);
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct admin_client *c = ctx;
    struct admin_peer who = admin_peer_of(c->fd);

    (void)source;
    (void)usec;
    if (c->state == ADMIN_ASKING) {
        admin_client_error(c, ERR_BUSY, "no answer came in time");
        admin_client_read_lines(c);
    } else if (c->state == ADMIN_IDLE) {
        admin_client_away(c, ERR_CLOSED, "closed: no command came for 10 minutes");
    } else {
        if (c->state == ADMIN_WRITING)
            log_line(LOG_LEVEL_WARNING, "admin client dropped: it does not read uid=%u pid=%d",
                     who.uid, (int)who.pid);
        admin_client_drop(c);
    }
    return 0;
}

/* What a leaver still sends is read and forgotten, until it closes or its time is over. */
static void forget_some(struct admin_client *c)
{
    char waste[16384];
    ssize_t n = recv(c->fd, waste, sizeof waste, MSG_DONTWAIT);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        admin_client_drop(c);
}

/* A silent client holds next to nothing; one with a long line what that needs. */
static bool make_room(struct admin_client *c)
{
    size_t cap = c->cap_in ? 2 * c->cap_in : LINE_ROOM;

    if (c->n_in < c->cap_in)
        return true;
    if (cap > ADMIN_MAX_LINE + 1)
        cap = ADMIN_MAX_LINE + 1;
    char *in = realloc(c->in, cap);
    if (!in)
        return false;
    c->in = in;
    c->cap_in = cap;
    return true;
}

static void read_some(struct admin_client *c)
{
    if (!make_room(c)) {
        admin_client_drop(c);
        return;
    }
    ssize_t n = recv(c->fd, c->in + c->n_in, c->cap_in - c->n_in, MSG_DONTWAIT);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        admin_client_drop(c);
        return;
    }
    if (n > 0)
        c->n_in += (size_t)n;
}

static int on_client(sd_event_source *source, int fd, uint32_t ready, void *ctx)
{
    struct admin_client *c = ctx;

    (void)source;
    (void)fd;
    if (c->state == ADMIN_WRITING && (ready & EPOLLOUT))
        write_some(c);
    else if (c->state == ADMIN_LEAVING)
        forget_some(c);
    else if (reads(c) && line_end(c))
        ; /* its end is not looked at before its lines are */
    else if (reads(c) && (ready & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        read_some(c);
    else if (ready & (EPOLLHUP | EPOLLERR))
        admin_client_drop(c);
    admin_client_read_lines(c);
    return 0;
}

void admin_client_welcome(struct admin_client *c, int fd)
{
    *c = (struct admin_client){ .shared = c->shared, .fd = fd };
    if (sd_event_add_io(c->shared->loop, &c->io, fd, EPOLLIN, on_client, c) < 0)
        admin_client_drop(c);
    else
        admin_client_idle(c);
}
