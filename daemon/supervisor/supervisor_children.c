/* Children: introduced to each other, listened to, and started again when they end. */
#include "daemon/supervisor/supervisor_state.h"

#include "daemon/admin/admin.h"
#include "daemon/base/listen.h"
#include "daemon/base/log.h"
#include "daemon/supervisor/model_mark.h"
#include "daemon/wire/channel.h"
#include "util/clock.h"
#include "util/err.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    WORKER_SILENT_MS = 20000,
    /* Until a child's first pulse: a worker reads its tokenizer, on whatever machine this is. The
     * engine pulses while it loads. */
    START_SILENT_MS = 60000,
};

/* ---- they start ---- */

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

/* A worker that begins anew reads the template as it is now; those beside it have read it before. */
static void warn_of_template(const struct supervisor *s)
{
    const struct conf *conf = s->now.conf;

    if (s->reload.step == RELOAD_NONE &&
        template_mark(conf->model_dir, conf->chat_template) != s->template_mark)
        log_line(LOG_LEVEL_WARNING, "the chat template was changed since the other workers read it: "
                                    "reload, or put it back");
}

void children_started(void *ctx, struct child *c)
{
    struct supervisor *s = ctx;

    if (c->role == ROLE_CHECK)
        return;
    if (c->role == ROLE_WORKER) {
        warn_of_template(s);
        introduce(s, c);
        return;
    }
    s->moved_ms = clock_ms();
    snprintf(c->said, sizeof c->said, "starting");
    s->mark = model_mark(c->conf == s->reload.to.fd ? s->reload.conf.model_dir
                                                    : s->now.conf->model_dir);
    for (uint32_t i = 0; i < N_POSTS; i++)
        if (s->posts[i].child.channel)
            introduce(s, &s->posts[i].child);
}

/* ---- they are told ---- */

int children_adjust(struct child *c, const struct wire_adjust *m, uint64_t id, struct err *err)
{
    const struct channel_part part = { m, sizeof *m };

    if (!c->channel)
        return err_set(err, ERR_CLOSED, "%s is not running", c->name);
    return channel_send(c->channel, WIRE_ADJUST, id, &part, 1, -1, err);
}

void children_set_log(struct supervisor *s)
{
    struct wire_adjust m = { .queue = s->now.conf->engine.queue,
                             .log_level = s->now.conf->log_level };
    struct err why;

    log_level(s->now.conf->log_level);
    for (uint32_t i = 0; i <= N_POSTS; i++) {
        struct child *c = i < N_POSTS ? &s->posts[i].child : &s->engine;
        if (c->channel && children_adjust(c, &m, 0, &why) < 0)
            log_line(LOG_LEVEL_WARNING, "%s keeps its log level: %s", c->name, why.text);
    }
}

/* ---- they speak ---- */

static void put_addresses(const struct supervisor *s, char *buf, size_t cap)
{
    char one[64];
    size_t used = 0;

    buf[0] = '\0';
    for (uint32_t i = 0; i < s->n_listeners && used < cap; i++)
        used += (size_t)snprintf(buf + used, cap - used, "%s%s", i ? "," : "",
                                 listen_name(one, sizeof one, s->listeners[i]));
}

void children_serving_text(const struct supervisor *s, char *buf, size_t cap)
{
    char addresses[256];

    put_addresses(s, addresses, sizeof addresses);
    snprintf(buf, cap, "serving %s on %s", s->now.conf->model_name, addresses);
}

void children_note_ready(struct supervisor *s)
{
    char text[512], addresses[256];

    for (uint32_t i = 0; i < N_POSTS; i++)
        if (s->posts[i].state == POST_ACTIVE && !s->posts[i].child.ready)
            return;
    if (!s->engine.ready || s->phase >= DRAINING || s->reload.step)
        return;
    children_serving_text(s, text, sizeof text);
    if (s->phase == STARTING) {
        put_addresses(s, addresses, sizeof addresses);
        log_line(LOG_LEVEL_NOTICE, "ready listen=%s model=%s workers=%u", addresses,
                 s->now.conf->model_name, s->now.conf->workers);
        notify_state(&s->notify, "READY=1\nSTATUS=%s", text);
        s->phase = SERVING;
        if (s->reload.again)
            reload_signalled(s);
        return;
    }
    notify_state(&s->notify, "STATUS=%s", text);
}

static void take_ready(struct supervisor *s, struct child *c)
{
    bool expected = c->role == ROLE_WORKER ? reload_worker_ready(s, &s->posts[c->slot])
                                           : reload_engine_ready(s);

    if (!expected)
        children_note_ready(s);
}

/* The engine's: they come as loading moves on, so more time is deserved. */
static void take_status(struct supervisor *s)
{
    if (s->engine.ready || s->phase >= DRAINING)
        return;
    if (s->phase == STARTING || s->reload.step)
        notify_state(&s->notify, "STATUS=%s\nEXTEND_TIMEOUT_USEC=%d", s->engine.said, EXTEND_US);
    else
        notify_state(&s->notify, "STATUS=%s", s->engine.said);
}

/* Work is there and neither a layer nor a read was done for too long: the engine hangs. */
static void take_engine_pulse(struct supervisor *s, const struct wire_pulse *m)
{
    const struct wire_pulse *last = &s->engine.pulse;
    uint64_t now = clock_ms();
    /* Work that the last pulse did not show may have come this moment. */
    bool busy = m->running + m->waiting > 0 && last->running + last->waiting > 0;

    if (!busy || m->layers != last->layers || m->reads != last->reads)
        s->moved_ms = now;
    if (now - s->moved_ms < s->now.conf->engine.stall_timeout_ms || s->phase >= DRAINING)
        return;
    log_line(LOG_LEVEL_ERR,
             "engine hangs and is aborted: no layer and no read for %" PRIu64
             " ms running=%u waiting=%u",
             now - s->moved_ms, m->running, m->waiting);
    s->moved_ms = now;
    child_abort(&s->engine);
}

static void take_pulse(struct supervisor *s, struct child *c, const struct wire_pulse *m)
{
    bool fewer = m->running != c->pulse.running;

    if (c == &s->engine)
        take_engine_pulse(s, m);
    c->pulse = *m;
    c->heard_ms = clock_ms();
    if (s->phase == DRAINING && c->role == ROLE_WORKER && fewer)
        stop_tell(s);
}

static void take_lost(struct supervisor *s, const struct wire_peer *m)
{
    if (m->slot >= N_POSTS || s->posts[m->slot].child.life != m->generation)
        return;
    log_line(LOG_LEVEL_ERR, "worker %u is killed: the engine gave it up", m->slot);
    child_kill(&s->posts[m->slot].child, SIGKILL);
}

static void take_answer(struct supervisor *s, uint64_t id, const struct wire_answer *m)
{
    reload_answered(s, id, (enum err_kind)m->kind, (const char *)(m + 1), m->text_size);
}

void children_frame(void *ctx, struct child *c, const struct wire_head *head, const void *body)
{
    struct supervisor *s = ctx;

    switch (head->type) {
    case WIRE_READY:
        if (c->role == ROLE_CHECK)
            break;
        c->sandbox = *(const struct wire_ready *)body;
        c->heard_ms = clock_ms();
        take_ready(s, c);
        return;
    case WIRE_STATUS: /* child.c keeps it */
        if (c == &s->engine)
            take_status(s);
        return;
    case WIRE_PULSE:
        take_pulse(s, c, body);
        return;
    case WIRE_LOST:
        if (c != &s->engine)
            break;
        take_lost(s, body);
        return;
    case WIRE_ANSWER:
        if (c != &s->engine)
            break;
        take_answer(s, head->id, body);
        return;
    }
    log_line(LOG_LEVEL_ERR, "%s is killed: it sent a message of type %u", c->name, head->type);
    child_kill(c, SIGKILL);
}

/* ---- they fall silent ---- */

static bool kill_silent(struct child *c, uint64_t now, uint64_t patience)
{
    uint64_t since = c->heard_ms ? c->heard_ms : c->started_ms;

    if (!c->heard_ms)
        patience = START_SILENT_MS;
    if (c->pid == 0 || now - since <= patience)
        return false;
    log_line(LOG_LEVEL_ERR, "%s is silent and is killed: no pulse for %" PRIu64 " ms", c->name,
             now - since);
    c->heard_ms = now; /* one that a drive holds is told again after as long */
    child_kill(c, SIGKILL);
    return true;
}

static void look_at_worker(struct supervisor *s, struct post *p, uint64_t now)
{
    struct child *c = &p->child;
    uint64_t patience = s->now.conf->engine.stall_timeout_ms + PULSE_LATE_MS;

    if (c->pid == 0)
        return;
    if (patience > WORKER_SILENT_MS)
        patience = WORKER_SILENT_MS;
    if (!kill_silent(c, now, patience) && p->state == POST_LEAVING && now > p->due_ms) {
        log_line(LOG_LEVEL_WARNING, "%s did not leave in time and is killed", c->name);
        child_kill(c, SIGKILL);
    }
}

/* A pulse comes every second from the loop of a worker, and from the engine's door thread whatever
 * the engine thread does. When none comes the process itself is stopped or stuck, and would not
 * obey SIGABRT either. */
void children_look(struct supervisor *s)
{
    uint64_t now = clock_ms();

    for (uint32_t i = 0; i < N_POSTS; i++)
        look_at_worker(s, &s->posts[i], now);
    if (s->phase < STOPPING)
        kill_silent(&s->engine, now, s->now.conf->engine.stall_timeout_ms + PULSE_LATE_MS);
}

/* ---- they end ---- */

static bool dies_too_often(struct supervisor *s)
{
    uint64_t now = clock_ms(), *oldest = &s->engine_deaths[s->n_engine_deaths % ENGINE_DEATHS];

    *oldest = now;
    s->n_engine_deaths++;
    uint64_t first = s->engine_deaths[s->n_engine_deaths % ENGINE_DEATHS];
    return s->n_engine_deaths >= ENGINE_DEATHS && now - first < ENGINE_DEATHS_MS;
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

static void worker_ended(struct supervisor *s, struct post *p, int status)
{
    bool left = p->state == POST_LEAVING;

    log_end(&p->child, status, left || s->phase >= DRAINING);
    if (s->phase >= DRAINING) {
        p->state = POST_FREE;
        stop_tell(s);
        stop_go_on(s);
        return;
    }
    if (reload_worker_ended(s, p, status))
        return;
    /* At the start nobody serves and somebody is looking; later the others serve on. */
    if (permanent(status) && s->phase == STARTING)
        stop_at_once(s, status);
    else
        child_start_later(&p->child);
}

static void engine_ended(struct supervisor *s, int status)
{
    bool expected = s->phase >= DRAINING || s->reload.step == RELOAD_ENGINE_STOP;

    log_end(&s->engine, status, expected);
    admin_fail_questions(s->admin);
    if (s->budget_question) /* it has failed with the others */
        settings_budget_answered(s, ERR_CLOSED);
    if (s->phase >= DRAINING) {
        stop_go_on(s);
        return;
    }
    if (reload_engine_ended(s, status))
        return;
    if (permanent(status)) {
        stop_at_once(s, status);
        return;
    }
    notify_state(&s->notify, "STATUS=the engine died and is started again");
    if (dies_too_often(s)) {
        log_line(LOG_LEVEL_ERR, "engine died %d times in 10 minutes; giving up", ENGINE_DEATHS);
        stop_at_once(s, EXIT_FAILED);
        return;
    }
    child_start_later(&s->engine);
}

void children_ended(void *ctx, struct child *c, int status)
{
    struct supervisor *s = ctx;

    if (c->role == ROLE_CHECK)
        reload_check_ended(s, status);
    else if (c->role == ROLE_WORKER)
        worker_ended(s, &s->posts[c->slot], status);
    else
        engine_ended(s, status);
}
