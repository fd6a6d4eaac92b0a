#include "daemon/ctl_watch.h"

#include "daemon/ctl.h"
#include "util/size.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The last column and row stay empty, so that no terminal wraps or scrolls. */
enum { MAX_LINES = 23, MAX_WIDTH = 79 };

struct page {
    char lines[MAX_LINES][MAX_WIDTH + 1];
    size_t n;
};

static void put(struct page *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct page *p, const char *fmt, ...)
{
    va_list args;

    if (p->n == MAX_LINES)
        return;
    va_start(args, fmt);
    vsnprintf(p->lines[p->n++], sizeof p->lines[0], fmt, args);
    va_end(args);
}

/* ---- numbers ---- */

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static uint64_t count(const json_t *object, const char *key)
{
    double n = number(object, key);

    return n > 0.0 ? (uint64_t)n : 0;
}

/* What two looks differ by; an engine that was started again counts from nothing. */
struct growth {
    const json_t *now, *before; /* before NULL: none yet */
    double seconds;
};

static double grown(const struct growth *g, const char *key)
{
    return number(g->now, key) - number(g->before, key);
}

static const char *rate_text(char buf[24], const struct growth *g, const char *key, double unit)
{
    if (g->seconds > 0.0)
        snprintf(buf, 24, "%.*f", unit > 1.0 ? 2 : 1, grown(g, key) / unit / g->seconds);
    else
        snprintf(buf, 24, "-");
    return buf;
}

/* ---- memory ---- */

/* Anonymous bytes of one process of ours; false when it cannot be seen from here (another
 * namespace, a process that is gone). */
static bool process_memory(uint64_t *sum, json_int_t pid)
{
    char path[64], line[128];
    uint64_t kib = 0;
    bool ours = false, found = false;

    snprintf(path, sizeof path, "/proc/%" JSON_INTEGER_FORMAT "/status", pid);
    FILE *f = pid > 0 ? fopen(path, "re") : NULL;
    if (!f)
        return false;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "Name:\tcolizig", 13) == 0)
            ours = true;
        else if (sscanf(line, "RssAnon: %" SCNu64 " kB", &kib) == 1)
            found = true;
    }
    fclose(f);
    if (ours && found)
        *sum += kib * KIB;
    return ours && found;
}

/* Of all the processes that status names; 0 when one of them cannot be seen. */
static uint64_t daemon_memory(const json_t *status)
{
    json_t *workers = json_object_get(status, "workers"), *worker;
    uint64_t sum = 0;
    size_t i;
    bool all = process_memory(&sum, json_integer_value(json_object_get(status, "pid"))) &&
               process_memory(&sum, json_integer_value(json_object_get(
                                        json_object_get(status, "engine"), "pid")));

    json_array_foreach(workers, i, worker)
        all = all && process_memory(&sum, json_integer_value(json_object_get(worker, "pid")));
    return all ? sum : 0;
}

/* ---- the lines ---- */

static void put_phase(struct page *p, const json_t *status)
{
    const json_t *engine = json_object_get(status, "engine");
    const char *model = json_string_value(json_object_get(status, "model"));
    const char *phase = json_string_value(json_object_get(status, "phase"));
    const char *state = json_string_value(json_object_get(engine, "status"));
    char model_text[48], phase_text[16], state_text[MAX_WIDTH - 16];
    uint64_t seconds = count(status, "up_ms") / 1000;

    put(p, "%s  %s, up %" PRIu64 ":%02u:%02u",
        ctl_plain(model_text, sizeof model_text, model ? model : "colizigd"),
        ctl_plain(phase_text, sizeof phase_text, phase ? phase : "phase unknown"),
        seconds / 3600, (unsigned)(seconds / 60 % 60), (unsigned)(seconds % 60));
    if (phase && state && strcmp(phase, state) != 0)
        put(p, "  engine        %s", ctl_plain(state_text, sizeof state_text, state));
}

static void put_experts(struct page *p, const struct growth *g)
{
    double hits = grown(g, "expert_hits"), misses = grown(g, "expert_misses");
    char share[40] = "-", read[24];

    if (hits + misses > 0.0)
        snprintf(share, sizeof share, "%.1f %%%s", 100.0 * hits / (hits + misses),
                 g->before ? "" : " since its start");
    put(p, "  hit rate      %s, %s GB/s of experts read", share,
        rate_text(read, g, "expert_read_bytes", 1e9));
}

static void put_memory(struct page *p, const struct ctl_look *now)
{
    char used[16] = "", ram[16];
    uint64_t bytes = daemon_memory(now->status);

    if (bytes)
        size_text(used, sizeof used, bytes);
    if (now->ram)
        put(p, "  memory        %s%s%s", used, bytes ? " in use of " : "",
            size_text(ram, sizeof ram, now->ram));
    else if (bytes)
        put(p, "  memory        %s in use", used);
}

static void put_headline(struct page *p, const struct ctl_look *now, const struct growth *g)
{
    const json_t *s = now->stats;
    char out[24], in[24];

    put(p, "  tokens/s      %s out, %s of prompts", rate_text(out, g, "generated_tokens", 1.0),
        rate_text(in, g, "prompt_tokens", 1.0));
    put(p, "  requests      %" PRIu64 " running (%" PRIu64 " in prefill), %" PRIu64
        " waiting", count(s, "running"), count(s, "prefilling"), count(s, "waiting"));
    put_experts(p, g);
    put_memory(p, now);
    put(p, "  slots         %" PRIu64 " of %" PRIu64 " in use", count(s, "expert_slots_used"),
        count(s, "expert_slots"));
    put(p, "  KV pages      %" PRIu64 " of %" PRIu64 " in use, %" PRIu64 " at most so far",
        count(s, "kv_pages_used"), count(s, "kv_pages"), count(s, "kv_pages_peak"));
}

static void put_counters(struct page *p, const struct growth *g)
{
    static const char *const keys[] = {
        "n_finished", "n_failed",    "n_cancelled",   "n_preempted",      "prompt_tokens",
        "generated_tokens", "steps", "expert_hits",   "expert_misses",    "expert_evictions",
        "expert_read_bytes", "expert_retries",
    };

    put(p, "  %-20s %16s %14s", "", "since its start", "a second");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *name = keys[i] + (strncmp(keys[i], "n_", 2) == 0 ? 2 : 0);
        bool bytes = strcmp(keys[i], "expert_read_bytes") == 0;
        char total[CTL_BYTES_TEXT], rate[24] = "";

        if (bytes)
            size_text(total, sizeof total, count(g->now, keys[i]));
        else
            ctl_grouped(total, count(g->now, keys[i]));
        double grew = grown(g, keys[i]);
        if (g->seconds > 0.0 && grew > 0.0 && bytes)
            size_text(rate, sizeof rate, (uint64_t)(grew / g->seconds));
        else if (g->seconds > 0.0 && grew > 0.0)
            snprintf(rate, sizeof rate, "%.1f", grew / g->seconds);
        if (rate[0])
            put(p, "  %-20s %16s %14s", name, total, rate);
        else
            put(p, "  %-20s %16s", name, total);
    }
    put(p, "  %-20s %14.1f s", "time reading prompts", number(g->now, "prefill_ns") / 1e9);
    put(p, "  %-20s %14.1f s", "time answering", number(g->now, "decode_ns") / 1e9);
}

/* ---- the screen ---- */

static void print_page(const struct page *p, bool terminal)
{
    struct winsize size = { 0 };
    size_t rows = p->n;
    int columns = MAX_WIDTH;

    if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
        if (size.ws_row > 1 && rows > (size_t)size.ws_row - 1)
            rows = (size_t)size.ws_row - 1;
        if (size.ws_col > 1 && columns > size.ws_col - 1)
            columns = size.ws_col - 1;
    }
    /* Each line is cleared behind its text: clearing the whole screen first would flicker. */
    fputs(terminal ? "\033[H" : "", stdout);
    for (size_t i = 0; i < rows; i++)
        printf("%.*s%s\n", columns, p->lines[i], terminal ? "\033[K" : "");
    fputs(terminal ? "\033[J" : "\n", stdout);
    fflush(stdout);
}

void ctl_watch_draw(const struct ctl_look *now, const struct ctl_look *before, bool terminal)
{
    struct page page = { .n = 0 };
    struct growth g = { .now = now->stats };
    char why[sizeof now->why];

    if (before && before->stats && number(now->stats, "steps") >= number(before->stats, "steps")) {
        g.before = before->stats;
        g.seconds = (double)(now->at_ns - before->at_ns) / 1e9;
    }
    put_phase(&page, now->status);
    if (now->stats) {
        put_headline(&page, now, &g);
        put_counters(&page, &g);
    } else {
        put_memory(&page, now);
        put(&page, "  %s", ctl_plain(why, sizeof why, now->why));
    }
    print_page(&page, terminal);
}

void ctl_look_done(struct ctl_look *look)
{
    json_decref(look->status);
    json_decref(look->stats);
    *look = (struct ctl_look){ 0 };
}
