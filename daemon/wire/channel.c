/* Both directions are plain byte queues. A descriptor travels with the first byte of its frame:
 * the kernel never glues bytes behind a descriptor to it in one recvmsg, so descriptors arrive
 * in the order of the frames that are flagged to have one, and never later than these. */
#include "daemon/wire/channel.h"

#include "util/clock.h"
#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_CHUNK = 64 << 10,
    KEEP_BUFFER = 256 << 10, /* a buffer that grew past this shrinks when it is empty */
    READS_PER_TURN = 8,      /* then other sources of the loop get their turn */
    MAX_FDS = 8,             /* received and not yet claimed by a frame */
    MAX_FDS_OUT = 128,       /* PEERs waiting in one outbox: two per worker slot */
};

struct queue {
    char *bytes; /* owned */
    size_t cap, begin, end;
};

struct fd_mark {
    uint64_t at; /* position in the stream of bytes sent */
    int fd;      /* owned */
};

struct channel {
    struct channel_events events;
    sd_event_source *io;
    int fd;
    struct queue in, out;
    size_t outbox_cap;
    uint64_t n_sent; /* bytes the kernel took */
    struct fd_mark marks[MAX_FDS_OUT];
    size_t n_marks;
    int fds[MAX_FDS];
    size_t n_fds;
    bool write_dead; /* the other side takes no more */
    bool ended;      /* closed was or is being told */
    bool gone;       /* channel_close was called */
    unsigned depth;  /* inside callbacks of ours */
};

static size_t queue_size(const struct queue *q)
{
    return q->end - q->begin;
}

/* Makes room for n bytes behind the end. */
static int queue_room(struct queue *q, size_t n, struct err *err)
{
    size_t used = queue_size(q);

    if (used == 0)
        q->begin = q->end = 0;
    if (q->cap - q->end >= n)
        return 0;
    if (q->begin > 0) {
        memmove(q->bytes, q->bytes + q->begin, used);
        q->begin = 0;
        q->end = used;
    }
    if (q->cap - q->end >= n)
        return 0;

    size_t cap = q->cap ? q->cap : READ_CHUNK;
    while (cap - used < n)
        cap *= 2;
    char *bytes = realloc(q->bytes, cap);
    if (!bytes)
        return err_set(err, ERR_NOMEM, "channel buffer of %zu bytes", cap);
    q->bytes = bytes;
    q->cap = cap;
    return 0;
}

static void queue_trim(struct queue *q)
{
    if (queue_size(q) == 0 && q->cap > KEEP_BUFFER) {
        free(q->bytes);
        *q = (struct queue){ 0 };
    }
}

static void channel_free(struct channel *c)
{
    sd_event_source_disable_unref(c->io);
    if (c->fd >= 0)
        close(c->fd);
    for (size_t i = 0; i < c->n_fds; i++)
        close(c->fds[i]);
    for (size_t i = 0; i < c->n_marks; i++)
        close(c->marks[i].fd);
    free(c->in.bytes);
    free(c->out.bytes);
    free(c);
}

static void end(struct channel *c, const struct err *why)
{
    if (c->ended || c->gone)
        return;
    c->ended = true;
    c->write_dead = true;
    sd_event_source_set_enabled(c->io, SD_EVENT_OFF);
    c->events.closed(c->events.ctx, why);
}

static void want_write(struct channel *c, bool on)
{
    if (!c->ended && !c->gone)
        sd_event_source_set_io_events(c->io, EPOLLIN | (on ? EPOLLOUT : 0));
}

/* The reading side meets the end as well and tells it, after the frames before it. */
static void stop_writing(struct channel *c)
{
    c->write_dead = true;
    c->out.begin = c->out.end = 0;
    for (size_t i = 0; i < c->n_marks; i++)
        close(c->marks[i].fd);
    c->n_marks = 0;
    want_write(c, false);
}

static ssize_t send_some(struct channel *c)
{
    size_t n = queue_size(&c->out);
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    bool with_fd = c->n_marks > 0 && c->marks[0].at == c->n_sent;

    /* Never past the first byte of the next frame that has a descriptor. */
    if (c->n_marks > (with_fd ? 1u : 0u)) {
        uint64_t until = c->marks[with_fd ? 1 : 0].at - c->n_sent;
        if (until < n)
            n = (size_t)until;
    }
    struct iovec part = { .iov_base = c->out.bytes + c->out.begin, .iov_len = n };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

    if (with_fd) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &c->marks[0].fd, sizeof(int));
    }
    ssize_t sent = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
        c->n_sent += (uint64_t)sent;
        c->out.begin += (size_t)sent;
        if (with_fd) {
            close(c->marks[0].fd);
            c->n_marks--;
            memmove(c->marks, c->marks + 1, c->n_marks * sizeof c->marks[0]);
        }
    }
    return sent;
}

static void flush(struct channel *c)
{
    while (queue_size(&c->out) > 0) {
        if (send_some(c) >= 0 || errno == EINTR)
            continue;
        if (errno == EAGAIN) {
            want_write(c, true);
            return;
        }
        stop_writing(c);
        return;
    }
    queue_trim(&c->out);
    want_write(c, false);
}

/* Takes the descriptors of one recvmsg. False when there are more than anyone may send. */
static bool keep_fds(struct channel *c, struct msghdr *message)
{
    bool fine = !(message->msg_flags & MSG_CTRUNC);

    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
            if (c->n_fds < MAX_FDS) {
                c->fds[c->n_fds++] = fd;
            } else {
                close(fd);
                fine = false;
            }
        }
    }
    return fine;
}

static int take_fd(struct channel *c)
{
    int fd = c->fds[0];

    c->n_fds--;
    memmove(c->fds, c->fds + 1, c->n_fds * sizeof c->fds[0]);
    return fd;
}

/* Hands over the frame at the queue's begin. */
static int deliver(struct channel *c, const struct wire_head *head, struct err *err)
{
    struct queue *q = &c->in;
    size_t at = q->begin & ~(size_t)7;
    int fd = -1;

    /* A frame may start at any byte behind the one before it; its structs need alignment. The
     * few bytes below belong to a frame that was handled. */
    if (at != q->begin)
        memmove(q->bytes + at, q->bytes + q->begin, head->size);
    q->begin += head->size;

    const char *body = q->bytes + at + sizeof *head;
    size_t size = head->size - sizeof *head;
    if (wire_check(head, body, size, err) < 0)
        return -1;
    if (head->flags & WIRE_FLAG_FD) {
        if (c->n_fds == 0)
            return err_set(err, ERR_FORMAT, "message of type %u came without its descriptor",
                           head->type);
        fd = take_fd(c);
    }
    c->events.frame(c->events.ctx, head, body, size, fd);
    return 0;
}

static int deliver_all(struct channel *c, struct err *err)
{
    struct wire_head head;

    while (!c->gone && queue_size(&c->in) >= sizeof head) {
        memcpy(&head, c->in.bytes + c->in.begin, sizeof head);
        if (wire_check_head(&head, err) < 0)
            return -1;
        if (queue_size(&c->in) < head.size)
            return 0;
        if (deliver(c, &head, err) < 0)
            return -1;
    }
    return 0;
}

/* Room for the rest of the frame that is coming in, or for a good read. */
static int make_room(struct channel *c, struct err *err)
{
    struct wire_head head;
    size_t have = queue_size(&c->in), want = READ_CHUNK;

    queue_trim(&c->in);
    if (have >= sizeof head) {
        memcpy(&head, c->in.bytes + c->in.begin, sizeof head);
        if (head.size - have > want)
            want = head.size - have;
    }
    return queue_room(&c->in, want, err);
}

/* 1: something came; 0: nothing there now; -1: the end. */
static int receive(struct channel *c, struct err *err)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
    } control;

    if (make_room(c, err) < 0)
        return -1;
    struct iovec part = { .iov_base = c->in.bytes + c->in.end, .iov_len = c->in.cap - c->in.end };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                              .msg_controllen = sizeof control.bytes };

    ssize_t got = recvmsg(c->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got < 0 && errno != ECONNRESET)
        return err_errno(err, "channel");
    if (got <= 0)
        return err_set(err, ERR_CLOSED, queue_size(&c->in) ? "ended in the middle of a message"
                                                           : "the other side is gone");
    c->in.end += (size_t)got;
    if (!keep_fds(c, &message))
        return err_set(err, ERR_FORMAT, "too many descriptors");
    return 1;
}

static int on_io(sd_event_source *source, int fd, uint32_t ready, void *ctx)
{
    struct channel *c = ctx;
    struct err why;

    (void)source;
    (void)fd;
    c->depth++;
    if ((ready & EPOLLOUT) && !c->write_dead)
        flush(c);
    if (ready & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        for (int i = 0; i < READS_PER_TURN && !c->gone; i++) {
            int got = receive(c, &why);
            if (got == 0)
                break;
            if (got < 0 || deliver_all(c, &why) < 0) {
                end(c, &why);
                break;
            }
        }
    }
    c->depth--;
    if (c->gone && c->depth == 0)
        channel_free(c);
    return 0;
}

int channel_open(struct channel **out, sd_event *loop, int fd, size_t outbox_cap,
                 const struct channel_events *events, struct err *err)
{
    struct channel *c = calloc(1, sizeof *c);

    if (!c) {
        close(fd);
        return err_set(err, ERR_NOMEM, "channel");
    }
    c->fd = fd;
    c->events = *events;
    c->outbox_cap = outbox_cap;

    int rc = sd_event_add_io(loop, &c->io, fd, EPOLLIN, on_io, c);
    if (rc < 0) {
        errno = -rc;
        err_errno(err, "watching a channel");
        channel_free(c);
        return -1;
    }
    *out = c;
    return 0;
}

void channel_close(struct channel *c)
{
    if (!c || c->gone)
        return;
    c->gone = true;
    if (c->depth > 0) {
        sd_event_source_set_enabled(c->io, SD_EVENT_OFF);
        return; /* on_io frees it when its callbacks are done */
    }
    channel_free(c);
}

static int keep_mark(struct channel *c, int fd, struct err *err)
{
    if (c->n_marks == MAX_FDS_OUT)
        return err_set(err, ERR_BUSY, "too many descriptors wait to be sent");
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return err_errno(err, "copying a descriptor");
    c->marks[c->n_marks++] = (struct fd_mark){ .at = c->n_sent + queue_size(&c->out), .fd = copy };
    return 0;
}

int channel_send(struct channel *c, uint16_t type, uint64_t id, const struct channel_part *parts,
                 size_t n_parts, int fd, struct err *err)
{
    size_t size = sizeof(struct wire_head);

    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].size > WIRE_MAX_FRAME - size)
            return err_set(err, ERR_TOO_LONG, "message of more than %d bytes", WIRE_MAX_FRAME);
        size += parts[i].size;
    }
    if (c->write_dead || c->gone)
        return err_set(err, ERR_CLOSED, "the other side is gone");
    if (size > c->outbox_cap || queue_size(&c->out) > c->outbox_cap - size)
        return err_set(err, ERR_BUSY, "%zu bytes wait to be sent already", queue_size(&c->out));
    if (queue_room(&c->out, size, err) < 0)
        return -1;
    if (fd >= 0 && keep_mark(c, fd, err) < 0)
        return -1;

    struct wire_head head = { .size = (uint32_t)size, .type = type, .id = id,
                              .flags = fd >= 0 ? WIRE_FLAG_FD : 0 };
    memcpy(c->out.bytes + c->out.end, &head, sizeof head);
    c->out.end += sizeof head;
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].size > 0)
            memcpy(c->out.bytes + c->out.end, parts[i].bytes, parts[i].size);
        c->out.end += parts[i].size;
    }
    if (queue_size(&c->out) == size)
        flush(c);
    return 0;
}

size_t channel_queued(const struct channel *c)
{
    return queue_size(&c->out);
}

int channel_flush(struct channel *c, int timeout_ms, struct err *err)
{
    uint64_t until = clock_ms() + (uint64_t)timeout_ms;

    while (!c->write_dead && queue_size(&c->out) > 0) {
        flush(c);
        if (c->write_dead || queue_size(&c->out) == 0)
            break;
        uint64_t now = clock_ms();
        if (now >= until)
            return err_set(err, ERR_BUSY, "the other side does not read");
        struct pollfd wait = { .fd = c->fd, .events = POLLOUT };
        if (poll(&wait, 1, (int)(until - now)) < 0 && errno != EINTR)
            return err_errno(err, "poll");
    }
    return c->write_dead ? err_set(err, ERR_CLOSED, "the other side is gone") : 0;
}
