/* How long the blocks of a Qwen4-Exp layer of the released dimensions take, beside the least that
 * their bytes and products need.
 *
 *   bench_blocks [MiB of weights]       default 1024
 *
 * The floor of a block is the larger of its bytes over the speed of a plain read and its products
 * over the speed of multiplications in registers. Every round measures both speeds and then every
 * block, by as many threads; the highest speeds and the quickest run of each block count, for
 * neighbours only ever take away. Weights, states and pages lie in a ring so long that every run
 * finds them in memory and not in a cache. One line a cell, key=value. */
#include "blocks/ffn.h"
#include "blocks/gdn.h"
#include "blocks/hyper.h"
#include "blocks/ple.h"
#include "blocks/qsa.h"
#include "blocks/rope.h"
#include "blocks/step.h"
#include "kernels/kernels.h"
#include "store/expert_store.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/pool.h"
#include "util/region.h"
#include "util/size.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(a) (sizeof(a) / sizeof *(a))

enum { ROUNDS = 5, CELL_MS = 60, THREADS = 2, ROWS_MAX = 64, PAGE_TOKENS = 64 };
enum { HIDDEN = 2560, STREAMS = 4, WIDE = STREAMS * HIDDEN, SHARED = 640, CONTEXT_MAX = 1 << 17 };

static const struct gdn_shape gdn = { HIDDEN, 16, 48, 128, 128, 4, 1e-6f, false };
static const struct hyper_shape hyper = { HIDDEN, STREAMS, 320, 1e-6f };
static const struct ple_shape ple = { HIDDEN, STREAMS, 2560, 4, 3, 1e-6f };
static const struct qsa_shape qsa = { HIDDEN, 24, 2, 256, 64, 4, 128, 4, 512, 1e-6f, false };

struct bench {
    struct region ring, scratch;
    uint64_t at; /* where the ring goes on */
    struct arena arena;
    struct step step;
    struct step_counters counters;
    struct row rows[ROWS_MAX];
    bool gone[1];
    struct rope rope;
    float *in, *wide, *out, *inject, *vector; /* [ROWS_MAX, WIDE]; vector is weights of norms */
    char **pages;
    uint64_t bytes;  /* that the runs of a cell went over */
    uint64_t sums[THREADS]; /* keep the reads alive */
    float products[THREADS];
};

/* ---- what the machine can do ---- */

typedef uint64_t line __attribute__((vector_size(32), aligned(32)));
typedef float sixteen __attribute__((vector_size(64), aligned(64)));

#if defined(__x86_64__)
__attribute__((target("avx2")))
#endif
static void read_piece(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    enum { PIECE = 1 << 18, ROW = 2048, ROWS = 4 };
    struct bench *b = ctx;
    line sum[ROWS] = { { 0 } };
    const char *at = b->ring.base + b->at + (size_t)begin * PIECE;

    for (const char *stop = at + (size_t)(end - begin) * PIECE; at < stop; at += ROWS * ROW)
        for (int c = 0; c < ROW; c += 64)
            for (int i = 0; i < ROWS; i++) {
                const line *two = (const void *)(at + i * ROW + c);
                __builtin_prefetch(at + i * ROW + c + ROWS * ROW, 0, 2);
                sum[i] ^= two[0] ^ two[1];
            }
    sum[0] ^= sum[1] ^ sum[2] ^ sum[3];
    b->sums[thread] ^= sum[0][0] ^ sum[0][1] ^ sum[0][2] ^ sum[0][3];
}

enum { TURNS = 1 << 16 };

/* Products in registers: as many chains as the multipliers have steps. */
#define MULTIPLY(chains)                                                                          \
    sixteen x[chains], y = { 0 };                                                                 \
    _Pragma("GCC unroll 16") for (int i = 0; i < (chains); i++) x[i] = y + (float)(i + 2);        \
    y += 0.5f;                                                                                    \
    for (uint32_t n = 0; n < TURNS; n++)                                                          \
        _Pragma("GCC unroll 16") for (int i = 0; i < (chains); i++) x[i] = x[i] * y + y;          \
    _Pragma("GCC unroll 16") for (int i = 1; i < (chains); i++) x[0] += x[i];                     \
    return x[0][0] + x[0][15]

#if defined(__x86_64__)
__attribute__((target("avx512f"), optimize("fp-contract=fast"))) static float multiply_16(void)
{
    MULTIPLY(12);
}

/* Of two registers each. */
__attribute__((target("avx2,fma"), optimize("fp-contract=fast"))) static float multiply_8(void)
{
    MULTIPLY(5);
}
#else
static float multiply_8(void)
{
    MULTIPLY(5);
}
#endif

static uint64_t chains(const struct bench *b)
{
    return b->step.kernels->class == KERNELS_AVX512 ? 12 : 5;
}

static void multiply_piece(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    struct bench *b = ctx;

    for (uint32_t i = begin; i < end; i++) {
#if defined(__x86_64__)
        if (b->step.kernels->class == KERNELS_AVX512) {
            b->products[thread] += multiply_16();
            continue;
        }
#endif
        b->products[thread] += multiply_8();
    }
}

/* ---- material ---- */

static char *take(struct bench *b, uint64_t size)
{
    size = (size + 63) / 64 * 64;
    if (b->at + size > b->ring.size)
        b->at = 0;
    char *at = b->ring.base + b->at;
    b->at += size;
    b->bytes += size;
    return at;
}

static struct matrix matrix(struct bench *b, uint32_t rows, uint32_t cols)
{
    return (struct matrix){ .dtype = DTYPE_BF16, .rows = rows, .cols = cols,
                            .data = take(b, (uint64_t)rows * cols * 2) };
}

static uint64_t weights_of(const struct matrix *m)
{
    return (uint64_t)m->rows * m->cols;
}

static void set_rows(struct bench *b, uint32_t n, uint32_t pos)
{
    b->step.n_rows = n;
    for (uint32_t r = 0; r < n; r++)
        b->rows[r] = (struct row){ .pos = pos + r };
}

/* ---- blocks ----
 * Each runs once over what comes next in the ring and returns the products of it. */

static uint64_t run_gdn(struct bench *b, struct err *err)
{
    struct gdn_weights w = {
        .qkv = matrix(b, gdn_channels(&gdn), HIDDEN), .z = matrix(b, 48 * 128, HIDDEN),
        .b = matrix(b, 48, HIDDEN), .a = matrix(b, 48, HIDDEN), .out = matrix(b, HIDDEN, 48 * 128),
        .taps = b->vector, .dt_bias = b->vector, .a_log = b->vector, .norm = b->vector,
    };
    struct gdn_state state;

    state.from = (void *)take(b, gdn_state_size(&gdn));
    state.to = (void *)take(b, gdn_state_size(&gdn));
    if (gdn_forward(b->out, b->in, &gdn, &w, &state, &b->step, err) < 0)
        return 0;
    uint64_t dense = weights_of(&w.qkv) + weights_of(&w.z) + weights_of(&w.out) +
                     weights_of(&w.a) + weights_of(&w.b);
    return b->step.n_rows * (dense + UINT64_C(48) * 128 * 128 * 4);
}

static uint64_t run_hyper(struct bench *b, struct err *err)
{
    struct hyper_weights w = { b->vector, matrix(b, 320, WIDE), matrix(b, WIDE, 320),
                               matrix(b, STREAMS, WIDE) };

    if (hyper_read(b->out, b->inject, b->wide, &hyper, &w, &b->step, err) < 0)
        return 0;
    hyper_write(b->wide, b->out, b->inject, &hyper, &b->step);
    return b->step.n_rows * (weights_of(&w.down) + weights_of(&w.up) + weights_of(&w.inject));
}

static uint64_t run_ple(struct bench *b, struct err *err)
{
    struct ple_weights w = { matrix(b, WIDE, 2560), matrix(b, HIDDEN, 2560), b->vector, b->vector,
                             b->vector, b->vector };
    struct conv_past past;

    past.from = (void *)take(b, ple_past(&ple) * sizeof(float));
    past.to = (void *)take(b, ple_past(&ple) * sizeof(float));
    if (ple_forward(b->wide, b->in, &ple, &w, &past, &b->step, err) < 0)
        return 0;
    return b->step.n_rows * (weights_of(&w.key) + weights_of(&w.value));
}

static uint64_t run_shared(struct bench *b, struct err *err)
{
    struct expert_weights w = { .gate = matrix(b, SHARED, HIDDEN), .up = matrix(b, SHARED, HIDDEN),
                                .down = matrix(b, HIDDEN, SHARED) };

    if (ffn_forward(b->out, b->in, &w, &b->step, err) < 0)
        return 0;
    return b->step.n_rows * 3 * weights_of(&w.gate);
}

/* The past of a row lies in pages that hold this layer alone. */
static uint64_t run_qsa(struct bench *b, struct err *err)
{
    enum { KV = PAGE_TOKENS * 256 * 2, INDEX = PAGE_TOKENS * 128 * 2, BLOCKS = INDEX / 4 };
    struct qsa_weights w = {
        .q = matrix(b, 2 * 24 * 256, HIDDEN), .k = matrix(b, 512, HIDDEN),
        .v = matrix(b, 512, HIDDEN), .o = matrix(b, HIDDEN, 24 * 256),
        .index = matrix(b, 5 * 128, HIDDEN), .q_norm = b->vector, .k_norm = b->vector,
        .index_q_norm = b->vector, .index_k_norm = b->vector,
    };
    const struct qsa_layout layout = { DTYPE_BF16, PAGE_TOKENS, 0, 2 * KV, 4 * KV,
                                       4 * KV + INDEX };
    char *const *pages[] = { b->pages };
    uint32_t context = b->rows[0].pos + 1, seen = context < 2048 ? context : 2048;
    uint64_t before = b->bytes, keys = context > 2051 ? context / 4 : 0;

    for (uint32_t p = 0; p < (context + PAGE_TOKENS - 1) / PAGE_TOKENS; p++)
        b->pages[p] = take(b, 4 * KV + INDEX + BLOCKS);
    b->bytes = before + seen * 2 * 2 * 256 * 2 + keys * 128 * 2;
    if (qsa_forward(b->out, b->in, &qsa, &w, &layout, pages, &b->rope, &b->step, err) < 0)
        return 0;
    uint64_t dense = weights_of(&w.q) + 2 * weights_of(&w.k) + weights_of(&w.o) +
                     weights_of(&w.index);
    return dense + UINT64_C(2) * 24 * 256 * seen + UINT64_C(4) * 128 * keys;
}

struct cell {
    const char *name;
    uint64_t (*run)(struct bench *b, struct err *err);
    uint32_t n_rows, pos;
    uint64_t ns, bytes, products; /* of one run, the quickest */
};

/* ---- rounds ---- */

static double read_speed(struct bench *b) /* bytes a ns */
{
    enum { ONCE = 64 << 20, RUNS = 8 };
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < RUNS; i++) {
        if (b->at + ONCE > b->ring.size)
            b->at = 0;
        uint64_t start = clock_ns();
        pool_run(b->step.pool, read_piece, b, ONCE >> 18, 1);
        uint64_t ns = clock_ns() - start;
        least = ns < least ? ns : least;
        b->at += ONCE;
    }
    return (double)ONCE / (double)least;
}

static double product_speed(struct bench *b) /* products a ns */
{
    enum { RUNS = 8, ONCE = 4 * THREADS };
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < RUNS; i++) {
        uint64_t start = clock_ns();
        pool_run(b->step.pool, multiply_piece, b, ONCE, 1);
        uint64_t ns = clock_ns() - start;
        least = ns < least ? ns : least;
    }
    return (double)(ONCE * chains(b) * 16 * TURNS) / (double)least;
}

static int run_cell(struct bench *b, struct cell *c, struct err *err)
{
    uint64_t begin = clock_ns();

    set_rows(b, c->n_rows, c->pos);
    rope_fill(&b->rope, &b->step);
    err->kind = ERR_NONE;
    do {
        b->bytes = 0;
        uint64_t start = clock_ns();
        c->products = c->run(b, err);
        uint64_t ns = clock_ns() - start;
        if (err->kind != ERR_NONE)
            return -1;
        c->bytes = b->bytes;
        c->ns = c->ns == 0 || ns < c->ns ? ns : c->ns;
    } while (clock_ns() - begin < CELL_MS * UINT64_C(1000000));
    return 0;
}

static void report(const struct cell *c, double read, double multiply)
{
    double by_bytes = (double)c->bytes / read, by_products = (double)c->products / multiply;
    double floor_ns = by_bytes > by_products ? by_bytes : by_products;

    printf("%s rows=%u pos=%u threads=%d us=%.0f floor_us=%.0f by=%s ratio=%.2f\n", c->name,
           c->n_rows, c->pos, THREADS, (double)c->ns / 1e3, floor_ns / 1e3,
           by_bytes > by_products ? "bytes" : "products", floor_ns / (double)c->ns);
}

static int open_bench(struct bench *b, uint64_t size, struct err *err)
{
    enum { SCRATCH = 64 << 20 };

    if (region_open(&b->ring, size, REGION_HUGE, err) < 0 ||
        region_open(&b->scratch, SCRATCH, REGION_HUGE, err) < 0 ||
        pool_open(&b->step.pool, THREADS, err) < 0 ||
        kernels_choose(&b->step.kernels, KERNELS_AUTO, err) < 0 ||
        rope_open(&b->rope, 64, 1e7, NULL, err) < 0)
        return -1;
    arena_init(&b->arena, b->scratch.base, SCRATCH);
    float **const arrays[] = { &b->in, &b->wide, &b->out, &b->inject, &b->vector,
                               &b->step.rope_cos, &b->step.rope_sin };
    for (size_t i = 0; i < LENGTH(arrays); i++) {
        *arrays[i] = calloc((size_t)ROWS_MAX * WIDE, sizeof **arrays[i]);
        if (!*arrays[i])
            return err_set(err, ERR_NOMEM, "rows");
        for (size_t j = 0; j < (size_t)ROWS_MAX * WIDE; j++)
            (*arrays[i])[j] = (float)(j % 17) * 0.1f - 0.8f;
    }
    b->pages = calloc(CONTEXT_MAX / PAGE_TOKENS + 1, sizeof *b->pages);
    if (!b->pages)
        return err_set(err, ERR_NOMEM, "pages");
    b->step.rows = b->rows;
    b->step.n_states = 1;
    b->step.gone = b->gone;
    b->step.scratch = &b->arena;
    b->step.counters = &b->counters;

    /* BF16 numbers and F32 numbers of no more than 1, none of them subnormal. */
    uint64_t x = 88172645463325252u;
    for (uint64_t i = 0; i < b->ring.size; i += 8) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        uint64_t codes = (x & 0xBFBFBFBFBFBFBFBFu) | 0x2000200020002000u;
        memcpy(b->ring.base + i, &codes, 8);
    }
    return 0;
}

static void close_bench(struct bench *b)
{
    float *const arrays[] = { b->in, b->wide, b->out, b->inject, b->vector, b->step.rope_cos,
                              b->step.rope_sin };

    for (size_t i = 0; i < LENGTH(arrays); i++)
        free(arrays[i]);
    free(b->pages);
    rope_close(&b->rope);
    pool_close(b->step.pool);
    region_close(&b->scratch);
    region_close(&b->ring);
}

int main(int argc, char **argv)
{
    static struct cell cells[] = {
        { .name = "gdn", .run = run_gdn, .n_rows = 1 },
        { .name = "gdn", .run = run_gdn, .n_rows = 64 },
        { .name = "hyper", .run = run_hyper, .n_rows = 1 },
        { .name = "hyper", .run = run_hyper, .n_rows = 64 },
        { .name = "ple", .run = run_ple, .n_rows = 1 },
        { .name = "shared", .run = run_shared, .n_rows = 1 },
        /* 2,048 tokens are seen in all of these; from the second on they are chosen. */
        { .name = "qsa", .run = run_qsa, .n_rows = 1, .pos = 2047 },
        { .name = "qsa", .run = run_qsa, .n_rows = 1, .pos = 2055 },
        { .name = "qsa", .run = run_qsa, .n_rows = 1, .pos = (1 << 15) - 1 },
        { .name = "qsa", .run = run_qsa, .n_rows = 1, .pos = CONTEXT_MAX - 1 },
    };
    static struct bench b;
    uint64_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 1024;
    double read = 0.0, multiply = 0.0;
    struct err err = { .kind = ERR_NONE };

    if (mib < 512 || mib > 1 << 20) {
        fprintf(stderr, "usage: bench_blocks [MiB of weights, 512 to 1048576]\n");
        return EXIT_USAGE;
    }
    if (open_bench(&b, mib * MIB, &err) < 0)
        goto fail;
    for (int round = 0; round < ROUNDS; round++) {
        double once = read_speed(&b), products = product_speed(&b);
        read = once > read ? once : read;
        multiply = products > multiply ? products : multiply;
        for (size_t i = 0; i < LENGTH(cells); i++)
            if (run_cell(&b, &cells[i], &err) < 0)
                goto fail;
    }
    printf("read threads=%d gbps=%.1f\nmultiply threads=%d gflops=%.0f class=%s\n", THREADS, read,
           THREADS, 2.0 * multiply, b.step.kernels->name);
    for (size_t i = 0; i < LENGTH(cells); i++)
        report(&cells[i], read, multiply);
    close_bench(&b);
    return 0;

fail:
    fprintf(stderr, "bench_blocks: %s\n", err.text);
    close_bench(&b);
    return err_exit_status(err.kind);
}
