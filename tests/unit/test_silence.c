/* supervisor_children: who is silent for too long is killed, also who never said a word. */
#include "daemon/base/log.h"
#include "daemon/supervisor/supervisor_state.h"
#include "util/clock.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SECOND = 1000, LIMIT_MS = 10 * SECOND };

static struct conf conf;

static pid_t sleeper(void)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    for (;;)
        pause();
}

/* A child that started, and was last heard, so long ago; 0: never. */
static void let_run(struct child *c, const char *name, uint64_t started_ms, uint64_t heard_ms)
{
    uint64_t now = clock_ms();

    *c = (struct child){ .pid = sleeper(), .started_ms = now - started_ms,
                         .heard_ms = heard_ms ? now - heard_ms : 0 };
    strcpy(c->name, name);
}

/* Ends it; whether it had been killed before. */
static bool was_killed(struct child *c)
{
    int status = 0;
    /* A kill reaches a process at once, if not its parent: this other signal cannot overtake it. */
    assert_int_equal(kill(c->pid, SIGTERM), 0);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    assert_true(WIFSIGNALED(status));
    return WTERMSIG(status) == SIGKILL;
}

static struct supervisor *supervisor(void)
{
    struct supervisor *s = calloc(1, sizeof *s);

    assert_non_null(s);
    conf.engine.stall_timeout_ms = LIMIT_MS;
    s->now.conf = &conf;
    log_level(LOG_LEVEL_ERR);
    return s;
}

static void who_hangs_before_the_first_pulse_is_killed(void **state)
{
    struct supervisor *s = supervisor();

    (void)state;
    let_run(&s->engine, "engine", 61 * SECOND, 0);
    let_run(&s->posts[0].child, "worker 0", 61 * SECOND, 0);
    children_look(s);
    assert_true(was_killed(&s->engine));
    assert_true(was_killed(&s->posts[0].child));
    free(s);
}

static void a_start_has_its_time_and_the_last_pulse_counts(void **state)
{
    struct supervisor *s = supervisor();

    (void)state;
    let_run(&s->engine, "engine", 40 * SECOND, 0);
    let_run(&s->posts[0].child, "worker 0", 40 * SECOND, 0);
    let_run(&s->posts[1].child, "worker 1", 3600 * SECOND, 5 * SECOND);
    let_run(&s->posts[2].child, "worker 2", 3600 * SECOND, 13 * SECOND);
    children_look(s);
    assert_false(was_killed(&s->engine));
    assert_false(was_killed(&s->posts[0].child));
    assert_false(was_killed(&s->posts[1].child));
    assert_true(was_killed(&s->posts[2].child));
    let_run(&s->engine, "engine", 3600 * SECOND, 5 * SECOND);
    s->posts[0].child.pid = s->posts[1].child.pid = s->posts[2].child.pid = 0;
    children_look(s);
    assert_false(was_killed(&s->engine));
    let_run(&s->engine, "engine", 3600 * SECOND, 13 * SECOND);
    children_look(s);
    assert_true(was_killed(&s->engine));
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_hangs_before_the_first_pulse_is_killed),
        cmocka_unit_test(a_start_has_its_time_and_the_last_pulse_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
