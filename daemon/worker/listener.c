#include "daemon/worker/listener.h"

#include "daemon/base/listen.h"
#include "daemon/base/log.h"
#include "daemon/conf/conf.h"
#include "daemon/wire/link.h"
#include "daemon/worker/client.h"
#include "daemon/worker/exchange.h"
#include "daemon/worker/head.h"
#include "daemon/worker/worker_state.h"
#include "util/clock.h"
#include "util/err.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    ACCEPTS_PER_TURN = 16, /* then other sources of the loop get their turn */
};

/* Until another look when the system has no descriptors or memory left, and when all places are
 * taken but some client is idle, if not for long enough. */
#define PAUSE_NS UINT64_C(200000000)
#define FULL_NS UINT64_C(20000000)
/* A worker that has just begun would call an engine that it has not met "loading". Where there is
 * none to meet it says so after this. */
#define ALONE_NS UINT64_C(1000000000)

static void http_log(void *cls, const char *fmt, va_list args)
    __attribute__((format(printf, 2, 0)));

static void http_log(void *cls, const char *fmt, va_list args)
{
    char line[256];

    (void)cls;
    vsnprintf(line, sizeof line, fmt, args);
    line[strcspn(line, "\n")] = '\0';
    log_line(LOG_LEVEL_DEBUG, "http: %s", line);
}

/* Paths are decoded by routes, which sees an encoded NUL. */
static size_t leave_escaped(void *cls, struct MHD_Connection *connection, char *text)
{
    (void)cls;
    (void)connection;
    return strlen(text);
}

/* Waking is all: after_each does the work. */
static int http_ready(sd_event_source *source, int fd, uint32_t events, void *ctx)
{
    (void)source;
    (void)fd;
    (void)events;
    (void)ctx;
    return 0;
}

/* ---- accepting ---- */

/* Nobody is closed to make room for nobody. */
static bool waits(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    return poll(&p, 1, 0) == 1;
}

static int on_clients(sd_event_source *source, int fd, uint32_t events, void *ctx)
{
    struct listener *l = ctx;

    (void)source;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage from = { 0 };
        socklen_t size = sizeof from;
        if (!waits(fd))
            return 0; /* another worker was quicker, or that was all */
        if (!clients_room(&l->worker->clients)) {
            if (l->worker->clients.n_shut == 0) /* else one is on its way out */
                l->pause_until_ns = clock_ns() + FULL_NS;
            return 0;
        }
        int client = accept4(fd, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client >= 0) {
            client_open(&l->worker->clients, l, client, &from);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno == EAGAIN)
            return 0;
        log_line(LOG_LEVEL_WARNING, "cannot accept: %s", strerror(errno));
        l->pause_until_ns = clock_ns() + PAUSE_NS;
        return 0;
    }
    return 0;
}

uint64_t listener_turn(struct listener *l)
{
    uint64_t now = clock_ns(), until = l->pause_until_ns;

    if (link_status(l->worker->link)->connected)
        l->alone_until_ns = 0;
    if (l->alone_until_ns > until)
        until = l->alone_until_ns;
    bool paused = now < until;
    bool on = !paused && !l->worker->draining && clients_may_come(&l->worker->clients);
    sd_event_source_set_enabled(l->accepting, on ? SD_EVENT_ON : SD_EVENT_OFF);
    return paused ? (until - now) / 1000000 + 1 : UINT64_MAX;
}

/* ---- opening ---- */

static bool is_loopback(int fd)
{
    struct listen_address a = { .size = sizeof a.address };

    return getsockname(fd, (struct sockaddr *)&a.address, &a.size) == 0 && listen_is_loopback(&a);
}

static int start_http(struct listener *l, struct err *err)
{
    const struct conf *conf = l->worker->conf;
    unsigned idle_s = (conf->idle_timeout_ms + 999) / 1000;

    l->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET, 0,
        NULL, NULL, exchange_handle, l, MHD_OPTION_EXTERNAL_LOGGER, http_log, NULL,
        MHD_OPTION_CONNECTION_LIMIT, conf->connections, MHD_OPTION_CONNECTION_TIMEOUT, idle_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_POOL,
        MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL, MHD_OPTION_URI_LOG_CALLBACK,
        exchange_begin, l, MHD_OPTION_NOTIFY_COMPLETED, exchange_completed, l,
        MHD_OPTION_NOTIFY_CONNECTION, clients_notify, &l->worker->clients, MHD_OPTION_END);
    return l->daemon ? 0 : err_set(err, ERR_IO, "libmicrohttpd does not start");
}

int listener_open(struct listener *l, struct worker *w, int fd, struct err *err)
{
    *l = (struct listener){ .worker = w, .fd = fd, .loopback = is_loopback(fd),
                            .alone_until_ns = clock_ns() + ALONE_NS };
    if (start_http(l, err) < 0)
        return -1;
    int ready = MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    int rc = sd_event_add_io(w->loop, &l->ready, ready, EPOLLIN, http_ready, l);
    if (rc >= 0)
        rc = sd_event_add_io(w->loop, &l->accepting, fd, EPOLLIN, on_clients, l);
    if (rc < 0) {
        errno = -rc;
        return err_errno(err, "event sources of listener %d", fd);
    }
    return 0;
}

void listener_close(struct listener *l)
{
    sd_event_source_disable_unref(l->ready);
    sd_event_source_disable_unref(l->accepting);
    if (l->daemon)
        MHD_stop_daemon(l->daemon);
}
