/* Stopping: workers first, within http.drain_timeout, then the engine. A second wish stops at
 * once. */
#include "daemon/supervisor/supervisor_state.h"

#include "daemon/base/log.h"
#include "daemon/wire/channel.h"
#include "util/clock.h"
#include "util/err.h"

#include <inttypes.h>
#include <signal.h>

static bool any_worker(const struct supervisor *s)
{
    for (uint32_t i = 0; i < N_POSTS; i++)
        if (s->posts[i].child.pid > 0)
            return true;
    return false;
}

void stop_drain(struct child *c, uint32_t deadline_ms, enum wire_drain_mode mode)
{
    struct wire_drain m = { .deadline_ms = deadline_ms, .mode = mode };
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
    for (uint32_t i = 0; i < N_POSTS; i++) {
        struct child *c = &s->posts[i].child;
        if (c->pid > 0)
            log_line(LOG_LEVEL_WARNING, "%s did not stop in time and is killed", c->name);
        child_kill(c, SIGKILL);
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
    notify_state(&s->notify, "EXTEND_TIMEOUT_USEC=%" PRIu64, (ms + GRACE_MS) * 1000);
    s->deadline = sd_event_source_disable_unref(s->deadline);
    sd_event_add_time_relative(s->loop, &s->deadline, CLOCK_MONOTONIC, ms * 1000, 0, on_deadline,
                               s);
}

void stop_go_on(struct supervisor *s)
{
    if (s->phase < DRAINING || any_worker(s))
        return;
    if (s->phase == DRAINING) {
        s->phase = STOPPING;
        notify_state(&s->notify, "STATUS=stopping the engine");
        if (s->engine.pid > 0) {
            stop_drain(&s->engine, ENGINE_STOP_MS, DRAIN_STOP);
            set_deadline(s, ENGINE_STOP_MS + GRACE_MS);
        }
    }
    if (s->engine.pid == 0)
        sd_event_exit(s->loop, 0);
}

static void keep_down(struct supervisor *s)
{
    reload_abandon(s);
    for (uint32_t i = 0; i < N_POSTS; i++)
        child_stay_down(&s->posts[i].child);
    child_stay_down(&s->engine);
    child_kill(&s->check, SIGKILL);
}

void stop_at_once(struct supervisor *s, int status)
{
    s->phase = STOPPING;
    s->status = status;
    notify_state(&s->notify, "STOPPING=1\nSTATUS=stopping at once");
    keep_down(s);
    for (uint32_t i = 0; i < N_POSTS; i++)
        child_kill(&s->posts[i].child, SIGKILL);
    child_kill(&s->engine, SIGKILL);
    stop_go_on(s);
}

void stop_tell(struct supervisor *s)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < N_POSTS; i++)
        if (s->posts[i].child.pid > 0)
            left += s->posts[i].child.pulse.running;
    if (s->phase == DRAINING)
        notify_state(&s->notify, "STATUS=stopping: %u request%s left to finish", left,
                     left == 1 ? "" : "s");
}

void stop_gently(struct supervisor *s, uint32_t deadline_ms)
{
    s->phase = DRAINING;
    s->stop_ms = clock_ms();
    notify_state(&s->notify, "STOPPING=1");
    stop_tell(s);
    keep_down(s);
    for (uint32_t i = 0; i < N_POSTS; i++)
        stop_drain(&s->posts[i].child, deadline_ms, DRAIN_STOP);
    set_deadline(s, (uint64_t)deadline_ms + GRACE_MS);
    stop_go_on(s);
}
