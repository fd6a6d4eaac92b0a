/* ctl: what the commands of colizigctl share: arguments, and how answers look.
 *
 * A command is a table of flags and a function that returns an exit status. Every command
 * takes --json, --threads and --help; those that plan or run a model also take its settings
 * (--ram, --context, ...), which are keys of the configuration by a shorter name. One thread. */
#ifndef DAEMON_CTL_H
#define DAEMON_CTL_H

#include "daemon/conf/conf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ctl_flag {
    const char *name;  /* "--steps" */
    const char *value; /* "N" as the help shows it; NULL for a switch */
    const char *help;
    const char *key; /* a key of the configuration, or NULL: the command reads it itself */
};

struct ctl_args;

struct ctl_command {
    const char *name, *operands, *summary; /* "inspect", "DIR|FILE", one line */
    const char *example;
    const struct ctl_flag *flags; /* ends with a zeroed entry; NULL: none of its own */
    bool settings;                /* takes the model's settings too */
    size_t min_operands, max_operands;
    int (*run)(const struct ctl_args *args); /* an enum exit_status */
};

extern const struct ctl_command ctl_inspect, ctl_plan, ctl_tokenize, ctl_forward, ctl_selftest,
    ctl_status, ctl_stats, ctl_experts, ctl_requests, ctl_cancel, ctl_reload, ctl_drain,
    ctl_budget, ctl_log, ctl_chat, ctl_render;

/* ---- arguments ---- */

enum { CTL_MAX_GIVEN = 64, CTL_MAX_OPERANDS = 4096 };

struct ctl_args { /* borrows from argv */
    const struct ctl_command *command;
    struct {
        const struct ctl_flag *flag;
        const char *value;
    } given[CTL_MAX_GIVEN];
    size_t n_given;
    const char *const *operands;
    size_t n_operands;
    bool help;
};

/* argv without program and command; reordered so that operands stand together. ERR_INPUT
 * names the flag and, where one is near, the flag that was probably meant. */
int ctl_args_parse(struct ctl_args *out, const struct ctl_command *command, int argc, char **argv,
                   struct err *err);
void ctl_args_help(const struct ctl_command *command);

bool ctl_has(const struct ctl_args *args, const char *name);
const char *ctl_text(const struct ctl_args *args, const char *name); /* NULL: not given */
/* *out keeps its value when the flag was not given. */
int ctl_u32(const struct ctl_args *args, const char *name, uint32_t *out, uint32_t min,
            uint32_t max, struct err *err);
int ctl_u64(const struct ctl_args *args, const char *name, uint64_t *out, struct err *err);
int ctl_float(const struct ctl_args *args, const char *name, float *out, double min, double max,
              struct err *err);
/* "1,2 3\n4": ids between commas or blanks; *out is malloc'd. */
int ctl_ids(const char *text, uint32_t **out, size_t *n, struct err *err);

/* The configuration: defaults, --config FILE if there is one, settings flags, the model
 * directory when not NULL. Call conf_done also after a failure. */
int ctl_conf(const struct ctl_args *args, const char *model_dir, struct conf *conf,
             struct err *err);
/* Resolves --expert-slots min, half, all or a number, for options that are otherwise set. */
int ctl_expert_slots(const struct ctl_args *args, struct cz_options *options, struct err *err);

/* Of the running daemon, where no directory is named. */
int ctl_plan_of_daemon(const struct ctl_args *args);
int ctl_inspect_of_daemon(const struct ctl_args *args);

/* ---- answers ---- */

/* One object on one line; takes it. */
void ctl_print_json(json_t *object);
/* To stderr, and as {"error":...} to stdout when --json was given. Returns the exit status. */
int ctl_fail(const struct ctl_args *args, const struct err *err);

enum { CTL_BYTES_TEXT = 32 };
const char *ctl_grouped(char buf[CTL_BYTES_TEXT], uint64_t n); /* "3,446,669,312" */
/* "name   905,969,664  864.00 MiB   5.3 %  ###   detail"; detail may be NULL. */
void ctl_print_bytes(const char *name, uint64_t bytes, uint64_t whole, const char *detail);
/* Text of a file we did not write: control bytes and what is no UTF-8 become '?'. */
const char *ctl_plain(char *buf, size_t cap, const char *text);

/* A bar on stderr while a model loads, if that is a terminal; fits cz_watch.loading. */
struct ctl_progress {
    bool shown;
    uint64_t started_ns, drawn_ns;
};
bool ctl_progress_loading(void *progress, uint64_t done, uint64_t total);
void ctl_progress_end(struct ctl_progress *p);

#endif
