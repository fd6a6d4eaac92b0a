#include "daemon/supervisor.h"

#include "daemon/admin.h"
#include "daemon/channel.h"
#include "daemon/child.h"
#include "daemon/conf.h"
#include "daemon/conf_seal.h"
#include "daemon/listen.h"
#include "daemon/log.h"
#include "daemon/notify.h"
#include "daemon/options.h"
#include "daemon/sandbox.h"
#include "daemon/state_dir.h"
#include "daemon/supervisor_status.h"
#include "daemon/version.h"
#include "util/clock.h"
#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ENGINE_DEATHS = 5, /* in ENGINE_DEATHS_MS: somebody has to look */
    ENGINE_DEATHS_MS = 10 * 60 * 1000,
    /* Past its own deadline a child has this long to be gone. */
    SAME_STOP_MS = 100, /* `timeout` and shells signal a child and then its group */
    LATE_PULSE_MS = 2000, /* pulses come every second */
    GRACE_MS = 3000,
    ENGINE_STOP_MS = 5000,
    EXTEND_US = 60000000, /* while loading moves on, systemd waits another minute */
};

enum phase { STARTING, SERVING, DRAINING, STOPPING };

struct supervisor {
    const struct options *options;
    const struct conf *conf;
    sd_event *loop;
    struct child_setup setup, check_setup;
    int listeners[NOTIFY_MAX_FDS]; /* owned */
    uint32_t n_listeners;
    struct child workers[CONF_MAX_WORKERS], engine, check;
    struct admin *admin; /* NULL: none */
    bool admin_bound;    /* its file is ours to remove */
    enum phase phase;
    int status;
    struct sandbox sandbox; /* of this process */
    char engine_text[256]; /* its last STATUS */
    uint64_t stop_ms;      /* when stopping began */
    uint64_t started_ms;
    uint64_t engine_deaths[ENGINE_DEATHS];
    uint32_t n_engine_deaths;
    struct wire_pulse pulse; /* the last one, and since when nothing moved */
    uint64_t moved_ms;
    uint64_t heard_ms; /* when the engine's last pulse came; 0: none yet in its life */
    sd_event_source *signals[3], *deadline, *silence;
};

/* ---- stopping ---- */

static bool any_worker(const struct supervisor *s)
{
    for (uint32_t i = 0; i < s->conf->workers; i++)
        if (s->workers[i].pid > 0)
            return true;
    return false;
}

static void send_drain(struct child *c, uint32_t deadline_ms)
{
    struct wire_drain m = { .deadline_ms = deadline_ms };
    const struct channel_part part = { &m, sizeof m };
    struct err why;

    if (!c->channel || channel_send(c->channel, WIRE_DRAIN, 0, &part, 1, -1, &why) == 0)
        return;
    log_line(LOG_LEVEL_WARNING, "%s is killed: %s", c->name, why.text);
    child_kill(c, SIGKILL);
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct supervisor *s = ctx;

    (void)source;
    (void)usec;
    for (uint32_t i = 0; i < s->conf->workers; i++) {
        if (s->workers[i].pid > 0)
            log_line(LOG_LEVEL_WARNING, "%s did not stop in time and is killed",
                     s->workers[i].name);
        child_kill(&s->workers[i], SIGKILL);
    }
    if (s->phase == STOPPING) {
        if (s->engine.pid > 0)
            log_line(LOG_LEVEL_WARNING, "engine did not stop in time and is killed");
        child_kill(&s->engine, SIGKILL);
    }
    return 0;
}

static void set_deadline(struct supervisor *s, uint64_t ms)
{
    /* Otherwise a drain_timeout longer than the unit's TimeoutStopSec would end in SIGKILL. */
    notify_state("EXTEND_TIMEOUT_USEC=%" PRIu64, (ms + GRACE_MS) * 1000);
    s->deadline = sd_event_source_disable_unref(s->deadline);
    sd_event_add_time_relative(s->loop, &s->deadline, CLOCK_MONOTONIC, ms * 1000, 0, on_deadline,
                               s);
}

/* The next step of a stop, if the last one is done: workers first, then the engine. */
static void go_on_stopping(struct supervisor *s)
{
    if (s->phase < DRAINING || any_worker(s))
        return;
    if (s->phase == DRAINING) {
        s->phase = STOPPING;
        if (s->engine.pid > 0) {
            send_drain(&s->engine, ENGINE_STOP_MS);
            set_deadline(s, ENGINE_STOP_MS + GRACE_MS);
        }
    }
    if (s->engine.pid == 0)
        sd_event_exit(s->loop, 0);
}

static void keep_down(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->conf->workers; i++)
        child_stay_down(&s->workers[i]);
    child_stay_down(&s->engine);
    child_kill(&s->check, SIGKILL);
}

static void stop_at_once(struct supervisor *s, int status)
{
    s->phase = STOPPING;
    s->status = status;
    notify_state("STOPPING=1");
    keep_down(s);
    for (uint32_t i = 0; i < s->conf->workers; i++)
        child_kill(&s->workers[i], SIGKILL);
    child_kill(&s->engine, SIGKILL);
    go_on_stopping(s);
}

static void stop(struct supervisor *s)
{
    s->phase = DRAINING;
    s->stop_ms = clock_ms();
    notify_state("STOPPING=1\nSTATUS=finishing running requests");
    keep_down(s);
    for (uint32_t i = 0; i < s->conf->workers; i++)
        send_drain(&s->workers[i], s->conf->drain_timeout_ms);
    set_deadline(s, (uint64_t)s->conf->drain_timeout_ms + GRACE_MS);
    go_on_stopping(s);
}

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
        stop(s);
    }
    return 0;
}

/* ---- children start ---- */

/* Each gets one end of a pair. A worker that misses its introduction is restarted by nobody, so
 * failing here ends the child that cannot be reached. */
static void introduce(struct supervisor *s, struct child *worker)
{
    struct wire_peer to_worker = { .slot = worker->slot, .generation = s->engine.life };
    struct wire_peer to_engine = { .slot = worker->slot, .generation = worker->life };
    struct err why;
    int pair[2];

    if (!s->engine.channel || !worker->channel)
        return;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        log_line(LOG_LEVEL_ERR, "%s is killed: no channel to the engine: %s", worker->name,
                 strerror(errno));
        child_kill(worker, SIGKILL);
        return;
    }
    const struct channel_part worker_part = { &to_worker, sizeof to_worker };
    const struct channel_part engine_part = { &to_engine, sizeof to_engine };
    if (channel_send(worker->channel, WIRE_PEER, 0, &worker_part, 1, pair[0], &why) < 0 ||
        channel_send(s->engine.channel, WIRE_PEER, 0, &engine_part, 1, pair[1], &why) < 0) {
        log_line(LOG_LEVEL_ERR, "%s is killed: it cannot meet the engine: %s", worker->name,
                 why.text);
        child_kill(worker, SIGKILL);
    }
    close(pair[0]);
    close(pair[1]);
}

static void on_started(void *ctx, struct child *c)
{
    struct supervisor *s = ctx;

    if (c == &s->check)
        return;
    if (c->role == ROLE_WORKER) {
        introduce(s, c);
        return;
    }
    s->pulse = (struct wire_pulse){ 0 };
    s->moved_ms = clock_ms();
    s->heard_ms = 0;
    snprintf(s->engine_text, sizeof s->engine_text, "starting");
    for (uint32_t i = 0; i < s->conf->workers; i++)
        introduce(s, &s->workers[i]);
}

/* ---- children speak ---- */

static void note_ready(struct supervisor *s)
{
    char addresses[256] = "", one[64];
    size_t used = 0;

    for (uint32_t i = 0; i < s->conf->workers; i++)
        if (!s->workers[i].ready)
            return;
    if (!s->engine.ready || s->phase >= DRAINING)
        return;
    for (uint32_t i = 0; i < s->n_listeners && used < sizeof addresses; i++)
        used += (size_t)snprintf(addresses + used, sizeof addresses - used, "%s%s", i ? "," : "",
                                 listen_name(one, sizeof one, s->listeners[i]));
    if (s->phase == STARTING)
        log_line(LOG_LEVEL_NOTICE, "ready listen=%s model=%s workers=%u", addresses,
                 s->conf->model_name, s->conf->workers);
    notify_state("%sSTATUS=serving %s on %s", s->phase == STARTING ? "READY=1\n" : "",
                 s->conf->model_name, addresses);
    s->phase = SERVING;
}

static void take_status(struct supervisor *s, const struct wire_text *m)
{
    size_t size = m->size < sizeof s->engine_text - 1 ? m->size : sizeof s->engine_text - 1;

    memcpy(s->engine_text, m + 1, size);
    s->engine_text[size] = '\0';
    if (s->engine.ready || s->phase >= DRAINING)
        return;
    /* Status lines come as loading moves on, so more time is deserved. */
    if (s->phase == STARTING)
        notify_state("STATUS=%s\nEXTEND_TIMEOUT_USEC=%d", s->engine_text, EXTEND_US);
    else
        notify_state("STATUS=%s", s->engine_text);
}

/* Work is there and neither a layer nor a read was done for too long: the engine hangs. */
static void take_pulse(struct supervisor *s, const struct wire_pulse *m)
{
    uint64_t now = clock_ms();
    /* Work that the last pulse did not show may have come this moment. */
    bool busy = m->running + m->waiting > 0 && s->pulse.running + s->pulse.waiting > 0;

    if (!busy || m->layers != s->pulse.layers || m->reads != s->pulse.reads)
        s->moved_ms = now;
    s->pulse = *m;
    s->heard_ms = now;
    if (now - s->moved_ms < s->conf->engine.stall_timeout_ms || s->phase >= DRAINING)
        return;
    log_line(LOG_LEVEL_ERR,
             "engine hangs and is aborted: no layer and no read for %" PRIu64
             " ms running=%u waiting=%u",
             now - s->moved_ms, m->running, m->waiting);
    s->moved_ms = now;
    child_abort(&s->engine);
}

/* A pulse comes every second from the door thread whatever the engine thread does. When none comes
 * the process itself is stopped or stuck, and would not obey SIGABRT either. */
static int on_silence(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct supervisor *s = ctx;
    uint64_t now = clock_ms();

    (void)usec;
    if (s->phase < DRAINING && s->heard_ms && s->engine.pid > 0 &&
        now - s->heard_ms > s->conf->engine.stall_timeout_ms + LATE_PULSE_MS) {
        log_line(LOG_LEVEL_ERR, "engine is silent and is killed: no pulse for %" PRIu64 " ms",
                 now - s->heard_ms);
        s->heard_ms = 0;
        child_kill(&s->engine, SIGKILL);
    }
    sd_event_source_set_time_relative(source, LATE_PULSE_MS * 1000);
    return 0;
}

static void take_lost(struct supervisor *s, const struct wire_peer *m)
{
    if (m->slot >= s->conf->workers || s->workers[m->slot].life != m->generation)
        return;
    log_line(LOG_LEVEL_ERR, "worker %u is killed: the engine gave it up", m->slot);
    child_kill(&s->workers[m->slot], SIGKILL);
}

static void on_frame(void *ctx, struct child *c, const struct wire_head *head, const void *body)
{
    struct supervisor *s = ctx;
    const struct wire_answer *answer = body;

    if (head->type == WIRE_READY) {
        c->ready = true;
        c->sandbox = *(const struct wire_ready *)body;
        note_ready(s);
        return;
    }
    if (c == &s->engine) {
        switch (head->type) {
        case WIRE_STATUS:
            take_status(s, body);
            return;
        case WIRE_PULSE:
            take_pulse(s, body);
            return;
        case WIRE_LOST:
            take_lost(s, body);
            return;
        case WIRE_ANSWER:
            admin_answer(s->admin, head->id, (enum err_kind)answer->kind,
                         (const char *)(answer + 1), answer->text_size);
            return;
        }
    }
    if (head->type == WIRE_STATUS || head->type == WIRE_PULSE)
        return; /* a worker's; nothing needs them yet */
    log_line(LOG_LEVEL_ERR, "%s is killed: it sent a message of type %u", c->name, head->type);
    child_kill(c, SIGKILL);
}

/* ---- children end ---- */

static bool dies_too_often(struct supervisor *s)
{
    uint64_t now = clock_ms(), *oldest = &s->engine_deaths[s->n_engine_deaths % ENGINE_DEATHS];

    *oldest = now;
    s->n_engine_deaths++;
    uint64_t first = s->engine_deaths[s->n_engine_deaths % ENGINE_DEATHS];
    return s->n_engine_deaths >= ENGINE_DEATHS && now - first < ENGINE_DEATHS_MS;
}

static void check_ended(int status)
{
    if (status == EXIT_FINE)
        log_line(LOG_LEVEL_NOTICE, "the new config is fine, but changing settings while running "
                                   "is not built: restart to apply it");
    else
        log_line(LOG_LEVEL_ERR, "the new config is refused; nothing changed status=%d", status);
}

static void log_end(const struct child *c, int status, bool expected)
{
    int level = expected ? LOG_LEVEL_INFO : LOG_LEVEL_ERR;

    if (expected && status == -SIGKILL)
        log_line(level, "%s was stopped", c->name);
    else if (status < 0)
        log_line(level, "%s died signal=%d (%s)%s", c->name, -status, strsignal(-status),
                 status == -SIGSYS ? ": its sandbox refused a system call; the kernel's log names it"
                                   : "");
    else
        log_line(level, "%s ended status=%d", c->name, status);
}

/* Bad settings, a bad checkpoint or too little memory do not get better by trying again. */
static bool permanent(int status)
{
    return status == EXIT_USAGE || status == EXIT_CHECKPOINT || status == EXIT_BUDGET;
}

static void on_ended(void *ctx, struct child *c, int status)
{
    struct supervisor *s = ctx;

    if (c == &s->check) {
        check_ended(status);
        return;
    }
    log_end(c, status, s->phase >= DRAINING);
    if (c == &s->engine)
        admin_fail_questions(s->admin);
    if (s->phase >= DRAINING) {
        go_on_stopping(s);
        return;
    }
    if (permanent(status)) {
        stop_at_once(s, status);
        return;
    }
    if (c == &s->engine) {
        notify_state("STATUS=the engine died and is started again");
        if (dies_too_often(s)) {
            log_line(LOG_LEVEL_ERR, "engine died %d times in 10 minutes; giving up", ENGINE_DEATHS);
            stop_at_once(s, EXIT_FAILED);
            return;
        }
    }
    child_start_later(c);
}

/* ---- reload ---- */

/* SIGHUP: the file is read again here, the model's side of it is checked in a child. */
static int on_reload(sd_event_source *source, const struct signalfd_siginfo *info, void *ctx)
{
    struct supervisor *s = ctx;
    struct conf fresh;
    struct err why;
    int rc;

    (void)source;
    (void)info;
    if (s->phase >= DRAINING || s->check.pid > 0)
        return 0;
    log_line(LOG_LEVEL_NOTICE, "checking the config");
    if (s->check_setup.conf >= 0)
        close(s->check_setup.conf);
    s->check_setup.conf = -1;
    rc = options_load(s->options, &fresh, &why);
    if (rc == 0)
        rc = conf_seal(&s->check_setup.conf, &fresh, &why);
    if (rc == 0)
        rc = child_start(&s->check, &why);
    conf_done(&fresh);
    if (rc < 0)
        log_line(LOG_LEVEL_ERR, "the new config is refused; nothing changed: %s", why.text);
    return 0;
}

/* ---- admin ---- */

static json_t *status_json(void *ctx)
{
    static const char *const phases[] = { "starting", "serving", "draining", "stopping" };
    struct supervisor *s = ctx;
    struct supervisor_view view = {
        .conf = s->conf,
        .phase = phases[s->phase],
        .engine_text = s->engine_text,
        .engine = &s->engine,
        .workers = s->workers,
        .n_workers = s->conf->workers,
        .listeners = s->listeners,
        .n_listeners = s->n_listeners,
        .pulse = &s->pulse,
        .started_ms = s->started_ms,
    };

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

/* ---- starting ---- */

static int open_admin(struct supervisor *s, int fd, struct err *err)
{
    struct admin_ops ops = { .ctx = s, .status = status_json, .ask = ask_engine };
    const char *path = s->conf->admin_socket;
    struct err why;

    if (fd < 0 && path[0] == '\0')
        return 0;
    bool given = fd >= 0;
    if (!given && admin_listen(&fd, path, &why) < 0) {
        /* Where nobody chose the path, whoever tries the daemon by hand can go on without. */
        if (!s->conf->admin_default) {
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
    for (uint32_t i = 0; given.n_http == 0 && i < s->conf->n_listen; i++) {
        if (listen_parse(&address, s->conf->listen[i], err) < 0 ||
            listen_open(&s->listeners[s->n_listeners], &address, err) < 0)
            return err_within(err, "%s", s->conf->listen[i]);
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
    } wanted[] = { { SIGTERM, on_stop_signal }, { SIGINT, on_stop_signal }, { SIGHUP, on_reload } };
    sigset_t blocked;
    int rc = 0;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    for (size_t i = 0; i < 3; i++)
        sigaddset(&blocked, wanted[i].number);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    for (size_t i = 0; i < 3 && rc >= 0; i++)
        rc = sd_event_add_signal(s->loop, &s->signals[i], wanted[i].number, wanted[i].handler, s);
    if (rc >= 0)
        rc = sd_event_set_watchdog(s->loop, true);
    if (rc >= 0)
        rc = sd_event_add_time_relative(s->loop, &s->silence, CLOCK_MONOTONIC,
                                        LATE_PULSE_MS * 1000, 0, on_silence, s);
    if (rc >= 0)
        rc = sd_event_source_set_enabled(s->silence, SD_EVENT_ON);
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
        .conf = -1,
        .listeners = s->listeners,
        .n_listeners = s->n_listeners,
        .environment = notify_environment(),
        .ctx = s,
        .frame = on_frame,
        .started = on_started,
        .ended = on_ended,
    };
    if (s->setup.exe < 0)
        return err_errno(err, "/proc/self/exe");
    if (!s->setup.environment)
        return err_set(err, ERR_NOMEM, "environment of children");
    if (child_park_fd(&s->setup.exe, err) < 0 || conf_seal(&s->setup.conf, s->conf, err) < 0)
        return -1;
    s->check_setup = s->setup;
    s->check_setup.conf = -1;
    child_init(&s->check, &s->check_setup, ROLE_CHECK, 0);
    child_init(&s->engine, &s->setup, ROLE_ENGINE, 0);
    for (uint32_t i = 0; i < s->conf->workers; i++)
        child_init(&s->workers[i], &s->setup, ROLE_WORKER, i);
    for (uint32_t i = 0; i < s->conf->workers; i++)
        if (child_start(&s->workers[i], err) < 0)
            return -1;
    return child_start(&s->engine, err);
}

static int open_state(const struct supervisor *s, struct err *err)
{
    struct err why;
    int rc = state_dir_open(s->conf, &why);

    if (rc < 0)
        *err = why;
    else if (rc == 0)
        log_line(LOG_LEVEL_NOTICE, "going on without state: %s", why.text);
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
    if (open_sockets(s, err) < 0 || watch_signals(s, err) < 0 || open_state(s, err) < 0 ||
        narrow(s, err) < 0)
        return -1;
    notify_state("STATUS=starting");
    return start_children(s, err);
}

static void done(struct supervisor *s)
{
    for (uint32_t i = 0; i < s->conf->workers; i++)
        child_done(&s->workers[i]);
    child_done(&s->engine);
    child_done(&s->check);
    admin_close(s->admin);
    if (s->admin_bound)
        unlink(s->conf->admin_socket);
    for (uint32_t i = 0; i < s->n_listeners; i++)
        close(s->listeners[i]);
    for (size_t i = 0; i < 3; i++)
        sd_event_source_disable_unref(s->signals[i]);
    sd_event_source_disable_unref(s->silence);
    sd_event_source_disable_unref(s->deadline);
    sd_event_unref(s->loop);
    free(s->setup.environment);
}

int supervisor_run(const struct options *options, const struct conf *conf)
{
    struct supervisor *s = calloc(1, sizeof *s);
    struct err why;

    if (!s) {
        log_line(LOG_LEVEL_ERR, "no memory");
        return EXIT_FAILED;
    }
    s->options = options;
    s->conf = conf;
    s->started_ms = clock_ms();
    s->setup.exe = s->setup.conf = s->check_setup.conf = -1;
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
