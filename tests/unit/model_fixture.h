/* model_fixture: a model as the engine opens it, without a scheduler: tests make the steps
 * themselves, look between layers, and break reads. */
#ifndef TESTS_MODEL_FIXTURE_H
#define TESTS_MODEL_FIXTURE_H

#include "blocks/step.h"
#include "colizig.h"
#include "families/family.h"
#include "io/drives.h"
#include "io/io.h"
#include "kernels/kernels.h"
#include "run/headers.h"
#include "run/tables.h"
#include "store/expert_store.h"
#include "store/kv_pool.h"
#include "store/loader.h"
#include "store/resident.h"
#include "store/row_store.h"
#include "util/pool.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MODEL_SEQS = 3, MODEL_ROWS = 256, MODEL_CONTEXT = 320 };

/* An io whose reads fail while somebody wants them to. */
struct breaker {
    struct io_ops ops; /* first: the io points here */
    const struct io_ops *real;
    bool armed;
    uint32_t n_broken;
};

/* A sequence, what it is to read, and the logits of all it has read. */
struct reader {
    struct seq_state *state;
    const uint32_t *tokens;
    uint32_t n_seen;
    float *logits; /* owned; [MODEL_CONTEXT, vocab] */
};

struct bench {
    struct model_headers headers;
    struct cz_plan plan;
    const struct kernels *kernels;
    struct pool *pool;
    struct drives *drives;
    struct resident *resident;
    struct kv_pool *kv;
    struct io *expert_io, *row_io;
    struct breaker expert_breaker, row_breaker, table_breaker;
    struct expert_store *experts;
    struct row_store *embedding;
    struct tables tables;
    struct model *model;
    struct reader readers[MODEL_SEQS];
    /* the step */
    struct step step;
    struct row rows[MODEL_ROWS];
    struct seq_state *states[MODEL_SEQS];
    struct reader *reading[MODEL_SEQS];
    bool gone[MODEL_SEQS];
    struct arena scratch;
    struct step_counters counters;
    bool put_down; /* at every layer */
    uint32_t n_put_downs;
    void (*between)(struct bench *b, void *ctx); /* layers: step.next_layer were run; may be NULL */
    void *ctx;
};

struct bench_options {
    const char *model;
    uint32_t threads;      /* 0: one */
    bool few_slots;        /* as few as there may be; else all experts stay */
    uint32_t cached_rows;  /* of an n-gram table */
    bool bf16;             /* keys and values; else float32 */
};

static inline int breaker_reap(struct io *io, struct io_done *done, size_t cap, int timeout_ms,
                               struct err *err)
{
    struct breaker *b = (struct breaker *)(uintptr_t)io->ops;
    int n = b->real->reap(io, done, cap, timeout_ms, err);

    for (int i = 0; b->armed && i < n; i++, b->n_broken++)
        done[i].error = EIO;
    return n;
}

static inline void breaker_fit(struct breaker *b, struct io *io)
{
    b->real = io->ops;
    b->ops = *io->ops;
    b->ops.reap = breaker_reap;
    io->ops = &b->ops;
}

static inline void bench_must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s; run make models", err->text);
}

static inline void bench_open(struct bench *b, const struct bench_options *o)
{
    struct cz_options opt;
    struct err err = { 0 };
    struct io *io;
    uint64_t choices;

    *b = (struct bench){ 0 };
    cz_options_init(&opt);
    opt.model_dir = o->model;
    opt.ram = 1ull << 30;
    opt.kv_dtype = o->bf16 ? CZ_KV_BF16 : CZ_KV_F32;
    opt.context = MODEL_CONTEXT;
    opt.threads = o->threads ? o->threads : 1;
    opt.sequences = MODEL_SEQS;
    bench_must(headers_open(&b->headers, o->model, &err), &err);
    bench_must(plan_for(&b->plan, &b->headers, &opt, &err), &err);
    bench_must(kernels_choose(&b->kernels, KERNELS_AUTO, &err), &err);
    bench_must(pool_open(&b->pool, opt.threads, &err), &err);
    bench_must(drives_open(&b->drives, b->headers.shards, false, &err), &err);
    const struct model_shape *shape = &b->headers.shape;

    bench_must(io_open(&io, IO_AUTO, 4, &err), &err);
    const struct load_means means = { .drives = b->drives, .io = io, .buffer_bytes = 1 << 20 };
    bench_must(resident_open(&b->resident, b->headers.catalog, false, &means, &err), &err);
    io_close(io);
    bench_must(kv_pool_open(&b->kv, shape, o->bf16 ? DTYPE_BF16 : DTYPE_F32,
                            MODEL_SEQS * (MODEL_CONTEXT / KV_PAGE_TOKENS), &err), &err);

    bench_must(io_open(&b->expert_io, IO_AUTO, 4, &err), &err);
    breaker_fit(&b->expert_breaker, b->expert_io);
    const struct expert_store_options experts = {
        .map = b->headers.map, .drives = b->drives, .io = b->expert_io,
        .scales = resident_expert_scales(b->resident),
        .experts_per_token = shape->experts_per_token,
        .n_slots = o->few_slots ? b->plan.min_slots : b->plan.n_experts_total,
        .reads_in_flight = b->plan.reads_in_flight,
    };
    bench_must(expert_store_open(&b->experts, &experts, &err), &err);
    bench_must(io_open(&b->row_io, IO_AUTO, ROW_STORE_DEPTH, &err), &err);
    breaker_fit(&b->row_breaker, b->row_io);
    const struct row_table table = { .parts = &b->headers.embedding, .n_parts = 1 };
    bench_must(row_store_open(&b->embedding, &table, b->drives, b->row_io, ROW_STORE_DEPTH, 0,
                              &err), &err);
    const struct tables_means how = { .drives = b->drives, .cached = o->cached_rows };
    bench_must(tables_open(&b->tables, &b->headers, &how, &err), &err);
    if (b->tables.io[0])
        breaker_fit(&b->table_breaker, b->tables.io[0]);

    struct model_parts parts = {
        .config = &b->headers.config, .shape = shape, .resident = b->resident, .kv = b->kv,
        .tables = b->tables.store, .context = MODEL_CONTEXT, .logit_rows = b->plan.logit_rows,
        .max_step_sequences = MODEL_SEQS,
    };
    bench_must(b->headers.family->open(&b->model, &parts, &err), &err);
    for (int i = 0; i < MODEL_SEQS; i++) {
        struct reader *r = &b->readers[i];
        bench_must(b->headers.family->seq_open(&r->state, b->model, &err), &err);
        r->logits = calloc((size_t)MODEL_CONTEXT * shape->vocab, sizeof *r->logits);
        assert_non_null(r->logits);
    }
    uint64_t size = b->headers.family->scratch_size(shape, MODEL_CONTEXT, MODEL_ROWS,
                                                    b->plan.logit_rows, &choices);
    arena_init(&b->scratch, aligned_alloc(64, arena_need(size)), arena_need(size));
    assert_non_null(b->scratch.base);
}

static inline void bench_close(struct bench *b)
{
    for (int i = 0; i < MODEL_SEQS; i++) {
        b->headers.family->seq_close(b->readers[i].state);
        free(b->readers[i].logits);
    }
    b->headers.family->close(b->model);
    free(b->scratch.base);
    row_store_close(b->embedding);
    tables_close(&b->tables);
    expert_store_close(b->experts);
    io_close(b->row_io);
    io_close(b->expert_io);
    kv_pool_close(b->kv);
    resident_close(b->resident);
    drives_close(b->drives);
    pool_close(b->pool);
    headers_close(&b->headers);
}

/* ---- steps ---- */

static inline bool bench_pause(void *ctx)
{
    struct bench *b = ctx;

    if (b->between)
        b->between(b, b->ctx);
    b->n_put_downs += b->put_down;
    return b->put_down;
}

static inline int bench_logits(void *ctx, uint32_t row, float *logits, struct err *err)
{
    struct bench *b = ctx;
    const struct row *r = &b->step.rows[row];

    (void)err;
    memcpy(b->reading[r->seq]->logits + (size_t)r->pos * b->headers.shape.vocab, logits,
           b->headers.shape.vocab * sizeof *logits);
    return 0;
}

static inline void bench_begin(struct bench *b)
{
    arena_back(&b->scratch, 0);
    b->step = (struct step){
        .rows = b->rows, .states = b->states, .gone = b->gone, .take_logits = bench_logits,
        .logits_ctx = b, .pause = bench_pause, .pause_ctx = b, .scratch = &b->scratch,
        .pool = b->pool, .kernels = b->kernels, .experts = b->experts, .embedding = b->embedding,
        .counters = &b->counters,
    };
}

/* The next n tokens of a sequence. */
static inline void bench_add(struct bench *b, struct reader *r, uint32_t n)
{
    uint32_t seq = b->step.n_states++;

    assert_true(seq < MODEL_SEQS && b->step.n_rows + n <= MODEL_ROWS);
    assert_int_equal(b->headers.family->seq_reserve(r->state, r->n_seen + n), 1);
    b->states[seq] = r->state;
    b->reading[seq] = r;
    b->gone[seq] = false;
    for (uint32_t i = 0; i < n; i++)
        b->rows[b->step.n_rows++] = (struct row){ .token = r->tokens[r->n_seen + i],
                                                  .pos = r->n_seen + i, .seq = (uint16_t)seq,
                                                  .want_logits = true };
}

/* Runs the step and settles it: 0, or -1 and nobody has seen anything. Who left has not either. */
static inline int bench_run(struct bench *b, struct err *err)
{
    uint32_t n_of[MODEL_SEQS] = { 0 };
    struct err none;
    int rc;

    for (uint32_t i = 0; i < b->step.n_rows; i++)
        n_of[b->rows[i].seq]++;
    do
        rc = b->headers.family->forward(b->model, &b->step, err);
    while (rc == 1);
    for (uint32_t i = 0; i < b->step.n_states; i++) {
        uint32_t kept = rc < 0 || b->gone[i] ? 0 : n_of[i];
        assert_int_equal(b->headers.family->settle(b->states[i], kept, &none), 0);
        b->reading[i]->n_seen += kept;
    }
    return rc;
}

/* n tokens of one sequence in a step of their own, which must succeed. */
static inline void bench_read(struct bench *b, struct reader *r, uint32_t n)
{
    struct err err = { 0 };

    bench_begin(b);
    bench_add(b, r, n);
    bench_must(bench_run(b, &err), &err);
}

static inline void bench_forget(struct bench *b, struct reader *r)
{
    b->headers.family->seq_reset(r->state);
    r->n_seen = 0;
    memset(r->logits, 0, (size_t)MODEL_CONTEXT * b->headers.shape.vocab * sizeof *r->logits);
}

#endif
