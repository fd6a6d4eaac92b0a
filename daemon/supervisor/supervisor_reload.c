/* Reload: settings as the file says them now, put into effect as far as that can be done.
 *
 *   check         a child plans with the new settings; if it will not, nothing has changed
 *   engine stop   only where a key of the engine changed, or the model's files; or
 *   room          where workers will take more: the engine gives that back first
 *   workers       only where a key of theirs changed (supervisor_roll.c)
 *   engine start  after its stop, with the new settings; or
 *   adjust        what the engine can change as it runs; refused, it is restarted
 *
 * Then the new settings are the ones that run. A step that fails is taken back: the workers that
 * came leave, the engine starts again as it was. There is never more than one engine. */
#include "daemon/supervisor/supervisor_state.h"

#include "daemon/admin/admin.h"
#include "daemon/base/log.h"
#include "daemon/conf/options.h"
#include "daemon/conf/state_dir.h"
#include "daemon/supervisor/conf_seal.h"
#include "daemon/supervisor/measure.h"
#include "daemon/supervisor/model_mark.h"
#include "daemon/supervisor/reload_report.h"
#include "util/clock.h"
#include "util/err.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of our own ADJUST; admin.c counts its questions from 1. */
#define ADJUST_ID (UINT64_C(1) << 63)

enum { CHECK_MS = 120 * 1000 }; /* headers and a tokenizer, from a slow drive */

const char *reload_step_name(const struct supervisor *s)
{
    static const char *const names[] = { NULL, "checking", "stopping the engine",
                                         "making room", "replacing workers", "starting the engine",
                                         "adjusting the engine" };

    return names[s->reload.step];
}

/* ---- its end ---- */

static void forget(struct supervisor *s)
{
    struct reload *r = &s->reload;

    sd_event_source_disable_unref(r->late);
    sd_event_source_disable_unref(r->defer);
    conf_done(&r->conf);
    if (r->to.fd >= 0)
        close(r->to.fd);
    *r = (struct reload){ .to.fd = -1 };
}

/* Tells all who wait, and begins again if that was asked for meanwhile. */
static void finish(struct supervisor *s)
{
    struct reload *r = &s->reload;
    char serving[512], line[768];
    bool failed = r->failure[0] != '\0';
    char *data = failed ? NULL : reload_report(line, sizeof line, r);

    if (failed)
        snprintf(line, sizeof line, "reload failed; nothing changed: %s", r->failure);
    log_line(failed ? LOG_LEVEL_ERR : LOG_LEVEL_NOTICE, "%s", line);
    children_serving_text(s, serving, sizeof serving);
    notify_state(&s->notify, "READY=1\nSTATUS=%s%s%s", serving, failed ? "; " : "",
                 failed ? line : "");
    if (r->asked && failed)
        admin_answer(s->admin, r->question, r->failure_kind, r->failure, strlen(r->failure));
    else if (r->asked && data)
        admin_answer(s->admin, r->question, ERR_NONE, data, strlen(data));
    else if (r->asked)
        admin_answer(s->admin, r->question, ERR_NOMEM, "no memory for the answer", 24);
    free(data);
    bool again = r->again;
    forget(s);
    if (again)
        reload_signalled(s);
}

static void fail(struct supervisor *s, const struct err *why)
{
    s->reload.failure_kind = why->kind;
    snprintf(s->reload.failure, sizeof s->reload.failure, "%s", why->text);
    for (char *p = s->reload.failure; *p; p++) /* the file's words, on one line for systemd */
        if ((unsigned char)*p < 0x20)
            *p = ' ';
}

static void fail_child(struct supervisor *s, const struct child *c, int status)
{
    static const enum err_kind kinds[] = { ERR_IO, ERR_IO, ERR_INPUT, ERR_FORMAT, ERR_BUDGET };
    struct err why;

    why.kind = status >= 0 && status <= EXIT_BUDGET ? kinds[status] : ERR_IO;
    if (c->said[0])
        err_set(&why, why.kind, "%s", c->said);
    else
        err_set(&why, why.kind, "%s ended with %s %d", c->name, status < 0 ? "signal" : "status",
                abs(status));
    fail(s, &why);
}

void reload_abandon(struct supervisor *s)
{
    static const char text[] = "the daemon is stopping";
    struct reload *r = &s->reload;

    if (r->asked)
        admin_answer(s->admin, r->question, ERR_CANCELLED, text, sizeof text - 1);
    forget(s);
}

/* The new settings run: they are what children are started with from now on. */
static void commit(struct supervisor *s)
{
    struct reload *r = &s->reload;
    bool log_changed = s->now.conf->log_level != r->conf.log_level;

    conf_done(s->now.conf);
    *s->now.conf = r->conf; /* moved */
    r->conf = (struct conf){ 0 };
    close(s->now.fd);
    s->now.fd = r->to.fd;
    r->to.fd = -1;
    s->now.generation = r->to.generation;
    s->template_mark = r->template_mark;
    s->engine.conf = s->now.fd;
    for (uint32_t i = 0; i < N_POSTS; i++) {
        /* Where nothing of theirs changed they are as good as new. */
        s->posts[i].child.conf = s->now.fd;
        s->posts[i].generation = s->now.generation;
    }
    if (log_changed)
        children_set_log(s);
    finish(s);
}

/* ---- step by step ---- */

static void take_back(struct supervisor *s);
static void roll(struct supervisor *s);

static void start_engine(struct supervisor *s)
{
    struct reload *r = &s->reload;

    r->step = RELOAD_ENGINE_START;
    s->engine.conf = r->undo ? s->now.fd : r->to.fd;
    child_start_afresh(&s->engine);
}

static int on_late(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct supervisor *s = ctx;
    struct child *c = s->reload.step == RELOAD_CHECK ? &s->check : &s->engine;

    (void)source;
    (void)usec;
    log_line(LOG_LEVEL_WARNING, "%s did not end in time and is killed", c->name);
    child_kill(c, SIGKILL);
    return 0;
}

static void set_late(struct supervisor *s, uint64_t ms)
{
    struct reload *r = &s->reload;

    r->late = sd_event_source_disable_unref(r->late);
    sd_event_add_time_relative(s->loop, &r->late, CLOCK_MONOTONIC, ms * 1000, 0, on_late, s);
}

static void engine_is_down(struct supervisor *s)
{
    struct reload *r = &s->reload;

    r->late = sd_event_source_disable_unref(r->late);
    r->stop_engine = false;
    r->engine_stopped = true;
    if (r->roll)
        roll(s);
    else
        start_engine(s);
}

static void stop_engine(struct supervisor *s)
{
    struct reload *r = &s->reload;
    uint32_t deadline_ms = s->now.conf->drain_timeout_ms;
    uint64_t most_ms = (uint64_t)deadline_ms + ENGINE_STOP_MS + GRACE_MS;

    r->step = RELOAD_ENGINE_STOP;
    child_stay_down(&s->engine);
    if (s->engine.pid == 0) {
        engine_is_down(s);
        return;
    }
    log_line(LOG_LEVEL_NOTICE, "reload: the engine finishes what it has accepted and is restarted: "
             "%s", r->engine_why);
    notify_state(&s->notify,
                 "STATUS=reload: restarting the engine\nEXTEND_TIMEOUT_USEC=%" PRIu64,
                 (most_ms + GRACE_MS) * 1000);
    stop_drain(&s->engine, deadline_ms, DRAIN_REPLACE);
    set_late(s, most_ms);
}

/* What the engine's plan is made of, as these settings have it. */
static struct wire_adjust plan_of(const struct reload *r, const struct conf *c)
{
    return (struct wire_adjust){
        .ram = conf_diff_has(&r->diff, "memory", "ram") ? c->engine.ram : 0,
        .queue = c->engine.queue,
        .log_level = c->log_level,
        .workers = c->workers,
        .connections = c->connections,
        .buffer = c->buffer,
    };
}

static void refused(struct supervisor *s, const char *why, size_t size)
{
    struct reload *r = &s->reload;

    if (r->undo) { /* what was before fits always; at worst a restart will tell */
        log_line(LOG_LEVEL_WARNING, "reload: the engine keeps its plan: %.*s", (int)size, why);
        finish(s);
        return;
    }
    snprintf(r->engine_why, sizeof r->engine_why, "%.*s", (int)(size < 240 ? size : 240), why);
    stop_engine(s);
}

static void ask_engine(struct supervisor *s, const struct wire_adjust *m, enum reload_step step)
{
    struct err why;

    s->reload.step = step;
    if (children_adjust(&s->engine, m, ADJUST_ID, &why) < 0)
        refused(s, why.text, strlen(why.text));
}

static void adjust(struct supervisor *s)
{
    struct reload *r = &s->reload;
    struct wire_adjust m = plan_of(r, &r->conf);

    if (r->diff.changes & CONF_PLAN && s->engine.pid > 0)
        ask_engine(s, &m, RELOAD_ADJUST);
    else
        commit(s); /* down: it starts with the new settings */
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* As much as old and new workers could take: nobody takes it before it was given back. */
static void make_room(struct supervisor *s)
{
    struct reload *r = &s->reload;
    struct wire_adjust m = plan_of(r, &r->conf), now = plan_of(r, s->now.conf);

    if (s->engine.pid == 0 || (m.workers <= now.workers && m.connections <= now.connections &&
                               m.buffer <= now.buffer)) {
        roll(s);
        return;
    }
    m.ram = now.ram ? larger(m.ram, now.ram) : m.ram;
    m.workers = (uint32_t)larger(m.workers, now.workers);
    m.connections = (uint32_t)larger(m.connections, now.connections);
    m.buffer = larger(m.buffer, now.buffer);
    ask_engine(s, &m, RELOAD_ROOM);
}

/* Workers are as they should be. */
static void workers_are_there(struct supervisor *s)
{
    struct reload *r = &s->reload;

    struct wire_adjust now = plan_of(r, s->now.conf);

    r->roll = false;
    if (r->engine_stopped)
        start_engine(s);
    else if (r->undo && r->room_made && s->engine.pid > 0)
        ask_engine(s, &now, RELOAD_ADJUST);
    else if (r->undo)
        finish(s);
    else
        adjust(s);
}

static void roll(struct supervisor *s)
{
    struct reload *r = &s->reload;
    struct err why;

    r->step = RELOAD_WORKERS;
    switch (roll_go_on(s, r->undo ? &s->now : &r->to, &why)) {
    case ROLL_GOES_ON: /* for as long as streams may run, and then the next */
        notify_state(&s->notify, "EXTEND_TIMEOUT_USEC=%" PRIu64,
                     (uint64_t)s->now.conf->drain_timeout_ms * 1000 + EXTEND_US);
        return;
    case ROLL_DONE:
        r->rolled = true;
        workers_are_there(s);
        return;
    case ROLL_FAILED:
        fail(s, &why);
        if (!r->undo)
            take_back(s);
        else
            workers_are_there(s);
    }
}

/* Back to what was: workers first, then the engine. */
static void take_back(struct supervisor *s)
{
    struct reload *r = &s->reload;

    r->undo = true;
    log_line(LOG_LEVEL_WARNING, "reload: taken back: %s", r->failure);
    if (roll_is_due(s, &s->now))
        roll(s);
    else
        workers_are_there(s);
}

static void apply(struct supervisor *s)
{
    struct reload *r = &s->reload;

    if (r->stop_engine)
        stop_engine(s);
    else if (r->roll)
        make_room(s);
    else
        adjust(s);
}

/* ---- what children did ---- */

bool reload_worker_ready(struct supervisor *s, struct post *p)
{
    if (s->reload.step != RELOAD_WORKERS || p->state != POST_COMING)
        return false;
    p->state = POST_ACTIVE;
    roll(s);
    return true;
}

bool reload_worker_ended(struct supervisor *s, struct post *p, int status)
{
    struct reload *r = &s->reload;

    if (p->state == POST_LEAVING) {
        p->state = POST_FREE;
        if (r->step == RELOAD_WORKERS)
            roll(s);
        return true;
    }
    if (p->state != POST_COMING)
        return false;
    if (r->undo) { /* one that served before does not come back: like any other that dies */
        p->state = POST_ACTIVE;
        child_start_later(&p->child);
        roll(s);
        return true;
    }
    fail_child(s, &p->child, status);
    p->state = POST_FREE;
    take_back(s);
    return true;
}

bool reload_engine_ready(struct supervisor *s)
{
    struct reload *r = &s->reload;

    if (r->step != RELOAD_ENGINE_START)
        return false;
    if (r->undo)
        finish(s);
    else
        commit(s);
    return true;
}

bool reload_engine_ended(struct supervisor *s, int status)
{
    struct reload *r = &s->reload;

    switch (r->step) {
    case RELOAD_ENGINE_STOP:
        engine_is_down(s);
        return true;
    case RELOAD_ENGINE_START:
        if (r->undo)
            return false;
        fail_child(s, &s->engine, status);
        take_back(s);
        return true;
    case RELOAD_ROOM: /* it dies of its own accord, and will be adjusted later */
        roll(s);
        return false;
    case RELOAD_ADJUST: /* likewise, and comes back with the settings that there are then */
        if (r->undo)
            finish(s);
        else
            commit(s);
        return false;
    default:
        return false;
    }
}

void reload_answered(struct supervisor *s, uint64_t id, enum err_kind kind, const char *text,
                     size_t size)
{
    struct reload *r = &s->reload;

    if (id != ADJUST_ID) {
        if (id == s->budget_question)
            settings_budget_answered(s, kind);
        admin_answer(s->admin, id, kind, text, size);
        return;
    }
    if (r->step != RELOAD_ADJUST && r->step != RELOAD_ROOM)
        return;
    if (kind != ERR_NONE) {
        refused(s, text, size);
    } else if (r->step == RELOAD_ROOM) {
        r->room_made = true;
        roll(s);
    } else if (r->undo) {
        finish(s);
    } else {
        r->adjusted = true;
        commit(s);
    }
}

/* Ours to make, as at a start, for no child may. After the check: what that refuses makes none. */
static int open_state(const struct reload *r, struct err *err)
{
    return conf_diff_has(&r->diff, "state", "dir") ? state_dir_open(&r->conf, err) : 0;
}

void reload_check_ended(struct supervisor *s, int status)
{
    struct err why;

    if (s->reload.step != RELOAD_CHECK)
        return;
    s->reload.late = sd_event_source_disable_unref(s->reload.late);
    if (status != EXIT_FINE) {
        fail_child(s, &s->check, status);
        finish(s);
    } else if (open_state(&s->reload, &why) < 0) {
        fail(s, &why);
        finish(s);
    } else {
        apply(s);
    }
}

/* ---- its beginning ---- */

/* What the children hold and would give back: the new plan may count on it. */
static uint64_t held_now(const struct supervisor *s)
{
    struct measured_process p;
    uint64_t sum = measure_process(&p, getpid()) ? p.anonymous : 0;

    for (uint32_t i = 0; i <= N_POSTS; i++) {
        const struct child *c = i < N_POSTS ? &s->posts[i].child : &s->engine;
        if (c->pid > 0 && measure_process(&p, c->pid))
            sum += p.anonymous;
    }
    return sum;
}

/* The first reason there is. */
static void decide_engine(struct supervisor *s)
{
    struct reload *r = &s->reload;
    char *why = r->engine_why;
    size_t cap = sizeof r->engine_why;

    for (uint32_t i = 0; i < r->diff.n && !why[0]; i++)
        if (r->diff.keys[i]->change & CONF_ENGINE)
            snprintf(why, cap, "%s.%s changed", r->diff.keys[i]->section, r->diff.keys[i]->name);
    if (!why[0] && r->files_changed)
        snprintf(why, cap, "the model's files changed");
    if (!why[0] && conf_diff_has(&r->diff, "memory", "ram") && r->conf.engine.ram == 0)
        snprintf(why, cap, "memory.ram is auto, which is found at a start");
    r->stop_engine = why[0] != '\0';
}

static int read_settings(struct supervisor *s, struct err *err)
{
    struct reload *r = &s->reload;
    const struct conf *now = s->now.conf;

    if (options_load(s->options, &r->conf, err) < 0)
        return -1;
    conf_diff(&r->diff, now, &r->conf);
    /* What needs a restart stays as it is; all else is applied. */
    if (conf_keep(&r->conf, now, CONF_RESTART, err) < 0)
        return -1;
    r->conf.admin_default = now->admin_default;
    r->mark = model_mark(r->conf.model_dir);
    r->template_mark = template_mark(r->conf.model_dir, r->conf.chat_template);
    r->files_changed = !conf_diff_has(&r->diff, "model", "dir") &&
                       (r->mark != s->mark || s->engine.pulse.state == ENGINE_FAILED);
    r->to.conf = &r->conf;
    r->to.generation = s->now.generation + 1;
    r->roll = r->files_changed || r->template_mark != s->template_mark ||
              (r->diff.changes & CONF_WORKERS);
    decide_engine(s);
    return 0;
}

static bool is_nothing(const struct reload *r)
{
    return !r->stop_engine && !r->roll && !(r->diff.changes & ~(unsigned)CONF_RESTART);
}

static int start_check(struct supervisor *s, struct err *err)
{
    struct reload *r = &s->reload;

    if (conf_seal(&r->to.fd, &r->conf, err) < 0)
        return -1;
    child_init(&s->check, &s->setup, ROLE_CHECK, 0, r->to.fd);
    s->check.held = held_now(s);
    if (child_start(&s->check, err) < 0)
        return -1;
    set_late(s, CHECK_MS);
    return 0;
}

static int begin(sd_event_source *source, void *ctx)
{
    struct supervisor *s = ctx;
    struct reload *r = &s->reload;
    struct err why;

    r->defer = sd_event_source_disable_unref(source);
    notify_state(&s->notify,
                 "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=reload: checking the config",
                 clock_ns() / 1000);
    log_line(LOG_LEVEL_NOTICE, "reload: checking the config");
    int rc = read_settings(s, &why);
    if (rc == 0 && !is_nothing(r))
        rc = start_check(s, &why);
    if (rc < 0)
        fail(s, &why);
    if (s->check.pid == 0) /* there is nothing to wait for */
        finish(s);
    return 0;
}

static int begin_soon(struct supervisor *s, struct err *err)
{
    int rc = sd_event_add_defer(s->loop, &s->reload.defer, begin, s);

    if (rc < 0) {
        errno = -rc;
        return err_errno(err, "reload");
    }
    s->reload.step = RELOAD_CHECK;
    return 0;
}

void reload_signalled(struct supervisor *s)
{
    struct err why;

    if (s->phase >= DRAINING)
        return;
    s->reload.again = s->phase == STARTING || s->reload.step || s->budget_question;
    if (!s->reload.again && begin_soon(s, &why) < 0)
        log_line(LOG_LEVEL_ERR, "%s", why.text);
}

int reload_asked(struct supervisor *s, uint64_t question, struct err *err)
{
    if (s->phase >= DRAINING)
        return err_set(err, ERR_BUSY, "the daemon is stopping");
    if (s->phase == STARTING)
        return err_set(err, ERR_BUSY, "the daemon is starting");
    if (s->reload.step)
        return err_set(err, ERR_BUSY, "a reload is under way (%s)", reload_step_name(s));
    if (s->budget_question)
        return err_set(err, ERR_BUSY, "the budget is being changed");
    if (begin_soon(s, err) < 0)
        return -1;
    s->reload.asked = true;
    s->reload.question = question;
    return 0;
}
