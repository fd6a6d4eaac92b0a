/* What each command of the admin socket does, and the watch, which goes on doing it. */
#include "daemon/admin/admin_client.h"

#include "daemon/admin/admin_peer.h"
#include "daemon/base/log.h"
#include "util/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    LAYER_MS = 60 * 1000, /* what waits for the end of a layer, which may read for long */
    CHANGE_MS = 10 * 60 * 1000, /* a reload plans, and may load a model */
};

/* ---- questions ---- */

static uint64_t next_question(struct admin_client *c, bool of_engine)
{
    c->asked_ms = clock_ms();
    c->of_engine = of_engine;
    return c->question = ++c->shared->last_question;
}

/* began: what the operation returned, with why when it is -1. */
static void await(struct admin_client *c, uint64_t question, int began, const struct err *why,
                  uint64_t limit_ms)
{
    if (began < 0)
        admin_client_error(c, why->kind, why->text);
    else if (c->question == question) /* else it was answered within the call */
        admin_client_enter(c, ADMIN_ASKING, limit_ms);
}

static void relay(struct admin_client *c, const char *text, uint64_t limit_ms)
{
    const struct admin_ops *ops = &c->shared->ops;
    uint64_t id = next_question(c, true);
    struct err why;

    int rc = ops->ask(ops->ctx, id, text, &why);
    await(c, id, rc, &why, limit_ms);
}

/* ---- watch ---- */

/* Takes stats, NULL when there are none and why says the reason. */
static void send_watch(struct admin_client *c, json_t *stats, const struct err *why)
{
    json_t *data = json_object();

    json_object_set_new(data, "status", c->shared->ops.status(c->shared->ops.ctx));
    json_object_set_new(data, "stats", stats ? stats : json_null());
    if (!stats)
        json_object_set_new(data, "error", admin_error_json(why->kind, why->text));
    admin_client_reply(c, json_pack("{s:b,s:b,s:o}", "ok", 1, "more", 1, "data", data));
}

static int on_tick(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct admin_client *c = ctx;
    struct err why;

    (void)usec;
    sd_event_source_set_time_relative(source, (uint64_t)c->line.every_ms * 1000);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    if (c->state != ADMIN_WATCHING)
        return 0; /* the last one is not read yet */
    if (!c->question) {
        uint64_t id = next_question(c, true);
        if (c->shared->ops.ask(c->shared->ops.ctx, id, "{\"cmd\":\"stats\"}", &why) < 0)
            send_watch(c, NULL, &why);
    } else if (clock_ms() - c->asked_ms > ADMIN_ANSWER_MS) {
        err_set(&why, ERR_BUSY, "the engine did not answer in time");
        send_watch(c, NULL, &why);
    }
    return 0;
}

static void begin_watch(struct admin_client *c)
{
    c->watching = true;
    admin_client_enter(c, ADMIN_WATCHING, 0);
    if (c->state == ADMIN_WATCHING &&
        sd_event_add_time_relative(c->shared->loop, &c->ticker, CLOCK_MONOTONIC, 0, 1000, on_tick,
                                   c) < 0)
        admin_client_drop(c);
}

void admin_command_end_watch(struct admin_client *c)
{
    c->ticker = sd_event_source_disable_unref(c->ticker);
    c->watching = false;
    c->question = 0;
    admin_line_done(&c->line);
}

/* ---- commands ---- */

static void drain(struct admin_client *c)
{
    const struct admin_ops *ops = &c->shared->ops;
    struct err why;

    if (ops->drain(ops->ctx, c->line.timeout_ms, &why) < 0)
        admin_client_error(c, why.kind, why.text);
    else
        admin_client_data(c, json_pack("{s:b}", "draining", 1));
}

static void set_log(struct admin_client *c)
{
    const struct admin_ops *ops = &c->shared->ops;
    struct err why;

    if (c->line.level && ops->set_log(ops->ctx, c->line.level, &why) < 0)
        admin_client_error(c, why.kind, why.text);
    else
        admin_client_data(c, json_pack("{s:s}", "level", admin_level_name(log_level_now())));
}

static void reload(struct admin_client *c)
{
    const struct admin_ops *ops = &c->shared->ops;
    uint64_t id = next_question(c, false);
    struct err why;

    int rc = ops->reload(ops->ctx, id, &why);
    await(c, id, rc, &why, CHANGE_MS);
}

static void budget(struct admin_client *c)
{
    const struct admin_ops *ops = &c->shared->ops;
    uint64_t id = next_question(c, true);
    struct err why;

    int rc = ops->budget(ops->ctx, id, c->line.ram, &why);
    await(c, id, rc, &why, CHANGE_MS);
}

static void begin(struct admin_client *c)
{
    char question[128];


    switch (c->line.verb) {
    case ADMIN_STATUS:
        admin_client_data(c, c->shared->ops.status(c->shared->ops.ctx));
        break;
    case ADMIN_STATS:
    case ADMIN_PLAN:
    case ADMIN_INSPECT:
    case ADMIN_REQUESTS:
        snprintf(question, sizeof question, "{\"cmd\":\"%s\"}", admin_verb_name(c->line.verb));
        relay(c, question, ADMIN_ANSWER_MS);
        break;
    case ADMIN_EXPERTS:
        snprintf(question, sizeof question, "{\"cmd\":\"experts\",\"top\":%u}", c->line.top);
        relay(c, question, LAYER_MS);
        break;
    case ADMIN_CANCEL: /* the id holds nothing that JSON would escape */
        snprintf(question, sizeof question, "{\"cmd\":\"cancel\",\"request\":\"%s\"}",
                 c->line.request);
        relay(c, question, ADMIN_ANSWER_MS);
        break;
    case ADMIN_RELOAD:
        reload(c);
        break;
    case ADMIN_DRAIN:
        drain(c);
        break;
    case ADMIN_BUDGET:
        budget(c);
        break;
    case ADMIN_LOG:
        set_log(c);
        break;
    case ADMIN_WATCH:
        begin_watch(c);
        break;
    }
}

static void log_act(const struct admin_client *c)
{
    struct admin_peer who = admin_peer_of(c->fd);
    char what[ADMIN_REQUEST_NAME + 16] = "";

    if (c->line.verb == ADMIN_CANCEL)
        snprintf(what, sizeof what, " id=%s", c->line.request);
    else if (c->line.verb == ADMIN_BUDGET)
        snprintf(what, sizeof what, " ram=%" PRIu64, c->line.ram);
    else if (c->line.verb == ADMIN_LOG)
        snprintf(what, sizeof what, " level=%s", admin_level_name(c->line.level));
    else if (c->line.verb == ADMIN_DRAIN && c->line.timeout_ms)
        snprintf(what, sizeof what, " timeout_ms=%u", c->line.timeout_ms);
    log_line(LOG_LEVEL_NOTICE, "admin: %s%s uid=%u pid=%d", admin_verb_name(c->line.verb), what,
             who.uid, (int)who.pid);
}

void admin_command(struct admin_client *c)
{
    struct err why;

    if (c->line.acts && admin_peer_check(c->fd, c->shared->fd, admin_verb_name(c->line.verb),
                                         &why) < 0) {
        struct admin_peer who = admin_peer_of(c->fd);
        log_line(LOG_LEVEL_WARNING, "admin: %s refused uid=%u pid=%d",
                 admin_verb_name(c->line.verb), who.uid, (int)who.pid);
        admin_client_error(c, why.kind, why.text);
        return;
    }
    if (c->line.acts)
        log_act(c);
    begin(c);
}

void admin_command_answer(struct admin_client *c, enum err_kind kind, const char *text, size_t size)
{
    json_t *data = kind == ERR_NONE ? json_loadb(text, size, JSON_DECODE_ANY, NULL) : NULL;
    struct err why = { .kind = kind };

    if (kind != ERR_NONE)
        err_set(&why, kind, "%.*s", (int)(size < 500 ? size : 500), text);
    else if (!data)
        err_set(&why, ERR_NOMEM, "no memory for the answer");
    c->question = 0;
    if (c->watching)
        send_watch(c, data, &why);
    else if (data)
        admin_client_data(c, data);
    else
        admin_client_error(c, why.kind, why.text);
}
