#include "daemon/admin.h"

#include "daemon/log.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    MAX_CLIENTS = 16,
    MAX_LINE = 64 << 10,
    MAX_REPLY = 4 << 20,
    ANSWER_US = 5000000, /* the door answers in milliseconds; past this it hangs */
};

struct client {
    struct admin *admin;
    int fd; /* -1: the place is free */
    sd_event_source *io, *timer;
    char *in;  /* owned; [MAX_LINE] */
    size_t n_in;
    char *out; /* owned; what the socket did not take yet */
    size_t n_out, sent;
    json_t *id;        /* of the command under way */
    uint64_t question; /* relayed; 0: none */
};

struct admin {
    sd_event *loop; /* reference held */
    struct admin_ops ops;
    int fd;
    sd_event_source *io;
    struct client clients[MAX_CLIENTS];
    uint64_t last_question;
};

static void drop(struct client *c)
{
    c->io = sd_event_source_disable_unref(c->io);
    c->timer = sd_event_source_disable_unref(c->timer);
    if (c->fd >= 0)
        close(c->fd);
    free(c->in);
    free(c->out);
    json_decref(c->id);
    *c = (struct client){ .admin = c->admin, .fd = -1 };
}

/* A client with a command under way is not read: it may send more than we keep, and may close
 * its writing side before the reply is there. */
static void watch(struct client *c)
{
    sd_event_source_set_io_events(c->io, c->out ? EPOLLOUT : c->question ? 0 : EPOLLIN);
}

/* ---- replies ---- */

static void write_some(struct client *c)
{
    while (c->sent < c->n_out) {
        ssize_t n = send(c->fd, c->out + c->sent, c->n_out - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            drop(c);
            return;
        }
        c->sent += (size_t)n;
    }
    if (c->sent == c->n_out) {
        free(c->out);
        c->out = NULL;
        c->n_out = c->sent = 0;
    }
    watch(c);
}

/* Takes rest. A client reads one reply before its next command is looked at, so there is never
 * more than one. */
static void send_reply(struct client *c, json_t *rest)
{
    json_t *reply = json_object();

    json_object_set(reply, "id", c->id ? c->id : json_null());
    json_object_update(reply, rest);
    json_decref(rest);
    char *text = json_dumps(reply, JSON_COMPACT);
    size_t size = text ? strlen(text) : 0;

    json_decref(reply);
    json_decref(c->id);
    c->id = NULL;
    c->question = 0;
    c->timer = sd_event_source_disable_unref(c->timer);
    if (!text || size >= MAX_REPLY) {
        free(text);
        drop(c);
        return;
    }
    text[size] = '\n'; /* in place of the zero byte */
    c->out = text;
    c->n_out = size + 1;
    c->sent = 0;
    write_some(c);
}

static void send_error(struct client *c, enum err_kind kind, const char *message)
{
    send_reply(c, json_pack("{s:b,s:{s:s,s:s}}", "ok", 0, "error", "kind", err_kind_name(kind),
                            "message", message));
}

/* Takes data. */
static void send_data(struct client *c, json_t *data)
{
    if (!data)
        send_error(c, ERR_NOMEM, "no memory for the reply");
    else
        send_reply(c, json_pack("{s:b,s:o}", "ok", 1, "data", data));
}

/* ---- commands ---- */

static void read_lines(struct client *c);

static int on_late(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct client *c = ctx;

    (void)source;
    (void)usec;
    send_error(c, ERR_BUSY, "the engine did not answer in time");
    read_lines(c);
    return 0;
}

static void relay(struct client *c, const char *question)
{
    struct admin *a = c->admin;
    struct err why;

    c->question = ++a->last_question;
    if (a->ops.ask(a->ops.ctx, c->question, question, &why) < 0) {
        send_error(c, why.kind, why.text);
        return;
    }
    watch(c);
    sd_event_add_time_relative(a->loop, &c->timer, CLOCK_MONOTONIC, ANSWER_US, 0, on_late, c);
}

static void obey(struct client *c, const char *line, size_t size)
{
    json_error_t at;
    json_t *root = json_loadb(line, size, JSON_REJECT_DUPLICATES, &at);
    const char *command = json_string_value(json_object_get(root, "cmd"));
    char name[32] = "";

    if (command)
        strncpy(name, command, sizeof name - 1);
    json_t *id = json_object_get(root, "id");
    if (json_is_integer(id) || json_is_string(id))
        c->id = json_incref(id);
    bool fine = json_is_object(root);
    json_decref(root);

    if (!fine)
        send_error(c, ERR_INPUT, "a line must be one JSON object");
    else if (name[0] == '\0')
        send_error(c, ERR_INPUT, "'cmd' must be a string");
    else if (strcmp(name, "status") == 0)
        send_data(c, c->admin->ops.status(c->admin->ops.ctx));
    else if (strcmp(name, "stats") == 0 || strcmp(name, "plan") == 0 ||
             strcmp(name, "inspect") == 0)
        relay(c, name);
    else
        send_error(c, ERR_UNSUPPORTED, "unknown command; there are status, stats, plan, inspect");
}

/* Lines that are there, one at a time: the next waits for the reply to be written. */
static void read_lines(struct client *c)
{
    while (c->fd >= 0 && !c->question && !c->out) {
        char *end = memchr(c->in, '\n', c->n_in);
        if (!end)
            break;
        size_t size = (size_t)(end - c->in);
        char line[MAX_LINE];
        memcpy(line, c->in, size);
        c->n_in -= size + 1;
        memmove(c->in, end + 1, c->n_in);
        if (size > 0)
            obey(c, line, size);
    }
    if (c->fd >= 0 && c->n_in == MAX_LINE && !c->question && !c->out) {
        send_error(c, ERR_INPUT, "a line has at most 64 KiB");
        drop(c);
    }
}

static int on_client(sd_event_source *source, int fd, uint32_t ready, void *ctx)
{
    struct client *c = ctx;

    (void)source;
    if (ready & EPOLLOUT)
        write_some(c);
    if (c->fd >= 0 && (ready & (EPOLLIN | EPOLLHUP | EPOLLERR)) && c->n_in < MAX_LINE) {
        ssize_t n = recv(fd, c->in + c->n_in, MAX_LINE - c->n_in, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            drop(c);
            return 0;
        }
        if (n > 0)
            c->n_in += (size_t)n;
    } else if (ready & (EPOLLHUP | EPOLLERR)) {
        drop(c);
    }
    read_lines(c);
    return 0;
}

/* ---- clients come ---- */

static void welcome(struct admin *a, int fd)
{
    struct ucred who = { .uid = (uid_t)-1 };
    socklen_t size = sizeof who;
    struct client *c = NULL;

    for (size_t i = 0; i < MAX_CLIENTS && !c; i++)
        if (a->clients[i].fd < 0)
            c = &a->clients[i];
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
    if (!c) {
        static const char full[] = "{\"id\":null,\"ok\":false,\"error\":{\"kind\":\"busy\","
                                   "\"message\":\"too many admin clients\"}}\n";
        send(fd, full, sizeof full - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
        return;
    }
    log_line(LOG_LEVEL_DEBUG, "admin client uid=%u pid=%d", who.uid, (int)who.pid);
    c->fd = fd;
    c->in = malloc(MAX_LINE);
    if (!c->in || sd_event_add_io(a->loop, &c->io, fd, EPOLLIN, on_client, c) < 0)
        drop(c);
}

static int on_listen(sd_event_source *source, int fd, uint32_t ready, void *ctx)
{
    struct admin *a = ctx;
    int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)source;
    (void)ready;
    if (client >= 0)
        welcome(a, client);
    return 0;
}

/* ---- open, close ---- */

/* Whether a socket file is left over from a daemon that is gone. */
static bool is_stale(const struct sockaddr_un *address)
{
    struct stat about;

    if (lstat(address->sun_path, &about) < 0 || !S_ISSOCK(about.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    int rc = connect(fd, (const struct sockaddr *)address, sizeof *address);
    bool stale = rc < 0 && errno == ECONNREFUSED;
    close(fd);
    return stale;
}

int admin_listen(int *out, const char *path, struct err *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, "admin socket %s", path);
    if (is_stale(&address))
        unlink(path);
    /* The mode must be right from the first moment, and umask is the only way to say it. */
    mode_t before = umask(0117);
    int rc = bind(fd, (const struct sockaddr *)&address, sizeof address);
    umask(before);
    if (rc < 0 || listen(fd, MAX_CLIENTS) < 0) {
        if (errno == EADDRINUSE)
            err_set(err, ERR_IO, "admin socket %s: another daemon has it", path);
        else
            err_errno(err, "admin socket %s", path);
        close(fd);
        return -1;
    }
    *out = fd;
    return 0;
}

int admin_open(struct admin **out, sd_event *loop, int fd, const struct admin_ops *ops,
               struct err *err)
{
    struct admin *a = calloc(1, sizeof *a);

    if (!a) {
        close(fd);
        return err_set(err, ERR_NOMEM, "admin socket");
    }
    a->loop = sd_event_ref(loop);
    a->ops = *ops;
    a->fd = fd;
    for (size_t i = 0; i < MAX_CLIENTS; i++)
        a->clients[i] = (struct client){ .admin = a, .fd = -1 };
    int rc = sd_event_add_io(loop, &a->io, fd, EPOLLIN, on_listen, a);
    if (rc < 0) {
        admin_close(a);
        errno = -rc;
        return err_errno(err, "admin socket");
    }
    *out = a;
    return 0;
}

void admin_close(struct admin *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < MAX_CLIENTS; i++)
        drop(&a->clients[i]);
    sd_event_source_disable_unref(a->io);
    close(a->fd);
    sd_event_unref(a->loop);
    free(a);
}

void admin_answer(struct admin *a, uint64_t id, enum err_kind kind, const char *text, size_t size)
{
    char message[sizeof((struct err *)0)->text];

    for (size_t i = 0; a && i < MAX_CLIENTS; i++) {
        struct client *c = &a->clients[i];
        if (c->fd < 0 || c->question != id)
            continue;
        if (kind != ERR_NONE) {
            snprintf(message, sizeof message, "%.*s", (int)(size < sizeof message ? size : sizeof message - 1), text);
            send_error(c, kind, message);
        } else
            send_data(c, json_loadb(text, size, 0, NULL));
        read_lines(c);
        return;
    }
}

void admin_fail_questions(struct admin *a)
{
    for (size_t i = 0; a && i < MAX_CLIENTS; i++)
        if (a->clients[i].fd >= 0 && a->clients[i].question)
            send_error(&a->clients[i], ERR_CLOSED, "the engine stopped; it is being restarted");
}
