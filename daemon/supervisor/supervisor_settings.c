/* Single settings that an admin changes without the file, until the next reload. Processes that are
 * started again keep them. */
#include "daemon/supervisor/supervisor_state.h"

#include "daemon/base/log.h"
#include "daemon/supervisor/conf_seal.h"
#include "util/err.h"

#include <inttypes.h>
#include <unistd.h>

static void seal_again(struct supervisor *s)
{
    struct err why;
    int fd;

    if (conf_seal(&fd, s->now.conf, &why) < 0) {
        log_line(LOG_LEVEL_WARNING, "a restarted process will not know of it: %s", why.text);
        return;
    }
    close(s->now.fd);
    s->now.fd = s->engine.conf = fd;
    for (uint32_t i = 0; i < N_POSTS; i++)
        s->posts[i].child.conf = fd;
}

int settings_budget(struct supervisor *s, uint64_t question, uint64_t ram, struct err *err)
{
    struct wire_adjust m = { .ram = ram, .queue = s->now.conf->engine.queue,
                             .log_level = s->now.conf->log_level };

    if (s->reload.step)
        return err_set(err, ERR_BUSY, "a reload is under way (%s)", reload_step_name(s));
    if (s->budget_question)
        return err_set(err, ERR_BUSY, "the budget is being changed");
    if (!s->engine.ready)
        return err_set(err, ERR_BUSY, "the engine is not ready");
    if (ram == 0)
        return err_set(err, ERR_INPUT, "a budget of nothing");
    if (children_adjust(&s->engine, &m, question, err) < 0)
        return -1;
    s->budget_question = question;
    s->budget_ram = ram;
    log_line(LOG_LEVEL_NOTICE, "budget: asking the engine for ram=%" PRIu64, ram);
    return 0;
}

void settings_budget_answered(struct supervisor *s, enum err_kind kind)
{
    s->budget_question = 0;
    if (kind == ERR_NONE) {
        s->now.conf->engine.ram = s->budget_ram;
        seal_again(s);
    }
    if (s->reload.again)
        reload_signalled(s);
}

int settings_log_level(struct supervisor *s, int level, struct err *err)
{
    if (level < LOG_LEVEL_ERR || level > LOG_LEVEL_DEBUG)
        return err_set(err, ERR_INPUT, "no log level %d", level);
    if (s->reload.step)
        return err_set(err, ERR_BUSY, "a reload is under way (%s)", reload_step_name(s));
    s->now.conf->log_level = level;
    children_set_log(s);
    seal_again(s);
    return 0;
}
