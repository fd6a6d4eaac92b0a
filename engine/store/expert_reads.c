#include "store/expert_reads.h"

#include "io/drives.h"
#include "store/expert_map.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/size.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One piece at most. An expert of 4.5 MiB in one piece came as fast as in three at once
 * (2.4 GB/s, NVMe) and wakes a third of the threads, which the cores computing feel. */
#define PIECE_SIZE (6 * MIB)
/* Measured on NVMe: 2-12 MiB under way are best, above 16 MiB a third is lost. */
#define BYTES_IN_FLIGHT (12 * MIB)

enum { LONGEST_WAIT_MS = 1000 };

/* What is being read into a slot. */
struct slot_read {
    uint32_t index;
    bool given_up;
    uint32_t extent, at; /* the next piece: of this extent, from this byte of it */
    uint32_t n_pieces;   /* in io, or to be tried again */
    int error;           /* errno of a piece that failed twice, and where */
    uint32_t error_file;
    uint64_t error_offset;
    uint64_t progress_ms; /* when a piece last started or ended */
};

enum piece_state { PIECE_NONE, PIECE_WAITS, PIECE_IN_IO };

struct piece {
    enum piece_state state;
    bool tried; /* once already */
    uint32_t slot, file, in_slot, size, need;
    uint64_t offset;
};

struct expert_reads {
    struct expert_reads_options opt;
    struct slot_read *slots; /* owned; [n_slots] */
    uint32_t *active;        /* owned; [most], slots in the order in which they began */
    uint32_t n_active;
    struct piece pieces[READ_ENDS];
    uint32_t n_pieces; /* not PIECE_NONE */
    uint64_t bytes_in_flight;
    struct expert_reads_stats stats;
};

uint64_t expert_reads_size(uint32_t n_slots)
{
    return (uint64_t)n_slots * sizeof(struct slot_read);
}

int expert_reads_open(struct expert_reads **out, const struct expert_reads_options *opt,
                      struct err *err)
{
    struct expert_reads *r = calloc(1, sizeof *r);

    if (!r)
        return err_set(err, ERR_NOMEM, "expert reads");
    r->opt = *opt;
    r->slots = calloc(opt->n_slots, sizeof *r->slots);
    r->active = calloc(opt->most, sizeof *r->active);
    if (!r->slots || !r->active) {
        expert_reads_close(r);
        return err_set(err, ERR_NOMEM, "reads into %u expert slots", opt->n_slots);
    }
    *out = r;
    return 0;
}

bool expert_reads_close(struct expert_reads *r)
{
    uint32_t n = 0;

    if (!r)
        return true;
    for (uint32_t i = 0; i < READ_ENDS; i++)
        n += r->pieces[i].state == PIECE_IN_IO;
    n = io_forget(r->opt.io, n);
    free(r->slots);
    free(r->active);
    free(r);
    return n == 0;
}

uint32_t expert_reads_count(const struct expert_reads *r)
{
    return r->n_active;
}

void expert_reads_begin(struct expert_reads *r, uint32_t slot, uint32_t index)
{
    assert(r->n_active < r->opt.most);
    r->slots[slot] = (struct slot_read){ .index = index, .progress_ms = clock_ms() };
    r->active[r->n_active++] = slot;
}

static void end_active(struct expert_reads *r, uint32_t slot)
{
    uint32_t i = 0;

    while (r->active[i] != slot)
        i++;
    r->n_active--;
    memmove(&r->active[i], &r->active[i + 1], (r->n_active - i) * sizeof *r->active);
}

static bool all_begun(const struct expert_reads *r, const struct slot_read *t)
{
    return t->extent == r->opt.map->places[t->index].n_extents;
}

static void begin_no_more(const struct expert_reads *r, struct slot_read *t)
{
    t->extent = r->opt.map->places[t->index].n_extents;
}

static void drop_piece(struct expert_reads *r, struct piece *p)
{
    p->state = PIECE_NONE;
    r->n_pieces--;
    r->slots[p->slot].n_pieces--;
}

/* ---- feeding the drive ---- */

/* Bytes of the slot's next piece: extents are cut into equal aligned pieces. */
static uint32_t next_size(const struct expert_reads *r, const struct slot_read *t)
{
    const struct expert_extent *e = &r->opt.map->places[t->index].extents[t->extent];
    uint64_t n = size_div_up(e->size, PIECE_SIZE);
    uint64_t size = size_up(size_div_up(e->size, n), IO_ALIGN);

    return (uint32_t)(size < e->size - t->at ? size : e->size - t->at);
}

/* Takes the slot's next piece; there is an unused one and a next one. */
static struct piece *next_piece(struct expert_reads *r, uint32_t slot)
{
    struct slot_read *t = &r->slots[slot];
    const struct expert_extent *e = &r->opt.map->places[t->index].extents[t->extent];
    uint64_t offset = e->offset + t->at, end = drives_size(r->opt.drives, e->file);
    uint32_t size = next_size(r, t);
    struct piece *p = r->pieces;

    while (p->state != PIECE_NONE)
        p++;
    *p = (struct piece){
        .state = PIECE_WAITS, .slot = slot, .file = e->file, .in_slot = e->in_slot + t->at,
        .size = size, .offset = offset,
        .need = (uint32_t)(end - offset < size ? end - offset : size),
    };
    t->at += size;
    if (t->at == e->size) {
        t->at = 0;
        t->extent++;
    }
    t->n_pieces++;
    t->progress_ms = clock_ms();
    r->n_pieces++;
    return p;
}

/* 1: io took it; 0: io has no room now. */
static int submit(struct expert_reads *r, struct piece *p, struct err *err)
{
    const struct io_read read = {
        .fd = drives_fd(r->opt.drives, p->file), .size = p->size, .need = p->need,
        .offset = p->offset, .tag = (uint64_t)(p - r->pieces),
        .to = r->opt.slots + p->slot * r->opt.map->slot_size + p->in_slot,
    };
    int took = r->opt.io->ops->submit(r->opt.io, &read, 1, err);

    if (took != 1)
        return took;
    p->state = PIECE_IN_IO;
    r->bytes_in_flight += p->size;
    r->stats.reads++;
    r->stats.bytes += p->size;
    r->stats.retries += p->tried;
    return 1;
}

static int submit_slot(struct expert_reads *r, uint32_t slot, struct err *err)
{
    struct slot_read *t = &r->slots[slot];

    while (!all_begun(r, t)) {
        if (r->n_pieces == READ_ENDS ||
            (r->bytes_in_flight > 0 && r->bytes_in_flight + next_size(r, t) > BYTES_IN_FLIGHT))
            return 0;
        int took = submit(r, next_piece(r, slot), err);
        if (took != 1)
            return took;
    }
    return 1;
}

int expert_reads_feed(struct expert_reads *r, struct err *err)
{
    int room = 1;

    for (uint32_t i = 0; room > 0 && i < READ_ENDS; i++)
        if (r->pieces[i].state == PIECE_WAITS)
            room = submit(r, &r->pieces[i], err);
    for (uint32_t i = 0; room > 0 && i < r->n_active; i++)
        room = submit_slot(r, r->active[i], err);
    return room;
}

/* ---- ends ---- */

/* True when the slot's last piece has ended with this one. */
static bool end_piece(struct expert_reads *r, const struct io_done *done)
{
    assert(done->tag < READ_ENDS && r->pieces[done->tag].state == PIECE_IN_IO);
    struct piece *p = &r->pieces[done->tag];
    struct slot_read *t = &r->slots[p->slot];

    r->bytes_in_flight -= p->size;
    t->progress_ms = clock_ms();
    drives_drop(r->opt.drives, p->file, p->offset, p->size);
    if (done->error && !p->tried && !t->given_up && !t->error) {
        p->state = PIECE_WAITS;
        p->tried = true;
        return false;
    }
    if (done->error && !t->error) {
        t->error = done->error;
        t->error_file = p->file;
        t->error_offset = p->offset;
        begin_no_more(r, t);
    }
    drop_piece(r, p);
    return t->n_pieces == 0 && all_begun(r, t);
}

int expert_reads_reap(struct expert_reads *r, struct read_end ends[READ_ENDS], int timeout_ms,
                      struct err *err)
{
    struct io_done done[READ_ENDS];
    int n, n_ends = 0;

    if (r->bytes_in_flight == 0 && timeout_ms == 0)
        return 0;
    n = io_reap(r->opt.io, done, READ_ENDS, timeout_ms, err);
    if (n < 0)
        return -1;
    for (int i = 0; i < n; i++) {
        uint32_t slot = r->pieces[done[i].tag].slot;
        const struct slot_read *t = &r->slots[slot];

        if (!end_piece(r, &done[i]))
            continue;
        if (!t->given_up)
            end_active(r, slot);
        ends[n_ends++] = (struct read_end){
            .slot = slot,
            .outcome = t->given_up ? READ_LATE : t->error ? READ_FAILED : READ_CAME,
        };
    }
    return n_ends;
}

uint32_t expert_reads_layer(const struct expert_reads *r, uint32_t index)
{
    const struct expert_map *m = r->opt.map;
    uint32_t layer = 0;

    /* Layers without experts have ordinals of no meaning, so the shape is asked too. */
    while (!m->catalog->shape->layer_is_moe[layer] ||
           m->moe_ordinal[layer] != index / m->n_experts)
        layer++;
    return layer;
}

int expert_reads_why(const struct expert_reads *r, uint32_t slot, struct err *err)
{
    const struct slot_read *t = &r->slots[slot];

    drives_why(r->opt.drives, t->error_file, t->error_offset, t->error, err);
    return err_within(err, "layer %u expert %u", expert_reads_layer(r, t->index),
                      t->index % r->opt.map->n_experts);
}

/* ---- drives that do not answer ---- */

static void abandon(struct expert_reads *r, uint32_t slot, struct err *why)
{
    struct slot_read *t = &r->slots[slot];
    const struct expert_extent *first = r->opt.map->places[t->index].extents;
    uint32_t file = first->file;
    uint64_t offset = first->offset;

    for (uint32_t i = 0; i < READ_ENDS; i++) {
        struct piece *p = &r->pieces[i];

        if (p->state == PIECE_NONE || p->slot != slot)
            continue;
        file = p->file;
        offset = p->offset;
        if (p->state == PIECE_WAITS)
            drop_piece(r, p);
    }
    err_set(why, ERR_IO,
            "layer %u expert %u: no answer for %u ms to a read of '%s' at byte %" PRIu64,
            expert_reads_layer(r, t->index), t->index % r->opt.map->n_experts,
            r->opt.stall_timeout_ms, drives_name(r->opt.drives, file), offset);
    end_active(r, slot);
    t->given_up = true;
    begin_no_more(r, t);
}

bool expert_reads_give_up(struct expert_reads *r, uint32_t *slot, bool *is_free, struct err *why)
{
    if (r->opt.stall_timeout_ms == 0)
        return false;
    for (uint32_t i = 0; i < r->n_active; i++) {
        struct slot_read *t = &r->slots[r->active[i]];

        if (clock_ms() < t->progress_ms + r->opt.stall_timeout_ms)
            continue;
        *slot = r->active[i];
        abandon(r, *slot, why);
        *is_free = t->n_pieces == 0;
        return true;
    }
    return false;
}

int expert_reads_patience_ms(const struct expert_reads *r)
{
    uint64_t now = clock_ms(), patience = LONGEST_WAIT_MS;

    for (uint32_t i = 0; r->opt.stall_timeout_ms > 0 && i < r->n_active; i++) {
        uint64_t due = r->slots[r->active[i]].progress_ms + r->opt.stall_timeout_ms;
        uint64_t left = due > now ? due - now : 0;

        patience = left < patience ? left : patience;
    }
    return (int)patience;
}

void expert_reads_stats(const struct expert_reads *r, struct expert_reads_stats *out)
{
    *out = r->stats;
}
