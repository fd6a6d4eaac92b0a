/* engine: opens the parts in their order and puts the front door on them. */
#include "colizig.h"

#include "families/family.h"
#include "formats/shards.h"
#include "io/drives.h"
#include "io/io.h"
#include "kernels/kernels.h"
#include "run/budget.h"
#include "run/generation_config.h"
#include "run/headers.h"
#include "run/sched.h"
#include "run/tables.h"
#include "store/catalog.h"
#include "store/expert_map.h"
#include "store/expert_store.h"
#include "store/kv_pool.h"
#include "store/loader.h"
#include "store/plan.h"
#include "store/resident.h"
#include "store/row_store.h"
#include "util/clock.h"
#include "util/fnv.h"
#include "util/pool.h"
#include "util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Reads under way while loading: enough for thousands of small scale tensors. */
enum { LOAD_DEPTH = 8 };

struct cz_engine {
    struct model_headers headers;
    struct cz_plan plan;
    struct cz_facts facts;
    struct cz_watch watch;
    bool reads_in_turn;
    const struct kernels *kernels;
    struct pool *pool;
    struct drives *drives;
    struct io *expert_io, *row_io;
    struct resident *resident;
    struct kv_pool *kv;
    struct expert_store *experts;
    struct row_store *embedding;
    struct tables tables;
    struct model *model;
    struct sched *sched;
    struct budget *budget;
    uint64_t verified_ms; /* when the files were last looked at */
    struct err fault;     /* what they were found to be; ERR_NONE while they are fine */
};

static enum kernel_class kernel_class(enum cz_kernels k)
{
    switch (k) {
    case CZ_KERNELS_SCALAR:
        return KERNELS_SCALAR;
    case CZ_KERNELS_AVX2:
        return KERNELS_AVX2;
    case CZ_KERNELS_AVX512:
        return KERNELS_AVX512;
    case CZ_KERNELS_AUTO:
        break;
    }
    return KERNELS_AUTO;
}

/* The config, names, places and shapes of all tensors, the kernels, and how KV and dense weights
 * are kept: what decides an answer, short of reading every weight. */
static uint64_t fingerprint(const struct cz_engine *e, const struct cz_options *opt)
{
    const struct shards *shards = e->headers.shards;
    uint64_t hash = FNV_BEGIN;
    char *config = json_dumps(e->headers.config.root, JSON_SORT_KEYS | JSON_COMPACT);

    if (config)
        hash = fnv(hash, config, strlen(config));
    free(config);
    hash = fnv(hash, e->kernels->name, strlen(e->kernels->name));
    hash = fnv(hash, &opt->kv_dtype, sizeof opt->kv_dtype);
    hash = fnv(hash, &opt->dense, sizeof opt->dense);
    for (uint32_t i = 0; i < shards->n_tensors; i++) {
        const struct tensor *t = &shards->tensors[i];
        hash = fnv(hash, t->name, strlen(t->name));
        hash = fnv(hash, t->dims, t->n_dims * sizeof t->dims[0]);
        hash = fnv(hash, &t->offset, sizeof t->offset);
        hash = fnv(hash, &t->dtype, sizeof t->dtype);
    }
    return hash;
}

/* An io whose reads the caller of the engine can count. */
static int open_io(struct io **out, struct cz_engine *e, enum io_kind kind, uint32_t depth,
                   struct err *err)
{
    if (io_open(out, kind, depth, err) < 0)
        return -1;
    (*out)->ended = e->watch.reads_ended;
    return 0;
}

/* Reads are given up before whoever watches us takes us for hung: their requests then hear why,
 * and the engine lives. */
static uint32_t read_patience_ms(const struct cz_options *opt)
{
    return opt->stall_timeout_ms - opt->stall_timeout_ms / 5;
}

static int load_resident(struct cz_engine *e, const struct cz_options *opt, struct err *err)
{
    struct io *io;

    /* Reads of loading have buffers and threads of their own, gone before the first step. */
    if (open_io(&io, e, IO_AUTO, LOAD_DEPTH, err) < 0)
        return -1;
    const struct load_means means = {
        .drives = e->drives,
        .io = io,
        .buffer_bytes = e->plan.loading_bytes,
        .pool = e->pool,
        .stall_timeout_ms = read_patience_ms(opt),
        .progress = e->watch.loading,
        .ctx = e->watch.ctx,
    };
    int rc = resident_open(&e->resident, e->headers.catalog, opt->dense == CZ_DENSE_FP8, &means,
                           err);
    io_close(io);
    return rc;
}

static int open_experts(struct cz_engine *e, const struct cz_options *opt, struct err *err)
{
    if (!e->headers.map)
        return 0;
    /* One expert may be several reads, each of which occupies a thread. */
    if (open_io(&e->expert_io, e, e->reads_in_turn ? IO_IN_TURN : IO_AUTO,
                e->plan.reads_in_flight * N_PARTS, err) < 0)
        return -1;
    struct expert_store_options o = {
        .map = e->headers.map,
        .drives = e->drives,
        .io = e->expert_io,
        .scales = resident_expert_scales(e->resident),
        .experts_per_token = e->headers.shape.experts_per_token,
        .n_slots = e->plan.expert_slots,
        .most_slots = opt->expert_slots ? opt->expert_slots : e->plan.n_experts_total,
        .reads_in_flight = e->plan.reads_in_flight,
        .stall_timeout_ms = read_patience_ms(opt),
    };
    return expert_store_open(&e->experts, &o, err);
}

static int open_embedding(struct cz_engine *e, const struct cz_options *opt, struct err *err)
{
    if (e->headers.shape.tied_embeddings) {
        struct matrix table;
        if (resident_matrix(&table, e->resident, e->headers.embedding->name, err) < 0)
            return -1;
        return row_store_open_resident(&e->embedding, &table, err);
    }
    if (open_io(&e->row_io, e, IO_AUTO, ROW_STORE_DEPTH, err) < 0)
        return -1;
    const struct row_table table = { .parts = &e->headers.embedding, .n_parts = 1 };
    return row_store_open(&e->embedding, &table, e->drives, e->row_io, ROW_STORE_DEPTH,
                          read_patience_ms(opt), err);
}

static int open_tables(struct cz_engine *e, const struct cz_options *opt, struct err *err)
{
    const struct tables_means means = {
        .drives = e->drives, .cached = e->plan.table_rows,
        .stall_timeout_ms = read_patience_ms(opt), .reads_ended = e->watch.reads_ended,
    };

    return tables_open(&e->tables, &e->headers, &means, err);
}

static int open_model(struct cz_engine *e, struct err *err)
{
    struct model_parts parts = {
        .config = &e->headers.config,
        .shape = &e->headers.shape,
        .resident = e->resident,
        .kv = e->kv,
        .tables = e->tables.store,
        .context = e->plan.context,
        .logit_rows = e->plan.logit_rows,
        .max_step_sequences = e->plan.sequences,
    };
    return e->headers.family->open(&e->model, &parts, err);
}

static void ordering(void *ctx, const struct cz_expert_order *o)
{
    struct cz_engine *e = ctx;

    e->watch.ordering(e->watch.ctx, o);
}

/* No order of experts is open here: the caller may act, and so may we. */
static void between_layers(void *ctx)
{
    struct cz_engine *e = ctx;

    if (e->watch.between_layers)
        e->watch.between_layers(e->watch.ctx);
    budget_tend(e->budget);
}

static int open_sched(struct cz_engine *e, const struct cz_options *opt, struct err *err)
{
    struct sched_options o = {
        .family = e->headers.family,
        .model = e->model,
        .shape = &e->headers.shape,
        .kernels = e->kernels,
        .pool = e->pool,
        .experts = e->experts,
        .embedding = e->embedding,
        .kv = e->kv,
        .watch = { .ctx = e, .between_layers = between_layers,
                   .ordering = e->watch.ordering ? ordering : NULL },
        .context = e->plan.context,
        .sequences = e->plan.sequences,
        .queue = opt->queue,
        .prefill_rows = e->plan.prefill_rows,
        .logit_rows = e->plan.logit_rows,
        .token_gap_ns = opt->token_gap_ms * 1000000ull,
        .no_prefix_cache = opt->no_prefix_cache,
    };
    return sched_open(&e->sched, &o, err);
}

/* A plan may be made for another machine; what opens must fit this one, for its memory is taken
 * at once. */
static int check_available(const struct cz_plan *p, struct err *err)
{
    char total[24], available[24];

    if (p->total <= p->available)
        return 0;
    return err_set(err, ERR_BUDGET,
                   "the plan takes %s, but only %s of memory are available now: lower memory.ram, or "
                   "free memory", size_text(total, sizeof total, p->total),
                   size_text(available, sizeof available, p->available));
}

static int wire_all(void)
{
    return mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
}

/* Everything is open and populated by now; threads' stacks and heap follow as they are touched.
 * The kernel holds addresses kept for more slots against LimitMEMLOCK: without them it may do. */
static int lock_memory(struct cz_engine *e, const struct cz_options *opt, struct err *err)
{
    if (!opt->lock)
        return 0;
    int rc = wire_all();
    if (rc < 0 && e->experts) {
        expert_store_drop_reserve(e->experts);
        rc = wire_all();
    }
    if (rc < 0)
        return err_set(err, ERR_INPUT, "memory.lock: wiring the engine's memory is refused (%s): "
                       "raise LimitMEMLOCK= or set memory.lock: false", strerror(errno));
    if (e->experts)
        expert_store_lock(e->experts);
    return 0;
}

static int read_facts(struct cz_engine *e, const struct cz_options *opt, struct err *err)
{
    struct cz_facts *f = &e->facts;

    f->vocab = e->headers.shape.vocab;
    f->context = e->plan.context;
    f->fingerprint = fingerprint(e, opt);
    f->tokenizer = e->headers.tokenizer;
    return generation_config_read(&f->defaults, f->stop_ids, &f->n_stop_ids, opt->model_dir,
                                  &e->headers.config, err);
}

int cz_open(struct cz_engine **out, const struct cz_options *opt, const struct cz_watch *w,
            struct err *err)
{
    struct cz_engine *e = calloc(1, sizeof *e);

    if (!e)
        return err_set(err, ERR_NOMEM, "the engine");
    if (w)
        e->watch = *w;
    e->reads_in_turn = opt->reads_in_turn;
    if (headers_open(&e->headers, opt->model_dir, err) < 0 ||
        plan_for(&e->plan, &e->headers, opt, err) < 0 ||
        check_available(&e->plan, err) < 0 ||
        kernels_choose(&e->kernels, kernel_class(opt->kernels), err) < 0 ||
        read_facts(e, opt, err) < 0 ||
        pool_open(&e->pool, e->plan.threads, err) < 0 ||
        drives_open(&e->drives, e->headers.shards, opt->direct_io, err) < 0 ||
        load_resident(e, opt, err) < 0 ||
        kv_pool_open(&e->kv, &e->headers.shape,
                     opt->kv_dtype == CZ_KV_F32 ? DTYPE_F32 : DTYPE_BF16, e->plan.kv_pages,
                     err) < 0 ||
        open_experts(e, opt, err) < 0 ||
        open_embedding(e, opt, err) < 0 ||
        open_tables(e, opt, err) < 0 ||
        open_model(e, err) < 0 ||
        open_sched(e, opt, err) < 0 ||
        budget_open(&e->budget, &e->headers, opt, &e->plan, e->experts, err) < 0 ||
        lock_memory(e, opt, err) < 0) {
        cz_close(e);
        return -1;
    }
    budget_tend(e->budget);
    *out = e;
    return 0;
}

void cz_close(struct cz_engine *e)
{
    if (!e)
        return;
    budget_close(e->budget);
    sched_close(e->sched);
    if (e->model)
        e->headers.family->close(e->model);
    row_store_close(e->embedding);
    tables_close(&e->tables);
    expert_store_close(e->experts);
    io_close(e->row_io);
    io_close(e->expert_io);
    kv_pool_close(e->kv);
    resident_close(e->resident);
    drives_close(e->drives);
    pool_close(e->pool);
    headers_close(&e->headers);
    free(e);
}

void cz_facts(const struct cz_engine *e, struct cz_facts *out)
{
    *out = e->facts;
}

int cz_submit(struct cz_engine *e, const struct cz_request *r, struct err *err)
{
    if (e->fault.kind != ERR_NONE)
        return err_set(err, e->fault.kind, "%s", e->fault.text);
    return sched_submit(e->sched, r, err);
}

uint32_t cz_place(const struct cz_engine *e, uint64_t id)
{
    return sched_place(e->sched, id);
}

void cz_cancel(struct cz_engine *e, uint64_t id)
{
    sched_cancel(e->sched, id);
}

void cz_next(struct cz_engine *e, uint64_t id, uint32_t choice)
{
    sched_next(e->sched, id, choice);
}

/* Weights that changed under us would give plausible garbage. Paths are looked at again once a
 * second, the open files after every step: what a step computed while they changed is not told.
 * The engine lives on and says so to every request until it is restarted. */
static void note_fault(struct cz_engine *e)
{
    err_within(&e->fault, "the model's files changed while it ran; reload to load them anew");
}

static void watch_files(struct cz_engine *e)
{
    uint64_t now = clock_ms();

    if (e->fault.kind == ERR_NONE && now - e->verified_ms >= 1000) {
        e->verified_ms = now;
        if (drives_verify(e->drives, &e->fault) < 0)
            note_fault(e);
    }
    if (e->fault.kind != ERR_NONE && !sched_idle(e->sched))
        sched_fail_all(e->sched, &e->fault);
}

/* Of a step beside changed files only failures are true. Running requests fail before the next. */
static int withhold(const struct cz_engine *e, struct cz_event *events, int n)
{
    int kept = 0;

    for (int i = 0; i < n; i++) {
        if (events[i].type == CZ_EVENT_TOKEN || (events[i].type == CZ_EVENT_FINISHED && events[i].more))
            continue;
        if (events[i].type == CZ_EVENT_FINISHED) {
            events[i].type = CZ_EVENT_FAILED;
            events[i].err = e->fault;
        }
        events[kept++] = events[i];
    }
    return kept;
}

int cz_step(struct cz_engine *e, struct cz_event *events, size_t cap, struct err *err)
{
    watch_files(e);
    budget_tend(e->budget);
    int n = sched_step(e->sched, events, cap, err);
    if (n > 0 && e->fault.kind == ERR_NONE && drives_unchanged(e->drives, &e->fault) < 0)
        note_fault(e);
    return n > 0 && e->fault.kind != ERR_NONE ? withhold(e, events, n) : n;
}

bool cz_idle(const struct cz_engine *e)
{
    return sched_idle(e->sched);
}

void cz_tend(struct cz_engine *e)
{
    watch_files(e);
    budget_tend(e->budget);
}

const struct err *cz_fault(const struct cz_engine *e)
{
    return e->fault.kind != ERR_NONE ? &e->fault : NULL;
}

void cz_stats(const struct cz_engine *e, struct cz_stats *out)
{
    sched_stats(e->sched, out);
    budget_stats(e->budget, out);
    out->pool_jobs = pool_jobs(e->pool);
    out->threads = pool_threads(e->pool);
    snprintf(out->kernels, sizeof out->kernels, "%s", e->kernels->name);
    snprintf(out->io, sizeof out->io, e->reads_in_turn ? "in turn" : "threads");
    out->direct_io = drives_direct(e->drives, 0);
    out->files_changed = e->fault.kind != ERR_NONE;
    out->kv_pages = kv_pool_total(e->kv);
    out->kv_pages_used = out->kv_pages - kv_pool_free(e->kv) - kv_pool_idle(e->kv);
    out->kv_pages_peak = kv_pool_peak(e->kv);
    if (e->experts) {
        struct expert_store_stats s;
        expert_store_stats(e->experts, &s);
        out->expert_orders = s.orders;
        out->expert_hits = s.hits;
        out->expert_misses = s.misses;
        out->expert_evictions = s.evictions;
        out->expert_read_bytes = s.read_bytes;
        out->expert_wait_ns = s.wait_ns;
        out->expert_retries = s.retries;
        out->expert_slots = s.n_slots;
        out->expert_slots_used = s.n_used;
    }
}

uint32_t cz_expert_layers(const struct cz_engine *e, struct cz_expert_layer *out, uint32_t cap)
{
    return e->experts ? expert_store_layers(e->experts, out, cap) : 0;
}

uint32_t cz_expert_hottest(const struct cz_engine *e, struct cz_expert_heat *out, uint32_t cap)
{
    return e->experts ? expert_store_hottest(e->experts, out, cap) : 0;
}

const struct cz_plan *cz_engine_plan(const struct cz_engine *e)
{
    return &e->plan;
}

int cz_adjust(struct cz_engine *e, const struct cz_limits *limits, struct err *err)
{
    if (budget_adjust(e->budget, limits, err) < 0)
        return -1;
    sched_set_queue(e->sched, limits->queue);
    return 0;
}
