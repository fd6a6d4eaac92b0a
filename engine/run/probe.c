#include "run/probe.h"

#include "formats/shards.h"
#include "io/drives.h"
#include "io/io.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/pool.h"
#include "util/region.h"
#include "util/size.h"

#include <stdlib.h>
#include <string.h>

#define DISK_NS (500ull * 1000000)
#define MEMORY_NS (300ull * 1000000)
#define DISK_BLOCK (3 * MIB / 2) /* a matrix of an expert of 4.5 MiB */
#define DISK_PATIENCE_MS 5000
enum { DISK_DEPTH = 4 };

/* Past the last-level cache's share of most machines, and small beside any model. */
#define MEMORY_BYTES (256 * MIB)
#define MEMORY_PIECE (256 * KIB)

/* ---- drive ---- */

struct disk_probe {
    const struct shards *shards;
    struct drives *drives;
    struct io *io;
    struct region buffers;
    uint64_t state; /* of the generator of offsets */
    uint64_t bytes;
    struct io_read reads[DISK_DEPTH];
    uint32_t files[DISK_DEPTH];
    uint32_t in_flight;
};

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* A block anywhere in the checkpoint, every byte as likely as another. */
static void pick_block(struct disk_probe *p, uint32_t slot)
{
    uint64_t total = 0, at;
    uint32_t file = 0;

    for (uint32_t i = 0; i < p->shards->n_files; i++)
        total += p->shards->files[i].size;
    at = total ? next_random(&p->state) % total : 0;
    while (file + 1 < p->shards->n_files && at >= p->shards->files[file].size)
        at -= p->shards->files[file++].size;

    uint64_t size = size_up(p->shards->files[file].size, IO_ALIGN);
    uint32_t want = size < DISK_BLOCK ? (uint32_t)size : (uint32_t)DISK_BLOCK;
    if (at + want > size)
        at = size - want;
    p->files[slot] = file;
    p->reads[slot] = (struct io_read){
        .fd = drives_fd(p->drives, file),
        .size = want,
        .offset = size_down(at, IO_ALIGN),
        .to = p->buffers.base + slot * DISK_BLOCK,
        .tag = slot,
    };
}

static int start_read(struct disk_probe *p, uint32_t slot, struct err *err)
{
    pick_block(p, slot);
    int took = p->io->ops->submit(p->io, &p->reads[slot], 1, err);
    if (took < 0)
        return -1;
    p->in_flight += (uint32_t)took;
    return 0;
}

static int finish_reads(struct disk_probe *p, bool more, struct err *err)
{
    struct io_done done[DISK_DEPTH];
    int n = p->io->ops->reap(p->io, done, DISK_DEPTH, DISK_PATIENCE_MS, err);

    if (n < 0)
        return -1;
    if (n == 0)
        return err_set(err, ERR_IO, "no read ended within %d s", DISK_PATIENCE_MS / 1000);
    p->in_flight -= (uint32_t)n;
    for (int i = 0; i < n; i++) {
        uint32_t slot = (uint32_t)done[i].tag;
        const struct io_read *r = &p->reads[slot];

        if (done[i].error)
            return err_set(err, ERR_IO, "%s: %s", p->shards->files[p->files[slot]].name,
                           strerror(done[i].error));
        p->bytes += r->size;
        drives_drop(p->drives, p->files[slot], r->offset, r->size);
        if (more && start_read(p, slot, err) < 0)
            return -1;
    }
    return 0;
}

static int run_disk(double *gbps, struct disk_probe *p, struct err *err)
{
    uint64_t start = clock_ns(), now = start;

    for (uint32_t slot = 0; slot < DISK_DEPTH; slot++)
        if (start_read(p, slot, err) < 0)
            return -1;
    while (p->in_flight) {
        if (finish_reads(p, now - start < DISK_NS, err) < 0)
            return -1;
        now = clock_ns();
    }
    *gbps = now > start ? (double)p->bytes / (double)(now - start) : 0.0;
    return 0;
}

int probe_disk(double *gbps, const struct shards *shards, bool direct, struct err *err)
{
    struct disk_probe p = { .shards = shards, .state = clock_ns() | 1 };
    int rc = -1;

    if (region_open(&p.buffers, DISK_DEPTH * DISK_BLOCK, REGION_HUGE, err) < 0)
        return -1;
    if (drives_open(&p.drives, shards, direct, err) == 0 &&
        io_open(&p.io, IO_AUTO, DISK_DEPTH, err) == 0)
        rc = run_disk(gbps, &p, err);
    /* What a drive still holds may be written for ever: whatever comes after must lie elsewhere. */
    if (p.io && io_forget(p.io, p.in_flight) > 0)
        region_abandon(&p.buffers);
    io_close(p.io);
    drives_close(p.drives);
    region_close(&p.buffers);
    return rc < 0 ? err_within(err, "probing the drive") : 0;
}

/* ---- memory ---- */

struct memory_probe {
    struct region region;
    uint64_t *sums; /* owned; [n_threads]: makes the loads count */
};

static void touch_piece(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    struct memory_probe *p = ctx;

    (void)thread;
    memset(p->region.base + begin * MEMORY_PIECE, 1, (end - begin) * MEMORY_PIECE);
}

static void read_piece(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    struct memory_probe *p = ctx;
    const uint64_t *at = (const uint64_t *)(void *)(p->region.base + begin * MEMORY_PIECE);
    const uint64_t *stop = (const uint64_t *)(void *)(p->region.base + end * MEMORY_PIECE);
    uint64_t a = 0, b = 0, c = 0, d = 0;

    for (; at < stop; at += 8) {
        __builtin_prefetch(at + 512); /* past the end it is harmless */
        a += at[0] ^ at[4];
        b += at[1] ^ at[5];
        c += at[2] ^ at[6];
        d += at[3] ^ at[7];
    }
    p->sums[thread] += a ^ b ^ c ^ d;
}

int probe_memory(double *gbps, uint32_t n_threads, uint64_t max_bytes, struct err *err)
{
    struct memory_probe p = { 0 };
    struct pool *pool = NULL;
    uint64_t size = size_down(max_bytes < MEMORY_BYTES ? max_bytes : MEMORY_BYTES, 2 * MIB);
    int rc = -1;

    if (size < 2 * MIB)
        return err_set(err, ERR_BUDGET, "too little memory to probe it");
    if (pool_open(&pool, n_threads, err) < 0)
        return -1;
    p.sums = calloc(pool_threads(pool), sizeof *p.sums);
    if (!p.sums) {
        err_set(err, ERR_NOMEM, "probing memory");
        goto done;
    }
    if (region_open(&p.region, size, REGION_HUGE, err) < 0)
        goto done;

    uint32_t n_pieces = (uint32_t)(size / MEMORY_PIECE);
    uint64_t start, now, bytes = 0;
    pool_run(pool, touch_piece, &p, n_pieces, 4);
    start = now = clock_ns();
    while (now - start < MEMORY_NS) {
        pool_run(pool, read_piece, &p, n_pieces, 4);
        bytes += size;
        now = clock_ns();
    }
    *gbps = (double)bytes / (double)(now - start);
    rc = 0;

done:
    region_close(&p.region);
    free(p.sums);
    pool_close(pool);
    return rc;
}
