/* Frames between processes: whole in any cutting, with their descriptors, and bounded. */
#include "daemon/wire/channel.h"
#include "util/err.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct seen {
    struct channel *channel;
    uint32_t n_frames, n_closed;
    uint64_t last_id, sum;
    size_t last_size;
    bool in_order, close_in_frame;
    int fd;
    struct err why;
};

static void on_frame(void *ctx, const struct wire_head *head, const void *body, size_t size, int fd)
{
    struct seen *s = ctx;

    assert_int_equal((uintptr_t)body % 8, 0);
    s->n_frames++;
    s->in_order = s->in_order && head->id == s->last_id + 1;
    s->last_id = head->id;
    s->last_size = size;
    for (size_t i = 0; i < size; i++)
        s->sum += ((const unsigned char *)body)[i];
    if (fd >= 0) {
        if (s->fd >= 0)
            close(s->fd);
        s->fd = fd;
    }
    if (s->close_in_frame) {
        channel_close(s->channel);
        s->channel = NULL;
    }
}

static void on_closed(void *ctx, const struct err *why)
{
    struct seen *s = ctx;

    s->n_closed++;
    s->why = *why;
}

struct fixture {
    sd_event *loop;
    int raw; /* the other side, as bytes */
    struct seen seen;
};

static void begin(struct fixture *f, size_t outbox_cap)
{
    struct channel_events events = { .ctx = &f->seen, .frame = on_frame, .closed = on_closed };
    struct err err;
    int pair[2];

    *f = (struct fixture){ .seen = { .in_order = true, .fd = -1 } };
    assert_true(sd_event_new(&f->loop) >= 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    f->raw = pair[1];
    int rc = channel_open(&f->seen.channel, f->loop, pair[0], outbox_cap, &events, &err);
    assert_int_equal(rc, 0);
}

static void finish(struct fixture *f)
{
    channel_close(f->seen.channel);
    if (f->raw >= 0)
        close(f->raw);
    if (f->seen.fd >= 0)
        close(f->seen.fd);
    sd_event_unref(f->loop);
}

static void turn(struct fixture *f)
{
    while (sd_event_run(f->loop, 0) > 0)
        ;
}

/* A TOKENS frame of n tokens. */
static size_t frame(char *to, uint64_t id, uint32_t n)
{
    struct wire_tokens m = { .n = n };
    struct wire_head head = { .type = WIRE_TOKENS, .id = id,
                              .size = (uint32_t)(sizeof head + sizeof m + 4 * n) };

    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, &m, sizeof m);
    memset(to + sizeof head + sizeof m, 1, 4 * n);
    return head.size;
}

static void frames_split_at_every_byte_arrive_whole(void **state)
{
    char bytes[512];
    size_t size = 0;

    (void)state;
    /* Odd lengths, so that the second and third start on odd borders. */
    size += frame(bytes + size, 1, 3);
    size += frame(bytes + size, 2, 1);
    size += frame(bytes + size, 3, 8);
    for (size_t cut = 1; cut < size; cut++) {
        struct fixture f;
        begin(&f, 1024);
        assert_int_equal(write(f.raw, bytes, cut), cut);
        turn(&f);
        assert_int_equal(write(f.raw, bytes + cut, size - cut), size - cut);
        turn(&f);
        assert_int_equal(f.seen.n_frames, 3);
        assert_true(f.seen.in_order);
        assert_int_equal(f.seen.sum, 3 + 1 + 8 + 12 * 4);
        assert_int_equal(f.seen.n_closed, 0);
        finish(&f);
    }
}

static void one_byte_at_a_time_is_enough(void **state)
{
    char bytes[256];
    struct fixture f;
    size_t size = frame(bytes, 1, 5);

    (void)state;
    size += frame(bytes + size, 2, 2);
    begin(&f, 1024);
    for (size_t i = 0; i < size; i++) {
        assert_int_equal(write(f.raw, bytes + i, 1), 1);
        turn(&f);
    }
    assert_int_equal(f.seen.n_frames, 2);
    assert_true(f.seen.in_order);
    finish(&f);
}

struct pair {
    sd_event *loop;
    struct seen a, b;
};

static void join(struct pair *p, size_t outbox_cap)
{
    struct channel_events to_a = { .ctx = &p->a, .frame = on_frame, .closed = on_closed };
    struct channel_events to_b = { .ctx = &p->b, .frame = on_frame, .closed = on_closed };
    struct err err;
    int fds[2];

    *p = (struct pair){ .a = { .in_order = true, .fd = -1 }, .b = { .in_order = true, .fd = -1 } };
    assert_true(sd_event_new(&p->loop) >= 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(channel_open(&p->a.channel, p->loop, fds[0], outbox_cap, &to_a, &err), 0);
    assert_int_equal(channel_open(&p->b.channel, p->loop, fds[1], outbox_cap, &to_b, &err), 0);
}

static void part(struct pair *p)
{
    channel_close(p->a.channel);
    channel_close(p->b.channel);
    if (p->b.fd >= 0)
        close(p->b.fd);
    sd_event_unref(p->loop);
}

static int send_tokens(struct channel *c, uint64_t id, uint32_t n, struct err *err)
{
    static const uint32_t tokens[65536];
    const struct wire_tokens m = { .n = n };
    const struct channel_part parts[] = { { &m, sizeof m }, { tokens, 4 * (size_t)n } };

    return channel_send(c, WIRE_TOKENS, id, parts, 2, -1, err);
}

static void many_frames_of_all_sizes_arrive_in_order(void **state)
{
    struct pair p;
    struct err err;
    uint64_t id = 0;

    (void)state;
    join(&p, 64 << 20);
    for (uint32_t n = 1; n < 60000; n += 1 + n / 7)
        assert_int_equal(send_tokens(p.a.channel, ++id, n, &err), 0);
    for (int i = 0; i < 500; i++)
        assert_int_equal(send_tokens(p.a.channel, ++id, 1, &err), 0);
    while (p.b.n_frames < id)
        assert_true(sd_event_run(p.loop, 1000000) > 0);
    assert_true(p.b.in_order);
    assert_int_equal(p.b.last_id, id);
    assert_int_equal(channel_queued(p.a.channel), 0);
    part(&p);
}

static bool same_file(int a, int b)
{
    struct stat x, y;

    assert_int_equal(fstat(a, &x), 0);
    assert_int_equal(fstat(b, &y), 0);
    return x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

static void a_descriptor_arrives_with_its_own_frame(void **state)
{
    struct wire_peer peer = { .slot = 1 };
    const struct channel_part body = { &peer, sizeof peer };
    struct pair p;
    struct err err;
    int pipes[2][2];
    uint64_t id = 0;

    (void)state;
    join(&p, 64 << 20);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pipe2(pipes[i], O_CLOEXEC), 0);
    /* Far more than the socket's buffer before, between and behind. */
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 8; j++)
            assert_int_equal(send_tokens(p.a.channel, ++id, 50000, &err), 0);
        int rc = channel_send(p.a.channel, WIRE_PEER, ++id, &body, 1, pipes[i][0], &err);
        assert_int_equal(rc, 0);
    }
    for (int i = 0; i < 2; i++) {
        while (p.b.last_id < (uint64_t)(9 * (i + 1))) {
            int before = p.b.fd;
            assert_true(sd_event_run(p.loop, 1000000) > 0);
            if (p.b.last_id < (uint64_t)(9 * (i + 1)))
                assert_int_equal(p.b.fd, before);
        }
        assert_true(p.b.fd >= 0);
        assert_true(same_file(p.b.fd, pipes[p.b.last_id == 18 ? 1 : 0][0]));
        assert_true(fcntl(p.b.fd, F_GETFD) & FD_CLOEXEC);
    }
    assert_true(p.b.in_order);
    for (int i = 0; i < 2; i++) {
        close(pipes[i][0]);
        close(pipes[i][1]);
    }
    part(&p);
}

static void a_full_outbox_is_busy_and_empties_again(void **state)
{
    struct pair p;
    struct err err;
    uint64_t id = 0;
    int rc;

    (void)state;
    join(&p, 1 << 20);
    while ((rc = send_tokens(p.a.channel, id + 1, 10000, &err)) == 0)
        assert_true(++id < 1000);
    assert_int_equal(err.kind, ERR_BUSY);
    assert_true(channel_queued(p.a.channel) <= 1 << 20);
    while (p.b.n_frames < id)
        assert_true(sd_event_run(p.loop, 1000000) > 0);
    assert_int_equal(send_tokens(p.a.channel, ++id, 10000, &err), 0);
    while (p.b.n_frames < id)
        assert_true(sd_event_run(p.loop, 1000000) > 0);
    assert_true(p.b.in_order);
    part(&p);
}

static void what_was_sent_before_the_end_is_delivered_before_it(void **state)
{
    char bytes[256];
    struct fixture f;
    struct err err;

    (void)state;
    begin(&f, 1 << 20);
    size_t size = frame(bytes, 1, 5);
    assert_int_equal(write(f.raw, bytes, size), size);
    close(f.raw);
    f.raw = -1;
    /* Sending to the dead does not report the end itself; the loop does, once. */
    assert_int_equal(send_tokens(f.seen.channel, 1, 10, &err), 0);
    assert_int_equal(f.seen.n_closed, 0);
    turn(&f);
    assert_int_equal(f.seen.n_frames, 1);
    assert_int_equal(f.seen.n_closed, 1);
    assert_int_equal(f.seen.why.kind, ERR_CLOSED);
    assert_int_equal(send_tokens(f.seen.channel, 2, 10, &err), -1);
    assert_int_equal(err.kind, ERR_CLOSED);
    turn(&f);
    assert_int_equal(f.seen.n_closed, 1);
    finish(&f);
}

static void a_malformed_frame_ends_the_channel(void **state)
{
    char bytes[256];

    (void)state;
    for (int fault = 0; fault < 4; fault++) {
        struct fixture f;
        struct wire_head head;
        size_t size = frame(bytes, 1, 5);

        memcpy(&head, bytes, sizeof head);
        if (fault == 0)
            head.type = 200;
        else if (fault == 1)
            head.size = 4;
        else if (fault == 2)
            head.size = 0xffffffff;
        else
            head.flags = WIRE_FLAG_FD;
        memcpy(bytes, &head, sizeof head);
        begin(&f, 1024);
        assert_int_equal(write(f.raw, bytes, size), size);
        turn(&f);
        assert_int_equal(f.seen.n_frames, 0);
        assert_int_equal(f.seen.n_closed, 1);
        assert_int_equal(f.seen.why.kind, ERR_FORMAT);
        finish(&f);
    }
}

static void a_peer_without_its_descriptor_ends_the_channel(void **state)
{
    struct {
        struct wire_head head;
        struct wire_peer peer;
    } bytes = { { .size = sizeof bytes, .type = WIRE_PEER, .flags = WIRE_FLAG_FD }, { 0 } };
    struct fixture f;

    (void)state;
    begin(&f, 1024);
    assert_int_equal(write(f.raw, &bytes, sizeof bytes), sizeof bytes);
    turn(&f);
    assert_int_equal(f.seen.n_frames, 0);
    assert_int_equal(f.seen.n_closed, 1);
    assert_int_equal(f.seen.why.kind, ERR_FORMAT);
    finish(&f);
}

static void more_descriptors_than_anyone_sends_end_the_channel(void **state)
{
    struct fixture f;
    char control[CMSG_SPACE(20 * sizeof(int))] = { 0 };
    char byte = 0;
    struct iovec iov = { &byte, 1 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
                        .msg_controllen = sizeof control };

    (void)state;
    begin(&f, 1024);
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(20 * sizeof(int));
    for (size_t i = 0; i < 20; i++)
        memcpy(CMSG_DATA(head) + i * sizeof(int), &f.raw, sizeof(int));
    assert_int_equal(sendmsg(f.raw, &m, 0), 1);
    turn(&f);
    assert_int_equal(f.seen.n_closed, 1);
    assert_int_equal(f.seen.why.kind, ERR_FORMAT);
    finish(&f);
}

static void closing_inside_the_handler_stops_delivery(void **state)
{
    char bytes[256];
    struct fixture f;
    size_t size = frame(bytes, 1, 1);

    (void)state;
    size += frame(bytes + size, 2, 1);
    begin(&f, 1024);
    f.seen.close_in_frame = true;
    assert_int_equal(write(f.raw, bytes, size), size);
    turn(&f);
    assert_int_equal(f.seen.n_frames, 1);
    assert_int_equal(f.seen.n_closed, 0);
    assert_null(f.seen.channel);
    finish(&f);
}

static void flush_writes_all_or_says_that_nobody_reads(void **state)
{
    struct fixture f;
    struct err err;
    int rc;

    (void)state;
    begin(&f, 8 << 20);
    assert_int_equal(send_tokens(f.seen.channel, 1, 10, &err), 0);
    assert_int_equal(channel_flush(f.seen.channel, 100, &err), 0);
    for (uint64_t i = 2; (rc = send_tokens(f.seen.channel, i, 60000, &err)) == 0 && i < 12; i++)
        ;
    assert_int_equal(rc, 0);
    assert_int_equal(channel_flush(f.seen.channel, 50, &err), -1);
    assert_int_equal(err.kind, ERR_BUSY);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_split_at_every_byte_arrive_whole),
        cmocka_unit_test(one_byte_at_a_time_is_enough),
        cmocka_unit_test(many_frames_of_all_sizes_arrive_in_order),
        cmocka_unit_test(a_descriptor_arrives_with_its_own_frame),
        cmocka_unit_test(a_full_outbox_is_busy_and_empties_again),
        cmocka_unit_test(what_was_sent_before_the_end_is_delivered_before_it),
        cmocka_unit_test(a_malformed_frame_ends_the_channel),
        cmocka_unit_test(a_peer_without_its_descriptor_ends_the_channel),
        cmocka_unit_test(more_descriptors_than_anyone_sends_end_the_channel),
        cmocka_unit_test(closing_inside_the_handler_stops_delivery),
        cmocka_unit_test(flush_writes_all_or_says_that_nobody_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
