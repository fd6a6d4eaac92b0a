/* The commands that ask a running daemon, over its admin socket. */
#include "daemon/admin/admin_line.h"
#include "daemon/conf/conf.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_show.h"
#include "daemon/ctl/ctl_talk.h"
#include "daemon/ctl/ctl_watch.h"
#include "util/err.h"
#include "util/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    LAYER_MS = 90 * 1000,       /* answered at the end of a layer; a little more than the daemon waits */
    CHANGE_MS = 11 * 60 * 1000, /* plans, and may load a model; likewise */
};

static json_t *question(const char *command)
{
    return json_pack("{s:s}", "cmd", command);
}

static int ask(const struct ctl_args *args, const char *command, void (*show)(const json_t *))
{
    return ctl_talk_once(args, question(command), CTL_PATIENCE_MS, CTL_REFUSAL_FAILS, show);
}

/* ---- looking ---- */

static int run_status(const struct ctl_args *args)
{
    return ask(args, "status", ctl_show_status);
}

static int run_stats(const struct ctl_args *args)
{
    if (ctl_has(args, "--watch"))
        return ctl_watch(args);
    return ask(args, "stats", ctl_show_stats);
}

static int run_requests(const struct ctl_args *args)
{
    return ask(args, "requests", ctl_show_requests);
}

static int run_experts(const struct ctl_args *args)
{
    uint32_t top = 20;
    struct err err;

    if (ctl_u32(args, "--top", &top, 0, ADMIN_TOP_MAX, &err) < 0)
        return ctl_fail(args, &err);
    return ctl_talk_once(args, json_pack("{s:s,s:i}", "cmd", "experts", "top", (int)top),
                         LAYER_MS, CTL_REFUSAL_FAILS, ctl_show_experts);
}

int ctl_plan_of_daemon(const struct ctl_args *args)
{
    return ask(args, "plan", ctl_show_plan);
}

int ctl_inspect_of_daemon(const struct ctl_args *args)
{
    return ask(args, "inspect", ctl_show_model);
}

/* ---- acting ---- */

static void show_cancelled(const json_t *data)
{
    char name[64];

    printf("%s is cancelled\n", ctl_word(name, sizeof name, data, "request"));
}

static int run_cancel(const struct ctl_args *args)
{
    struct err err;

    if (args->operands[0][0] == '\0') {
        err_set(&err, ERR_INPUT, "REQUEST is empty; 'colizigctl requests' lists the ids");
        return ctl_fail(args, &err);
    }
    json_t *ask_for = question("cancel");

    json_object_set_new(ask_for, "request", json_string(args->operands[0]));
    return ctl_talk_once(args, ask_for, CTL_PATIENCE_MS, CTL_REFUSAL_FAILS, show_cancelled);
}

static void show_list(const char *before, const json_t *list)
{
    const json_t *one;
    char plain[80];
    size_t i;

    if (json_array_size(list) == 0)
        return;
    printf("%s", before);
    json_array_foreach (list, i, one)
        printf("%s%s", i ? ", " : " ",
               ctl_plain(plain, sizeof plain,
                         json_is_string(one) ? json_string_value(one) : "?"));
    printf("\n");
}

static void show_reload(const json_t *data)
{
    const json_t *applied = json_object_get(data, "applied");
    const json_t *left = json_object_get(data, "needs_restart");
    char workers[24], engine[24], why[300];

    ctl_word(workers, sizeof workers, data, "workers");
    ctl_word(engine, sizeof engine, data, "engine");
    /* An engine is restarted for the model's files, too. */
    if (json_array_size(applied) == 0 && json_array_size(left) == 0 &&
        strcmp(engine, "restarted") != 0)
        printf("the config is as it was\n");
    show_list("applied:", applied);
    ctl_word(why, sizeof why, data, "engine_why");
    if (*workers && strcmp(workers, "kept") != 0)
        printf("workers: %s\n", workers);
    if (*engine && strcmp(engine, "kept") != 0)
        printf("engine: %s%s%s\n", engine, *why ? ", " : "", why);
    show_list("takes a restart of colizigd:", left);
}

static int run_reload(const struct ctl_args *args)
{
    return ctl_talk_once(args, question("reload"), CHANGE_MS, CTL_REFUSAL_BY_KIND, show_reload);
}

static void show_drain(const json_t *data)
{
    (void)data;
    printf("no new requests; the daemon ends when those that run are done\n");
}

static int run_drain(const struct ctl_args *args)
{
    json_t *ask_for = question("drain");

    if (args->n_operands)
        json_object_set_new(ask_for, "timeout", json_string(args->operands[0]));
    return ctl_talk_once(args, ask_for, CTL_PATIENCE_MS, CTL_REFUSAL_BY_KIND, show_drain);
}

static void show_budget(const json_t *data)
{
    char ram[16], total[16], slots[CTL_BYTES_TEXT];

    printf("the budget is %s: %s planned, %s slots for experts; until the next reload or "
           "restart\n", size_text(ram, sizeof ram, ctl_count(data, "ram")),
           size_text(total, sizeof total, ctl_count(data, "total")),
           ctl_grouped(slots, ctl_count(data, "expert_slots")));
}

static int run_budget(const struct ctl_args *args)
{
    json_t *ask_for = question("budget");

    json_object_set_new(ask_for, "ram", json_string(args->operands[0]));
    return ctl_talk_once(args, ask_for, CHANGE_MS, CTL_REFUSAL_BY_KIND, show_budget);
}

static void show_level(const json_t *data)
{
    char level[24];

    printf("%s\n", ctl_word(level, sizeof level, data, "level"));
}

static int run_log(const struct ctl_args *args)
{
    json_t *ask_for = question("log");

    if (args->n_operands)
        json_object_set_new(ask_for, "level", json_string(args->operands[0]));
    return ctl_talk_once(args, ask_for, CTL_PATIENCE_MS, CTL_REFUSAL_BY_KIND, show_level);
}

/* ---- the commands ---- */

#define NO_DAEMON "Exit status 5: no daemon listens."

static const struct ctl_flag socket_flags[] = { CTL_SOCKET_FLAG, { 0 } };

static const struct ctl_flag stats_flags[] = {
    CTL_SOCKET_FLAG,
    { "--watch", NULL, "a screen, redrawn every second until Ctrl-C", NULL },
    { 0 },
};

static const struct ctl_flag experts_flags[] = {
    CTL_SOCKET_FLAG,
    { "--top", "N", "how many of the hottest (default 20)", NULL },
    { 0 },
};

const struct ctl_command ctl_status = {
    .name = "status",
    .operands = "",
    .summary = "phase, processes, memory beside the plan",
    .example = NO_DAEMON,
    .flags = socket_flags,
    .run = run_status,
};

const struct ctl_command ctl_stats = {
    .name = "stats",
    .operands = "",
    .summary = "the engine's counters; --watch: a screen",
    .example = NO_DAEMON,
    .flags = stats_flags,
    .run = run_stats,
};

const struct ctl_command ctl_experts = {
    .name = "experts",
    .operands = "",
    .summary = "experts in memory by layer, and the hottest",
    .example = NO_DAEMON,
    .flags = experts_flags,
    .run = run_experts,
};

const struct ctl_command ctl_requests = {
    .name = "requests",
    .operands = "",
    .summary = "who runs and who waits",
    .example = NO_DAEMON,
    .flags = socket_flags,
    .run = run_requests,
};

const struct ctl_command ctl_cancel = {
    .name = "cancel",
    .operands = "REQUEST",
    .summary = "end a request; 'requests' has its id",
    .example = "  colizigctl cancel req_0a1b2c3d4e5f60718293a4b5c6d7e8f9",
    .flags = socket_flags,
    .min_operands = 1,
    .max_operands = 1,
    .run = run_cancel,
};

const struct ctl_command ctl_reload = {
    .name = "reload",
    .operands = "",
    .summary = "read the config again and apply it",
    .example = "Exit status 2: the config is refused, and nothing has changed.",
    .flags = socket_flags,
    .run = run_reload,
};

const struct ctl_command ctl_drain = {
    .name = "drain",
    .operands = "[TIMEOUT]",
    .summary = "finish what runs (at most 30s, say), then end",
    .example = "  colizigctl drain 2m",
    .flags = socket_flags,
    .max_operands = 1,
    .run = run_drain,
};

const struct ctl_command ctl_budget = {
    .name = "budget",
    .operands = "SIZE",
    .summary = "another memory budget, while it runs",
    .example = "  colizigctl budget 6GiB\nExit status 4: it does not fit; the least is named.",
    .flags = socket_flags,
    .min_operands = 1,
    .max_operands = 1,
    .run = run_budget,
};

const struct ctl_command ctl_log = {
    .name = "log",
    .operands = "[LEVEL]",
    .summary = "tell or set its log level: err ... debug",
    .example = "  colizigctl log debug",
    .flags = socket_flags,
    .max_operands = 1,
    .run = run_log,
};
