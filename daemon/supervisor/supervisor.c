#include "daemon/supervisor/supervisor.h"

#include "daemon/admin/admin.h"
#include "daemon/base/listen.h"
#include "daemon/base/log.h"
#include "daemon/base/version.h"
#include "daemon/conf/options.h"
#include "daemon/conf/state_dir.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/supervisor/conf_seal.h"
#include "daemon/supervisor/model_mark.h"
#include "daemon/supervisor/supervisor_state.h"
#include "daemon/supervisor/supervisor_status.h"
#include "daemon/wire/channel.h"
#include "daemon/worker/worker.h"
#include "util/clock.h"
#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    SAME_STOP_MS = 100, /* `timeout` and shells signal a child and then its group */
    OTHER_FDS = 64,     /* loop, timers, admin clients, both ends of what is being made */
};

/* ---- signals ---- */

static int on_stop_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *ctx)
{
    struct supervisor *s = ctx;

    (void)source;
    if (s->phase >= DRAINING && clock_ms() - s->stop_ms < SAME_STOP_MS)
        return 0; /* one wish told twice: to us and to our process group */
    if (s->phase >= DRAINING) {
        log_line(LOG_LEVEL_NOTICE, "stopping at once: %s came again",
                 strsignal((int)info->ssi_signo));
        stop_at_once(s, s->status);
    } else {
        log_line(LOG_LEVEL_NOTICE, "stopping: %s", strsignal((int)info->ssi_signo));
        stop_gently(s, s->now.conf->drain_timeout_ms);
    }
    return 0;
}

static int on_reload_signal(sd_event_source *source, const struct signalfd_siginfo *info,
                            void *ctx)
{
    (void)source;
    (void)info;
    reload_signalled(ctx);
    return 0;
}

static int on_silence(sd_event_source *source, uint64_t usec, void *ctx)
{
    (void)usec;
    children_look(ctx);
    sd_event_source_set_time_relative(source, PULSE_LATE_MS * 1000);
    return 0;
}

/* ---- admin ---- */

static json_t *status_json(void *ctx)
{
    static const char *const phases[] = { "starting", "serving", "draining", "stopping" };
    struct supervisor *s = ctx;
    struct supervisor_view view = {
        .conf = s->now.conf,
        .phase = phases[s->phase],
        .reload = reload_step_name(s),
        .engine = &s->engine,
        .listeners = s->listeners,
        .n_listeners = s->n_listeners,
        .started_ms = s->started_ms,
    };
    const struct child *workers[N_POSTS];

    for (uint32_t i = 0; i < N_POSTS; i++)
        if (s->posts[i].state != POST_FREE)
            workers[view.n_workers++] = &s->posts[i].child;
    view.workers = workers;
    return supervisor_status(&view);
}

static int ask_engine(void *ctx, uint64_t id, const char *question, struct err *err)
{
    struct supervisor *s = ctx;
    struct wire_text m = { .size = (uint32_t)strlen(question) };
    const struct channel_part parts[] = { { &m, sizeof m }, { question, m.size } };

    if (!s->engine.channel)
        return err_set(err, ERR_CLOSED, "the engine is not running; it is being restarted");
    return channel_send(s->engine.channel, WIRE_ASK, id, parts, 2, -1, err);
}

static int ask_reload(void *ctx, uint64_t id, struct err *err)
{
    return reload_asked(ctx, id, err);
}

static int ask_budget(void *ctx, uint64_t id, uint64_t ram, struct err *err)
{
    return settings_budget(ctx, id, ram, err);
}

static int drain(void *ctx, uint32_t timeout_ms, struct err *err)
{
    struct supervisor *s = ctx;

    if (s->phase >= DRAINING)
        return err_set(err, ERR_BUSY, "the daemon is stopping already");
    if (timeout_ms == 0)
        timeout_ms = s->now.conf->drain_timeout_ms;
    log_line(LOG_LEVEL_NOTICE, "stopping: an admin client asked for it timeout_ms=%u", timeout_ms);
    stop_gently(s, timeout_ms);
    return 0;
}

static int set_log(void *ctx, int level, struct err *err)
{
    return settings_log_level(ctx, level, err);
}

/* ---- starting ---- */

/* Descriptors for the supervisor and for a worker; a small soft limit is raised. */
static int check_descriptors(const struct conf *conf, struct err *err)
{
    uint32_t mine = CHILD_PARK_ABOVE + OTHER_FDS + 2 * conf->workers + conf->n_listen;
    uint32_t theirs = worker_descriptors(conf, conf->n_listen);
    uint32_t need = mine > theirs ? mine : theirs;
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return err_errno(err, "limit of descriptors");
    if (files.rlim_max < need)
        return err_set(err, ERR_INPUT,
                       "a process may open %llu files and %u are needed: raise the limit (ulimit "
                       "-n %u; LimitNOFILE=%u in the unit)%s",
                       (unsigned long long)files.rlim_max, need, need, need,
                       theirs > mine ? " or lower http.connections" : "");
    if (files.rlim_cur >= need)
        return 0;
    files.rlim_cur = need;
    return setrlimit(RLIMIT_NOFILE, &files) < 0 ? err_errno(err, "limit of descriptors") : 0;
}

static int open_admin(struct supervisor *s, int fd, struct err *err)
{
    struct admin_ops ops = { .ctx = s,           .status = status_json, .ask = ask_engine,
                             .reload = ask_reload, .budget = ask_budget, .drain = drain,
                             .set_log = set_log };
    const char *path = s->now.conf->admin_socket;
    struct err why;

    if (fd < 0 && path[0] == '\0')
        return 0;
    bool given = fd >= 0;
    if (!given && admin_listen(&fd, path, &why) < 0) {
        /* Where nobody chose the path, whoever tries the daemon by hand can go on without. */
        if (!s->now.conf->admin_default) {
            *err = why;
            return -1;
        }
        log_line(LOG_LEVEL_WARNING, "going on without an admin socket: %s", why.text);
        return 0;
    }
    s->admin_bound = !given;
    return child_park_fd(&fd, err) < 0 ? -1 : admin_open(&s->admin, s->loop, fd, &ops, err);
}

static int open_sockets(struct supervisor *s, struct err *err)
{
    struct notify_sockets given;
    struct listen_address address;

    if (notify_sockets(&given, err) < 0)
        return -1;
    for (uint32_t i = 0; i < given.n_http; i++)
        s->listeners[s->n_listeners++] = given.http[i];
    for (uint32_t i = 0; given.n_http == 0 && i < s->now.conf->n_listen; i++) {
        if (listen_parse(&address, s->now.conf->listen[i], err) < 0 ||
            listen_open(&s->listeners[s->n_listeners], &address, err) < 0)
            return err_within(err, "%s", s->now.conf->listen[i]);
        s->n_listeners++;
    }
    for (uint32_t i = 0; i < s->n_listeners; i++)
        if (child_park_fd(&s->listeners[i], err) < 0)
            return -1;
    return open_admin(s, given.admin, err);
}

static int watch_signals(struct supervisor *s, struct err *err)
{
    static const struct {
        int number;
        sd_event_signal_handler_t handler;
    } wanted[] = { { SIGTERM, on_stop_signal }, { SIGINT, on_stop_signal }, { SIGHUP, on_reload_signal } };
    sigset_t blocked;
    int rc = 0;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&blocked);
    for (size_t i = 0; i < 3; i++)
        sigaddset(&blocked, wanted[i].number);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    for (size_t i = 0; i < 3 && rc >= 0; i++)
        rc = sd_event_add_signal(s->loop, &s->signals[i], wanted[i].number, wanted[i].handler, s);
    if (rc >= 0)
        rc = sd_event_add_time_relative(s->loop, &s->silence, CLOCK_MONOTONIC,
                                        PULSE_LATE_MS * 1000, 0, on_silence, s);
    if (rc >= 0)
        rc = sd_event_source_set_enabled(s->silence, SD_EVENT_ON);
    /* After pulses that came meanwhile, should we ourselves have been stopped. */
    if (rc >= 0)
        rc = sd_event_source_set_priority(s->silence, SD_EVENT_PRIORITY_IDLE);
    if (rc < 0) {
        errno = -rc;
        return err_errno(err, "event loop");
    }
    return 0;
}

static int start_children(struct supervisor *s, struct err *err)
{
    s->setup = (struct child_setup){
        .loop = s->loop,
        .exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
        .listeners = s->listeners,
        .n_listeners = s->n_listeners,
        .environment = notify_environment(),
        .ctx = s,
        .frame = children_frame,
        .started = children_started,
        .ended = children_ended,
    };
    if (s->setup.exe < 0)
        return err_errno(err, "/proc/self/exe");
    if (!s->setup.environment)
        return err_set(err, ERR_NOMEM, "environment of children");
    if (child_park_fd(&s->setup.exe, err) < 0 || conf_seal(&s->now.fd, s->now.conf, err) < 0)
        return -1;
    child_init(&s->check, &s->setup, ROLE_CHECK, 0, -1);
    child_init(&s->engine, &s->setup, ROLE_ENGINE, 0, s->now.fd);
    s->template_mark = template_mark(s->now.conf->model_dir, s->now.conf->chat_template);
    for (uint32_t i = 0; i < s->now.conf->workers; i++)
        if (roll_start(s, &s->now, POST_ACTIVE, err) < 0)
            return -1;
    return child_start(&s->engine, err);
}

static int open_state(const struct supervisor *s, struct err *err)
{
    struct err why;
    int rc = state_dir_open(s->now.conf, &why);

    if (rc < 0)
        *err = why;
    else if (rc == 0)
        log_line(LOG_LEVEL_INFO, "going on without state: %s", why.text);
    return rc < 0 ? -1 : 0;
}

static int narrow(struct supervisor *s, struct err *err)
{
    char text[160];

    if (sandbox_supervisor(&s->sandbox, err) < 0)
        return -1;
    log_line(LOG_LEVEL_INFO, "narrowed %s", sandbox_text(text, sizeof text, &s->sandbox));
    return 0;
}

static int start(struct supervisor *s, struct err *err)
{
    int rc = sd_event_default(&s->loop);

    if (rc < 0) {
        errno = -rc;
        return err_errno(err, "event loop");
    }
    if (check_descriptors(s->now.conf, err) < 0 || notify_open(&s->notify, s->loop, err) < 0 ||
        open_sockets(s, err) < 0 || watch_signals(s, err) < 0 || open_state(s, err) < 0 ||
        narrow(s, err) < 0)
        return -1;
    notify_state(&s->notify, "STATUS=starting");
    return start_children(s, err);
}

static void done(struct supervisor *s)
{
    for (uint32_t i = 0; i < N_POSTS; i++)
        child_done(&s->posts[i].child);
    child_done(&s->engine);
    child_done(&s->check);
    admin_close(s->admin);
    if (s->admin_bound)
        unlink(s->now.conf->admin_socket);
    for (uint32_t i = 0; i < s->n_listeners; i++)
        close(s->listeners[i]);
    for (size_t i = 0; i < 3; i++)
        sd_event_source_disable_unref(s->signals[i]);
    sd_event_source_disable_unref(s->silence);
    sd_event_source_disable_unref(s->deadline);
    notify_close(&s->notify);
    sd_event_unref(s->loop);
    free(s->setup.environment);
    if (s->setup.exe >= 0)
        close(s->setup.exe);
    if (s->now.fd >= 0)
        close(s->now.fd);
}

int supervisor_run(const struct options *options, struct conf *conf)
{
    struct supervisor *s = calloc(1, sizeof *s);
    struct err why;

    if (!s) {
        log_line(LOG_LEVEL_ERR, "no memory");
        return EXIT_FAILED;
    }
    s->options = options;
    s->now.conf = conf;
    s->started_ms = clock_ms();
    s->notify.fd = s->setup.exe = s->now.fd = s->reload.to.fd = -1;
    log_line(LOG_LEVEL_NOTICE, "colizigd %s (%s) pid=%d", version_number(), version_commit(),
             (int)getpid());
    if (start(s, &why) < 0) {
        log_line(LOG_LEVEL_ERR, "%s", why.text);
        s->status = err_exit_status(why.kind); /* children that run end with us (PDEATHSIG) */
    } else {
        int rc = sd_event_loop(s->loop);
        if (rc < 0) {
            log_line(LOG_LEVEL_ERR, "event loop: %s", strerror(-rc));
            s->status = EXIT_FAILED;
        }
        log_line(LOG_LEVEL_NOTICE, "stopped status=%d", s->status);
    }
    int status = s->status;
    done(s);
    free(s);
    return status;
}
