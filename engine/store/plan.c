#include "store/plan.h"

#include "store/expert_store.h"
#include "store/kv_pool.h"
#include "store/prefix_cache.h"
#include "store/row_store.h"
#include "store/plan_settings.h"
#include "util/err.h"
#include "util/region.h"
#include "util/size.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- what processes take beside the model ----
 *
 * Measured on Debian 12 (glibc 2.36, x86-64), idle and after some requests: anonymous memory
 * of the supervisor 0.7 MiB, of a worker 0.8 MiB beside its tokenizer, of an engine 0.5 MiB
 * beside its threads and index; 1.0 to 1.4 MiB of each process are pages of code. The rest is
 * room for heaps that fragment. */

/* With 16 admin clients that send long lines and read no reply. */
#define SUPERVISOR_BYTES (3 * MIB)
#define WORKER_BYTES (2 * MIB)
#define ENGINE_BYTES (2 * MIB)
#define CONNECTION_BYTES (34 * KIB) /* libmicrohttpd's pool of 32 KiB and our own state */
/* Stack touched and what libc keeps for a thread; 19 KiB measured. */
#define THREAD_BYTES (20 * KIB)
/* Name, place and shape of a tensor, its hash slot and its part of the expert map: 268 bytes
 * measured with 37,491 tensors. */
#define INDEX_BYTES_PER_TENSOR 270
/* A part of an n-gram table stands in the catalog besides, with its name; in arrays that double. */
#define INDEX_BYTES_PER_PART 900

/* Bounce buffers that keep a drive busy; beyond 16 MiB in flight it slows down. */
#define LOADING_BYTES (12 * MIB)
#define LEAST_LOADING_BYTES (1 * MIB)
/* Replies that are remembered: the most that auto takes, and in what steps; and an answer on its
 * way to a worker beside them. */
#define REASONING_BYTES (64 * MIB)
#define REASONING_STEP (1 * MIB)
#define REASONING_ANSWER_BYTES (1 * MIB)
enum { MAX_IO_THREADS = 28 }; /* 12 that read experts, 16 that read embedding rows */

static uint64_t add(uint64_t a, uint64_t b)
{
    return size_add(&a, a, b) ? a : UINT64_MAX;
}

static uint64_t mul(uint64_t a, uint64_t b)
{
    return size_mul(&a, a, b) ? a : UINT64_MAX;
}

static uint64_t region(uint64_t size, enum region_pages pages)
{
    return size > PLAN_MAX_RAM ? UINT64_MAX : region_size(size, pages);
}

/* ---- lines ---- */

static void line(struct cz_plan *p, uint64_t bytes, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void line(struct cz_plan *p, uint64_t bytes, const char *name, const char *fmt, ...)
{
    va_list args;

    if (!bytes || p->n_lines == CZ_PLAN_LINES)
        return;
    struct cz_plan_line *l = &p->lines[p->n_lines++];
    snprintf(l->name, sizeof l->name, "%s", name);
    va_start(args, fmt);
    vsnprintf(l->detail, sizeof l->detail, fmt, args);
    va_end(args);
    l->bytes = bytes;
    p->total = add(p->total, bytes);
}

static void resident_lines(struct cz_plan *p, const struct plan_settings *s)
{
    const struct model_shape *shape = s->in->shape;
    const uint64_t *r = s->in->resident;
    uint64_t sum = 0;

    for (int role = 0; role < N_ROLES; role++)
        sum = add(sum, role_stays_on_disk(role) ? 0 : r[role]);
    line(p, r[ROLE_ATTENTION], "attention", "%u layers, %u heads, %u KV heads",
         shape_kv_layers(shape), shape->n_heads, shape->n_kv_heads);
    line(p, r[ROLE_LINEAR], "linear attention", "%u layers, %u heads, %u key heads",
         shape->n_linear_layers, shape->linear.n_value_heads, shape->linear.n_key_heads);
    line(p, r[ROLE_STREAMS], "residual mixing", "%u streams, rank %u", shape->streams.n,
         shape->streams.rank);
    line(p, r[ROLE_NGRAM], "n-gram projections", "%u layers, %u values a token",
         shape->ngram.n_tables, shape->ngram.n_heads * shape->ngram.head_dim);
    line(p, r[ROLE_ROUTER], "router", "%u layers x %u experts", shape->n_moe_layers,
         shape->n_experts);
    line(p, r[ROLE_SHARED], "shared expert", "%u layers, width %u", shape->n_moe_layers,
         shape->shared_width);
    line(p, r[ROLE_DENSE_MLP], "dense MLP", "%u layers, width %u",
         shape->n_layers - shape->n_moe_layers, shape->dense_width);
    line(p, r[ROLE_NORM], "norms", "float32");
    line(p, r[ROLE_HEAD], "head", "%u tokens x %u", shape->vocab, shape->hidden);
    line(p, r[ROLE_EMBEDDING], "token embedding", "%u tokens x %u, tied to the head",
         shape->vocab, shape->hidden);
    line(p, r[ROLE_EXPERT], "expert scales", "of all experts, float32");
    uint64_t rounded = region(sum, REGION_HUGE);
    line(p, rounded - sum, "resident rounding", "to 2 MiB pages");
    p->dense = s->in->options->dense;
    p->resident_bytes = rounded;
    p->other_resident_bytes = region(s->in->other_resident, REGION_HUGE);
    p->token_resident_bytes = sum == UINT64_MAX ? sum : sum - r[ROLE_EXPERT];
}

/* What running takes, as the scheduler says; the parts of it that have a name get a line. */
static uint64_t run_size(const struct plan_settings *s, uint32_t rows, uint64_t *choices)
{
    const struct plan_input *in = s->in;

    *choices = 0;
    return in->run_size(in->shape, in->family, s->context, s->sequences, in->options->queue, rows,
                        s->logit_rows, choices);
}

static uint64_t run_lines(struct cz_plan *p, const struct plan_settings *s)
{
    uint32_t n_requests = s->sequences + s->in->options->queue;
    uint64_t choices, whole = run_size(s, p->prefill_rows, &choices);
    uint64_t ids = mul(n_requests, (uint64_t)s->context * sizeof(uint32_t) +
                                       CZ_MAX_BIAS * sizeof(struct cz_bias) +
                                       3 * CZ_MAX_FORCED * sizeof(uint32_t));
    uint64_t rest = whole;

    choices = choices < rest ? choices : rest;
    rest -= choices;
    ids = ids < rest ? ids : rest;
    rest -= ids;
    line(p, rest, "activations", "prefill chunks of %u rows, decode steps of %u, %u of logits",
         p->prefill_rows, s->sequences, s->logit_rows);
    line(p, choices, "expert outputs", "each row's %u choices by themselves",
         s->in->shape->experts_per_token);
    line(p, ids, "requests", "%u running, %u waiting, up to %u tokens each", s->sequences,
         s->in->options->queue, s->context);
    return whole;
}

/* Rows of an n-gram table in memory: all that a step asks for, and as many of the steps before. */
static uint32_t table_rows(const struct plan_settings *s, uint32_t step_rows)
{
    const struct table_shape *n = &s->in->shape->ngram;
    uint64_t rows = mul(2 * (uint64_t)n->n_heads, (uint64_t)step_rows + s->sequences);

    return n->n_tables == 0 ? 0 : rows < UINT32_MAX ? (uint32_t)rows : UINT32_MAX;
}

/* What a sequence keeps beside keys and values. */
static void state_lines(struct cz_plan *p, const struct plan_settings *s)
{
    const struct model_shape *shape = s->in->shape;
    const struct table_shape *n = &shape->ngram;
    uint64_t state = mul(shape->recurrent_floats, sizeof(float));
    uint64_t row = dtype_size(s->in->table_dtype) * (uint64_t)n->head_dim;
    const struct tensor part = { .dtype = s->in->table_dtype, .n_dims = 2,
                                 .dims = { 1, n->head_dim } };
    uint64_t table_size = 0;
    char one[16], table[16];

    for (uint32_t i = 0; i < n->n_tables; i++)
        table_size = add(table_size, mul(n->rows[i], row));
    line(p, region(mul(p->kv_pages, s->index_page_size), REGION_HUGE), "indexer keys",
         "of the tokens in the KV pool, %u values a layer", shape->index.head_dim);
    line(p, region(mul(p->kv_pages, s->block_page_size), REGION_HUGE), "block keys",
         "one for %u tokens, %u values a layer", shape->index.ratio, shape->index.head_dim);
    p->table_rows = table_rows(s, p->prefill_rows);
    line(p, mul(s->sequences, region(mul(2, state), REGION_HUGE)), "recurrent state",
         "%u sequences x %s, as it is and as it was before the step", s->sequences,
         size_text(one, sizeof one, state));
    if (n->n_tables)
        line(p, mul(n->n_tables, row_store_size(&part, p->table_rows, ROW_STORE_DEPTH)),
             "n-gram rows", "%" PRIu64 " x %s; the table of %s stays on the drive",
             mul(n->n_tables, p->table_rows), size_text(one, sizeof one, row),
             size_text(table, sizeof table, table_size));
}

static void store_lines(struct cz_plan *p, const struct plan_settings *s)
{
    const struct cz_options *o = s->in->options;
    char one[16];
    uint64_t slots = mul(p->expert_slots, s->in->slot_size);

    p->kv_page_tokens = KV_PAGE_TOKENS;
    p->kv_bytes = region(mul(p->kv_pages, s->kv_page_size), REGION_HUGE);
    line(p, p->kv_bytes, "KV pool", "%u pages x %u tokens, %s", p->kv_pages, KV_PAGE_TOKENS,
         o->kv_dtype == CZ_KV_F32 ? "float32" : "bfloat16");
    line(p, prefix_cache_size(p->kv_pages, s->sequences), "prefix cache",
         "tokens of what lies in the KV pool; its pages are the pool's own");
    state_lines(p, s);
    uint64_t running = run_lines(p, s);

    p->slot_size = s->in->slot_size;
    p->slots_bytes = region(slots, REGION_HUGE);
    line(p, p->slots_bytes, "expert slots", "%u of %u experts x %s", p->expert_slots, s->n_experts,
         size_text(one, sizeof one, s->in->slot_size));

    /* For as many slots as there may ever be: their number can be raised while it runs. */
    line(p, s->n_experts ? expert_store_size(s->in->shape->n_moe_layers, s->in->shape->n_experts,
                                             s->slots_most) : 0,
         "expert tables", "heat of %u experts, state of up to %u slots", s->n_experts,
         s->slots_most);

    uint64_t untouched = add(add(p->slots_bytes, p->kv_bytes), running), strip = s->in->strip_bytes;
    uint64_t room = untouched > strip ? untouched - strip : 0;
    p->loading_bytes = room < LEAST_LOADING_BYTES ? LEAST_LOADING_BYTES
                       : room < LOADING_BYTES     ? size_down(room, 4 * KIB)
                                                  : LOADING_BYTES;
    uint64_t loading = add(p->loading_bytes, strip);
    uint64_t beyond = loading > untouched ? loading - untouched : 0;
    uint32_t n_threads = MAX_IO_THREADS + s->in->shape->ngram.n_tables * ROW_STORE_DEPTH;
    line(p, add(beyond, mul(n_threads, THREAD_BYTES)), "reading",
         "up to %u threads; loading borrows %s of room not yet used", n_threads,
         size_text(one, sizeof one, loading - beyond));
    line(p, s->in->row_store_bytes, "row buffers", "token embedding, read by row");
}

/* Whatever is kept is one line, taken at start; the other is answers on their way to workers, and to
 * a spare one, each no larger than a record may be. */
static void reasoning_lines(struct cz_plan *p, uint32_t workers)
{
    uint64_t bytes = p->reasoning_bytes;
    uint64_t answer = bytes / 8 < REASONING_ANSWER_BYTES ? bytes / 8 : REASONING_ANSWER_BYTES;
    char one[16];

    if (!bytes || !workers)
        return;
    line(p, bytes, "reasoning memory", "replies, so that they are read as they were said");
    line(p, mul(workers + 1, answer), "recalled replies", "on their way, %u x %s", workers + 1,
         size_text(one, sizeof one, answer));
}

static void process_lines(struct cz_plan *p, const struct plan_settings *s)
{
    const struct cz_options *o = s->in->options;
    const struct model_shape *shape = s->in->shape;
    uint32_t workers = o->workers;
    uint64_t n_tensors = add(mul(s->n_experts, N_PARTS * (shape->fp8 ? 2 : 1)),
                             mul(shape->n_layers, shape->streams.n ? 24 : 16));
    char one[16];

    uint64_t n_parts = (uint64_t)shape->ngram.n_tables * shape->ngram.n_parts;
    line(p, add(mul(n_tensors, INDEX_BYTES_PER_TENSOR), mul(n_parts, INDEX_BYTES_PER_PART)),
         "checkpoint index", "about %" PRIu64 " tensors", add(n_tensors, n_parts));
    line(p, mul(s->threads, THREAD_BYTES), "compute threads", "%u x %s", s->threads,
         size_text(one, sizeof one, THREAD_BYTES));
    line(p, ENGINE_BYTES, "engine process", "code, libraries, heap");
    reasoning_lines(p, workers);
    p->engine_bytes = add(p->total, p->total / 512);
    if (!workers)
        return;
    line(p, SUPERVISOR_BYTES, "supervisor", "code, libraries, heap");
    line(p, mul(workers, WORKER_BYTES), "workers", "%u x %s", workers,
         size_text(one, sizeof one, WORKER_BYTES));
    line(p, mul(mul(workers, o->connections), CONNECTION_BYTES), "connections", "%u x %u x %s",
         workers, o->connections, size_text(one, sizeof one, CONNECTION_BYTES));
    line(p, mul(workers, s->in->tokenizer_bytes), "tokenizers", "one a worker, %s",
         size_text(one, sizeof one, s->in->tokenizer_bytes));
    line(p, mul(workers, o->http_buffer), "client buffers", "http.buffer, %u x %s", workers,
         size_text(one, sizeof one, o->http_buffer));
    uint64_t each = add(add(WORKER_BYTES, s->in->tokenizer_bytes),
                        add(mul(o->connections, CONNECTION_BYTES), o->http_buffer));
    line(p, each, "spare worker", "one more while a reload replaces them");
}

/* Everything for these counts. The caller has set ram, minimum and the like. */
static void lay_out(struct cz_plan *p, const struct plan_settings *s, uint32_t slots,
                    uint32_t pages, uint32_t rows)
{
    p->n_lines = 0;
    p->total = 0;
    p->expert_slots = slots;
    p->kv_pages = pages;
    p->prefill_rows = rows;
    resident_lines(p, s);
    store_lines(p, s);
    process_lines(p, s);
    /* An entry of 8 bytes maps 4 KiB; a huge page keeps the table it would be split into. */
    line(p, p->total / 512, "page tables", "8 bytes a page");
}

/* ---- the search ---- */

/* KV pages beyond one context take a third as many bytes as slots beyond the least: a
 * quarter of what is left above the minimum. Rises with slots. */
static uint32_t pages_for(const struct plan_settings *s, uint64_t extra)
{
    uint64_t more = s->page_size ? extra / 3 / s->page_size : 0;

    return more >= s->pages_max - s->pages_min ? s->pages_max : s->pages_min + (uint32_t)more;
}

/* Rows double while a longer chunk costs less than an eighth of the extra slots. */
static uint32_t rows_for(const struct plan_settings *s, uint64_t extra)
{
    uint32_t rows = s->rows_min;
    uint64_t choices, least = run_size(s, rows, &choices);

    while (rows < s->rows_max) {
        uint32_t next = rows * 2 < s->rows_max ? rows * 2 : s->rows_max;
        uint64_t cost = run_size(s, next, &choices) - least;
        if (cost > extra / 8)
            break;
        rows = next;
    }
    return rows;
}

/* Left on auto: a thirty-second of the extra slots, so the minimum holds none. */
static uint64_t reasoning_for(const struct plan_settings *s, uint64_t extra)
{
    const struct cz_options *o = s->in->options;

    if (!o->workers || o->reasoning_memory != CZ_MEMORY_AUTO)
        return o->workers ? o->reasoning_memory : 0;
    uint64_t share = size_down(extra / 32, REASONING_STEP);
    return share < REASONING_BYTES ? share : REASONING_BYTES;
}

static void lay_out_slots(struct cz_plan *p, const struct plan_settings *s, uint32_t slots)
{
    uint64_t extra = mul(slots - s->slots_min, s->in->slot_size);

    p->reasoning_bytes = reasoning_for(s, extra);
    lay_out(p, s, slots, pages_for(s, extra), rows_for(s, extra));
}

typedef void try_fn(struct cz_plan *p, const struct plan_settings *s, uint32_t n);

/* The most n in [low, high] that fits, low being known to fit. */
static uint32_t most_that_fits(struct cz_plan *p, const struct plan_settings *s, uint32_t low,
                               uint32_t high, try_fn *try)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2 + 1;
        try(p, s, middle);
        if (p->total <= p->ram)
            low = middle;
        else
            high = middle - 1;
    }
    try(p, s, low);
    return low;
}

static void with_pages(struct cz_plan *p, const struct plan_settings *s, uint32_t pages)
{
    lay_out(p, s, p->expert_slots, pages, p->prefill_rows);
}

static void with_reasoning(struct cz_plan *p, const struct plan_settings *s, uint32_t steps)
{
    p->reasoning_bytes = steps * REASONING_STEP;
    lay_out(p, s, p->expert_slots, p->kv_pages, p->prefill_rows);
}

/* Slots cannot grow (all experts are in, or their number was set): what is left goes to the
 * chunk, then to KV pages, then to the memory of replies. */
static void spend_rest(struct cz_plan *p, const struct plan_settings *s)
{
    uint32_t slots = p->expert_slots, pages = p->kv_pages, rows = p->prefill_rows;

    while (rows < s->rows_max) {
        uint32_t next = rows * 2 < s->rows_max ? rows * 2 : s->rows_max;
        lay_out(p, s, slots, pages, next);
        if (p->total > p->ram)
            break;
        rows = next;
    }
    lay_out(p, s, slots, pages, rows);
    most_that_fits(p, s, pages, s->pages_max, with_pages);
    if (s->in->options->workers && s->in->options->reasoning_memory == CZ_MEMORY_AUTO)
        most_that_fits(p, s, (uint32_t)(p->reasoning_bytes / REASONING_STEP),
                       REASONING_BYTES / REASONING_STEP, with_reasoning);
}

static void fill(struct cz_plan *p, const struct plan_settings *s)
{
    uint32_t slots = most_that_fits(p, s, s->slots_min, s->slots_max, lay_out_slots);

    if (slots == s->slots_max)
        spend_rest(p, s);
}

/* ---- ram ---- */

/* What stays free for everybody else: kernel, shell, page cache. A machine needs more of it
 * than a cgroup that is ours. */
static uint64_t reserve_of(uint64_t available, bool cgroup)
{
    uint64_t share = cgroup ? available / 16 : available / 8;
    uint64_t floor = cgroup ? 128 * MIB : 1 * GIB;

    if (floor > available / 4)
        floor = available / 4;
    return share > floor ? share : floor;
}

static void choose_ram(struct cz_plan *p, const struct plan_settings *s)
{
    const struct plan_input *in = s->in;
    const char *source = in->available_source ? in->available_source : "machine";
    uint64_t most = in->available -
                    reserve_of(in->available, strncmp(source, "cgroup", 6) == 0);

    if (in->options->ram) {
        p->ram = in->options->ram;
        snprintf(p->ram_source, sizeof p->ram_source, "config");
        return;
    }
    p->ram = most;
    if (s->preset.ram_quarters) {
        uint64_t part = in->available / 4 * s->preset.ram_quarters;
        if (part < p->minimum)
            part = p->minimum;
        if (part < p->ram)
            p->ram = part;
    }
    snprintf(p->ram_source, sizeof p->ram_source, "%s", source);
}

/* "3,446,669,312" */
static const char *grouped(char *buf, size_t cap, uint64_t n)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n);
    size_t used = 0;

    for (int i = 0; i < length && used + 2 < cap; i++) {
        if (i && (length - i) % 3 == 0)
            buf[used++] = ',';
        buf[used++] = digits[i];
    }
    buf[used] = '\0';
    return buf;
}

static int refuse(const struct cz_plan *p, const struct plan_settings *s, struct err *err)
{
    char minimum[16], exact[32], ram[16];
    const struct cz_options *o = s->in->options;

    return err_set(err, ERR_BUDGET,
                   "memory.ram: %s (%s) is too little: this configuration needs at least %s "
                   "(%s bytes); raise memory.ram%s or lower engine.context (%u)%s%s",
                   size_text(ram, sizeof ram, p->ram), p->ram_source,
                   size_text(minimum, sizeof minimum, p->minimum),
                   grouped(exact, sizeof exact, p->minimum),
                   o->expert_slots ? ", lower memory.expert_slots" : "", s->context,
                   o->prefill_rows ? " or engine.prefill_rows" : "",
                   o->workers ? ", http.workers or http.buffer" : "");
}

int plan_make(struct cz_plan *out, const struct plan_input *in, struct err *err)
{
    struct cz_plan p = { .available = in->available };
    struct plan_settings s;

    if (plan_settle(&s, in, err) < 0)
        return -1;
    p.threads = s.threads;
    p.context = s.context;
    p.sequences = s.sequences;
    p.n_experts_total = s.n_experts;
    p.min_slots = s.store_min_slots;
    p.reads_in_flight = s.reads;
    p.logit_rows = s.logit_rows;
    p.token_expert_bytes = mul(mul(in->shape->n_moe_layers, in->shape->experts_per_token),
                               in->slot_size);
    p.reasoning_bytes = reasoning_for(&s, 0);

    lay_out(&p, &s, s.slots_min, s.pages_min, s.rows_min);
    p.minimum = p.total;
    choose_ram(&p, &s);
    if (p.minimum > p.ram) {
        *out = p;
        return refuse(&p, &s, err);
    }
    fill(&p, &s);
    *out = p;
    return 0;
}

/* ---- while it runs ---- */

static void with_slots(struct cz_plan *p, const struct plan_settings *s, uint32_t slots)
{
    lay_out(p, s, slots, p->kv_pages, p->prefill_rows);
}

static int refuse_live(const struct cz_plan *p, uint64_t ram, struct err *err)
{
    char wanted[16], least[16], exact[32];

    return err_set(err, ERR_BUDGET,
                   "memory.ram: %s is too little for what is open: while it runs at least %s (%s "
                   "bytes) are needed; with less it must be restarted",
                   size_text(wanted, sizeof wanted, ram), size_text(least, sizeof least, p->total),
                   grouped(exact, sizeof exact, p->total));
}

int plan_refit(struct cz_plan *out, const struct plan_input *in, const struct cz_plan *now,
               uint64_t ram, uint32_t most_slots, struct err *err)
{
    struct cz_plan p = *now;
    struct plan_settings s;

    if (plan_settle(&s, in, err) < 0)
        return -1;
    s.threads = now->threads;
    p.ram = ram;
    p.available = in->available;
    with_slots(&p, &s, s.slots_min);
    if (p.total > ram)
        return refuse_live(&p, ram, err);
    most_that_fits(&p, &s, s.slots_min, most_slots < s.slots_max ? most_slots : s.slots_max,
                   with_slots);
    *out = p;
    return 0;
}

/* ---- the estimate ---- */

/* Attention and head pass by in memory; then a layer's resident experts are computed while
 * its missing ones are read. A kernel reaches about 0.85 of what plain reading does. */
void plan_estimate(struct cz_plan *p)
{
    double memory = p->memory_gbps * 0.85e9, disk = p->disk_gbps * 1e9;
    double hit = p->n_experts_total ? (double)p->expert_slots / p->n_experts_total : 1.0;

    p->tokens_per_second = 0.0;
    if (hit > 1.0)
        hit = 1.0;
    if (memory <= 0.0 || (disk <= 0.0 && hit < 1.0))
        return;
    double experts = (double)p->token_expert_bytes;
    double hits = hit * experts / memory;
    double misses = hit < 1.0 ? (1.0 - hit) * experts / disk : 0.0;
    double seconds = (double)p->token_resident_bytes / memory + (hits > misses ? hits : misses);
    if (seconds > 0.0)
        p->tokens_per_second = 1.0 / seconds;
}
