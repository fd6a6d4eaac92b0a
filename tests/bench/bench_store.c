/* bench_store: how much of the drive reaches a loan.
 *
 * Reads random experts of a generated checkpoint through the expert store, and the same
 * ranges by plain O_DIRECT pread, alternately, and prints the medians in GB/s. Then the
 * store's own cost for each hit and miss, over an io that answers at once.
 *
 *   bench_store [--size GIB] [--dir DIR] [--seconds S]
 *
 * The file is made when it is missing (build/bench, 2 GiB). */
#include "formats/shards.h"
#include "io/drives.h"
#include "io/io.h"
#include "store/catalog.h"
#include "store/expert_map.h"
#include "store/expert_store.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/region.h"
#include "util/size.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_EXPERTS = 128, PER_TOKEN = 8, ROUNDS = 3 };
enum { FIRST_BYTE = 12345 }; /* as after a header: nothing is aligned */

static void die(const char *what, const struct err *err)
{
    fprintf(stderr, "bench_store: %s: %s\n", what, err ? err->text : "failed");
    exit(1);
}

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* ---- a checkpoint of nothing but experts ---- */

struct checkpoint {
    struct shard_file file;
    struct shards shards;
    struct model_shape shape;
    struct catalog catalog;
    struct tensor *tensors;
    struct expert_map *map;
};

/* Parts and scales in the order of their names, one expert after the other. */
static void lay_out(struct checkpoint *c, uint32_t n_layers, uint32_t width, uint32_t hidden)
{
    static const enum expert_part order[] = { PART_DOWN, PART_GATE, PART_UP };
    size_t n = (size_t)n_layers * N_EXPERTS * N_PARTS;
    uint64_t at = FIRST_BYTE;
    struct err err;

    c->tensors = calloc(n * 2, sizeof *c->tensors);
    c->catalog.expert_tensors = calloc(n, sizeof *c->catalog.expert_tensors);
    c->catalog.expert_scales = calloc(n, sizeof *c->catalog.expert_scales);
    if (!c->tensors || !c->catalog.expert_tensors || !c->catalog.expert_scales)
        die("memory", NULL);
    c->shape = (struct model_shape){
        .n_layers = n_layers, .n_moe_layers = n_layers, .n_experts = N_EXPERTS,
    };
    for (uint32_t i = 0; i < n_layers; i++) {
        c->shape.layer_is_moe[i] = true;
        c->catalog.moe_ordinal[i] = i;
    }
    for (size_t i = 0; i < n; i++) {
        enum expert_part part = order[i % N_PARTS];
        size_t to = i / N_PARTS * N_PARTS + part;
        uint64_t rows = part == PART_DOWN ? hidden : width;
        uint64_t cols = part == PART_DOWN ? width : hidden;
        uint64_t blocks[2] = { size_div_up(rows, SCALE_BLOCK), size_div_up(cols, SCALE_BLOCK) };
        struct tensor *t = &c->tensors[2 * i];

        t[0] = (struct tensor){
            .name = "expert", .dtype = DTYPE_F8_E4M3, .n_dims = 2, .dims = { rows, cols },
            .offset = at, .size = rows * cols,
        };
        t[1] = (struct tensor){
            .name = "scale", .dtype = DTYPE_BF16, .n_dims = 2, .dims = { blocks[0], blocks[1] },
            .offset = at + t[0].size, .size = blocks[0] * blocks[1] * 2,
        };
        at = t[1].offset + t[1].size;
        c->catalog.expert_tensors[to] = &t[0];
        c->catalog.expert_scales[to] = &t[1];
    }
    c->file.size = at;
    c->shards = (struct shards){ .files = &c->file, .n_files = 1 };
    c->catalog.shards = &c->shards;
    c->catalog.shape = &c->shape;
    if (expert_map_open(&c->map, &c->catalog, &err) < 0)
        die("map", &err);
}

static void done_checkpoint(struct checkpoint *c)
{
    expert_map_close(c->map);
    free(c->tensors);
    free(c->catalog.expert_tensors);
    free(c->catalog.expert_scales);
}

/* Bytes without NaN codes, on the drive and out of the page cache. */
static void make_file(const char *path, uint64_t size)
{
    enum { CHUNK = 4 << 20 };
    struct stat st;
    uint64_t seed = 88172645463325252u, *chunk;

    if (stat(path, &st) == 0 && (uint64_t)st.st_size == size)
        return;
    chunk = malloc(CHUNK);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || !chunk)
        die(path, NULL);
    fprintf(stderr, "bench_store: writing %" PRIu64 " MiB to %s\n", size >> 20, path);
    for (uint64_t at = 0; at < size;) {
        size_t n = size - at < CHUNK ? (size_t)(size - at) : CHUNK;

        for (size_t i = 0; i < CHUNK / sizeof *chunk; i++)
            chunk[i] = next_random(&seed) & 0xBFBFBFBFBFBFBFBFu;
        ssize_t wrote = write(fd, chunk, n);
        if (wrote <= 0)
            die("write", NULL);
        at += (uint64_t)wrote;
    }
    if (fsync(fd) < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        die("fsync", NULL);
    close(fd);
    free(chunk);
}

/* ---- plain reads ---- */

struct plain {
    int fd;
    const struct expert_map *map;
    char *to;
    uint64_t seed, until_ns, bytes;
};

static void *plain_main(void *arg)
{
    struct plain *p = arg;

    while (clock_ns() < p->until_ns) {
        uint64_t i = next_random(&p->seed) % ((uint64_t)p->map->n_moe_layers * N_EXPERTS);
        const struct expert_extent *e = &p->map->places[i].extents[0];
        ssize_t n = pread(p->fd, p->to, e->size, (off_t)e->offset);

        if (n <= 0)
            die("pread", NULL);
        p->bytes += (uint64_t)n;
    }
    return NULL;
}

static double plain_rate(const struct checkpoint *c, const struct drives *d, uint32_t depth,
                         double seconds, uint64_t seed)
{
    enum { MAX_DEPTH = 4 };
    struct plain p[MAX_DEPTH];
    pthread_t threads[MAX_DEPTH];
    struct region memory;
    struct err err;
    uint64_t start = clock_ns(), bytes = 0;

    if (region_open(&memory, depth * c->map->slot_size, REGION_HUGE, &err) < 0)
        die("memory", &err);
    for (uint32_t i = 0; i < depth; i++) {
        p[i] = (struct plain){
            .fd = drives_fd(d, 0), .map = c->map, .to = memory.base + i * c->map->slot_size,
            .seed = seed * 31 + i + 1, .until_ns = start + (uint64_t)(seconds * 1e9),
        };
        if (pthread_create(&threads[i], NULL, plain_main, &p[i]) != 0)
            die("thread", NULL);
    }
    for (uint32_t i = 0; i < depth; i++) {
        pthread_join(threads[i], NULL);
        bytes += p[i].bytes;
    }
    double rate = (double)bytes / (double)(clock_ns() - start);
    region_close(&memory);
    return rate;
}

/* ---- through the store ---- */

/* One token's experts of one layer. */
static void pick(uint16_t *out, uint64_t *seed)
{
    for (uint32_t i = 0; i < PER_TOKEN;) {
        bool taken = false;

        out[i] = (uint16_t)(next_random(seed) % N_EXPERTS);
        for (uint32_t j = 0; j < i; j++)
            taken |= out[j] == out[i];
        i += !taken;
    }
}

static void serve(struct expert_store *s, uint16_t layer, const uint16_t *experts, size_t n)
{
    struct expert_order *o;
    struct expert_loan loan;
    struct err err;
    int rc;

    if (expert_store_order(s, &o, layer, experts, n, &err) < 0)
        die("order", &err);
    while ((rc = expert_order_next(o, &loan, true, &err)) == 1)
        expert_order_return(o, &loan);
    if (rc < 0)
        die("next", &err);
    expert_order_close(o);
}

static struct expert_store *open_store(const struct checkpoint *c, const struct drives *d,
                                       struct io *io, const float *scales, uint32_t n_slots,
                                       uint32_t reads)
{
    const struct expert_store_options opt = {
        .map = c->map, .drives = d, .io = io, .scales = scales, .n_slots = n_slots,
        .reads_in_flight = reads, .experts_per_token = PER_TOKEN,
    };
    struct expert_store *s;
    struct err err;

    if (expert_store_open(&s, &opt, &err) < 0)
        die("store", &err);
    return s;
}

static float *make_scales(const struct checkpoint *c)
{
    const uint32_t *n = c->map->scale_floats;
    float *scales = calloc((size_t)c->map->n_moe_layers * N_EXPERTS * (n[0] + n[1] + n[2]),
                           sizeof *scales);

    if (!scales)
        die("memory", NULL);
    return scales;
}

/* All experts once, so that none is scanned for the first time while we measure. */
static void read_all(struct expert_store *s, uint32_t n_layers)
{
    uint16_t all[N_EXPERTS];

    for (uint16_t i = 0; i < N_EXPERTS; i++)
        all[i] = i;
    for (uint16_t layer = 0; layer < n_layers; layer++)
        serve(s, layer, all, N_EXPERTS);
}

static double store_rate(struct expert_store *s, uint32_t n_layers, double seconds, uint64_t seed)
{
    struct expert_store_stats before, after;
    uint64_t start = clock_ns(), until = start + (uint64_t)(seconds * 1e9);
    uint16_t experts[PER_TOKEN];

    seed = seed * 17 + 3;
    expert_store_stats(s, &before);
    for (uint16_t layer = 0; clock_ns() < until; layer = (uint16_t)((layer + 1u) % n_layers)) {
        pick(experts, &seed);
        serve(s, layer, experts, PER_TOKEN);
    }
    double ns = (double)(clock_ns() - start);
    expert_store_stats(s, &after);
    return (double)(after.read_bytes - before.read_bytes) / ns;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

static void bench_reads(const struct checkpoint *c, const struct drives *d, double seconds)
{
    float *scales = make_scales(c);
    struct err err;

    printf("experts of %" PRIu64 " bytes, %s, GB/s (median of %d x %.1f s)\n",
           c->map->weight_bytes, drives_direct(d, 0) ? "O_DIRECT" : "buffered", ROUNDS, seconds);
    for (uint32_t depth = 1; depth <= 4; depth *= 2) {
        double plain[ROUNDS], store[ROUNDS];
        struct io *io;

        /* An expert is read in three pieces. */
        if (io_open(&io, IO_AUTO, depth * 3, &err) < 0)
            die("io", &err);
        struct expert_store *s = open_store(c, d, io, scales, 16, depth);
        read_all(s, c->map->n_moe_layers);
        for (uint64_t r = 0; r < ROUNDS; r++) {
            plain[r] = plain_rate(c, d, depth, seconds, r + 1);
            store[r] = store_rate(s, c->map->n_moe_layers, seconds, r + 1);
        }
        double p = median(plain, ROUNDS), q = median(store, ROUNDS);
        printf("  depth %u: plain pread %.2f, expert store %.2f, ratio %.2f\n", depth, p, q, q / p);
        expert_store_close(s);
        io_close(io);
    }
    free(scales);
}

/* ---- the store's own cost ---- */

struct instant {
    struct io io; /* first */
    uint64_t tags[64];
    size_t n;
};

static int instant_submit(struct io *io, const struct io_read *r, size_t n, struct err *err)
{
    struct instant *f = (struct instant *)io;
    size_t took = 0;

    (void)err;
    while (took < n && f->n < 64)
        f->tags[f->n++] = r[took++].tag;
    return (int)took;
}

static int instant_reap(struct io *io, struct io_done *done, size_t cap, int timeout_ms,
                        struct err *err)
{
    struct instant *f = (struct instant *)io;
    size_t n = 0;

    (void)timeout_ms;
    (void)err;
    while (n < cap && f->n > 0)
        done[n++] = (struct io_done){ .tag = f->tags[--f->n] };
    return (int)n;
}

static void instant_close(struct io *io)
{
    (void)io;
}

static void bench_bookkeeping(const struct drives *d)
{
    enum { LAYERS = 48, TOKENS = 400 };
    static const struct io_ops ops = { instant_submit, instant_reap, instant_close };
    static const uint32_t slots[] = { 1200, 3000, 6144 };
    struct instant io = { .io.ops = &ops };
    struct checkpoint c = { 0 };

    lay_out(&c, LAYERS, 16, 16);
    float *scales = make_scales(&c);
    printf("the store's own cost, 48 layers x 128 experts, 8 of a layer at once\n");
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        struct expert_store *s = open_store(&c, d, &io.io, scales, slots[i], 2);
        struct expert_store_stats before, after;
        uint16_t experts[PER_TOKEN];
        uint64_t seed = 5;

        read_all(s, LAYERS);
        expert_store_stats(s, &before);
        uint64_t start = clock_ns();
        for (uint32_t token = 0; token < TOKENS; token++) {
            for (uint16_t layer = 0; layer < LAYERS; layer++) {
                pick(experts, &seed);
                serve(s, layer, experts, PER_TOKEN);
            }
        }
        double ns = (double)(clock_ns() - start);
        expert_store_stats(s, &after);
        double asked = (double)TOKENS * LAYERS * PER_TOKEN;
        printf("  %u slots: %.2f us for each expert asked for, %.0f %% hits\n", slots[i],
               ns / asked / 1e3, 100.0 * (double)(after.hits - before.hits) / asked);
        expert_store_close(s);
    }
    free(scales);
    done_checkpoint(&c);
}

int main(int argc, char **argv)
{
    const char *dir = "build/bench";
    double gib = 2.0, seconds = 1.0;
    char path[PATH_MAX], name[] = "experts.bin";
    struct checkpoint c = { 0 };
    struct drives *d;
    struct err err;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--size") == 0)
            gib = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--dir") == 0)
            dir = argv[i + 1];
        else if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtod(argv[i + 1], NULL);
        else
            die("usage: bench_store [--size GIB] [--dir DIR] [--seconds S]", NULL);
    }
    uint32_t n_layers = (uint32_t)(gib * (double)GIB / (N_EXPERTS * 3.0 * 768 * 2048));
    lay_out(&c, n_layers < 1 ? 1 : n_layers, 768, 2048);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    mkdir("build", 0755);
    mkdir(dir, 0755);
    make_file(path, c.file.size);
    c.file.path = path;
    c.file.name = name;
    if (drives_open(&d, &c.shards, true, &err) < 0)
        die("drives", &err);
    bench_reads(&c, d, seconds);
    bench_bookkeeping(d);
    drives_close(d);
    done_checkpoint(&c);
    return 0;
}
