/* plan: what a model would take of this machine, line by line. */
#include "daemon/ctl/ctl.h"

#include "daemon/ctl/ctl_show.h"
#include "daemon/ctl/ctl_talk.h"
#include "daemon/host/engine_json.h"
#include "util/err.h"
#include "util/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* err: why it does not fit; NULL: it does. */
static json_t *plan_json(const struct cz_plan *p, const struct err *err)
{
    json_t *object = engine_json_plan(p);

    json_object_set_new(object, "derived", json_boolean(p->derived));
    json_object_set_new(object, "fits", json_boolean(err == NULL));
    if (err)
        json_object_set_new(object, "error",
                            json_pack("{s:s, s:s}", "kind", err_kind_name(err->kind), "message",
                                      err->text));
    return object;
}

static void show_lines(const json_t *p, uint64_t total)
{
    const json_t *line;
    char name[48], detail[96];
    size_t i;

    json_array_foreach (json_object_get(p, "lines"), i, line)
        ctl_print_bytes(ctl_word(name, sizeof name, line, "name"), ctl_count(line, "bytes"), total,
                        ctl_word(detail, sizeof detail, line, "detail"));
    ctl_print_bytes("total", total, total, NULL);
}

/* Both choices of memory.dense, of which the plan took one. */
static void show_dense(const json_t *p)
{
    char now[16], other[16], name[16];

    ctl_word(name, sizeof name, p, "dense");
    printf("dense     %s: %s are resident; %s would take %s (memory.dense)\n", name,
           size_text(now, sizeof now, ctl_count(p, "resident_bytes")),
           strcmp(name, "fp8") == 0 ? "bf16" : "fp8",
           size_text(other, sizeof other, ctl_count(p, "other_resident_bytes")));
}

static void show_settings(const json_t *p)
{
    uint64_t slots = ctl_count(p, "expert_slots"), all = ctl_count(p, "n_experts_total");

    printf("settings  %" PRIu64 " threads, context %" PRIu64 ", %" PRIu64
           " sequences, prefill chunks of %" PRIu64 " rows\n", ctl_count(p, "threads"),
           ctl_count(p, "context"), ctl_count(p, "sequences"), ctl_count(p, "prefill_rows"));
    if (all)
        printf("experts   %" PRIu64 " slots for %" PRIu64 " experts (%.1f %%)\n", slots, all,
               100.0 * (double)slots / (double)all);
}

/* Of the library here, or of a running daemon, whose own plan fits and was not probed. */
void ctl_show_plan(const json_t *p)
{
    char ram[16], minimum[16], have[16], source[48], grouped[CTL_BYTES_TEXT];
    bool fits = !json_is_false(json_object_get(p, "fits"));
    double speed = ctl_number(p, "estimated_tokens_per_second");

    printf("%s of RAM (%s; %s available now)%s\n\n",
           size_text(ram, sizeof ram, ctl_count(p, "ram")),
           ctl_word(source, sizeof source, p, "ram_source"),
           size_text(have, sizeof have, ctl_count(p, "available")),
           fits ? "" : ": too little; this is the least that works");
    show_lines(p, ctl_count(p, "total"));
    putchar('\n');
    printf("minimum   %s (%s bytes)\n", size_text(minimum, sizeof minimum, ctl_count(p, "minimum")),
           ctl_grouped(grouped, ctl_count(p, "minimum")));
    show_settings(p);
    show_dense(p);
    if (fits && speed > 0.0)
        printf("estimate  %.1f tokens/s for one sequence, if experts are picked evenly "
               "(probed: drive %.2f GB/s, memory %.1f GB/s)\n", speed,
               ctl_number(p, "estimated_disk_gbps"), ctl_number(p, "estimated_memory_gbps"));
    if (json_is_true(json_object_get(p, "derived")))
        printf("note      no shards here: sizes are derived from config.json\n");
}

static void show_own_plan(const json_t *p, bool probed)
{
    ctl_show_plan(p);
    if (!json_is_true(json_object_get(p, "fits")))
        return;
    if (probed && ctl_number(p, "estimated_tokens_per_second") <= 0.0)
        printf("estimate  none: drive or memory was not probed\n");
    if (ctl_count(p, "ram") > ctl_count(p, "available"))
        printf("note      the budget is more than what is available now\n");
}

/* The first flag that says something of a plan to be made; NULL: none. */
static const char *planning_flag(const struct ctl_args *args)
{
    for (size_t i = 0; i < args->n_given; i++) {
        const char *name = args->given[i].flag->name;
        if (strcmp(name, "--json") != 0 && strcmp(name, "--socket") != 0)
            return name;
    }
    return NULL;
}

static int run(const struct ctl_args *args)
{
    bool probe = !ctl_has(args, "--no-probe");
    struct cz_plan plan = { 0 };
    struct conf conf;
    struct err err;
    int status = EXIT_FINE;

    if (args->n_operands == 0 && !ctl_has(args, "--config")) {
        if (!planning_flag(args))
            return ctl_plan_of_daemon(args);
        err_set(&err, ERR_INPUT, "%s: give a model directory or --config FILE; the plan of a "
                                 "running daemon is as it is", planning_flag(args));
        return ctl_fail(args, &err);
    }
    const char *dir = args->n_operands ? args->operands[0] : NULL;
    if (ctl_conf(args, dir, &conf, &err) < 0 ||
        ctl_expert_slots(args, &conf.engine, &err) < 0) {
        status = ctl_fail(args, &err);
    } else {
        bool fits = cz_plan(&plan, &conf.engine, probe, &err) == 0;
        if (!fits && (err.kind != ERR_BUDGET || plan.n_lines == 0)) {
            status = ctl_fail(args, &err);
        } else {
            json_t *object = plan_json(&plan, fits ? NULL : &err);
            if (ctl_has(args, "--json")) {
                ctl_print_json(object);
            } else {
                show_own_plan(object, probe);
                json_decref(object);
            }
        }
        if (!fits && status == EXIT_FINE) {
            fflush(stdout);
            fprintf(stderr, "colizigctl: %s\n", err.text);
            status = (int)err_exit_status(err.kind);
        }
    }
    conf_done(&conf);
    return status;
}

static const struct ctl_flag flags[] = {
    { "--config", "FILE", "a colizigd.yaml to plan for", NULL },
    CTL_SOCKET_FLAG,
    { "--no-probe", NULL, "measure nothing, estimate nothing", NULL },
    { "--workers", "N", "HTTP worker processes", "http.workers" },
    { "--http-buffer", "SIZE", "client buffers of each worker", "http.buffer" },
    { 0 },
};

const struct ctl_command ctl_plan = {
    .name = "plan",
    .operands = "[DIR]",
    .summary = "where the memory would go, and the least",
    .example = "  colizigctl plan /srv/models/Qwen3-30B-A3B-FP8 --ram 8GiB --context 4096\n"
               "Without DIR and --config: the plan of the running daemon.\n"
               "Exit status 4: it does not fit; the minimum is named.",
    .flags = flags,
    .settings = true,
    .max_operands = 1,
    .run = run,
};
