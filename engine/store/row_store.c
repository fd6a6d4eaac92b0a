#include "store/row_store.h"

#include "io/drives.h"
#include "io/io.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/region.h"
#include "util/size.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 1000, MAX_DEPTH = 64 };

enum fetch_state {
    FETCH_FREE,
    FETCH_WAITS,
    FETCH_IN_IO,
    FETCH_LOST, /* nobody waits any more, but the read may still write into the buffer */
};

/* One row under way. */
struct fetch {
    enum fetch_state state;
    bool tried; /* once already */
    uint32_t id, place; /* row of the table, row of the answer */
};

struct row_store {
    uint32_t n_rows, n_cols;
    struct matrix resident; /* data NULL: rows come from the drive */

    const struct tensor *table; /* borrowed */
    const struct drives *drives;
    struct io *io;
    uint64_t row_size, buffer_size;
    uint32_t depth, stall_timeout_ms;
    uint32_t n_in_io;     /* lost ones too */
    uint64_t progress_ms; /* when a read last ended, or the first of the call began */
    struct region buffers;
    struct fetch fetches[MAX_DEPTH];
};

static uint64_t buffer_size(const struct tensor *table)
{
    uint64_t row = table->n_dims == 2 ? table->dims[1] * dtype_size(table->dtype) : 0;

    /* A row starts at any byte of its first block and ends in its last. */
    return size_up(row, IO_ALIGN) + IO_ALIGN;
}

uint64_t row_store_size(const struct tensor *table, uint32_t depth)
{
    return region_size(buffer_size(table) * depth, REGION_SMALL);
}

static bool is_float(enum dtype d)
{
    return d == DTYPE_F32 || d == DTYPE_F16 || d == DTYPE_BF16;
}

int row_store_open(struct row_store **out, const struct tensor *table, const struct drives *d,
                   struct io *io, uint32_t depth, uint32_t stall_timeout_ms, struct err *err)
{
    uint64_t row_size, size;

    if (table->n_dims != 2 || !is_float(table->dtype))
        return err_set(err, ERR_UNSUPPORTED, "tensor '%s': rows of %s are not built", table->name,
                       dtype_name(table->dtype));
    if (depth < 1 || depth > MAX_DEPTH)
        return err_set(err, ERR_INPUT, "%u rows read at once: 1 to %d", depth, MAX_DEPTH);
    if (table->dims[0] > UINT32_MAX || table->dims[1] > UINT32_MAX ||
        !size_mul(&row_size, table->dims[1], dtype_size(table->dtype)) ||
        !size_mul(&size, row_size, table->dims[0]) || size != table->size ||
        buffer_size(table) > IO_MAX_READ)
        return err_set(err, ERR_FORMAT, "tensor '%s': its rows have an impossible size",
                       table->name);
    struct row_store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "row store");
    *s = (struct row_store){
        .n_rows = (uint32_t)table->dims[0], .n_cols = (uint32_t)table->dims[1],
        .table = table, .drives = d, .io = io, .depth = depth,
        .stall_timeout_ms = stall_timeout_ms,
        .row_size = row_size, .buffer_size = buffer_size(table),
    };
    if (region_open(&s->buffers, s->buffer_size * depth, REGION_SMALL, err) < 0) {
        row_store_close(s);
        return err_within(err, "tensor '%s'", table->name);
    }
    *out = s;
    return 0;
}

int row_store_open_resident(struct row_store **out, const struct matrix *table, struct err *err)
{
    if (!is_float(table->dtype))
        return err_set(err, ERR_UNSUPPORTED, "rows of a resident %s matrix are not built",
                       dtype_name(table->dtype));
    struct row_store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "row store");
    *s = (struct row_store){
        .n_rows = table->rows, .n_cols = table->cols, .resident = *table,
    };
    *out = s;
    return 0;
}

void row_store_close(struct row_store *s)
{
    if (!s)
        return;
    if (s->n_in_io > 0 && io_forget(s->io, s->n_in_io) > 0)
        region_abandon(&s->buffers);
    region_close(&s->buffers);
    free(s);
}

static uint64_t row_offset(const struct row_store *s, uint32_t id)
{
    return s->table->offset + id * s->row_size;
}

/* 1: io took it; 0: io has no room. */
static int submit(struct row_store *s, struct fetch *f, struct err *err)
{
    uint64_t begin = row_offset(s, f->id), from = size_down(begin, IO_ALIGN);
    uint64_t end = begin + s->row_size;
    uint32_t i = (uint32_t)(f - s->fetches);
    const struct io_read read = {
        .fd = drives_fd(s->drives, s->table->file), .offset = from,
        .size = (uint32_t)(size_up(end, IO_ALIGN) - from), .need = (uint32_t)(end - from),
        .to = s->buffers.base + i * s->buffer_size, .tag = i,
    };
    int took = s->io->ops->submit(s->io, &read, 1, err);

    f->state = took == 1 ? FETCH_IN_IO : FETCH_WAITS;
    if (took == 1)
        s->n_in_io++;
    return took;
}

/* Starts rows until depth or io is full. */
static int start_rows(struct row_store *s, const uint32_t *ids, uint32_t n, uint32_t *next,
                      struct err *err)
{
    for (uint32_t i = 0; i < s->depth; i++) {
        struct fetch *f = &s->fetches[i];

        if (f->state == FETCH_IN_IO || f->state == FETCH_LOST ||
            (f->state == FETCH_FREE && *next == n))
            continue;
        if (f->state == FETCH_FREE) {
            assert(ids[*next] < s->n_rows);
            *f = (struct fetch){ .id = ids[*next], .place = *next };
            ++*next;
        }
        int took = submit(s, f, err);
        if (took != 1)
            return took;
    }
    return 0;
}

/* 1: a row is in its place; 0: to be tried again; -1. */
static int end_row(struct row_store *s, const struct io_done *done, float *out, struct err *err)
{
    assert(done->tag < s->depth);
    struct fetch *f = &s->fetches[done->tag];
    uint64_t at = row_offset(s, f->id);
    bool lost = f->state == FETCH_LOST;

    assert(lost || f->state == FETCH_IN_IO);
    s->n_in_io--;
    f->state = FETCH_FREE;
    drives_drop(s->drives, s->table->file, size_down(at, IO_ALIGN), s->buffer_size);
    if (lost)
        return 0;
    if (done->error && !f->tried) {
        f->tried = true;
        f->state = FETCH_WAITS;
        return 0;
    }
    if (done->error) {
        drives_why(s->drives, s->table->file, at, done->error, err);
        return err_within(err, "row %u of '%s'", f->id, s->table->name);
    }
    dtype_to_f32(out + (size_t)f->place * s->n_cols,
                 s->buffers.base + done->tag * s->buffer_size + at % IO_ALIGN, s->table->dtype,
                 s->n_cols);
    return 1;
}

/* Takes what ended, whatever fails, with the first error; adds to *n_there. */
static int reap(struct row_store *s, float *out, uint32_t *n_there, struct err *err)
{
    struct io_done done[MAX_DEPTH];
    int wait = s->stall_timeout_ms && s->stall_timeout_ms < WAIT_MS ? (int)s->stall_timeout_ms
                                                                    : WAIT_MS;
    int n = io_reap(s->io, done, MAX_DEPTH, wait, err), rc = n < 0 ? -1 : 0;

    if (n > 0)
        s->progress_ms = clock_ms();
    for (int i = 0; i < n; i++) {
        int got = end_row(s, &done[i], out, rc < 0 ? NULL : err);

        if (got < 0)
            rc = -1;
        else
            *n_there += (uint32_t)got;
    }
    return rc;
}

static int check_stall(const struct row_store *s, struct err *err)
{
    const struct fetch *f = s->fetches;

    if (s->stall_timeout_ms == 0 || clock_ms() - s->progress_ms < s->stall_timeout_ms)
        return 0;
    while (f < s->fetches + s->depth - 1 && f->state != FETCH_IN_IO && f->state != FETCH_LOST)
        f++;
    return err_set(err, ERR_IO,
                   "row %u of '%s': no answer for %u ms to a read of '%s' at byte %" PRIu64, f->id,
                   s->table->name, s->stall_timeout_ms,
                   drives_name(s->drives, s->table->file), row_offset(s, f->id));
}

static int read_rows(struct row_store *s, float *out, const uint32_t *ids, uint32_t n,
                     struct err *err)
{
    uint32_t next = 0, n_there = 0;
    int rc = 0;

    s->progress_ms = clock_ms();
    while (rc == 0 && n_there < n)
        if (start_rows(s, ids, n, &next, err) < 0 || reap(s, out, &n_there, err) < 0 ||
            check_stall(s, err) < 0)
            rc = -1;
    for (uint32_t i = 0; i < s->depth; i++) {
        struct fetch *f = &s->fetches[i];

        if (f->state == FETCH_IN_IO)
            f->state = FETCH_LOST;
        else if (f->state == FETCH_WAITS)
            f->state = FETCH_FREE;
    }
    return rc;
}

int row_store_read(struct row_store *s, float *out, const uint32_t *ids, uint32_t n,
                   struct err *err)
{
    if (!s->resident.data)
        return read_rows(s, out, ids, n, err);
    for (uint32_t i = 0; i < n; i++) {
        assert(ids[i] < s->n_rows);
        const char *row = (const char *)s->resident.data +
                          (size_t)ids[i] * s->n_cols * dtype_size(s->resident.dtype);

        dtype_to_f32(out + (size_t)i * s->n_cols, row, s->resident.dtype, s->n_cols);
    }
    return 0;
}
