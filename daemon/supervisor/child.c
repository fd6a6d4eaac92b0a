#include "daemon/supervisor/child.h"

#include "daemon/base/log.h"
#include "daemon/wire/channel.h"
#include "util/clock.h"
#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    OUTBOX = 1 << 20,
    PAUSE_MIN_MS = 100,
    PAUSE_MAX_MS = 30000,
    LONG_LIFE_MS = 60000, /* a life as long as this forgets the pauses before */
    FORCE_US = 5000000,
};

int child_park_fd(int *fd, struct err *err)
{
    int high = fcntl(*fd, F_DUPFD_CLOEXEC, CHILD_PARK_ABOVE);

    if (high < 0)
        return err_errno(err, "moving descriptor %d", *fd);
    close(*fd);
    *fd = high;
    return 0;
}

/* ---- in the child, between fork and exec ---- */

/* Mask and dispositions survive exec. The signals of a terminal and of systemd's stop are for
 * the supervisor; children hear of them by their channel. */
static void reset_signals(void)
{
    static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
    sigset_t none;

    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        signal(ignored[i], SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static bool place_fds(const struct child *c, int channel)
{
    const struct child_setup *s = c->setup;

    if (dup2(channel, CHILD_FD_CHANNEL) < 0 || dup2(c->conf, CHILD_FD_CONF) < 0)
        return false;
    for (uint32_t i = 0; c->role == ROLE_WORKER && i < s->n_listeners; i++)
        if (dup2(s->listeners[i], CHILD_FD_LISTEN + (int)i) < 0)
            return false;
    return true;
}

_Noreturn static void become_child(const struct child *c, int channel, pid_t parent)
{
    const struct child_setup *s = c->setup;
    static const char *const roles[] = { [ROLE_WORKER] = "--role=worker",
                                         [ROLE_ENGINE] = "--role=engine",
                                         [ROLE_CHECK] = "--role=check" };
    char name[] = "colizigd", role[24], slot[32], listeners[32], held[48];
    char *argv[] = { name, role, slot, listeners, c->role == ROLE_CHECK ? held : NULL, NULL };

    snprintf(role, sizeof role, "%s", roles[c->role]);
    snprintf(slot, sizeof slot, "--slot=%u", c->slot);
    snprintf(listeners, sizeof listeners, "--listeners=%u", s->n_listeners);
    snprintf(held, sizeof held, "--held=%" PRIu64, c->held);
    /* The parent may be gone already; then nobody sends the signal. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_FAILED);
    reset_signals();
    if (place_fds(c, channel))
        fexecve(s->exe, argv, s->environment);
    log_line(LOG_LEVEL_ERR, "%s cannot be executed: %s", c->name, strerror(errno));
    _exit(EXIT_FAILED);
}

/* ---- in the supervisor ---- */

static void keep_text(struct child *c, const struct wire_text *m)
{
    size_t size = m->size < sizeof c->said - 1 ? m->size : sizeof c->said - 1;

    memcpy(c->said, m + 1, size);
    c->said[size] = '\0';
    /* It may hold a checkpoint's words, and goes to systemd, to which each line is an order. */
    for (char *p = c->said; *p; p++)
        if ((unsigned char)*p < 0x20)
            *p = ' ';
}

static void on_frame(void *ctx, const struct wire_head *head, const void *body, size_t size,
                     int fd)
{
    struct child *c = ctx;

    (void)size;
    if (fd >= 0)
        close(fd); /* children send none */
    if (head->type == WIRE_STATUS)
        keep_text(c, body);
    if (head->type == WIRE_READY) {
        c->ready = true;
        c->said[0] = '\0';
    }
    c->setup->frame(c->setup->ctx, c, head, body);
}

static void on_closed(void *ctx, const struct err *why)
{
    struct child *c = ctx;

    channel_close(c->channel);
    c->channel = NULL;
    if (why->kind == ERR_CLOSED)
        return; /* it is ending; its exit status is the news */
    log_line(LOG_LEVEL_ERR, "%s is killed: %s", c->name, why->text);
    child_kill(c, SIGKILL);
}

static void clear_source(sd_event_source **source)
{
    *source = sd_event_source_disable_unref(*source);
}

/* Its descriptor says that it has ended; a moment later it can be waited for, and until then the
 * event comes again. */
static int on_exit_event(sd_event_source *source, int fd, uint32_t events, void *ctx)
{
    struct child *c = ctx;
    siginfo_t info = { 0 };

    (void)source;
    (void)fd;
    (void)events;
    int rc = waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG);
    if (rc < 0 ? errno != ECHILD : info.si_pid == 0)
        return 0;
    int status = rc < 0                       ? -SIGKILL /* somebody else has waited for it */
                 : info.si_code == CLD_EXITED ? info.si_status
                                              : -info.si_status;
    clear_source(&c->exit);
    clear_source(&c->force);
    channel_close(c->channel);
    c->channel = NULL;
    c->pid = 0;
    c->ready = false;
    c->n_deaths++;
    if (clock_ms() - c->started_ms >= LONG_LIFE_MS)
        c->pause_ms = PAUSE_MIN_MS;
    c->setup->ended(c->setup->ctx, c, status);
    return 0;
}

void child_init(struct child *c, const struct child_setup *setup, enum options_role role,
                uint32_t slot, int conf)
{
    *c = (struct child){ .setup = setup, .role = role, .slot = slot, .conf = conf,
                         .life = c->life, .born = c->life, .pause_ms = PAUSE_MIN_MS };
    if (role == ROLE_WORKER)
        snprintf(c->name, sizeof c->name, "worker %u", slot);
    else
        snprintf(c->name, sizeof c->name, "%s", role == ROLE_ENGINE ? "engine" : "check");
}

/* Watches the process. Its last messages are to be read before its end is handled.
 *
 * Not by sd_event_add_child: that is told once of a descriptor's event, and where the kernel then
 * has no status yet it waits for ever. */
static int watch(struct child *c, struct err *err)
{
    int fd = pidfd_open(c->pid, 0);

    if (fd < 0)
        return err_errno(err, "watching %s", c->name);
    int rc = sd_event_add_io(c->setup->loop, &c->exit, fd, EPOLLIN, on_exit_event, c);
    if (rc < 0)
        close(fd);
    else if ((rc = sd_event_source_set_io_fd_own(c->exit, 1)) >= 0)
        rc = sd_event_source_set_priority(c->exit, SD_EVENT_PRIORITY_NORMAL + 10);
    if (rc < 0) {
        clear_source(&c->exit);
        errno = -rc;
        return err_errno(err, "watching %s", c->name);
    }
    return 0;
}

int child_start(struct child *c, struct err *err)
{
    struct channel_events events = { .ctx = c, .frame = on_frame, .closed = on_closed };
    pid_t parent = getpid();
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return err_errno(err, "channel to %s", c->name);
    if (child_park_fd(&pair[1], err) < 0) {
        close(pair[0]);
        close(pair[1]);
        return -1;
    }
    if (channel_open(&c->channel, c->setup->loop, pair[0], OUTBOX, &events, err) < 0) {
        close(pair[1]);
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0)
        become_child(c, pair[1], parent);
    if (pid < 0)
        err_errno(err, "starting %s", c->name);
    close(pair[1]);
    if (pid < 0)
        goto fail;
    c->pid = pid;
    c->life++;
    c->ready = false;
    c->said[0] = '\0';
    c->heard_ms = 0;
    c->pulse = (struct wire_pulse){ 0 };
    c->started_ms = clock_ms();
    if (watch(c, err) < 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        c->pid = 0;
        goto fail;
    }
    log_line(LOG_LEVEL_INFO, "%s started pid=%d", c->name, (int)pid);
    c->setup->started(c->setup->ctx, c);
    return 0;

fail:
    channel_close(c->channel);
    c->channel = NULL;
    return -1;
}

static int on_retry(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct child *c = ctx;
    struct err why;

    (void)source;
    (void)usec;
    clear_source(&c->retry);
    if (child_start(c, &why) < 0) {
        log_line(LOG_LEVEL_ERR, "%s", why.text);
        child_start_later(c);
    }
    return 0;
}

void child_start_later(struct child *c)
{
    if (c->retry)
        return;
    int rc = sd_event_add_time_relative(c->setup->loop, &c->retry, CLOCK_MONOTONIC,
                                        (uint64_t)c->pause_ms * 1000, 0, on_retry, c);
    if (rc < 0)
        log_line(LOG_LEVEL_ERR, "%s stays down: %s", c->name, strerror(-rc));
    else
        log_line(LOG_LEVEL_NOTICE, "%s starts again in %u ms", c->name, c->pause_ms);
    c->pause_ms = c->pause_ms < PAUSE_MAX_MS / 2 ? 2 * c->pause_ms : PAUSE_MAX_MS;
}

void child_stay_down(struct child *c)
{
    clear_source(&c->retry);
}

void child_start_afresh(struct child *c)
{
    struct err why;

    child_stay_down(c);
    c->pause_ms = PAUSE_MIN_MS;
    if (child_start(c, &why) < 0) {
        log_line(LOG_LEVEL_ERR, "%s", why.text);
        child_start_later(c);
    }
}

void child_kill(struct child *c, int signal)
{
    if (c->pid > 0)
        kill(c->pid, signal);
}

static int on_force(sd_event_source *source, uint64_t usec, void *ctx)
{
    (void)source;
    (void)usec;
    child_kill(ctx, SIGKILL);
    return 0;
}

void child_abort(struct child *c)
{
    child_kill(c, SIGABRT);
    if (!c->force)
        sd_event_add_time_relative(c->setup->loop, &c->force, CLOCK_MONOTONIC, FORCE_US, 0,
                                   on_force, c);
}

void child_done(struct child *c)
{
    clear_source(&c->exit);
    clear_source(&c->retry);
    clear_source(&c->force);
    channel_close(c->channel);
    c->channel = NULL;
}
