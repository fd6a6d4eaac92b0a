#include "daemon/ctl/ctl_show.h"

#include "daemon/ctl/ctl.h"
#include "util/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- fields ---- */

double ctl_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

uint64_t ctl_count(const json_t *object, const char *key)
{
    double n = ctl_number(object, key);

    return n >= 1.0 && n < 1.8e19 ? (uint64_t)n : 0;
}

const char *ctl_word(char *buf, size_t cap, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return ctl_plain(buf, cap, text ? text : "");
}

const char *ctl_span(char buf[24], uint64_t ms)
{
    uint64_t s = ms / 1000;

    if (s >= 3600)
        snprintf(buf, 24, "%" PRIu64 ":%02u:%02u", s / 3600, (unsigned)(s / 60 % 60),
                 (unsigned)(s % 60));
    else
        snprintf(buf, 24, "%u:%02u", (unsigned)(s / 60), (unsigned)(s % 60));
    return buf;
}

/* "-" for what is not known. */
static const char *bytes_text(char buf[16], const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);

    if (json_is_integer(v))
        size_text(buf, 16, ctl_count(object, key));
    else
        snprintf(buf, 16, "-");
    return buf;
}

static double share(uint64_t part, uint64_t rest)
{
    return part + rest ? 100.0 * (double)part / (double)(part + rest) : 0.0;
}

/* ---- status ---- */

static void show_process(const char *name, const json_t *p)
{
    char anonymous[16], locked[16], swapped[16], up[24], descriptors[16] = "-", told[32] = "";

    if (json_is_integer(json_object_get(p, "descriptors")))
        snprintf(descriptors, sizeof descriptors, "%" PRIu64, ctl_count(p, "descriptors"));
    if (json_object_get(p, "connections"))
        snprintf(told, sizeof told, "  %" PRIu64 " connections", ctl_count(p, "connections"));
    printf("  %-11s %7" PRIu64 " %10s %10s %10s %10s %5s %8" PRIu64 "%s%s\n", name,
           ctl_count(p, "pid"), ctl_span(up, ctl_count(p, "up_ms")),
           bytes_text(anonymous, p, "anonymous_bytes"), bytes_text(locked, p, "locked_bytes"),
           bytes_text(swapped, p, "swapped_bytes"), descriptors, ctl_count(p, "restarts"),
           json_is_false(json_object_get(p, "ready")) ? "  not ready" : "", told);
}

static void show_memory(const json_t *memory)
{
    const json_t *group = json_object_get(memory, "cgroup");
    char anonymous[16], planned[16], budget[16], swapped[16], usage[16], file[16];
    char limit[24] = "no limit", size[16], path[160];

    printf("  memory    %s measured, %s planned, budget %s, %s swapped\n",
           bytes_text(anonymous, memory, "anonymous_bytes"),
           bytes_text(planned, memory, "planned_bytes"),
           bytes_text(budget, memory, "budget_bytes"),
           bytes_text(swapped, memory, "swapped_bytes"));
    if (!json_is_object(group))
        return;
    if (json_is_integer(json_object_get(group, "limit_bytes")))
        snprintf(limit, sizeof limit, "limit %s", bytes_text(size, group, "limit_bytes"));
    printf("  cgroup    %s used, %s of it file cache, %s, %s\n",
           bytes_text(usage, group, "usage_bytes"), bytes_text(file, group, "file_bytes"), limit,
           ctl_word(path, sizeof path, group, "path"));
}

void ctl_show_status(const json_t *d)
{
    const json_t *engine = json_object_get(d, "engine"), *one;
    char version[32], commit[32], phase[32], up[24], model[80], dir[200], said[200], name[64];
    size_t i;

    printf("colizigd %s (%s) is %s, up %s\n", ctl_word(version, sizeof version, d, "version"),
           ctl_word(commit, sizeof commit, d, "commit"),
           ctl_word(phase, sizeof phase, d, "phase"), ctl_span(up, ctl_count(d, "up_ms")));
    printf("  model     %s, %s\n", ctl_word(model, sizeof model, d, "model"),
           ctl_word(dir, sizeof dir, d, "model_dir"));
    printf("  listens  ");
    json_array_foreach (json_object_get(d, "listen"), i, one)
        printf(" %s", ctl_plain(name, sizeof name,
                                json_is_string(one) ? json_string_value(one) : "?"));
    printf("\n  engine    %s; %" PRIu64 " running, %" PRIu64 " waiting\n",
           ctl_word(said, sizeof said, engine, "status"), ctl_count(engine, "running"),
           ctl_count(engine, "waiting"));
    if (json_is_string(json_object_get(d, "reload")))
        printf("  reload    %s\n", ctl_word(said, sizeof said, d, "reload"));
    show_memory(json_object_get(d, "memory"));
    printf("\n  %-11s %7s %10s %10s %10s %10s %5s %8s\n", "process", "pid", "up", "memory",
           "locked", "swapped", "files", "restarts");
    show_process("supervisor", d);
    show_process("engine", engine);
    json_array_foreach (json_object_get(d, "workers"), i, one) {
        snprintf(name, sizeof name, "worker %" PRIu64, ctl_count(one, "slot"));
        show_process(name, one);
        if (*ctl_word(said, sizeof said, one, "status")) /* why it is not ready */
            printf("  %-11s %s\n", "", said);
    }
}

/* ---- stats ---- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

static void show_number(const char *name, const json_t *value)
{
    double x = json_number_value(value);
    char text[40], grouped[CTL_BYTES_TEXT];

    if (ends_with(name, "bytes") && x >= 0.0)
        size_text(text, sizeof text, (uint64_t)x);
    else if (ends_with(name, "_ns"))
        snprintf(text, sizeof text, "%.3f s", x / 1e9);
    else if (ends_with(name, "_ms"))
        snprintf(text, sizeof text, "%.3f s", x / 1e3);
    else if (json_is_integer(value) && x >= 0.0)
        snprintf(text, sizeof text, "%s", ctl_grouped(grouped, (uint64_t)x));
    else
        snprintf(text, sizeof text, "%.6g", x);
    printf("  %-22s %16s\n", name, text);
}

/* Whatever counters a daemon has, in its order; objects in it nest as headings. */
static void show_value(const char *key, const json_t *value, int depth)
{
    char name[64], plain[160];
    const char *inner;
    json_t *item;
    size_t i;

    ctl_plain(name, sizeof name, key);
    if (json_is_object(value) && depth < 4) {
        if (*name)
            printf("%s\n", name);
        json_object_foreach ((json_t *)(uintptr_t)value, inner, item)
            show_value(inner, item, depth + 1);
    } else if (json_is_array(value) && depth < 4) {
        json_array_foreach (value, i, item)
            show_value(name, item, depth + 1);
    } else if (json_is_number(value)) {
        show_number(name, value);
    } else {
        const char *text = json_is_string(value)  ? json_string_value(value)
                           : json_is_true(value)  ? "yes"
                           : json_is_false(value) ? "no"
                                                  : "-";
        printf("  %-22s %16s\n", name, ctl_plain(plain, sizeof plain, text));
    }
}

void ctl_show_stats(const json_t *data)
{
    uint64_t hits = ctl_count(data, "expert_hits"), misses = ctl_count(data, "expert_misses");

    if (hits + misses)
        printf("%.1f %% of experts were in memory\n", share(hits, misses));
    show_value("", data, 0);
}

/* ---- experts ---- */

static void show_layer(const json_t *l)
{
    uint64_t hits = ctl_count(l, "hits"), misses = ctl_count(l, "misses");
    char hit_text[CTL_BYTES_TEXT], miss_text[CTL_BYTES_TEXT], gone_text[CTL_BYTES_TEXT];
    char rate[16] = "-";

    if (hits + misses)
        snprintf(rate, sizeof rate, "%.1f %%", share(hits, misses));
    printf("  %5" PRIu64 " %5" PRIu64 " of %-5" PRIu64 " %8s %14s %14s %14s\n",
           ctl_count(l, "layer"), ctl_count(l, "n_resident"), ctl_count(l, "n_experts"), rate,
           ctl_grouped(hit_text, hits), ctl_grouped(miss_text, misses),
           ctl_grouped(gone_text, ctl_count(l, "evictions")));
}

void ctl_show_experts(const json_t *data)
{
    const json_t *hottest = json_object_get(data, "hottest"), *one;
    uint64_t resident = 0, all = 0;
    size_t i;

    printf("  %5s %14s %8s %14s %14s %14s\n", "layer", "in memory", "hits", "hits", "misses",
           "evictions");
    json_array_foreach (json_object_get(data, "layers"), i, one) {
        show_layer(one);
        resident += ctl_count(one, "n_resident");
        all += ctl_count(one, "n_experts");
    }
    printf("  %" PRIu64 " of %" PRIu64 " experts are in memory\n", resident, all);
    if (json_array_size(hottest) == 0)
        return;
    printf("\n  hottest: layer expert   heat\n");
    json_array_foreach (hottest, i, one)
        printf("           %5" PRIu64 " %6" PRIu64 "  %.3f%s\n", ctl_count(one, "layer"),
               ctl_count(one, "expert"), ctl_number(one, "heat"),
               json_is_true(json_object_get(one, "resident")) ? "" : "  not in memory");
}

/* ---- requests ---- */

static void show_request(const json_t *r)
{
    char name[48], state[24], client[64], place[16] = "", age[24], prompt[48];

    if (ctl_count(r, "place"))
        snprintf(place, sizeof place, " %" PRIu64, ctl_count(r, "place"));
    snprintf(prompt, sizeof prompt, "%" PRIu64 "/%" PRIu64, ctl_count(r, "prompt_done"),
             ctl_count(r, "prompt_tokens"));
    ctl_word(state, sizeof state, r, "state");
    strncat(state, place, sizeof state - strlen(state) - 1);
    printf("  %-36s %-11s %13s %9" PRIu64 " %8s  %s\n", ctl_word(name, sizeof name, r, "request"),
           state, prompt, ctl_count(r, "generated"), ctl_span(age, ctl_count(r, "age_ms")),
           ctl_word(client, sizeof client, r, "client"));
}

void ctl_show_requests(const json_t *data)
{
    const json_t *list = json_object_get(data, "requests"), *one;
    size_t i;

    if (json_array_size(list) == 0) {
        printf("no request runs or waits\n");
        return;
    }
    printf("  %-36s %-11s %13s %9s %8s  %s\n", "request", "state", "prompt read", "generated",
           "age", "client");
    json_array_foreach (list, i, one)
        show_request(one);
}
