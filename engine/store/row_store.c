/* What is asked for is taken from the cache, or becomes a want; wants are sorted by id, so that
 * those that share pages of the drive stand together and one fetch serves them all. */
#include "store/row_store.h"

#include "io/drives.h"
#include "io/io.h"
#include "store/row_cache.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/region.h"
#include "util/size.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 1000, MAX_DEPTH = 64, MAX_WANTS = 256, F8_CODES = 256 };

struct want {
    uint64_t id;
    uint32_t place; /* row of the answer */
};

enum fetch_state {
    FETCH_FREE,
    FETCH_WAITS,
    FETCH_IN_IO,
    FETCH_LOST, /* nobody waits any more, but the read may still write into the buffer */
};

/* One read under way: wants [first, end). */
struct fetch {
    enum fetch_state state;
    bool tried; /* once already */
    uint32_t first, end;
    uint32_t file;
    uint64_t from;           /* of the file, aligned */
    uint32_t size, need;
};

struct row_store {
    uint64_t n_rows;
    uint32_t n_cols;
    struct matrix resident; /* data NULL: rows come from the drive */

    const struct tensor **parts; /* owned list of borrowed ones */
    uint64_t *first_row;         /* owned; [n_parts + 1] */
    bool *part_read;             /* owned; [n_parts] */
    uint32_t n_parts;
    enum dtype dtype;
    float code[F8_CODES]; /* F8_E4M3: what each means */
    const struct drives *drives;
    struct io *io;
    uint64_t row_size, buffer_size;
    uint32_t depth, stall_timeout_ms;
    uint32_t n_in_io;     /* lost ones too */
    uint64_t progress_ms; /* when a read last ended, or the first of the call began */
    struct row_cache *cache; /* owned; NULL: none */
    struct region buffers;
    struct fetch fetches[MAX_DEPTH];
    struct want wants[MAX_WANTS]; /* of the call under way */
    uint32_t n_wants;
    struct row_store_stats stats;
};

static uint64_t row_size(const struct tensor *part)
{
    return part->n_dims == 2 ? part->dims[1] * dtype_size(part->dtype) : 0;
}

static uint64_t buffer_size(const struct tensor *part)
{
    /* A row starts at any byte of its first block and ends in its last. */
    return size_up(row_size(part), IO_ALIGN) + IO_ALIGN;
}

uint64_t row_store_size(const struct tensor *part, uint32_t cached, uint32_t depth)
{
    return region_size(buffer_size(part) * depth, REGION_SMALL) +
           row_cache_size(row_size(part), cached);
}

uint64_t row_store_rows(const struct row_store *s)
{
    return s->n_rows;
}

void row_store_stats(const struct row_store *s, struct row_store_stats *out)
{
    *out = s->stats;
}

/* ---- opening ---- */

static bool is_float(enum dtype d)
{
    return d == DTYPE_F32 || d == DTYPE_F16 || d == DTYPE_BF16;
}

static int check_part(const struct tensor *part, const struct tensor *first, struct err *err)
{
    uint64_t row, size;

    if (part->n_dims != 2 || (!is_float(part->dtype) && part->dtype != DTYPE_F8_E4M3))
        return err_set(err, ERR_UNSUPPORTED, "tensor '%s': rows of %s are not built", part->name,
                       dtype_name(part->dtype));
    if (part->dtype != first->dtype || part->dims[1] != first->dims[1])
        return err_set(err, ERR_FORMAT, "tensor '%s': its rows are not like those of '%s'",
                       part->name, first->name);
    if (part->dims[0] > UINT32_MAX || part->dims[1] > UINT32_MAX ||
        !size_mul(&row, part->dims[1], dtype_size(part->dtype)) ||
        !size_mul(&size, row, part->dims[0]) || size != part->size ||
        buffer_size(part) > IO_MAX_READ)
        return err_set(err, ERR_FORMAT, "tensor '%s': its rows have an impossible size",
                       part->name);
    return 0;
}

static int take_parts(struct row_store *s, const struct row_table *table, struct err *err)
{
    s->parts = calloc(table->n_parts, sizeof(const struct tensor *));
    s->first_row = calloc(table->n_parts + 1ull, sizeof *s->first_row);
    s->part_read = calloc(table->n_parts, sizeof *s->part_read);
    if (!s->parts || !s->first_row || !s->part_read)
        return err_set(err, ERR_NOMEM, "a table of %" PRIu32 " parts", table->n_parts);
    for (; s->n_parts < table->n_parts; s->n_parts++) {
        const struct tensor *part = table->parts[s->n_parts];
        if (check_part(part, table->parts[0], err) < 0)
            return -1;
        s->parts[s->n_parts] = part;
        s->n_rows += part->dims[0];
        s->first_row[s->n_parts + 1] = s->n_rows;
    }
    return 0;
}

int row_store_open(struct row_store **out, const struct row_table *table, const struct drives *d,
                   struct io *io, uint32_t depth, uint32_t stall_timeout_ms, struct err *err)
{
    const struct tensor *part = table->parts[0];

    if (depth < 1 || depth > MAX_DEPTH)
        return err_set(err, ERR_INPUT, "%u rows read at once: 1 to %d", depth, MAX_DEPTH);
    struct row_store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "row store");
    *s = (struct row_store){ .drives = d, .io = io, .depth = depth,
                             .stall_timeout_ms = stall_timeout_ms, .dtype = part->dtype };
    if (take_parts(s, table, err) < 0)
        goto fail;
    s->n_cols = (uint32_t)part->dims[1];
    s->row_size = row_size(part);
    s->buffer_size = buffer_size(part);
    for (uint32_t code = 0; s->dtype == DTYPE_F8_E4M3 && code < F8_CODES; code++)
        s->code[code] = dtype_f8_e4m3_to_f32((uint8_t)code) * table->scale;
    if (region_open(&s->buffers, s->buffer_size * depth, REGION_SMALL, err) < 0 ||
        (table->cached && row_cache_open(&s->cache, s->row_size, table->cached, err) < 0)) {
        err_within(err, "tensor '%s'", part->name);
        goto fail;
    }
    *out = s;
    return 0;

fail:
    row_store_close(s);
    return -1;
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
    row_cache_close(s->cache);
    free(s->part_read);
    free(s->first_row);
    free(s->parts);
    free(s);
}

/* ---- where a row lies ---- */

struct spot {
    const struct tensor *part;
    uint64_t row, offset; /* in the part, in its file */
    uint32_t nth;         /* of the parts */
};

static struct spot spot_of(const struct row_store *s, uint64_t id)
{
    uint32_t lo = 0, hi = s->n_parts;

    assert(id < s->n_rows);
    while (hi - lo > 1) { /* first_row[lo] <= id < first_row[hi] */
        uint32_t mid = lo + (hi - lo) / 2;
        if (s->first_row[mid] <= id)
            lo = mid;
        else
            hi = mid;
    }
    uint64_t row = id - s->first_row[lo];
    return (struct spot){ s->parts[lo], row, s->parts[lo]->offset + row * s->row_size,
                          lo };
}

static int convert(const struct row_store *s, float *out, const char *row, uint64_t id,
                   struct err *err)
{
    if (s->dtype != DTYPE_F8_E4M3) {
        dtype_to_f32(out, row, s->dtype, s->n_cols);
        return 0;
    }
    for (uint32_t i = 0; i < s->n_cols; i++) {
        out[i] = s->code[(unsigned char)row[i]];
        if (isnan(out[i])) {
            struct spot spot = spot_of(s, id);
            return err_set(err, ERR_NUMERIC, "row %" PRIu64 " of '%s' holds the code 0x%02x, which "
                           "is no number: the file is damaged", spot.row, spot.part->name,
                           (unsigned char)row[i]);
        }
    }
    return 0;
}

/* ---- reading ---- */

/* The next wants that one buffer can hold, as a fetch. */
static void begin_fetch(struct row_store *s, struct fetch *f, uint32_t first)
{
    struct spot spot = spot_of(s, s->wants[first].id);
    uint64_t from = size_down(spot.offset, IO_ALIGN), end = spot.offset + s->row_size;
    uint32_t next = first + 1;

    s->stats.parts_read += !s->part_read[spot.nth];
    s->part_read[spot.nth] = true;
    for (; next < s->n_wants; next++) {
        struct spot other = spot_of(s, s->wants[next].id);
        if (other.part != spot.part ||
            size_up(other.offset + s->row_size, IO_ALIGN) - from > s->buffer_size ||
            other.offset > size_up(end, IO_ALIGN)) /* a hole between them is not worth reading */
            break;
        end = other.offset + s->row_size;
    }
    *f = (struct fetch){ .first = first, .end = next, .file = spot.part->file, .from = from,
                         .size = (uint32_t)(size_up(end, IO_ALIGN) - from),
                         .need = (uint32_t)(end - from) };
}

/* 1: io took it; 0: io has no room. */
static int submit(struct row_store *s, struct fetch *f, struct err *err)
{
    uint32_t i = (uint32_t)(f - s->fetches);
    const struct io_read read = {
        .fd = drives_fd(s->drives, f->file), .offset = f->from, .size = f->size, .need = f->need,
        .to = s->buffers.base + i * s->buffer_size, .tag = i,
    };
    int took = s->io->ops->submit(s->io, &read, 1, err);

    f->state = took == 1 ? FETCH_IN_IO : FETCH_WAITS;
    if (took == 1) {
        s->n_in_io++;
        s->stats.reads++;
    }
    return took;
}

/* Starts reads until depth or io is full. */
static int start_reads(struct row_store *s, uint32_t *next, struct err *err)
{
    for (uint32_t i = 0; i < s->depth; i++) {
        struct fetch *f = &s->fetches[i];

        if (f->state == FETCH_IN_IO || f->state == FETCH_LOST ||
            (f->state == FETCH_FREE && *next == s->n_wants))
            continue;
        if (f->state == FETCH_FREE) {
            begin_fetch(s, f, *next);
            *next = f->end;
        }
        int took = submit(s, f, err);
        if (took != 1)
            return took;
    }
    return 0;
}

/* Equal wants stand together and are one row. */
static int take_rows(struct row_store *s, const struct fetch *f, const char *buffer, float *out,
                     struct err *err)
{
    for (uint32_t i = f->first; i < f->end; i++) {
        const struct want *w = &s->wants[i];
        const char *row = buffer + (spot_of(s, w->id).offset - f->from);
        if (convert(s, out + (size_t)w->place * s->n_cols, row, w->id, err) < 0)
            return -1;
        if (s->cache && (i == f->first || s->wants[i - 1].id != w->id))
            row_cache_put(s->cache, w->id, row);
    }
    return 0;
}

/* How many wants are served; 0 also when the read is to be tried again; -1. */
static int end_read(struct row_store *s, const struct io_done *done, float *out, struct err *err)
{
    assert(done->tag < s->depth);
    struct fetch *f = &s->fetches[done->tag];
    bool lost = f->state == FETCH_LOST;

    assert(lost || f->state == FETCH_IN_IO);
    s->n_in_io--;
    f->state = FETCH_FREE;
    drives_drop(s->drives, f->file, f->from, f->size);
    if (lost)
        return 0;
    if (done->error && !f->tried) {
        f->tried = true;
        f->state = FETCH_WAITS;
        return 0;
    }
    if (done->error) {
        struct spot spot = spot_of(s, s->wants[f->first].id);
        drives_why(s->drives, f->file, spot.offset, done->error, err);
        return err_within(err, "row %" PRIu64 " of '%s'", spot.row, spot.part->name);
    }
    if (take_rows(s, f, s->buffers.base + done->tag * s->buffer_size, out, err) < 0)
        return -1;
    return (int)(f->end - f->first);
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
        int got = end_read(s, &done[i], out, rc < 0 ? NULL : err);

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
    while (f < s->fetches + s->depth - 1 && f->state != FETCH_IN_IO)
        f++;
    if (f->state != FETCH_IN_IO) /* those of an earlier call hold every buffer */
        return err_set(err, ERR_IO, "rows of '%s': no answer for %u ms to a read of '%s'",
                       s->parts[0]->name, s->stall_timeout_ms,
                       drives_name(s->drives, s->parts[0]->file));
    struct spot spot = spot_of(s, s->wants[f->first].id);
    return err_set(err, ERR_IO, "row %" PRIu64 " of '%s': no answer for %u ms to a read of '%s' at "
                   "byte %" PRIu64, spot.row, spot.part->name, s->stall_timeout_ms,
                   drives_name(s->drives, f->file), spot.offset);
}

static int compare(const void *a, const void *b)
{
    const struct want *x = a, *y = b;

    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static int read_wants(struct row_store *s, float *out, struct err *err)
{
    uint32_t next = 0, n_there = 0;
    int rc = 0;

    qsort(s->wants, s->n_wants, sizeof *s->wants, compare);
    s->progress_ms = clock_ms();
    while (rc == 0 && n_there < s->n_wants)
        if (start_reads(s, &next, err) < 0 || reap(s, out, &n_there, err) < 0 ||
            check_stall(s, err) < 0)
            rc = -1;
    for (uint32_t i = 0; i < s->depth; i++) {
        struct fetch *f = &s->fetches[i];

        if (f->state == FETCH_IN_IO)
            f->state = FETCH_LOST;
        else if (f->state == FETCH_WAITS)
            f->state = FETCH_FREE;
    }
    s->stats.misses += s->n_wants;
    s->n_wants = 0;
    return rc;
}

static int read_rows(struct row_store *s, float *out, const uint64_t *ids, uint32_t n,
                     struct err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *row = s->cache ? row_cache_find(s->cache, ids[i]) : NULL;

        if (row) {
            s->stats.hits++;
            if (convert(s, out + (size_t)i * s->n_cols, row, ids[i], err) < 0)
                return -1;
            continue;
        }
        s->wants[s->n_wants++] = (struct want){ ids[i], i };
        if (s->n_wants == MAX_WANTS && read_wants(s, out, err) < 0)
            return -1;
    }
    return s->n_wants ? read_wants(s, out, err) : 0;
}

int row_store_read(struct row_store *s, float *out, const uint64_t *ids, uint32_t n,
                   struct err *err)
{
    if (!s->resident.data) {
        s->n_wants = 0;
        return read_rows(s, out, ids, n, err);
    }
    for (uint32_t i = 0; i < n; i++) {
        assert(ids[i] < s->n_rows);
        const char *row = (const char *)s->resident.data +
                          (size_t)ids[i] * s->n_cols * dtype_size(s->resident.dtype);

        dtype_to_f32(out + (size_t)i * s->n_cols, row, s->resident.dtype, s->n_cols);
    }
    return 0;
}
