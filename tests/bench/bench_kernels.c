/* How fast weights are multiplied, beside how fast the same memory can be read at all.
 *
 *   bench_kernels [MiB of weights]      default 1024
 *
 * The read walks memory as the products do, four rows side by side with software prefetch.
 * All cells go round the same ring of matrices, so that every one finds its weights in
 * memory and not in a cache. Each round measures the read and then every cell, for all have
 * the same machine and the same neighbours; medians over the rounds are printed, and the
 * ratio to the read is the figure to compare. One line a cell, key=value. */
#include "kernels/kernels.h"
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

enum { ROUNDS = 5, CELL_MS = 40, COLS = 2048, MATRIX_SIZE = 1536 * 2048, ROWS_MAX = 512 };
enum { HEADS = 8, HEAD_DIM = 128, PAGE_TOKENS = 64, CONTEXT = 4096 };

enum what { READ, MATMUL, ATTEND };

struct cell {
    enum what what;
    enum kernel_class class;
    enum dtype dtype;
    uint32_t n_rows, n_threads;
    double gbps[ROUNDS];
};

struct bench {
    struct region weights;
    uint64_t size;  /* whole matrices */
    uint64_t at;    /* where the ring goes on */
    struct pool *pools[3]; /* by number of threads */
    float *in, *out, *scales;
    uint64_t sum; /* keeps the reads alive */
};

/* ---- work ---- */

struct read_job {
    const char *base;
    uint64_t sums[3];
};

typedef uint64_t wide __attribute__((vector_size(32), aligned(32)));

#if defined(__x86_64__)
__attribute__((target("avx2")))
#endif
static uint64_t read_all(const char *at, size_t size)
{
    enum { ROWS = 4, LINE = 64 };
    wide sum[ROWS] = { { 0 } };

    for (const char *end = at + size; at < end; at += ROWS * COLS)
        for (const char *column = at; column < at + COLS; column += LINE)
            for (int i = 0; i < ROWS; i++) {
                const wide *line = (const void *)(column + i * COLS);
                __builtin_prefetch(column + i * COLS + ROWS * COLS, 0, 2);
                sum[i] ^= line[0] ^ line[1];
            }
    sum[0] ^= sum[1] ^ sum[2] ^ sum[3];
    return sum[0][0] ^ sum[0][1] ^ sum[0][2] ^ sum[0][3];
}

enum { READ_PIECE = 192 * 1024 }; /* about what matmul_pooled takes */

static void read_piece(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    struct read_job *j = ctx;

    j->sums[thread] ^=
        read_all(j->base + (size_t)begin * READ_PIECE, (size_t)(end - begin) * READ_PIECE);
}

static void one_matrix(struct bench *b, const struct cell *c, const struct kernels *k)
{
    char *base = b->weights.base + b->at;
    struct pool *pool = b->pools[c->n_threads];

    if (c->what == READ) {
        struct read_job j = { .base = base };
        pool_run(pool, read_piece, &j, MATRIX_SIZE / READ_PIECE, 1);
        b->sum ^= j.sums[0] ^ j.sums[1];
        return;
    }
    uint32_t rows = MATRIX_SIZE / COLS / dtype_size(c->dtype);
    struct matrix w = { c->dtype, rows, COLS, base, c->dtype == DTYPE_F8_E4M3 ? b->scales : NULL };
    matmul_pooled(k, pool, b->out, rows, b->in, COLS, c->n_rows, &w);
}

/* CONTEXT cached tokens of one KV head for one row. Returns the bytes they have. */
static uint64_t one_attention(struct bench *b, const struct kernels *k)
{
    enum { PAGES = CONTEXT / PAGE_TOKENS };
    const uint64_t part = (uint64_t)PAGE_TOKENS * HEAD_DIM * 2;
    char *pages[PAGES];

    for (uint64_t p = 0; p < PAGES; p++)
        pages[p] = b->weights.base + (b->at + p * 2 * part) % (b->size - 2 * part) / 64 * 64;
    struct kv_view kv = { DTYPE_BF16, PAGE_TOKENS, HEAD_DIM, pages, 0, part };
    k->attend(b->out, b->in, HEADS, &kv, CONTEXT, 0.088f);
    return PAGES * 2 * part;
}

static double run_cell(struct bench *b, const struct cell *c)
{
    const struct kernels *k = NULL;
    uint64_t start = clock_ns(), bytes = 0;

    if (c->what != READ && kernels_choose(&k, c->class, NULL) < 0)
        return 0.0;
    do {
        uint64_t size = MATRIX_SIZE;
        if (c->what == ATTEND)
            size = one_attention(b, k);
        else
            one_matrix(b, c, k);
        bytes += size;
        b->at = b->at + 2 * size <= b->size ? b->at + size : 0;
    } while (clock_ns() - start < CELL_MS * UINT64_C(1000000));
    return (double)bytes / (double)(clock_ns() - start);
}

/* ---- report ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const double *values)
{
    double sorted[ROUNDS];

    memcpy(sorted, values, sizeof sorted);
    qsort(sorted, ROUNDS, sizeof *sorted, by_value);
    return sorted[ROUNDS / 2];
}

static void report(const struct cell *c, const struct cell *reads)
{
    static const char *const class_names[] = { "auto", "scalar", "avx2", "avx512" };
    double gbps = median(c->gbps), ratios[ROUNDS];

    if (c->what == READ) {
        printf("read threads=%u gbps=%.1f\n", c->n_threads, gbps);
        return;
    }
    for (int i = 0; i < ROUNDS; i++)
        ratios[i] = c->gbps[i] / reads[c->n_threads - 1].gbps[i];
    if (c->what == ATTEND)
        printf("attend type=BF16 class=%s heads=%d threads=1 gbps=%.1f ratio=%.2f gflops=%.0f\n",
               class_names[c->class], HEADS, gbps, median(ratios), gbps / 2.0 * 2.0 * HEADS);
    else
        printf("matmul type=%s class=%s rows=%u threads=%u gbps=%.1f ratio=%.2f gflops=%.0f\n",
               dtype_name(c->dtype), class_names[c->class], c->n_rows, c->n_threads, gbps,
               median(ratios), gbps / dtype_size(c->dtype) * 2.0 * c->n_rows);
}

static bool available(enum kernel_class class)
{
    const struct kernels *k;

    return kernels_choose(&k, class, NULL) == 0;
}

static size_t list_cells(struct cell *cells)
{
    static const enum dtype dtypes[] = { DTYPE_F8_E4M3, DTYPE_BF16 };
    static const uint32_t rows[] = { 1, 2, 4, 8, 16, 32, 128, ROWS_MAX };
    size_t n = 0;

    for (uint32_t threads = 1; threads <= 2; threads++)
        cells[n++] = (struct cell){ .what = READ, .n_threads = threads };
    for (enum kernel_class class = KERNELS_SCALAR; class <= KERNELS_AVX512; class++) {
        if (!available(class))
            continue;
        for (size_t d = 0; d < LENGTH(dtypes); d++)
            for (size_t r = 0; r < LENGTH(rows); r++)
                for (uint32_t threads = 1; threads <= 2; threads++)
                    if ((class != KERNELS_SCALAR || rows[r] == 1) && (d == 0 || rows[r] <= 4))
                        cells[n++] =
                            (struct cell){ MATMUL, class, dtypes[d], rows[r], threads, { 0 } };
        cells[n++] = (struct cell){ ATTEND, class, DTYPE_BF16, 1, 1, { 0 } };
    }
    return n;
}

static int open_bench(struct bench *b, uint64_t size, struct err *err)
{
    b->size = size / MATRIX_SIZE * MATRIX_SIZE;
    if (region_open(&b->weights, b->size, REGION_HUGE, err) < 0)
        return -1;
    for (uint32_t n = 1; n <= 2; n++)
        if (pool_open(&b->pools[n], n, err) < 0)
            return -1;
    b->in = calloc((size_t)ROWS_MAX * COLS, sizeof *b->in);
    b->out = calloc((size_t)ROWS_MAX * MATRIX_SIZE / COLS, sizeof *b->out);
    b->scales = calloc((MATRIX_SIZE / COLS / 128) * (COLS / 128), sizeof *b->scales);
    if (!b->in || !b->out || !b->scales)
        return err_set(err, ERR_NOMEM, "inputs and outputs");

    /* Bytes that are codes of E4M3, subnormal ones often, and in pairs BF16 numbers from
     * 2^-63 to 1: a subnormal BF16 would take a slow path of the CPU that no model takes. */
    uint64_t x = 88172645463325252u;
    for (uint64_t i = 0; i < b->size; i += 8) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        uint64_t codes = (x & 0xBFBFBFBFBFBFBFBFu) | 0x2000200020002000u;
        memcpy(b->weights.base + i, &codes, 8);
    }
    for (size_t i = 0; i < (size_t)ROWS_MAX * COLS; i++)
        b->in[i] = (float)(i % 17) * 0.1f - 0.8f;
    for (size_t i = 0; i < (MATRIX_SIZE / COLS / 128) * (COLS / 128); i++)
        b->scales[i] = 0.01f;
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 1024;
    struct cell cells[128];
    struct bench b = { 0 };
    struct err err;

    if (mib < 64 || mib > 1 << 20) {
        fprintf(stderr, "usage: bench_kernels [MiB of weights, 64 to 1048576]\n");
        return EXIT_USAGE;
    }
    if (open_bench(&b, mib * MIB, &err) < 0) {
        fprintf(stderr, "bench_kernels: %s\n", err.text);
        return err_exit_status(err.kind);
    }
    size_t n = list_cells(cells);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < n; i++)
            cells[i].gbps[round] = run_cell(&b, &cells[i]);
    for (size_t i = 0; i < n; i++)
        report(&cells[i], cells);

    free(b.in);
    free(b.out);
    free(b.scales);
    for (uint32_t t = 1; t <= 2; t++)
        pool_close(b.pools[t]);
    region_close(&b.weights);
    return b.sum == 1; /* never: the reads had to happen */
}
