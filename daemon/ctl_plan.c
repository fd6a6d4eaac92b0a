/* plan: what a model would take of this machine, line by line. */
#include "daemon/ctl.h"

#include "daemon/engine_json.h"
#include "util/err.h"
#include "util/size.h"

#include <stdio.h>

static void print_plan_json(const struct cz_plan *p, const struct err *err)
{
    json_t *object = engine_json_plan(p);

    json_object_set_new(object, "derived", json_boolean(p->derived));
    json_object_set_new(object, "fits", json_boolean(err == NULL));
    if (err)
        json_object_set_new(object, "error",
                            json_pack("{s:s, s:s}", "kind", err_kind_name(err->kind), "message",
                                      err->text));
    ctl_print_json(object);
}

static void print_estimate(const struct cz_plan *p)
{
    if (p->tokens_per_second <= 0.0) {
        printf("estimate  none: drive or memory was not probed\n");
        return;
    }
    printf("estimate  %.1f tokens/s for one sequence, if experts are picked evenly "
           "(probed: drive %.2f GB/s, memory %.1f GB/s)\n",
           p->tokens_per_second, p->disk_gbps, p->memory_gbps);
}

static void print_plan(const struct cz_plan *p, bool fits, bool probed)
{
    char ram[16], minimum[16], have[16], grouped[CTL_BYTES_TEXT];

    printf("%s of RAM (%s; %s available now)%s\n\n", size_text(ram, sizeof ram, p->ram),
           p->ram_source, size_text(have, sizeof have, p->available),
           fits ? "" : ": too little; this is the least that works");
    for (uint32_t i = 0; i < p->n_lines; i++)
        ctl_print_bytes(p->lines[i].name, p->lines[i].bytes, p->total, p->lines[i].detail);
    ctl_print_bytes("total", p->total, p->total, NULL);
    putchar('\n');
    printf("minimum   %s (%s bytes)\n", size_text(minimum, sizeof minimum, p->minimum),
           ctl_grouped(grouped, p->minimum));
    printf("settings  %u threads, context %u, %u sequences, prefill chunks of %u rows\n",
           p->threads, p->context, p->sequences, p->prefill_rows);
    if (p->n_experts_total)
        printf("experts   %u slots for %u experts (%.1f %%)\n", p->expert_slots,
               p->n_experts_total, 100.0 * p->expert_slots / p->n_experts_total);
    if (fits && probed)
        print_estimate(p);
    if (p->derived)
        printf("note      no shards here: sizes are derived from config.json\n");
    if (fits && p->ram > p->available)
        printf("note      the budget is more than what is available now\n");
}

static int run(const struct ctl_args *args)
{
    bool probe = !ctl_has(args, "--no-probe");
    struct cz_plan plan = { 0 };
    struct conf conf;
    struct err err;
    int status = EXIT_FINE;

    if (args->n_operands == 0 && !ctl_has(args, "--config")) {
        err_set(&err, ERR_INPUT, "give a model directory or --config FILE");
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
        } else if (ctl_has(args, "--json")) {
            print_plan_json(&plan, fits ? NULL : &err);
        } else {
            print_plan(&plan, fits, probe);
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
    { "--no-probe", NULL, "measure nothing, estimate nothing", NULL },
    { "--workers", "N", "HTTP worker processes", "http.workers" },
    { "--http-buffer", "SIZE", "client buffers of each worker", "http.buffer" },
    { 0 },
};

const struct ctl_command ctl_plan = {
    .name = "plan",
    .operands = "DIR",
    .summary = "where the memory would go, and the least",
    .example = "  colizigctl plan /srv/models/Qwen3-30B-A3B-FP8 --ram 8GiB --context 4096\n"
               "Exit status 4: it does not fit; the minimum is named.",
    .flags = flags,
    .settings = true,
    .max_operands = 1,
    .run = run,
};
