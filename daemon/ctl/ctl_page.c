#include "daemon/ctl/ctl_page.h"

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_show.h"
#include "util/size.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL = 19, SIZE = 12, BAR_LEAST = 8, BAR_MOST = 60 };

static void put(struct ctl_page *p, enum ctl_tint tint, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Cut to the width in whole characters. */
static void put(struct ctl_page *p, enum ctl_tint tint, const char *fmt, ...)
{
    va_list args;

    if (p->n == p->rows)
        return;
    char *text = p->lines[p->n].text;
    va_start(args, fmt);
    vsnprintf(text, sizeof p->lines[0].text, fmt, args);
    va_end(args);
    p->lines[p->n++].tint = tint;
    size_t at = 0, size = strlen(text);
    for (size_t i = 0; i < p->width && at < size; i++) {
        int length = utf8_next(text + at, size - at, NULL);
        if (length <= 0)
            break;
        at += (size_t)length;
    }
    text[at] = '\0';
}

/* ---- growth ---- */

/* What two looks differ by; an engine that was started again counts from nothing. */
struct growth {
    const json_t *now, *before; /* before NULL: none yet */
    double seconds;
};

static double grown(const struct growth *g, const char *key)
{
    double by = ctl_number(g->now, key) - ctl_number(g->before, key);

    return by > 0.0 ? by : 0.0;
}

static const char *speed(char buf[24], const struct growth *g, const char *key, double unit)
{
    if (g->seconds > 0.0)
        snprintf(buf, 24, "%.1f", grown(g, key) / unit / g->seconds);
    else
        snprintf(buf, 24, "-");
    return buf;
}

static const char *percent(char buf[16], double part, double whole)
{
    if (whole > 0.0)
        snprintf(buf, 16, "%.1f %%", 100.0 * part / whole);
    else
        snprintf(buf, 16, "-");
    return buf;
}

/* ---- the head ---- */

static void put_title(struct ctl_page *p, const json_t *status)
{
    const json_t *engine = json_object_get(status, "engine");
    char model[64], phase[24], said[100], reload[80], up[24];

    ctl_word(phase, sizeof phase, status, "phase");
    put(p, CTL_TINT_TITLE, "%s  %s, up %s", ctl_word(model, sizeof model, status, "model"), phase,
        ctl_span(up, ctl_count(status, "up_ms")));
    ctl_word(said, sizeof said, engine, "status");
    if (*said && strcmp(said, phase) != 0)
        put(p, CTL_TINT_ALARM, "engine      %s", said);
    if (json_is_string(json_object_get(status, "reload")))
        put(p, CTL_TINT_PLAIN, "reload      %s",
            ctl_word(reload, sizeof reload, status, "reload"));
}

static void put_work(struct ctl_page *p, const struct growth *g)
{
    char prefill[24], decode[24];

    put(p, CTL_TINT_PLAIN, "tokens/s    %s prefill, %s decode",
        speed(prefill, g, "prompt_tokens", 1.0), speed(decode, g, "generated_tokens", 1.0));
    put(p, CTL_TINT_PLAIN,
        "requests    %" PRIu64 " running, %" PRIu64 " of them in prefill; queue %" PRIu64
        "; done %" PRIu64 ", failed %" PRIu64, ctl_count(g->now, "running"),
        ctl_count(g->now, "prefilling"), ctl_count(g->now, "waiting"),
        ctl_count(g->now, "n_finished"), ctl_count(g->now, "n_failed"));
}

static void put_experts(struct ctl_page *p, const struct growth *g, const json_t *plan)
{
    double hits = grown(g, "expert_hits"), misses = grown(g, "expert_misses");
    double all_hits = ctl_number(g->now, "expert_hits");
    double all_misses = ctl_number(g->now, "expert_misses");
    uint64_t used = ctl_count(g->now, "expert_slots_used"), slots = ctl_count(g->now, "expert_slots");
    uint64_t all = ctl_count(plan, "n_experts_total");
    char now[16] = "-", overall[16], read[24], waited[16];

    if (g->before)
        percent(now, hits, hits + misses);
    put(p, CTL_TINT_PLAIN, "hit rate    %s now, %s overall", now,
        percent(overall, all_hits, all_hits + all_misses));
    put(p, CTL_TINT_PLAIN, "disk        %s MB/s read, waited for it %s of the time",
        speed(read, g, "expert_read_bytes", 1e6),
        percent(waited, grown(g, "expert_wait_ns") / 1e9, g->seconds));
    if (all)
        put(p, CTL_TINT_PLAIN,
            "experts     VRAM none; RAM %" PRIu64 " in %" PRIu64 " slots; disk only %" PRIu64
            " of %" PRIu64, used, slots, all > used ? all - used : 0, all);
    else
        put(p, CTL_TINT_PLAIN, "experts     VRAM none; RAM %" PRIu64 " in %" PRIu64 " slots", used,
            slots);
    put(p, CTL_TINT_PLAIN, "KV pages    %" PRIu64 " of %" PRIu64 " in use, %" PRIu64 " at most so far",
        ctl_count(g->now, "kv_pages_used"), ctl_count(g->now, "kv_pages"),
        ctl_count(g->now, "kv_pages_peak"));
}

static void put_workers(struct ctl_page *p, const json_t *status)
{
    char line[CTL_PAGE_WIDTH + 1] = "";
    const json_t *worker;
    uint64_t sum = 0;
    size_t i, used = 0;

    json_array_foreach (json_object_get(status, "workers"), i, worker) {
        sum += ctl_count(worker, "connections");
        if (used < sizeof line)
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%" PRIu64, i ? " + " : "",
                                     ctl_count(worker, "connections"));
    }
    if (i > 1)
        put(p, CTL_TINT_PLAIN, "clients     %" PRIu64 " connections: %s by worker", sum, line);
    else
        put(p, CTL_TINT_PLAIN, "clients     %" PRIu64 " connections", sum);
}

/* ---- memory ---- */

static void put_bar(struct ctl_page *p, enum ctl_tint tint, const char *label, uint64_t part,
                    uint64_t whole, const char *more)
{
    size_t taken = LABEL + SIZE + (*more ? strlen(more) + 1 : 0);
    size_t room = p->width > taken + BAR_LEAST ? p->width - taken : BAR_LEAST;
    size_t width = room < BAR_MOST ? room : BAR_MOST;
    char bar[BAR_MOST + 1], size[16];
    double share = whole ? (double)part / (double)whole : 0.0;
    size_t filled = (size_t)(share * (double)width + 0.5);

    filled = filled > width ? width : filled;
    memset(bar, '#', filled);
    memset(bar + filled, '-', width - filled);
    bar[width] = '\0';
    put(p, tint, "%-*.*s%10s %s%s%s", LABEL, LABEL - 1, label, size_text(size, sizeof size, part),
        bar, *more ? " " : "", more);
}

static void put_totals(struct ctl_page *p, const json_t *memory, uint64_t whole)
{
    const json_t *group = json_object_get(memory, "cgroup");
    uint64_t measured = ctl_count(memory, "anonymous_bytes");
    uint64_t swapped = ctl_count(memory, "swapped_bytes");
    uint64_t limit = ctl_count(group, "limit_bytes");
    char budget[16], swap[16], lock[16], more[80];

    bool known = json_is_integer(json_object_get(memory, "budget_bytes"));
    put(p, CTL_TINT_TITLE, "memory      budget %s, locked %s",
        known ? size_text(budget, sizeof budget, ctl_count(memory, "budget_bytes")) : "not known yet",
        size_text(lock, sizeof lock, ctl_count(memory, "locked_bytes")));
    if (known)
        put_bar(p, CTL_TINT_PLAIN, "planned", ctl_count(memory, "planned_bytes"), whole, "");
    put_bar(p, known && measured > whole ? CTL_TINT_ALARM : CTL_TINT_PLAIN, "measured", measured,
            whole, known && measured > whole ? "over the budget" : "");
    if (limit) {
        uint64_t file = ctl_count(group, "file_bytes"), usage = ctl_count(group, "usage_bytes");
        snprintf(more, sizeof more, "of %s", size_text(budget, sizeof budget, limit));
        put_bar(p, CTL_TINT_PLAIN, "cgroup", usage > file ? usage - file : 0, limit, more);
    }
    if (swapped)
        put(p, CTL_TINT_ALARM, "swapped     %s: the machine has too little memory",
            size_text(swap, sizeof swap, swapped));
}

static int larger_first(const void *a, const void *b)
{
    uint64_t x = ctl_count(*(json_t *const *)a, "bytes"), y = ctl_count(*(json_t *const *)b, "bytes");

    return x < y ? 1 : x > y ? -1 : 0;
}

/* The plan's lines, the largest first, and what is left of them in one. */
static void put_plan(struct ctl_page *p, const json_t *plan, uint64_t whole)
{
    json_t *lines[64], *line;
    size_t n = 0, i;
    uint64_t rest = 0;
    char name[48];

    json_array_foreach (json_object_get(plan, "lines"), i, line)
        if (n < 64 && ctl_count(line, "bytes"))
            lines[n++] = line;
    qsort(lines, n, sizeof lines[0], larger_first);
    size_t room = p->rows - p->n;
    size_t shown = n <= room ? n : room ? room - 1 : 0;
    for (i = 0; i < n; i++) {
        if (i >= shown)
            rest += ctl_count(lines[i], "bytes");
        else
            put_bar(p, CTL_TINT_PLAIN, ctl_word(name, sizeof name, lines[i], "name"),
                    ctl_count(lines[i], "bytes"), whole, "");
    }
    if (shown < n) {
        snprintf(name, sizeof name, "%zu more", n - shown);
        put_bar(p, CTL_TINT_PLAIN, name, rest, whole, "");
    }
}

static void put_memory(struct ctl_page *p, const struct ctl_look *now)
{
    const json_t *memory = json_object_get(now->status, "memory");
    uint64_t whole = ctl_count(memory, "budget_bytes");

    if (!whole)
        whole = ctl_count(memory, "anonymous_bytes");
    put_totals(p, memory, whole);
    put_plan(p, now->plan, whole);
}

/* ---- the page ---- */

void ctl_page_make(struct ctl_page *p, size_t columns, size_t rows, const struct ctl_look *now,
                   const struct ctl_look *before)
{
    struct growth g = { .now = now->stats };
    char why[sizeof now->why];

    p->width = columns < CTL_PAGE_WIDTH ? columns : CTL_PAGE_WIDTH;
    p->rows = rows < CTL_PAGE_LINES ? rows : CTL_PAGE_LINES;
    p->n = 0;
    ctl_plain(why, sizeof why, now->why);
    if (!now->status) {
        put(p, CTL_TINT_ALARM, "waiting for the daemon");
        put(p, CTL_TINT_PLAIN, "%s", why);
        return;
    }
    if (before && before->stats &&
        ctl_number(now->stats, "steps") >= ctl_number(before->stats, "steps")) {
        g.before = before->stats;
        g.seconds = (double)(now->at_ns - before->at_ns) / 1e9;
    }
    put_title(p, now->status);
    if (now->stats) {
        put_work(p, &g);
        put_experts(p, &g, now->plan);
        if (json_is_true(json_object_get(now->stats, "files_changed")))
            put(p, CTL_TINT_ALARM, "files       the model's files changed; reload");
    } else {
        put(p, CTL_TINT_ALARM, "%s", why);
    }
    put_workers(p, now->status);
    put_memory(p, now);
}

void ctl_look_done(struct ctl_look *look)
{
    json_decref(look->status);
    json_decref(look->stats);
    json_decref(look->plan);
    *look = (struct ctl_look){ 0 };
}
