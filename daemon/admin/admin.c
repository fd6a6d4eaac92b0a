#include "daemon/admin/admin.h"

#include "daemon/admin/admin_client.h"
#include "daemon/admin/admin_peer.h"
#include "daemon/base/log.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    MAX_CLIENTS = 16,
    LEAVERS = 4, /* places for those that are only told why they must go */
    N_PLACES = MAX_CLIENTS + LEAVERS,
    BACKLOG = 128,
    ACCEPT_PAUSE_MS = 1000,
};

struct admin {
    struct admin_shared shared; /* a reference of the loop is held; the descriptor is owned */
    sd_event_source *io, *resume;
    struct admin_client clients[N_PLACES];
};

/* ---- clients come ---- */

static void welcome(struct admin *a, int fd)
{
    struct admin_peer who = admin_peer_of(fd);
    struct admin_client *c = NULL;
    size_t n_here = 0;

    for (size_t i = 0; i < N_PLACES; i++) {
        if (a->clients[i].state == ADMIN_FREE)
            c = &a->clients[i];
        else if (!a->clients[i].must_go)
            n_here++;
    }
    if (!c) { /* even the leavers' places are full */
        close(fd);
        return;
    }
    log_line(LOG_LEVEL_DEBUG, "admin client uid=%u pid=%d", who.uid, (int)who.pid);
    admin_client_welcome(c, fd);
    if (c->state == ADMIN_IDLE && n_here >= MAX_CLIENTS) {
        log_line(LOG_LEVEL_WARNING, "admin client turned away: 16 are here uid=%u pid=%d",
                 who.uid, (int)who.pid);
        admin_client_away(c, ERR_BUSY, "16 admin clients are connected already; try again when "
                                       "one has left");
    }
}

static int on_resume(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct admin *a = ctx;

    (void)source;
    (void)usec;
    sd_event_source_set_enabled(a->io, SD_EVENT_ON);
    return 0;
}

static int on_listen(sd_event_source *source, int fd, uint32_t ready, void *ctx)
{
    struct admin *a = ctx;
    int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)ready;
    if (client >= 0) {
        welcome(a, client);
        return 0;
    }
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
        return 0;
    /* Out of descriptors, most likely: the loop must not spin on a socket it cannot empty. */
    log_line(LOG_LEVEL_WARNING, "admin client not accepted: %s", strerror(errno));
    sd_event_source_set_enabled(source, SD_EVENT_OFF);
    a->resume = sd_event_source_disable_unref(a->resume);
    if (sd_event_add_time_relative(a->shared.loop, &a->resume, CLOCK_MONOTONIC,
                                   ACCEPT_PAUSE_MS * 1000, 0, on_resume, a) < 0)
        sd_event_source_set_enabled(source, SD_EVENT_ON);
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
    struct stat st;

    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    /* bind would say of it what it says of another daemon's socket. */
    if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
        return err_set(err, ERR_INPUT, "admin socket %s: a file that is no socket has this name",
                       path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, "admin socket %s", path);
    if (is_stale(&address))
        unlink(path);
    /* The mode must be right from the first moment, and umask is the only way to say it. */
    mode_t before = umask(0117);
    int rc = bind(fd, (const struct sockaddr *)&address, sizeof address);
    umask(before);
    if (rc < 0 || listen(fd, BACKLOG) < 0) {
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
    a->shared.loop = sd_event_ref(loop);
    a->shared.ops = *ops;
    a->shared.fd = fd;
    for (size_t i = 0; i < N_PLACES; i++)
        a->clients[i] = (struct admin_client){ .shared = &a->shared, .fd = -1 };
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
    for (size_t i = 0; i < N_PLACES; i++)
        admin_client_drop(&a->clients[i]);
    sd_event_source_disable_unref(a->io);
    sd_event_source_disable_unref(a->resume);
    close(a->shared.fd);
    sd_event_unref(a->shared.loop);
    free(a);
}

/* ---- answers ---- */

void admin_answer(struct admin *a, uint64_t id, enum err_kind kind, const char *text, size_t size)
{
    for (size_t i = 0; a && id && i < N_PLACES; i++) {
        struct admin_client *c = &a->clients[i];
        if (c->state == ADMIN_FREE || c->question != id)
            continue;
        admin_command_answer(c, kind, text, size);
        admin_client_read_lines(c);
        return;
    }
}

void admin_fail_questions(struct admin *a)
{
    static const char gone[] = "the engine stopped; it is being restarted";

    for (size_t i = 0; a && i < N_PLACES; i++) {
        struct admin_client *c = &a->clients[i];
        if (c->state == ADMIN_FREE || !c->question || !c->of_engine)
            continue;
        admin_command_answer(c, ERR_CLOSED, gone, strlen(gone));
        admin_client_read_lines(c);
    }
}
