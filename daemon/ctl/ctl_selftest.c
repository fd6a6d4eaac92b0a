/* selftest: is this build right on this machine, one line a check. */
#include "daemon/ctl/ctl.h"

#include "util/err.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct report {
    bool json;
    bool colour;
    json_t *lines;
    unsigned n_passed, n_failed;
};

static void line(void *ctx, bool passed, const char *text)
{
    struct report *r = ctx;
    char plain[512];

    if (passed)
        r->n_passed++;
    else
        r->n_failed++;
    ctl_plain(plain, sizeof plain, text);
    if (r->json) {
        json_array_append_new(r->lines, json_pack("{s:b, s:s}", "passed", passed, "text", plain));
        return;
    }
    printf("%s%s%s %s\n", r->colour ? passed ? "\033[32m" : "\033[31m" : "",
           passed ? "ok    " : "FAILED", r->colour ? "\033[0m" : "", plain);
    fflush(stdout);
}

static int run(const struct ctl_args *args)
{
    const char *dir = args->n_operands ? args->operands[0] : NULL;
    struct report report = { .json = ctl_has(args, "--json"), .colour = isatty(STDOUT_FILENO) };
    struct conf conf;
    struct err err = { 0 };
    int failed = -1;

    report.lines = json_array();
    /* Without a model the configuration still wants one; kernels ask for none. */
    if (ctl_conf(args, dir ? dir : "none", &conf, &err) == 0 &&
        (!dir || ctl_expert_slots(args, &conf.engine, &err) == 0)) {
        conf.engine.model_dir = dir;
        conf.engine.workers = 0;
        conf.engine.http_buffer = 0;
        failed = cz_selftest(&conf.engine, line, &report, &err);
    }
    conf_done(&conf);
    if (failed < 0) {
        json_decref(report.lines);
        return ctl_fail(args, &err);
    }
    if (report.json)
        ctl_print_json(json_pack("{s:o, s:I, s:I}", "checks", report.lines, "passed",
                                 (json_int_t)report.n_passed, "failed",
                                 (json_int_t)report.n_failed));
    else
        printf("%u passed, %u failed\n", report.n_passed, report.n_failed);
    if (!report.json)
        json_decref(report.lines);
    return failed ? EXIT_FAILED : EXIT_FINE;
}

const struct ctl_command ctl_selftest = {
    .name = "selftest",
    .operands = "[DIR]",
    .summary = "is this build right on this machine",
    .example = "Kernels against the scalar ones; with a model also tokenizer, threads, chunks,\n"
               "slots and a warm cache. "
               "One line a check; exit status 1 when one failed.",
    .settings = true,
    .max_operands = 1,
    .run = run,
};
