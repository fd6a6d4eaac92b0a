#include "daemon/ctl/ctl_trace.h"

#include "daemon/ctl/ctl.h"
#include "util/err.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { TRACE_VERSION = 1 };

/* A stream may fail without errno; something must be said all the same. */
static void note_failure(struct ctl_trace *t)
{
    if (!t->failed)
        t->error = errno ? errno : EIO;
    t->failed = true;
}

int ctl_trace_check(const struct ctl_trace *t, struct err *err)
{
    if (!t->failed)
        return 0;
    errno = t->error;
    return err_errno(err, "write %s", t->path);
}

int ctl_trace_open(struct ctl_trace *t, const char *path, struct err *err)
{
    *t = (struct ctl_trace){ .path = path };
    t->file = fopen(path, "we");
    return t->file ? 0 : err_errno(err, "open %s", path);
}

/* The last part of a path that is one: "a/b/" gives "b". */
static const char *last_name(char *buf, size_t cap, const char *path)
{
    size_t end = strlen(path), begin;

    while (end > 1 && path[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/';)
        begin--;
    snprintf(buf, cap, "%.*s", (int)(end - begin), path + begin);
    return buf;
}

int ctl_trace_begin(struct ctl_trace *t, const char *model_dir, const struct cz_plan *plan,
                    struct err *err)
{
    struct cz_model_info info;
    char name[128], plain[128];

    if (cz_inspect(&info, model_dir, err) < 0)
        return -1;
    if (info.n_moe_layers == 0)
        return err_set(err, ERR_INPUT, "--trace-experts: '%s' has no routed experts", model_dir);
    json_t *head = json_pack(
        "{s:s, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "format",
        "colizig-expert-trace", "version", TRACE_VERSION, "model",
        ctl_plain(plain, sizeof plain, last_name(name, sizeof name, model_dir)), "family",
        info.model_type, "layers", (json_int_t)info.n_layers, "moe_layers",
        (json_int_t)info.n_moe_layers, "experts", (json_int_t)info.n_experts, "experts_per_token",
        (json_int_t)info.experts_per_token, "expert_bytes", (json_int_t)info.expert_bytes, "slots",
        (json_int_t)plan->expert_slots, "reads_in_flight", (json_int_t)plan->reads_in_flight);
    errno = 0;
    if (!head)
        return err_set(err, ERR_NOMEM, "the head of a trace");
    if (json_dumpf(head, t->file, 0) < 0 || putc('\n', t->file) == EOF)
        note_failure(t);
    json_decref(head);
    return ctl_trace_check(t, err);
}

/* Numbers alone, so that no writer of JSON is asked millions of times. */
void ctl_trace_order(struct ctl_trace *t, const struct cz_expert_order *o)
{
    bool several = false;

    if (t->failed)
        return;
    errno = 0;
    fprintf(t->file,
            "{\"step\": %" PRIu64 ", \"kind\": \"%s\", \"layer\": %u, \"rows\": %u, \"experts\": [",
            o->step, o->prefill ? "prefill" : "decode", o->layer, o->n_rows);
    for (uint32_t i = 0; i < o->n_experts; i++) {
        uint32_t e = o->experts[i];

        several = several || o->first[e + 1] - o->first[e] > 1;
        fprintf(t->file, i ? ", %u" : "%u", e);
    }
    if (several) {
        fputs("], \"picks\": [", t->file);
        for (uint32_t i = 0; i < o->n_experts; i++) {
            uint32_t e = o->experts[i];

            fprintf(t->file, i ? ", %u" : "%u", o->first[e + 1] - o->first[e]);
        }
    }
    if (fputs("]}\n", t->file) == EOF || ferror(t->file))
        note_failure(t);
    t->n_orders++;
}

int ctl_trace_end(struct ctl_trace *t, const struct cz_stats *stats, struct err *err)
{
    errno = 0;
    if (fprintf(t->file,
                "{\"end\": true, \"orders\": %" PRIu64 ", \"hits\": %" PRIu64
                ", \"misses\": %" PRIu64 ", \"slots_given_back\": %" PRIu64 "}\n",
                t->n_orders, stats->expert_hits, stats->expert_misses,
                stats->slots_given_back) < 0)
        note_failure(t);
    return ctl_trace_check(t, err);
}

int ctl_trace_close(struct ctl_trace *t, struct err *err)
{
    FILE *file = t->file;

    t->file = NULL;
    errno = 0;
    if (file && fclose(file) != 0)
        note_failure(t);
    return ctl_trace_check(t, err);
}
