#include "daemon/host/metrics.h"

#include "daemon/base/buf.h"
#include "daemon/host/engine_thread.h"
#include "daemon/host/recall_store.h"
#include "daemon/worker/routes.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A request here may take minutes before its first word, and an hour in all. */
static const double seconds[] = {
    0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 3600
};
static const double tokens[] = { 16, 64, 256, 1024, 4096, 16384, 65536, 262144 };
enum {
    N_SECONDS = sizeof seconds / sizeof seconds[0],
    N_TOKENS = sizeof tokens / sizeof tokens[0],
};
_Static_assert((int)N_SECONDS <= (int)PROM_BOUNDS && (int)N_TOKENS <= (int)PROM_BOUNDS,
               "histograms too small");

/* What we answer; 499 stands for a client that left before there was an answer. */
static const uint32_t statuses[] = { 200, 204, 400, 401, 403, 404, 405, 408, 411, 413,
                                     414, 415, 417, 429, 431, 499, 500, 501, 503, 505 };
enum { N_STATUSES = sizeof statuses / sizeof statuses[0] };
_Static_assert((int)N_STATUSES < (int)METRICS_STATUSES, "no row is left for the others");

static const char *const method_names[N_METHODS] = { "other", "GET", "HEAD", "POST", "OPTIONS" };
static const char *const reject_names[N_REJECTS] = { NULL,         "invalid", "context_length",
                                                     "queue_full", "loading", "unavailable" };
static const char *const end_names[N_ENDS] = { "stop", "length", "tool_calls", "cancelled",
                                               "error" };
static const char *const token_kinds[N_TOKEN_KINDS] = { "content", "reasoning", "tool" };
static const char *const phase_names[N_PHASES] = { "queue", "prefill", "decode" };

/* ---- counting ---- */

void metrics_init(struct metrics *m)
{
    struct timespec now;

    memset(m, 0, sizeof *m);
    m->memory = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    clock_gettime(CLOCK_REALTIME, &now);
    m->started = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void metrics_done(struct metrics *m)
{
    if (m->memory >= 0)
        close(m->memory);
    m->memory = -1;
}

static void observe_ns(struct prom_histogram *h, uint64_t ns)
{
    prom_observe(h, seconds, N_SECONDS, (double)ns / 1e9);
}

static size_t status_row(uint32_t status)
{
    for (size_t i = 0; i < N_STATUSES; i++)
        if (statuses[i] == (status ? status : 499))
            return i;
    return METRICS_STATUSES - 1;
}

static void count_request(struct metrics *m, const struct wire_count *c)
{
    m->http[c->route][c->method][status_row(c->status)]++;
    prom_observe(&m->http_seconds[c->route], seconds, N_SECONDS, (double)c->duration_us / 1e6);
    if (c->reject && routes_generates(c->route))
        m->rejects[c->reject]++;
}

static void count_tokens(struct metrics *m, const struct wire_count *c)
{
    for (uint32_t i = 0; i < N_TOKEN_KINDS; i++)
        m->tokens[i] += c->tokens[i];
    m->calls[c->style] += c->n_calls;
    for (uint32_t i = 0; i < N_REPLY_REPAIRS; i++)
        m->repairs[i] += c->repairs[i];
}

/* A client that left has no figures; after a stop string the queue and the prompt are not told
 * apart. */
static void count_end(struct metrics *m, const struct wire_count *c)
{
    bool whole = c->end == END_STOP || c->end == END_LENGTH || c->end == END_TOOL_CALLS;

    count_tokens(m, c);
    m->ends[c->end]++;
    if (c->end == END_CANCELLED)
        m->left[c->phase]++;
    if (c->first_us)
        prom_observe(&m->first, seconds, N_SECONDS, (double)c->first_us / 1e6);
    if (!whole)
        return;
    prom_observe(&m->whole, seconds, N_SECONDS, (double)c->duration_us / 1e6);
    observe_ns(&m->decode, c->usage.decode_ns);
    prom_observe(&m->prompt, tokens, N_TOKENS, c->usage.n_prompt);
    prom_observe(&m->generated, tokens, N_TOKENS, c->usage.n_generated);
    if (c->own)
        return;
    observe_ns(&m->queue, c->usage.queue_ns);
    observe_ns(&m->prefill, c->usage.prefill_ns);
}

void metrics_count(struct metrics *m, const struct wire_count *count)
{
    if (count->kind == COUNT_HTTP)
        count_request(m, count);
    else if (count->kind == COUNT_END)
        count_end(m, count);
    else
        count_tokens(m, count);
}

void metrics_lost(struct metrics *m, uint32_t n)
{
    m->ends[END_ERROR] += n;
}

/* ---- as text ---- */

static void write_http(struct buf *to, const struct metrics *m)
{
    char status[16], label[96];

    prom_head(to, "http_requests_total", "counter", "HTTP requests that are over.");
    for (uint32_t r = 0; r < WIRE_MAX_ROUTES; r++)
        for (uint32_t k = 0; k < N_METHODS; k++)
            for (size_t i = 0; i < METRICS_STATUSES; i++) {
                if (!m->http[r][k][i])
                    continue;
                snprintf(status, sizeof status, "%u", i < N_STATUSES ? statuses[i] : 0u);
                buf_printf(to,
                           "colizig_http_requests_total{method=\"%s\",route=\"%s\",status=\"%s\"} "
                           "%" PRIu64 "\n",
                           method_names[k], routes_label(r), i < N_STATUSES ? status : "other",
                           m->http[r][k][i]);
            }
    prom_head(to, "http_request_duration_seconds", "histogram",
              "From a request's head to the end of its answer.");
    for (uint32_t r = 0; r < WIRE_MAX_ROUTES; r++) {
        if (!m->http_seconds[r].n)
            continue;
        snprintf(label, sizeof label, "route=\"%s\",", routes_label(r));
        prom_buckets(to, "http_request_duration_seconds", label, seconds, N_SECONDS,
                     &m->http_seconds[r]);
    }
}

static void write_requests(struct buf *to, const struct metrics *m, const struct cz_stats *s)
{
    prom_gauge(to, "requests_running", "Generations that the engine works on.", s->running);
    prom_gauge(to, "requests_queued", "Generations that wait for a place.", s->waiting);
    prom_gauge(to, "requests_prefilling", "Of those running, how many still read their prompt.",
               s->prefilling);
    prom_head(to, "requests_finished_total", "counter", "Generations that began and are over.");
    for (uint32_t i = 0; i < N_ENDS; i++)
        prom_labelled(to, "requests_finished_total", "reason", end_names[i], m->ends[i]);
    prom_head(to, "requests_rejected_total", "counter", "Generations that never began.");
    for (uint32_t i = REJECT_NONE + 1; i < N_REJECTS; i++)
        prom_labelled(to, "requests_rejected_total", "reason", reject_names[i], m->rejects[i]);
    prom_head(to, "client_disconnects_total", "counter", "Clients that left before the end.");
    for (uint32_t i = 0; i < N_PHASES; i++)
        prom_labelled(to, "client_disconnects_total", "phase", phase_names[i], m->left[i]);
    prom_counter(to, "requests_preempted_total", "Times a running one was sent back to the queue.",
                 s->n_preempted);
    prom_counter(to, "requests_displaced_total", "Waiting ones that lost their place to others.",
                 s->n_displaced);
}

static void write_generated(struct buf *to, const struct metrics *m)
{
    prom_head(to, "generation_tokens_total", "counter",
              "Tokens generated, by what they belonged to.");
    for (uint32_t i = 0; i < N_TOKEN_KINDS; i++)
        prom_labelled(to, "generation_tokens_total", "kind", token_kinds[i], m->tokens[i]);
    prom_head(to, "tool_calls_total", "counter", "Calls of tools that were made.");
    prom_labelled(to, "tool_calls_total", "style", "json", m->calls[REPLY_JSON]);
    prom_labelled(to, "tool_calls_total", "style", "xml", m->calls[REPLY_XML]);
    prom_head(to, "tool_call_repairs_total", "counter", "What was mended of the model's calls.");
    for (uint32_t i = 0; i < N_REPLY_REPAIRS; i++)
        prom_labelled(to, "tool_call_repairs_total", "kind",
                      reply_repair_name((enum reply_repair)i), m->repairs[i]);
}

static void write_durations(struct buf *to, const struct metrics *m)
{
    prom_histogram(to, "queue_seconds", "Waiting for a place.", seconds, N_SECONDS, &m->queue);
    prom_histogram(to, "prefill_seconds", "Reading the prompt.", seconds, N_SECONDS, &m->prefill);
    prom_histogram(to, "decode_seconds", "From the first token to the last.", seconds, N_SECONDS,
                   &m->decode);
    prom_histogram(to, "request_seconds", "From the engine being asked to the end.", seconds,
                   N_SECONDS, &m->whole);
    prom_histogram(to, "time_to_first_token_seconds",
                   "From the engine being asked to the first token.", seconds, N_SECONDS,
                   &m->first);
    prom_histogram(to, "request_prompt_tokens", "Prompt tokens of a generation.", tokens, N_TOKENS,
                   &m->prompt);
    prom_histogram(to, "request_generation_tokens", "Generated tokens of a generation.", tokens,
                   N_TOKENS, &m->generated);
}

static void write_engine(struct buf *to, const struct cz_stats *s)
{
    prom_counter(to, "prompt_tokens_total", "Prompt tokens read.", s->prompt_tokens);
    prom_counter(to, "prefix_cache_lookups_total", "Requests whose prompt was looked for.",
                 s->prefix_lookups);
    prom_counter(to, "prefix_cache_hit_tokens_total", "Prompt tokens that need not be read.",
                 s->prefix_tokens);
    prom_counter(to, "prefix_cache_evictions_total", "Pages given up for others.",
                 s->prefix_evictions);
    prom_gauge(to, "prefix_cache_pages", "Pages of the KV pool that hold what was read before.",
               s->prefix_pages);
    prom_gauge(to, "prefix_cache_states", "Recurrent states that are kept.", s->prefix_states);
    prom_head(to, "steps_total", "counter", "Forward passes by what their rows were.");
    prom_labelled(to, "steps_total", "kind", "prefill", s->prefill_steps);
    prom_labelled(to, "steps_total", "kind", "decode", s->decode_steps);
    prom_labelled(to, "steps_total", "kind", "mixed", s->mixed_steps);
    prom_one(to, "prefill_step_seconds_total", "counter", "Time in steps that read prompts.",
             (double)s->prefill_ns / 1e9);
    prom_one(to, "decode_step_seconds_total", "counter", "Time in steps that only generate.",
             (double)s->decode_ns / 1e9);
    prom_counter(to, "expert_cache_hits_total", "Experts wanted that were in memory.",
                 s->expert_hits);
    prom_counter(to, "expert_cache_misses_total", "Experts wanted that were not.",
                 s->expert_misses);
    prom_counter(to, "expert_cache_evictions_total", "Experts that left memory for others.",
                 s->expert_evictions);
    prom_counter(to, "expert_read_bytes_total", "Bytes of experts read from the drive.",
                 s->expert_read_bytes);
    prom_one(to, "expert_wait_seconds_total", "counter", "Time that computing waited for experts.",
             (double)s->expert_wait_ns / 1e9);
    prom_counter(to, "expert_read_retries_total", "Reads that were tried again.",
                 s->expert_retries);
    prom_gauge(to, "expert_slots", "Slots for experts.", s->expert_slots);
    prom_gauge(to, "expert_slots_used", "Slots that hold an expert.", s->expert_slots_used);
    prom_gauge(to, "kv_pages", "Pages of the KV pool.", s->kv_pages);
    prom_gauge(to, "kv_pages_used", "Pages in use.", s->kv_pages_used);
    if (s->kv_pages)
        prom_one(to, "kv_cache_usage_ratio", "gauge", "Share of the KV pool in use, 0 to 1.",
                 (double)s->kv_pages_used / s->kv_pages);
    prom_gauge(to, "engine_threads", "Compute threads.", s->threads);
}

static void write_recall(struct buf *to, const struct recall_store *s)
{
    prom_counter(to, "reasoning_memory_hits_total",
                 "Replies that a client sent back and that were known.", s->hits);
    prom_counter(to, "reasoning_memory_misses_total",
                 "Replies that a client sent back and that were not known.", s->misses);
    prom_counter(to, "reasoning_memory_evictions_total", "Replies that left memory for others.",
                 s->evicted);
    prom_gauge(to, "reasoning_memory_entries", "Replies that are remembered.", s->n_records);
    prom_gauge(to, "reasoning_memory_used_bytes", "Bytes of replies that are remembered.",
               s->n_bytes);
    prom_gauge(to, "reasoning_memory_bytes", "Memory for replies.", s->region.size);
}

static void write_model(struct buf *to, const struct metrics_view *v)
{
    const struct engine_facts *f = v->facts;

    prom_head(to, "model_info", "gauge", "The model; always 1.");
    buf_text(to, "colizig_model_info{model=\"");
    prom_label(to, v->model);
    buf_text(to, "\",family=\"");
    prom_label(to, f->info.model_type);
    buf_printf(to, "\",quantization=\"%s\"} 1\n", f->info.fp8 ? "fp8" : "none");
    prom_gauge(to, "context_tokens_max", "Tokens that a sequence may hold.", f->facts.context);
    prom_gauge(to, "memory_budget_bytes", "memory.ram.", f->plan.ram);
    prom_gauge(to, "memory_planned_bytes", "Sum of the memory plan.", f->plan.total);
    prom_one(to, "model_loaded_time_seconds", "gauge", "When the model was loaded, Unix time.",
             (double)f->created);
}

/* The names that every exporter has, of the engine process, where nearly all memory is. */
static void write_process(struct buf *to, const struct metrics *m)
{
    struct timespec cpu = { 0 };
    unsigned long long pages;
    char text[128];

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    buf_printf(to,
               "# HELP process_cpu_seconds_total CPU time of the engine process.\n"
               "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total %.15g\n",
               (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9);
    buf_printf(to,
               "# HELP process_start_time_seconds When the engine process began, Unix time.\n"
               "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %.15g\n",
               m->started);
    ssize_t n = m->memory >= 0 ? pread(m->memory, text, sizeof text - 1, 0) : -1;
    if (n <= 0)
        return;
    text[n] = '\0';
    if (sscanf(text, "%*u %llu", &pages) != 1)
        return;
    buf_printf(to,
               "# HELP process_resident_memory_bytes Resident memory of the engine process.\n"
               "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes %llu\n",
               pages * (unsigned long long)sysconf(_SC_PAGESIZE));
}

void metrics_write(struct buf *to, const struct metrics *m, const struct metrics_view *v)
{
    prom_service(to, true, v->serving);
    if (v->loaded)
        write_model(to, v);
    write_http(to, m);
    write_requests(to, m, v->stats);
    write_generated(to, m);
    write_durations(to, m);
    write_engine(to, v->stats);
    write_recall(to, v->recall);
    write_process(to, m);
}
