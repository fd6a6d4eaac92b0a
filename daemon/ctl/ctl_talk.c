#include "daemon/ctl/ctl_talk.h"

#include "daemon/ctl/ctl.h"
#include "util/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { REPLY_MAX = 4 << 20 }; /* the daemon's promise */

int ctl_talk_open_at(struct ctl_talk *t, const char *path, struct err *err)
{
    *t = (struct ctl_talk){ .fd = -1, .wake = -1, .path = path, .send_ms = CTL_PATIENCE_MS,
                            .reply = malloc(REPLY_MAX + 1) };
    return t->reply ? 0 : err_set(err, ERR_NOMEM, "room for an answer");
}

int ctl_talk_open(struct ctl_talk *t, const struct ctl_args *args, struct err *err)
{
    const char *path = ctl_text(args, "--socket");

    if (ctl_talk_open_at(t, path ? path : CTL_SOCKET, err) < 0)
        return -1;
    t->args = args;
    return 0;
}

void ctl_talk_hang_up(struct ctl_talk *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    t->n_reply = 0;
    t->ended = false;
}

void ctl_talk_close(struct ctl_talk *t)
{
    ctl_talk_hang_up(t);
    free(t->reply);
    t->reply = NULL;
}

/* ---- the socket ---- */

static int connect_failed(struct ctl_talk *t, int why, struct err *err)
{
    char plain[160];

    ctl_plain(plain, sizeof plain, t->path);
    t->no_daemon = why == ENOENT || why == ECONNREFUSED || why == ENOTSOCK || why == ENOTDIR;
    if (t->no_daemon)
        return err_set(err, ERR_CLOSED,
                       "no daemon listens at %s (%s); start colizigd, or name its admin.socket "
                       "with --socket", plain, strerror(why));
    if (why == EACCES)
        return err_set(err, ERR_IO,
                       "%s may not be opened by this user; root, the daemon's user and the "
                       "socket's group may", plain);
    errno = why;
    return err_errno(err, "connect to %s", plain);
}

int ctl_talk_connect(struct ctl_talk *t, struct err *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    ctl_talk_hang_up(t);
    t->no_daemon = false;
    if (strlen(t->path) >= sizeof address.sun_path)
        return err_set(err, ERR_INPUT, "--socket: the path is longer than %zu bytes",
                       sizeof address.sun_path - 1);
    memcpy(address.sun_path, t->path, strlen(t->path) + 1);
    t->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (t->fd < 0)
        return err_errno(err, "socket");
    /* A daemon that is stopped takes neither a connection nor, in the end, a line. */
    struct timeval patience = { .tv_sec = t->send_ms / 1000,
                                .tv_usec = t->send_ms % 1000 * 1000 };
    setsockopt(t->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(t->fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return 0;
    int why = errno;
    ctl_talk_hang_up(t);
    return connect_failed(t, why, err);
}

/* A daemon that turns us away has said why before it closed: what it said is read first. */
static void send_line(struct ctl_talk *t, const char *line, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = send(t->fd, line + done, size - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return;
        done += (size_t)n;
    }
}

/* One line, taken out of t->reply with its end cut off. 1 with *line; 0 when woken; -1. */
static int receive_line(struct ctl_talk *t, uint32_t patience_ms, char **line, struct err *err)
{
    uint64_t deadline = clock_ms() + patience_ms;

    for (;;) {
        struct pollfd wait[2] = { { .fd = t->fd, .events = POLLIN },
                                  { .fd = t->wake, .events = POLLIN } };
        uint64_t now = clock_ms();
        if (now >= deadline)
            return err_set(err, ERR_IO, "the daemon did not answer within %u s",
                           patience_ms / 1000);
        if (poll(wait, 2, (int)(deadline - now)) < 0 && errno != EINTR)
            return err_errno(err, "wait for the daemon");
        if (wait[1].revents & POLLIN)
            return 0;
        if (!(wait[0].revents & (POLLIN | POLLHUP | POLLERR)))
            continue;
        if (t->n_reply == REPLY_MAX)
            return err_set(err, ERR_IO, "the daemon's answer is larger than 4 MiB");
        ssize_t n = recv(t->fd, t->reply + t->n_reply, REPLY_MAX - t->n_reply, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            t->ended = n == 0 || errno == ECONNRESET;
            return n ? err_errno(err, "read the daemon's answer")
                     : err_set(err, ERR_CLOSED, "the daemon closed the connection");
        }
        char *end = memchr(t->reply + t->n_reply, '\n', (size_t)n);
        t->n_reply += (size_t)n;
        if (end) {
            *end = '\0';
            *line = end + 1;
            return 1;
        }
    }
}

/* ---- questions ---- */

static enum err_kind kind_of(const char *name)
{
    for (enum err_kind kind = ERR_INPUT; name && kind <= ERR_CLOSED; kind++)
        if (strcmp(name, err_kind_name(kind)) == 0)
            return kind;
    return ERR_IO;
}

/* The daemon's own refusal becomes our error. */
static int check_reply(const json_t *reply, struct err *err)
{
    const json_t *fault = json_object_get(reply, "error");
    const char *text = json_string_value(json_object_get(fault, "message"));

    if (json_is_true(json_object_get(reply, "ok")) && json_object_get(reply, "data"))
        return 0;
    return err_set(err, kind_of(json_string_value(json_object_get(fault, "kind"))),
                   "the daemon refused: %s", text ? text : "no reason given");
}

int ctl_talk_more(struct ctl_talk *t, uint32_t patience_ms, json_t **data, struct err *err)
{
    char *rest = memchr(t->reply, '\n', t->n_reply);
    int got = 1;

    t->refused = false;
    if (rest)
        *rest++ = '\0'; /* it came together with the one before */
    else
        got = receive_line(t, patience_ms, &rest, err);
    if (got <= 0)
        return got;
    json_t *reply = json_loads(t->reply, JSON_ALLOW_NUL, NULL);
    t->n_reply -= (size_t)(rest - t->reply);
    memmove(t->reply, rest, t->n_reply);
    if (!reply || !json_is_object(reply)) {
        json_decref(reply);
        return err_set(err, ERR_IO, "the daemon's answer is no JSON object");
    }
    t->refused = check_reply(reply, err) < 0;
    if (!t->refused)
        *data = json_incref(json_object_get(reply, "data"));
    json_decref(reply);
    return t->refused ? -1 : 1;
}

int ctl_talk_ask(struct ctl_talk *t, json_t *question, uint32_t patience_ms, json_t **data,
                 struct err *err)
{
    if (t->fd < 0 && ctl_talk_connect(t, err) < 0) {
        json_decref(question);
        return -1;
    }
    json_object_set_new(question, "id", json_integer((json_int_t)++t->id));
    char *line = json_dumps(question, JSON_COMPACT);
    json_decref(question);
    if (!line)
        return err_set(err, ERR_NOMEM, "the question");
    size_t size = strlen(line);
    line[size] = '\n'; /* in place of the zero byte */
    send_line(t, line, size + 1);
    free(line);
    return ctl_talk_more(t, patience_ms, data, err);
}

int ctl_talk_fail(const struct ctl_talk *t, const struct err *err)
{
    int status = ctl_fail(t->args, err);

    if (t->no_daemon)
        return EXIT_NO_DAEMON;
    return t->refused && t->refusal == CTL_REFUSAL_FAILS ? EXIT_FAILED : status;
}

int ctl_talk_once(const struct ctl_args *args, json_t *question, uint32_t patience_ms,
                  enum ctl_refusal refusal, void (*print)(const json_t *data))
{
    struct ctl_talk t;
    json_t *data = NULL;
    struct err err;
    int status = EXIT_FINE;

    if (ctl_talk_open(&t, args, &err) < 0) {
        json_decref(question);
        return ctl_fail(args, &err);
    }
    t.refusal = refusal;
    if (ctl_talk_ask(&t, question, patience_ms, &data, &err) < 0)
        status = ctl_talk_fail(&t, &err);
    else if (ctl_has(args, "--json"))
        ctl_print_json(json_incref(data));
    else
        print(data);
    json_decref(data);
    ctl_talk_close(&t);
    return status;
}
