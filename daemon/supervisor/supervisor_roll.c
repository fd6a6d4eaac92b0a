/* Replacing workers: one comes, is ready, then an old one leaves, and only when it is gone the
 * next one comes. So there is never more than one beyond what is planned, and no moment in which
 * nobody accepts. */
#include "daemon/supervisor/supervisor_state.h"

#include "daemon/base/log.h"
#include "util/clock.h"
#include "util/err.h"

#include <signal.h>

int roll_start(struct supervisor *s, const struct settings *with, enum post_state state,
               struct err *err)
{
    for (uint32_t i = 0; i < N_POSTS; i++) {
        struct post *p = &s->posts[i];
        if (p->state != POST_FREE)
            continue;
        child_init(&p->child, &s->setup, ROLE_WORKER, i, with->fd);
        p->state = state;
        p->generation = with->generation;
        if (child_start(&p->child, err) == 0)
            return 0;
        p->state = POST_FREE;
        return -1;
    }
    return err_set(err, ERR_BUSY, "no place for another worker"); /* a leaving one is killed soon */
}

static uint32_t count(const struct supervisor *s, enum post_state state)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < N_POSTS; i++)
        n += s->posts[i].state == state;
    return n;
}

/* An active worker of other settings. One that is down first: it costs nobody anything. */
static struct post *find_old(struct supervisor *s, const struct settings *to)
{
    struct post *found = NULL;

    for (uint32_t i = 0; i < N_POSTS; i++) {
        struct post *p = &s->posts[i];
        if (p->state != POST_ACTIVE || p->generation == to->generation)
            continue;
        if (p->child.pid == 0)
            return p;
        if (!found)
            found = p;
    }
    return found;
}

static uint32_t count_new(const struct supervisor *s, const struct settings *to)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < N_POSTS; i++)
        n += s->posts[i].state == POST_ACTIVE && s->posts[i].generation == to->generation;
    return n;
}

bool roll_is_due(const struct supervisor *s, const struct settings *to)
{
    return count_new(s, to) != count(s, POST_ACTIVE) ||
           count(s, POST_ACTIVE) != to->conf->workers;
}

static void let_leave(struct supervisor *s, struct post *p)
{
    uint32_t deadline_ms = s->now.conf->drain_timeout_ms;

    child_stay_down(&p->child);
    if (p->child.pid == 0) {
        p->state = POST_FREE;
        return;
    }
    p->state = POST_LEAVING;
    p->due_ms = clock_ms() + deadline_ms + GRACE_MS;
    stop_drain(&p->child, deadline_ms, DRAIN_REPLACE);
}

enum roll_result roll_go_on(struct supervisor *s, const struct settings *to, struct err *err)
{
    for (;;) {
        if (count(s, POST_COMING) || count(s, POST_LEAVING))
            return ROLL_GOES_ON;
        struct post *old = find_old(s, to);
        uint32_t n_new = count_new(s, to), wanted = to->conf->workers;
        uint32_t n_all = count(s, POST_ACTIVE);

        /* One more than there is to be has come: its predecessor goes. */
        if (old && (n_new >= wanted || n_all > wanted || old->child.pid == 0)) {
            let_leave(s, old);
            continue;
        }
        if (!old && n_new >= wanted)
            return ROLL_DONE;
        if (roll_start(s, to, POST_COMING, err) < 0)
            return ROLL_FAILED;
    }
}
