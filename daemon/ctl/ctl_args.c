/* The command line of colizigctl: flags by table, values checked, and the configuration they
 * make up. */
#include "daemon/ctl/ctl.h"

#include "daemon/base/nearest.h"
#include "util/err.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- flags that many commands take ---- */

static const struct ctl_flag common_flags[] = {
    { "--json", NULL, "answer in JSON", NULL },
    { "--threads", "N", "compute threads; auto: what affinity and quota allow",
      "engine.threads" },
    { "--help", NULL, "this text", NULL },
    { 0 },
};

static const struct ctl_flag setting_flags[] = {
    { "--ram", "SIZE", "memory for the whole service: 8GiB, 512M, auto", "memory.ram" },
    { "--context", "N", "tokens a sequence may hold", "engine.context" },
    { "--sequences", "N", "sequences running at once", "engine.sequences" },
    { "--prefill-rows", "N", "rows of a prefill chunk", "engine.prefill_rows" },
    { "--expert-slots", "N", "slots for experts: auto, min, half, all or a number", NULL },
    { "--kv", "SIZE", "bytes of the KV page pool", "memory.kv" },
    { "--kv-dtype", "TYPE", "bf16 or f32", "memory.kv_dtype" },
    { "--dense", "TYPE", "dense weights: bf16, as the checkpoint has them, or fp8",
      "memory.dense" },
    { "--kernels", "NAME", "auto, scalar, avx2 or avx512", "engine.kernels" },
    { "--profile", "NAME", "tiny, laptop or desktop", "memory.profile" },
    { "--set", "KEY=VALUE", "any other key of the configuration", NULL },
    { 0 },
};

typedef const struct ctl_flag *flag_table;

/* The tables that apply to a command, own flags first. Returns how many. */
static size_t tables_of(flag_table out[3], const struct ctl_command *command)
{
    size_t n = 0;

    if (command->flags)
        out[n++] = command->flags;
    if (command->settings)
        out[n++] = setting_flags;
    out[n++] = common_flags;
    return n;
}

static const struct ctl_flag *find_flag(const struct ctl_command *command, const char *name,
                                        size_t length)
{
    flag_table tables[3];
    size_t n = tables_of(tables, command);

    for (size_t i = 0; i < n; i++)
        for (const struct ctl_flag *f = tables[i]; f->name; f++)
            if (strlen(f->name) == length && strncmp(f->name, name, length) == 0)
                return f;
    return NULL;
}

/* The flag that was probably meant. */
static const char *near_flag(const struct ctl_command *command, const char *name)
{
    const char *names[64];
    flag_table tables[3];
    size_t n_tables = tables_of(tables, command), n = 0;
    char typed[64];

    for (size_t i = 0; i < n_tables; i++)
        for (const struct ctl_flag *f = tables[i]; f->name && n < 64; f++)
            names[n++] = f->name;
    snprintf(typed, sizeof typed, "%.*s", (int)strcspn(name, "="), name);
    return nearest(typed, names, n);
}

static int unknown_flag(const struct ctl_command *command, const char *name, struct err *err)
{
    const char *near = near_flag(command, name);

    return err_set(err, ERR_INPUT, "unknown flag '%.60s'%s%s; 'colizigctl %s --help' lists them",
                   name, near ? "; did you mean " : "", near ? near : "", command->name);
}

/* Also by commands that make no configuration of it: a value is wrong wherever it stands. */
static int check_values(const struct ctl_args *args, struct err *err)
{
    struct conf scratch;
    int rc = 0;

    conf_init(&scratch);
    for (size_t i = 0; i < args->n_given && rc == 0; i++)
        if (args->given[i].flag->key)
            rc = conf_set(&scratch, args->given[i].flag->name, args->given[i].flag->key,
                          args->given[i].value, false, err);
    conf_done(&scratch);
    return rc;
}

int ctl_args_parse(struct ctl_args *out, const struct ctl_command *command, int argc, char **argv,
                   struct err *err)
{
    struct ctl_args args = { .command = command };
    size_t n_operands = 0;
    bool only_operands = false;

    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        if (only_operands || word[0] != '-' || word[1] == '\0') {
            argv[n_operands++] = word; /* never past i */
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_operands = true;
            continue;
        }
        if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0) {
            args.help = true;
            continue;
        }
        const char *equals = strchr(word, '=');
        size_t length = equals ? (size_t)(equals - word) : strlen(word);
        const struct ctl_flag *flag = find_flag(command, word, length);
        if (!flag)
            return unknown_flag(command, word, err);
        if (args.n_given == CTL_MAX_GIVEN)
            return err_set(err, ERR_INPUT, "more than %d flags", CTL_MAX_GIVEN);
        const char *value = equals ? equals + 1 : NULL;
        if (!flag->value && value)
            return err_set(err, ERR_INPUT, "%s takes no value", flag->name);
        if (flag->value && !value) {
            if (++i == argc)
                return err_set(err, ERR_INPUT, "%s needs a value: %s %s", flag->name, flag->name,
                               flag->value);
            value = argv[i];
        }
        args.given[args.n_given].flag = flag;
        args.given[args.n_given++].value = value;
    }
    args.operands = (const char *const *)argv;
    args.n_operands = n_operands;
    if (!args.help && (n_operands < command->min_operands || n_operands > command->max_operands))
        return err_set(err, ERR_INPUT, "%s; usage: colizigctl %s [flags] %s",
                       n_operands < command->min_operands ? "something is missing"
                                                          : "too many words",
                       command->name, command->operands);
    if (!args.help && check_values(&args, err) < 0)
        return -1;
    *out = args;
    return 0;
}

void ctl_args_help(const struct ctl_command *command)
{
    flag_table tables[3];
    size_t n = tables_of(tables, command);

    printf("usage: colizigctl %s [flags] %s\n\n%s\n\n", command->name, command->operands,
           command->summary);
    for (size_t i = 0; i < n; i++) {
        for (const struct ctl_flag *f = tables[i]; f->name; f++) {
            char left[40];
            snprintf(left, sizeof left, "%s %s", f->name, f->value ? f->value : "");
            printf("  %-24s %s\n", left, f->help);
        }
    }
    if (command->example)
        printf("\n%s\n", command->example);
}

/* ---- reading them ---- */

bool ctl_has(const struct ctl_args *args, const char *name)
{
    for (size_t i = 0; i < args->n_given; i++)
        if (strcmp(args->given[i].flag->name, name) == 0)
            return true;
    return false;
}

/* The last one counts, as everywhere on command lines. */
const char *ctl_text(const struct ctl_args *args, const char *name)
{
    for (size_t i = args->n_given; i-- > 0;)
        if (strcmp(args->given[i].flag->name, name) == 0)
            return args->given[i].value;
    return NULL;
}

static int parse_u64(uint64_t *out, const char *name, const char *text, uint64_t min, uint64_t max,
                     struct err *err)
{
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value < min || value > max)
        return err_set(err, ERR_INPUT, "%s: '%.40s' is no number from %" PRIu64 " to %" PRIu64,
                       name, text, min, max);
    *out = value;
    return 0;
}

int ctl_u32(const struct ctl_args *args, const char *name, uint32_t *out, uint32_t min,
            uint32_t max, struct err *err)
{
    const char *text = ctl_text(args, name);
    uint64_t value;

    if (!text)
        return 0;
    if (parse_u64(&value, name, text, min, max, err) < 0)
        return -1;
    *out = (uint32_t)value;
    return 0;
}

int ctl_u64(const struct ctl_args *args, const char *name, uint64_t *out, struct err *err)
{
    const char *text = ctl_text(args, name);

    return text ? parse_u64(out, name, text, 0, UINT64_MAX, err) : 0;
}

int ctl_float(const struct ctl_args *args, const char *name, float *out, double min, double max,
              struct err *err)
{
    const char *text = ctl_text(args, name);
    char *end;

    if (!text)
        return 0;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < min || value > max)
        return err_set(err, ERR_INPUT, "%s: '%.40s' is no number from %g to %g", name, text, min,
                       max);
    *out = (float)value;
    return 0;
}

static const char blanks[] = " \n\t\r";

/* What stands between two ids: a comma, blanks, or both. */
static const char *next_id(const char *p)
{
    p += strspn(p, blanks);
    if (*p != ',')
        return p;
    p++;
    return p + strspn(p, blanks);
}

int ctl_ids(const char *text, uint32_t **out, size_t *n, struct err *err)
{
    size_t cap = 1, used = 0;

    for (const char *p = text; *p; p++)
        cap += *p == ',' || strchr(blanks, *p);
    uint32_t *ids = malloc(cap * sizeof *ids);
    if (!ids)
        return err_set(err, ERR_NOMEM, "%zu token ids", cap);
    for (const char *p = text + strspn(text, blanks); *p;) {
        char *end;
        errno = 0;
        unsigned long long value = strtoull(p, &end, 10);
        if (*p == ',') {
            err_set(err, ERR_INPUT, "a comma without a token id before it");
            goto fail;
        }
        if (*p < '0' || *p > '9' || errno || value > UINT32_MAX ||
            (*end && *end != ',' && !strchr(blanks, *end))) {
            err_set(err, ERR_INPUT, "'%.*s' is no token id", (int)strcspn(p, ", \n\t\r") % 40, p);
            goto fail;
        }
        ids[used++] = (uint32_t)value;
        p = next_id(end);
        if (!*p && p > end && strchr(end, ',')) {
            err_set(err, ERR_INPUT, "a comma without a token id behind it");
            goto fail;
        }
    }
    *out = ids;
    *n = used;
    return 0;

fail:
    free(ids);
    return -1;
}

/* ---- settings ---- */

static int apply_set(struct conf *conf, const char *text, struct err *err)
{
    char key[64];
    const char *equals = strchr(text, '=');

    if (!equals || (size_t)(equals - text) >= sizeof key)
        return err_set(err, ERR_INPUT, "--set: '%.60s' is not KEY=VALUE", text);
    memcpy(key, text, (size_t)(equals - text));
    key[equals - text] = '\0';
    return conf_set(conf, key, key, equals + 1, false, err);
}

int ctl_conf(const struct ctl_args *args, const char *model_dir, struct conf *conf,
             struct err *err)
{
    const char *file = ctl_text(args, "--config");

    conf_init(conf);
    if (file && conf_read(conf, file, err) < 0)
        return -1;
    if (model_dir && conf_set(conf, "DIR", "model.dir", model_dir, false, err) < 0)
        return -1;
    for (size_t i = 0; i < args->n_given; i++) {
        const struct ctl_flag *flag = args->given[i].flag;
        const char *value = args->given[i].value;
        if (flag->key && conf_set(conf, flag->name, flag->key, value, false, err) < 0)
            return -1;
        if (strcmp(flag->name, "--set") == 0 && apply_set(conf, value, err) < 0)
            return -1;
    }
    return conf_finish(conf, err);
}

int ctl_expert_slots(const struct ctl_args *args, struct cz_options *options, struct err *err)
{
    const char *text = ctl_text(args, "--expert-slots");
    struct cz_plan plan;
    struct err why;
    uint64_t value;

    if (!text)
        return 0;
    options->expert_slots = 0;
    if (strcmp(text, "auto") == 0)
        return 0;
    if (*text >= '0' && *text <= '9') {
        if (parse_u64(&value, "--expert-slots", text, 1, UINT32_MAX, err) < 0)
            return -1;
        options->expert_slots = (uint32_t)value;
        return 0;
    }
    /* The numbers behind the words stand in any plan, also in one that does not fit. */
    if (cz_plan(&plan, options, false, &why) < 0 && why.kind != ERR_BUDGET) {
        if (err)
            *err = why;
        return -1;
    }
    if (strcmp(text, "min") == 0)
        options->expert_slots = plan.min_slots;
    else if (strcmp(text, "half") == 0)
        options->expert_slots = plan.n_experts_total / 2;
    else if (strcmp(text, "all") == 0)
        options->expert_slots = plan.n_experts_total;
    else
        return err_set(err, ERR_INPUT, "--expert-slots: '%.40s' is not auto, min, half, all or a "
                                       "number", text);
    if (options->expert_slots < plan.min_slots)
        options->expert_slots = plan.min_slots;
    return 0;
}
