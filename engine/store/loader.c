#include "store/loader.h"

#include "io/drives.h"
#include "io/io.h"
#include "kernels/quantize.h"
#include "kernels/weights.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/region.h"
#include "util/size.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Large pieces keep a drive at its best; three of them under way are the 12 MiB above
 * which NVMe was measured to lose. */
#define LARGE_READ (4 * MIB)
/* The scales of an FP8 checkpoint may lie one by one between matrices of 1.5 MiB: then
 * they cost a small read each, and only many at once make them quick. */
#define SMALL_READ (64 * KIB)
/* Bytes nobody wants that are read along rather than starting another read. */
#define GAP (64 * KIB)

enum { MAX_LARGE = 3, MAX_SMALL = 32, MAX_WINDOWS = MAX_LARGE + MAX_SMALL };
enum { PROGRESS_MS = 50 };

enum window_state { WINDOW_FREE, WINDOW_WAITS, WINDOW_IN_IO, WINDOW_CAME };

/* A stretch of a file, read at once, and the tensors it has bytes of. */
struct window {
    enum window_state state;
    bool tried; /* once already */
    uint32_t file, cap, size, need;
    uint64_t offset;
    uint32_t first, last; /* loads, inclusive */
    uint64_t nth;         /* of all */
    char *buffer;
};

struct loader {
    struct load *loads;
    uint32_t n_loads, next; /* next: the first that is not wholly in a window yet, */
    uint64_t into;          /* from this byte on */
    struct load_means by;
    struct region buffers;
    struct window windows[MAX_WINDOWS]; /* small ones first */
    uint32_t n_small, n_windows, n_in_io;
    uint32_t large;  /* bytes of a large buffer */
    struct window planned; /* the next to start; size 0: none */
    bool in_order; /* windows are taken so */
    uint64_t n_planned, n_taken;
    struct region strip; /* of the matrix that is being quantised, with in_order */
    uint64_t strip_used;
    uint64_t done, total;
    uint64_t progress_ms; /* when a read last ended, or the first began */
};

static int by_place(const void *a, const void *b)
{
    const struct tensor *x = ((const struct load *)a)->tensor;
    const struct tensor *y = ((const struct load *)b)->tensor;

    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int take_buffers(struct loader *l, uint64_t bytes, struct err *err)
{
    uint64_t large = size_down(bytes / 4, IO_ALIGN), small, at = 0;
    uint32_t n_large;

    if (bytes < LOADER_LEAST_BYTES)
        return err_set(err, ERR_BUDGET, "%" PRIu64 " bytes of buffers to load with: %d at least",
                       bytes, LOADER_LEAST_BYTES);
    large = large < LARGE_READ ? large : LARGE_READ;
    small = large < SMALL_READ ? large : SMALL_READ;
    l->n_small = bytes / 4 / small < MAX_SMALL ? (uint32_t)(bytes / 4 / small) : MAX_SMALL;
    n_large = (uint32_t)((bytes - l->n_small * small) / large);
    n_large = n_large < MAX_LARGE ? n_large : MAX_LARGE;
    l->large = (uint32_t)large;
    l->n_windows = l->n_small + n_large;
    if (region_open(&l->buffers, l->n_small * small + n_large * large, REGION_SMALL, err) < 0)
        return err_within(err, "buffers to load with");
    for (uint32_t i = 0; i < l->n_windows; i++) {
        l->windows[i].cap = (uint32_t)(i < l->n_small ? small : large);
        l->windows[i].buffer = l->buffers.base + at;
        at += l->windows[i].cap;
    }
    return 0;
}

/* The next stretch worth one read of at most a large buffer. */
static void plan_window(struct loader *l)
{
    const struct tensor *t = l->loads[l->next].tensor;
    uint64_t start = size_down(t->offset + l->into, IO_ALIGN), limit = start + l->large, end;
    struct window *w = &l->planned;

    *w = (struct window){ .file = t->file, .offset = start, .first = l->next,
                          .nth = l->n_planned++ };
    for (;;) {
        w->last = l->next;
        end = t->offset + t->size;
        if (end > limit) { /* the rest in later windows */
            end = limit;
            l->into = limit - t->offset;
            break;
        }
        l->into = 0;
        if (++l->next == l->n_loads)
            break;
        t = l->loads[l->next].tensor;
        if (t->file != w->file || t->offset >= limit || t->offset > end + GAP)
            break;
    }
    w->need = (uint32_t)(end - start);
    w->size = (uint32_t)size_up(end - start, IO_ALIGN);
}

/* A free window that holds so many bytes; small ones first. */
static struct window *free_window(struct loader *l, uint32_t size)
{
    for (uint32_t i = 0; i < l->n_windows; i++)
        if (l->windows[i].state == WINDOW_FREE && l->windows[i].cap >= size)
            return &l->windows[i];
    return NULL;
}

/* 1: io took it; 0: io has no room. */
static int submit(struct loader *l, struct window *w, struct err *err)
{
    const struct io_read read = {
        .fd = drives_fd(l->by.drives, w->file), .size = w->size, .need = w->need,
        .offset = w->offset, .to = w->buffer, .tag = (uint64_t)(w - l->windows),
    };
    int took = l->by.io->ops->submit(l->by.io, &read, 1, err);

    if (took == 1) {
        w->state = WINDOW_IN_IO;
        l->n_in_io++;
    }
    return took;
}

/* Starts what can be started: reads to try again, then new ones. */
static int start_reads(struct loader *l, struct err *err)
{
    for (uint32_t i = 0; i < l->n_windows; i++) {
        if (l->windows[i].state != WINDOW_WAITS)
            continue;
        int took = submit(l, &l->windows[i], err);
        if (took != 1)
            return took;
    }
    for (;;) {
        if (l->planned.size == 0) {
            if (l->next == l->n_loads)
                return 0;
            plan_window(l);
        }
        struct window *w = free_window(l, l->planned.size);
        if (!w)
            return 0;
        l->planned.cap = w->cap;
        l->planned.buffer = w->buffer;
        *w = l->planned;
        w->state = WINDOW_WAITS;
        l->planned.size = 0;
        int took = submit(l, w, err);
        if (took != 1)
            return took;
    }
}

/* ---- bytes that came ---- */

static uint64_t elements(const struct tensor *t)
{
    return t->size / dtype_size(t->dtype);
}

/* Where a tensor's bytes go at first: with to_f32, to the end of its place, so that
 * growing them from the front never runs over what is not yet read. */
static char *raw_place(const struct load *load)
{
    const struct tensor *t = load->tensor;

    return load->to_f32 ? load->to + (elements(t) * sizeof(float) - t->size) : load->to;
}

static int to_f32_in_place(const struct load *load, struct err *err)
{
    enum { CHUNK = 256 };
    const struct tensor *t = load->tensor;
    const char *raw = raw_place(load);
    uint32_t width = dtype_size(t->dtype);
    uint64_t n = elements(t);

    for (uint64_t i = 0; i < n; i += CHUNK) {
        size_t k = n - i < CHUNK ? (size_t)(n - i) : CHUNK;
        char copy[CHUNK * sizeof(float)];
        float *out = (float *)(void *)load->to + i;

        memcpy(copy, raw + i * width, k * width);
        if (!dtype_to_f32(out, copy, t->dtype, k))
            return err_set(err, ERR_UNSUPPORTED, "tensor '%s': %s where a float is needed",
                           t->name, dtype_name(t->dtype));
        for (size_t j = 0; j < k; j++)
            if (!isfinite(out[j]))
                return err_set(err, ERR_FORMAT,
                               "tensor '%s': element %" PRIu64 " is not finite; fetch the file "
                               "again", t->name, i + j);
        for (size_t j = 0; load->add_one && j < k; j++)
            out[j] += 1.0f;
    }
    return 0;
}

uint64_t loader_strip_size(uint64_t rows, uint64_t cols, enum dtype dtype)
{
    uint64_t size = (rows < SCALE_BLOCK ? rows : SCALE_BLOCK) * cols * dtype_size(dtype);

    return region_size(size, REGION_SMALL);
}

static int quantize(const struct loader *l, const struct load *load, const char *weights,
                    uint64_t first_row, uint64_t rows, struct err *err)
{
    const struct tensor *t = load->tensor;
    uint64_t cols = t->dims[1];
    const struct quantize_strip strip = {
        .weights = weights, .dtype = t->dtype, .rows = (uint32_t)rows, .cols = (uint32_t)cols,
        .codes = (uint8_t *)load->to + first_row * cols,
        .scales = load->scales + first_row / SCALE_BLOCK * size_div_up(cols, SCALE_BLOCK),
    };

    if (quantize_strip(&strip, l->by.pool))
        return 0;
    return err_set(err, ERR_FORMAT,
                   "tensor '%s': element %" PRIu64 " is not finite; fetch the file again", t->name,
                   first_row * cols + quantize_find_bad(&strip));
}

/* The next n bytes of a matrix that is quantised. Whole strips need not be gathered. */
static int take_strips(struct loader *l, const struct load *load, uint64_t begin, const char *from,
                       size_t n, struct err *err)
{
    const struct tensor *t = load->tensor;
    uint64_t row_size = t->dims[1] * dtype_size(t->dtype), whole = SCALE_BLOCK * row_size;

    assert(begin % whole == l->strip_used);
    while (n > 0) {
        uint64_t start = begin - l->strip_used;
        uint64_t size = t->size - start < whole ? t->size - start : whole;
        uint64_t more = size - l->strip_used < n ? size - l->strip_used : n;
        const char *strip = l->strip.base;

        if (more == size) {
            strip = from;
        } else {
            memcpy(l->strip.base + l->strip_used, from, more);
        }
        l->strip_used += more;
        begin += more;
        from += more;
        n -= more;
        if (l->strip_used < size)
            return 0;
        l->strip_used = 0;
        if (quantize(l, load, strip, start / row_size, size / row_size, err) < 0)
            return -1;
    }
    return 0;
}

/* What the window holds of one tensor. */
static int take_bytes(struct loader *l, const struct window *w, struct load *load,
                      struct err *err)
{
    const struct tensor *t = load->tensor;
    uint64_t begin = t->offset > w->offset ? t->offset : w->offset;
    uint64_t end = t->offset + t->size < w->offset + w->need ? t->offset + t->size
                                                             : w->offset + w->need;
    const char *from = w->buffer + (begin - w->offset);
    size_t n = (size_t)(end - begin);

    if (load->scales && take_strips(l, load, begin - t->offset, from, n, err) < 0)
        return -1;
    if (!load->scales)
        memcpy(raw_place(load) + (begin - t->offset), from, n);
    if (t->dtype == DTYPE_F8_E4M3) {
        size_t bad = dtype_f8_find_nan(from, n);

        if (bad < n)
            return err_set(err, ERR_FORMAT,
                           "tensor '%s': element %" PRIu64 " is NaN (byte %" PRIu64 " of '%s'); "
                           "fetch the file again", t->name, begin - t->offset + bad,
                           begin + bad, drives_name(l->by.drives, t->file));
    }
    l->done += n;
    load->left -= n;
    return load->left == 0 && load->to_f32 ? to_f32_in_place(load, err) : 0;
}

/* The next whose turn it is, of those that came. */
static struct window *next_to_take(struct loader *l)
{
    for (uint32_t i = 0; i < l->n_windows; i++)
        if (l->windows[i].state == WINDOW_CAME &&
            (!l->in_order || l->windows[i].nth == l->n_taken))
            return &l->windows[i];
    return NULL;
}

static int take_windows(struct loader *l, struct err *err)
{
    struct window *w;

    while ((w = next_to_take(l))) {
        w->state = WINDOW_FREE;
        l->n_taken++;
        for (uint32_t i = w->first; i <= w->last; i++)
            if (take_bytes(l, w, &l->loads[i], err) < 0)
                return -1;
    }
    return 0;
}

static int end_window(struct loader *l, const struct io_done *done, bool failed, struct err *err)
{
    assert(done->tag < l->n_windows && l->windows[done->tag].state == WINDOW_IN_IO);
    struct window *w = &l->windows[done->tag];

    l->n_in_io--;
    w->state = WINDOW_FREE;
    drives_drop(l->by.drives, w->file, w->offset, w->size);
    if (failed)
        return 0; /* only collected */
    if (done->error && !w->tried) {
        w->tried = true;
        w->state = WINDOW_WAITS;
        return 0;
    }
    if (done->error) {
        drives_why(l->by.drives, w->file, w->offset, done->error, err);
        return err_within(err, "tensor '%s'", l->loads[w->first].tensor->name);
    }
    w->state = WINDOW_CAME;
    return take_windows(l, err);
}

/* Waits for reads under way and takes them. */
static int reap(struct loader *l, struct err *err)
{
    struct io_done done[MAX_WINDOWS];
    int n = io_reap(l->by.io, done, MAX_WINDOWS, PROGRESS_MS, err), rc = n < 0 ? -1 : 0;

    if (n > 0)
        l->progress_ms = clock_ms();
    for (int i = 0; i < n; i++)
        if (end_window(l, &done[i], rc < 0, rc < 0 ? NULL : err) < 0)
            rc = -1;
    return rc;
}

static int check_stall(const struct loader *l, struct err *err)
{
    const struct window *w = l->windows;

    if (l->by.stall_timeout_ms == 0 || clock_ms() - l->progress_ms < l->by.stall_timeout_ms)
        return 0;
    while (w < l->windows + l->n_windows - 1 && w->state != WINDOW_IN_IO)
        w++;
    return err_set(err, ERR_IO,
                   "tensor '%s': no answer for %" PRIu32 " ms to a read of '%s' at byte %" PRIu64,
                   l->loads[w->first].tensor->name, l->by.stall_timeout_ms,
                   drives_name(l->by.drives, w->file), w->offset);
}

static int tell(const struct loader *l, uint64_t *told_ms, struct err *err)
{
    if (!l->by.progress || (l->done < l->total && clock_ms() - *told_ms < PROGRESS_MS))
        return 0;
    *told_ms = clock_ms();
    if (!l->by.progress(l->by.ctx, l->done, l->total))
        return err_set(err, ERR_CANCELLED, "loading was given up");
    return 0;
}

static int take_strip(struct loader *l, struct err *err)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < l->n_loads; i++) {
        const struct tensor *t = l->loads[i].tensor;
        if (!l->loads[i].scales)
            continue;
        uint64_t size = loader_strip_size(t->dims[0], t->dims[1], t->dtype);
        most = size > most ? size : most;
    }
    l->in_order = most > 0;
    if (l->in_order && region_open(&l->strip, most, REGION_SMALL, err) < 0)
        return err_within(err, "a strip of the matrix that is quantised");
    return 0;
}

int loader_run(struct load *loads, uint32_t n_loads, const struct load_means *means,
               struct err *err)
{
    struct loader l = { .loads = loads, .n_loads = n_loads, .by = *means,
                        .progress_ms = clock_ms() };
    uint64_t told_ms = l.progress_ms;
    int rc;

    qsort(loads, n_loads, sizeof *loads, by_place);
    for (uint32_t i = 0; i < n_loads; i++) {
        loads[i].left = loads[i].tensor->size;
        l.total += loads[i].left;
    }
    rc = take_buffers(&l, means->buffer_bytes, err) < 0 || take_strip(&l, err) < 0 ? -1 : 0;
    while (rc == 0 && l.done < l.total)
        if (start_reads(&l, err) < 0 || reap(&l, err) < 0 || tell(&l, &told_ms, err) < 0 ||
            check_stall(&l, err) < 0)
            rc = -1;
    /* The kernel writes into the buffers until the last read ends. */
    if (io_forget(l.by.io, l.n_in_io) > 0)
        region_abandon(&l.buffers);
    region_close(&l.buffers);
    region_close(&l.strip);
    return rc;
}
