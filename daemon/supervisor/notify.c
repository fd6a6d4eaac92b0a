#include "daemon/supervisor/notify.h"

#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

enum { AGAIN_US = 100000 }; /* until another try, when nobody reads */

/* ---- what it gives ---- */

static int sort_socket(struct notify_sockets *s, int fd, const char *name, struct err *err)
{
    bool local = sd_is_socket(fd, AF_UNIX, SOCK_STREAM, 1) > 0;
    bool inet = sd_is_socket(fd, AF_INET, SOCK_STREAM, 1) > 0 ||
                sd_is_socket(fd, AF_INET6, SOCK_STREAM, 1) > 0;

    if (local && strcmp(name, "http") != 0) {
        if (s->admin >= 0)
            return err_set(err, ERR_INPUT, "systemd handed over two admin sockets");
        s->admin = fd;
        return 0;
    }
    if (!inet && !local)
        return err_set(err, ERR_INPUT, "systemd's socket '%.60s' is no listening stream socket",
                       name);
    /* Non-blocking, or accept in one worker waits for a client that another one took. */
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        return err_errno(err, "systemd's socket '%.60s'", name);
    s->http[s->n_http++] = fd;
    return 0;
}

int notify_sockets(struct notify_sockets *out, struct err *err)
{
    struct notify_sockets s = { .admin = -1 };
    char **names = NULL;
    int rc = 0;
    int n = sd_listen_fds_with_names(0, &names);

    if (n < 0) {
        errno = -n;
        return err_errno(err, "sockets from systemd");
    }
    if (n > NOTIFY_MAX_FDS)
        rc = err_set(err, ERR_INPUT, "systemd handed over %d sockets, at most %d are used", n,
                     NOTIFY_MAX_FDS);
    for (int i = 0; i < n; i++) {
        if (rc == 0)
            rc = sort_socket(&s, SD_LISTEN_FDS_START + i, names[i], err);
        free(names[i]);
    }
    free(names);
    if (rc == 0)
        *out = s;
    return rc;
}

/* ---- what we say ---- */

/* sd_notify(3) would wait for room in the receiver's queue. False: there is none. */
static bool send_now(const struct notify *n, const char *text, size_t size)
{
    ssize_t sent;

    do
        sent = sendto(n->fd, text, size, MSG_DONTWAIT | MSG_NOSIGNAL,
                      (const struct sockaddr *)&n->to, n->to_size);
    while (sent < 0 && errno == EINTR);
    /* Where nobody is, nobody waits for it. */
    return sent >= 0 || (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM);
}

static void try_all(struct notify *n)
{
    char text[sizeof n->phase + sizeof n->status + sizeof n->extend + 16];
    int size = snprintf(text, sizeof text, "%s%s%s%s", n->phase, n->status, n->extend,
                        n->alive ? "WATCHDOG=1\n" : "");

    if (size > 0 && !send_now(n, text, (size_t)size)) {
        sd_event_source_set_time_relative(n->again, AGAIN_US);
        sd_event_source_set_enabled(n->again, SD_EVENT_ONESHOT);
        return;
    }
    n->phase[0] = n->status[0] = n->extend[0] = '\0';
    n->alive = false;
}

static int on_again(sd_event_source *source, uint64_t usec, void *ctx)
{
    (void)source;
    (void)usec;
    try_all(ctx);
    return 0;
}

static int on_watchdog(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct notify *n = ctx;

    (void)usec;
    n->alive = true;
    try_all(n);
    return sd_event_source_set_time_relative(source, n->watchdog_us);
}

/* A line takes the place of an older one of its kind. */
static void keep_line(struct notify *n, const char *line, size_t size, bool *phase)
{
    if (strncmp(line, "STATUS=", 7) == 0) {
        snprintf(n->status, sizeof n->status - 1, "%.*s", (int)size, line);
        strcat(n->status, "\n");
    } else if (strncmp(line, "EXTEND_TIMEOUT_USEC=", 20) == 0) {
        snprintf(n->extend, sizeof n->extend, "%.*s\n", (int)size, line);
    } else {
        size_t used = *phase ? strlen(n->phase) : 0;
        snprintf(n->phase + used, sizeof n->phase - used, "%.*s\n", (int)size, line);
        *phase = true;
    }
}

void notify_state(struct notify *n, const char *fmt, ...)
{
    char text[1024];
    bool phase = false;
    va_list args;

    if (n->fd < 0)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (const char *line = text; *line;) {
        size_t size = strcspn(line, "\n");
        keep_line(n, line, size, &phase);
        line += size + (line[size] == '\n');
    }
    try_all(n);
}

/* An absolute path, or one with @ in the abstract space; whatever else there is in newer systemds
 * (a machine's own socket) is not for a service. */
static void find_reader(struct notify *n)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t size = path ? strlen(path) : 0;

    if (size < 2 || size >= sizeof n->to.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    n->to.sun_family = AF_UNIX;
    memcpy(n->to.sun_path, path, size + 1);
    n->to_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + (path[0] == '/'));
    if (path[0] == '@')
        n->to.sun_path[0] = '\0';
    n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

static int start_watchdog(struct notify *n, sd_event *loop, struct err *err)
{
    uint64_t us;
    int rc = sd_watchdog_enabled(0, &us);

    if (rc < 0)
        return err_set(err, ERR_INPUT,
                       "WATCHDOG_USEC and WATCHDOG_PID in the environment are no numbers of "
                       "systemd's (%s): unset them", strerror(-rc));
    if (rc == 0 || n->fd < 0)
        return 0;
    n->watchdog_us = us / 2;
    rc = sd_event_add_time_relative(loop, &n->watchdog, CLOCK_MONOTONIC, 0, 0, on_watchdog, n);
    if (rc >= 0)
        rc = sd_event_source_set_enabled(n->watchdog, SD_EVENT_ON);
    if (rc >= 0) /* however much else there is to do */
        rc = sd_event_source_set_priority(n->watchdog, SD_EVENT_PRIORITY_IMPORTANT);
    if (rc >= 0)
        return 0;
    errno = -rc;
    return err_errno(err, "watchdog");
}

int notify_open(struct notify *n, sd_event *loop, struct err *err)
{
    *n = (struct notify){ .fd = -1 };
    find_reader(n);
    if (n->fd >= 0) {
        int rc = sd_event_add_time(loop, &n->again, CLOCK_MONOTONIC, UINT64_MAX, 0, on_again, n);
        if (rc >= 0)
            rc = sd_event_source_set_enabled(n->again, SD_EVENT_OFF);
        if (rc < 0) {
            errno = -rc;
            return err_errno(err, "telling systemd");
        }
    }
    return start_watchdog(n, loop, err);
}

void notify_close(struct notify *n)
{
    if (n->fd < 0)
        return;
    try_all(n);
    sd_event_source_disable_unref(n->again);
    sd_event_source_disable_unref(n->watchdog);
    close(n->fd);
    n->fd = -1;
}

char **notify_environment(void)
{
    static const char *const ours[] = { "NOTIFY_SOCKET=", "WATCHDOG_USEC=", "WATCHDOG_PID=",
                                        "LISTEN_FDS=",    "LISTEN_PID=",    "LISTEN_FDNAMES=" };
    size_t n = 0, kept = 0;

    while (environ[n])
        n++;
    char **list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; list && i < n; i++) {
        bool keep = true;
        for (size_t j = 0; j < sizeof ours / sizeof ours[0]; j++)
            keep = keep && strncmp(environ[i], ours[j], strlen(ours[j])) != 0;
        if (keep)
            list[kept++] = environ[i];
    }
    return list;
}
