/* A slot goes FREE -> READING -> ORDERED -> LENT -> IDLE and round again. Only idle
 * slots are candidates of evict; what an order waits for is held until it was lent, so
 * that each expert is read once in an order, however small the cache.
 *
 * A miss is an expert without a slot. pump starts misses while fewer than
 * reads_in_flight experts are being read, and feeds their pieces to io while the
 * drive's queue is below its best length. It runs whenever the caller asks for a loan,
 * so reading goes on while the caller computes. */
#include "store/expert_store.h"

#include "io/drives.h"
#include "io/io.h"
#include "store/evict.h"
#include "store/expert_map.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/region.h"
#include "util/size.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One read at most. An expert of 4.5 MiB in one piece came as fast as in three at once
 * (2.4 GB/s, NVMe) and wakes a third of the threads, which the cores computing feel. */
#define PIECE_SIZE (6 * MIB)
/* Measured on NVMe: 2-12 MiB under way are best, above 16 MiB a third is lost. */
#define BYTES_IN_FLIGHT (12 * MIB)

enum { MAX_PIECES = 32 }; /* reads under way; small ones end here before the bytes do */
enum { NO_SLOT = UINT32_MAX };

enum slot_state {
    SLOT_FREE,
    SLOT_READING,
    SLOT_ORDERED, /* in the order's ready queue */
    SLOT_LENT,
    SLOT_IDLE,    /* holds an expert that nobody asks for: a candidate of evict */
    SLOT_STALLED, /* given up, but a read may still write into it */
};

struct slot {
    enum slot_state state;
    uint32_t index;          /* ordinal * n_experts + expert */
    bool wanted;             /* READING: the open order waits for it */
    uint32_t extent;         /* READING: the next piece is of this extent, */
    uint32_t at;             /* from this byte of it */
    uint32_t n_under_way;    /* its pieces, in io or waiting to be tried again */
    int error;               /* errno of a piece that failed twice */
    uint64_t error_offset;
    uint32_t error_file;
    uint64_t progress_ms;    /* when a piece of it last started or ended */
    struct expert_weights w; /* views into its memory, for the expert it holds */
};

enum piece_state { PIECE_NONE, PIECE_AGAIN, PIECE_IN_IO };

struct piece {
    enum piece_state state;
    bool tried; /* once already */
    uint32_t slot, file, in_slot, size, need;
    uint64_t offset;
};

struct expert_order {
    struct expert_store *store;
    bool open, failed;
    uint16_t layer;
    uint32_t ordinal;
    uint32_t *ready; /* owned; slots in the order in which they became ready */
    uint32_t ready_head, n_ready;
    uint32_t n_ahead; /* the last so many of them were read for this order */
    uint16_t *missing; /* owned; experts without a slot yet */
    uint32_t missing_head, n_missing;
    uint32_t n_reading; /* slots with wanted set */
    uint32_t n_lent;
};

struct expert_store {
    struct expert_store_options opt;
    uint32_t n_experts, scales_per_expert;
    struct region region;
    struct evict *evict;   /* owned */
    struct slot *slots;    /* owned; [n_slots] */
    uint32_t *free;        /* owned; stack of n_free */
    uint32_t n_free;
    uint32_t *slot_of;     /* owned; [ordinal, expert] */
    uint8_t *scanned;      /* owned; [ordinal, expert] bits: looked at for NaN codes */
    uint32_t *reading;     /* owned; slots being read, oldest first */
    uint32_t n_reading;
    struct piece pieces[MAX_PIECES];
    uint32_t n_pieces;     /* not PIECE_NONE */
    uint64_t bytes_in_flight;
    struct expert_order order;
    struct expert_store_stats stats;
};

uint32_t expert_store_min_slots(uint32_t experts_per_token, uint32_t reads_in_flight)
{
    return experts_per_token + reads_in_flight;
}

static char *slot_memory(const struct expert_store *s, uint32_t slot)
{
    return s->region.base + slot * s->opt.map->slot_size;
}

/* ---- opening ---- */

/* A quarter of a small cache for a guarantee is enough; evict.h says what it is for. */
static uint32_t floor_of(const struct expert_store_options *opt)
{
    uint32_t share = opt->n_slots / (4 * opt->map->n_moe_layers);

    return share < opt->experts_per_token ? share : opt->experts_per_token;
}

static int take_tables(struct expert_store *s, struct err *err)
{
    const struct expert_map *m = s->opt.map;
    size_t n = (size_t)m->n_moe_layers * m->n_experts;

    s->slots = calloc(s->opt.n_slots, sizeof *s->slots);
    s->free = calloc(s->opt.n_slots, sizeof *s->free);
    s->slot_of = calloc(n, sizeof *s->slot_of);
    s->scanned = calloc(n / 8 + 1, 1);
    s->reading = calloc(s->opt.reads_in_flight, sizeof *s->reading);
    s->order.ready = calloc(m->n_experts, sizeof *s->order.ready);
    s->order.missing = calloc(m->n_experts, sizeof *s->order.missing);
    if (!s->slots || !s->free || !s->slot_of || !s->scanned || !s->reading || !s->order.ready ||
        !s->order.missing)
        return err_set(err, ERR_NOMEM, "tables of %u expert slots", s->opt.n_slots);
    for (size_t i = 0; i < n; i++)
        s->slot_of[i] = NO_SLOT;
    while (s->n_free < s->opt.n_slots) {
        s->free[s->n_free] = s->opt.n_slots - 1 - s->n_free;
        s->n_free++;
    }
    return 0;
}

int expert_store_open(struct expert_store **out, const struct expert_store_options *opt,
                      struct err *err)
{
    const struct expert_map *m = opt->map;
    uint64_t size;

    if (m->n_moe_layers == 0)
        return err_set(err, ERR_INPUT, "an expert store for a model without experts");
    if (opt->reads_in_flight < 1 || opt->n_slots < 1 ||
        opt->n_slots < expert_store_min_slots(opt->experts_per_token, opt->reads_in_flight))
        return err_set(err, ERR_BUDGET,
                       "%u expert slots are too few: %u experts per token and %u reads under "
                       "way need %u", opt->n_slots, opt->experts_per_token, opt->reads_in_flight,
                       expert_store_min_slots(opt->experts_per_token, opt->reads_in_flight));
    if (!size_mul(&size, opt->n_slots, m->slot_size))
        return err_set(err, ERR_BUDGET, "%u expert slots: impossible size", opt->n_slots);

    struct expert_store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "expert store");
    s->opt = *opt;
    s->n_experts = m->n_experts;
    for (uint32_t p = 0; p < N_PARTS; p++)
        s->scales_per_expert += m->scale_floats[p];
    assert(s->scales_per_expert == 0 || opt->scales);
    s->order.store = s;
    s->stats.n_slots = opt->n_slots;
    if (take_tables(s, err) < 0 ||
        evict_open(&s->evict, m->n_moe_layers, m->n_experts, floor_of(opt), err) < 0)
        goto fail;
    if (region_open(&s->region, size, REGION_HUGE, err) < 0 ||
        (opt->lock && region_lock(&s->region, err) < 0)) {
        err_within(err, "%u expert slots", opt->n_slots);
        goto fail;
    }
    *out = s;
    return 0;

fail:
    expert_store_close(s);
    return -1;
}

/* ---- a slot's way ---- */

static void bind_slot(struct expert_store *s, uint32_t slot, uint32_t index)
{
    const struct expert_map *m = s->opt.map;
    const struct expert_place *place = &m->places[index];
    struct slot *t = &s->slots[slot];
    char *at = slot_memory(s, slot);

    *t = (struct slot){
        .state = SLOT_READING, .index = index, .progress_ms = clock_ms(), .w = m->form,
    };
    t->w.gate.data = at + place->part_at[PART_GATE];
    t->w.up.data = at + place->part_at[PART_UP];
    t->w.down.data = at + place->part_at[PART_DOWN];
    if (s->scales_per_expert) {
        const float *scales = s->opt.scales + (size_t)index * s->scales_per_expert;

        t->w.gate.scales = m->scale_floats[PART_GATE] ? scales : NULL;
        scales += m->scale_floats[PART_GATE];
        t->w.up.scales = m->scale_floats[PART_UP] ? scales : NULL;
        scales += m->scale_floats[PART_UP];
        t->w.down.scales = m->scale_floats[PART_DOWN] ? scales : NULL;
    }
    s->slot_of[index] = slot;
    evict_admit(s->evict, index / s->n_experts, index % s->n_experts);
}

/* The expert has no slot any more; the slot is not yet free. */
static void unbind_slot(struct expert_store *s, uint32_t slot)
{
    uint32_t index = s->slots[slot].index;

    s->slot_of[index] = NO_SLOT;
    evict_remove(s->evict, index / s->n_experts, index % s->n_experts);
}

static void free_slot(struct expert_store *s, uint32_t slot)
{
    s->slots[slot].state = SLOT_FREE;
    s->free[s->n_free++] = slot;
}

static void make_idle(struct expert_store *s, uint32_t slot)
{
    struct slot *t = &s->slots[slot];

    t->state = SLOT_IDLE;
    evict_release(s->evict, t->index / s->n_experts, t->index % s->n_experts);
}

static void make_ready(struct expert_order *o, uint32_t slot)
{
    struct expert_store *s = o->store;

    s->slots[slot].state = SLOT_ORDERED;
    o->ready[(o->ready_head + o->n_ready++) % s->n_experts] = slot;
}

/* A slot for a new expert: a free one, or the victim's. Where computing is slower than
 * reading, reads that ran ahead of it would throw out experts for no gain. */
static bool find_slot(struct expert_store *s, uint32_t ordinal, uint32_t *out)
{
    uint32_t layer, expert;

    if (s->n_free > 0) {
        *out = s->free[--s->n_free];
        return true;
    }
    if (s->order.n_ahead >= s->opt.reads_in_flight ||
        !evict_choose(s->evict, ordinal, &layer, &expert))
        return false;
    uint32_t *slot = &s->slot_of[layer * s->n_experts + expert];
    *out = *slot;
    *slot = NO_SLOT;
    s->stats.evictions++;
    return true;
}

static void stop_reading(struct expert_store *s, uint32_t slot)
{
    uint32_t i = 0;

    while (s->reading[i] != slot)
        i++;
    memmove(&s->reading[i], &s->reading[i + 1], (--s->n_reading - i) * sizeof *s->reading);
    if (s->slots[slot].wanted)
        s->order.n_reading--;
    s->slots[slot].wanted = false;
}

/* ---- ends of reads ---- */

static uint16_t layer_of(const struct expert_store *s, uint32_t index)
{
    uint32_t layer = 0;

    /* Layers without experts have ordinals of no meaning, so the shape is asked too. */
    while (!s->opt.map->catalog->shape->layer_is_moe[layer] ||
           s->opt.map->moe_ordinal[layer] != index / s->n_experts)
        layer++;
    return (uint16_t)layer;
}

static int read_failed(const struct expert_store *s, const struct slot *t, struct err *err)
{
    return err_set(err, ERR_IO,
                   "layer %u expert %u: reading '%s' at byte %" PRIu64 " failed twice: %s",
                   layer_of(s, t->index), t->index % s->n_experts,
                   drives_name(s->opt.drives, t->error_file), t->error_offset,
                   t->error == EIO ? "the drive failed or the file was cut short"
                                   : strerror(t->error));
}

/* FP8 has no infinities: a NaN code is a broken file, and would poison every answer. */
static int scan_expert(struct expert_store *s, const struct slot *t, struct err *err)
{
    const struct matrix *parts[N_PARTS] = {
        [PART_GATE] = &t->w.gate, [PART_UP] = &t->w.up, [PART_DOWN] = &t->w.down,
    };

    if (s->scanned[t->index / 8] & 1u << t->index % 8)
        return 0;
    for (uint32_t p = 0; p < N_PARTS; p++) {
        size_t n = (size_t)parts[p]->rows * parts[p]->cols;
        size_t at = parts[p]->dtype == DTYPE_F8_E4M3 ? dtype_f8_find_nan(parts[p]->data, n) : n;

        if (at < n) {
            const struct tensor *tensor =
                s->opt.map->catalog->expert_tensors[(size_t)t->index * N_PARTS + p];

            return err_set(err, ERR_FORMAT,
                           "tensor '%s': element %zu is NaN (byte %" PRIu64 " of '%s'); fetch the "
                           "file again", tensor->name, at, tensor->offset + at,
                           drives_name(s->opt.drives, tensor->file));
        }
    }
    s->scanned[t->index / 8] |= (uint8_t)(1u << t->index % 8);
    return 0;
}

/* All pieces of the slot have ended, or never will begin. */
static int finish_slot(struct expert_store *s, uint32_t slot, struct err *err)
{
    struct slot *t = &s->slots[slot];
    bool wanted = t->wanted;
    struct err *why = wanted ? err : NULL; /* what nobody waits for fails when it is asked for */
    int rc;

    if (t->state == SLOT_STALLED) {
        free_slot(s, slot);
        return 0;
    }
    stop_reading(s, slot);
    rc = t->error ? read_failed(s, t, why) : scan_expert(s, t, why);
    if (rc < 0) {
        unbind_slot(s, slot);
        free_slot(s, slot);
        return wanted ? -1 : 0;
    }
    if (wanted) {
        make_ready(&s->order, slot);
        s->order.n_ahead++;
    } else {
        make_idle(s, slot);
    }
    return 0;
}

static bool all_begun(const struct expert_store *s, const struct slot *t)
{
    return t->extent == s->opt.map->places[t->index].n_extents;
}

/* No more pieces of it. */
static void begin_no_more(const struct expert_store *s, struct slot *t)
{
    t->extent = s->opt.map->places[t->index].n_extents;
}

static int end_piece(struct expert_store *s, const struct io_done *done, struct err *err)
{
    assert(done->tag < MAX_PIECES && s->pieces[done->tag].state == PIECE_IN_IO);
    struct piece *p = &s->pieces[done->tag];
    struct slot *t = &s->slots[p->slot];

    s->bytes_in_flight -= p->size;
    t->progress_ms = clock_ms();
    drives_drop(s->opt.drives, p->file, p->offset, p->size);
    if (done->error && !p->tried && t->state == SLOT_READING && !t->error) {
        p->state = PIECE_AGAIN;
        p->tried = true;
        return 0;
    }
    p->state = PIECE_NONE;
    s->n_pieces--;
    t->n_under_way--;
    if (done->error && !t->error) {
        t->error = done->error;
        t->error_file = p->file;
        t->error_offset = p->offset;
        begin_no_more(s, t);
    }
    if (t->n_under_way > 0 || !all_begun(s, t))
        return 0;
    return finish_slot(s, p->slot, err);
}

/* Takes what is done; all of it, whatever fails, with the first error. How many, or -1. */
static int reap(struct expert_store *s, int timeout_ms, struct err *err)
{
    struct io_done done[MAX_PIECES];
    int n = 0, rc = 0;

    if (s->bytes_in_flight == 0 && timeout_ms == 0)
        return 0;
    n = s->opt.io->ops->reap(s->opt.io, done, MAX_PIECES, timeout_ms, err);
    if (n < 0)
        return -1;
    for (int i = 0; i < n; i++)
        if (end_piece(s, &done[i], rc < 0 ? NULL : err) < 0)
            rc = -1;
    return rc < 0 ? -1 : n;
}

/* ---- beginnings of reads ---- */

/* Bytes of the slot's next piece: extents are cut into equal aligned pieces. */
static uint32_t next_size(const struct expert_store *s, const struct slot *t)
{
    const struct expert_extent *e = &s->opt.map->places[t->index].extents[t->extent];
    uint64_t n = size_div_up(e->size, PIECE_SIZE);
    uint64_t size = size_up(size_div_up(e->size, n), IO_ALIGN);

    return (uint32_t)(size < e->size - t->at ? size : e->size - t->at);
}

static void next_piece(const struct expert_store *s, uint32_t slot, struct piece *out)
{
    struct slot *t = &s->slots[slot];
    const struct expert_extent *e = &s->opt.map->places[t->index].extents[t->extent];
    uint64_t offset = e->offset + t->at, end = drives_size(s->opt.drives, e->file);
    uint32_t size = next_size(s, t);

    *out = (struct piece){
        .slot = slot, .file = e->file, .in_slot = e->in_slot + t->at,
        .size = size, .offset = offset,
        .need = (uint32_t)(end - offset < size ? end - offset : size),
    };
    t->at += size;
    if (t->at == e->size) {
        t->at = 0;
        t->extent++;
    }
    t->n_under_way++;
    t->progress_ms = clock_ms();
}

/* 1: io took it; 0: io has no room now. */
static int submit_piece(struct expert_store *s, struct piece *p, struct err *err)
{
    const struct io_read read = {
        .fd = drives_fd(s->opt.drives, p->file), .size = p->size, .need = p->need,
        .offset = p->offset, .to = slot_memory(s, p->slot) + p->in_slot,
        .tag = (uint64_t)(p - s->pieces),
    };
    int took = s->opt.io->ops->submit(s->opt.io, &read, 1, err);

    if (took != 1)
        return took;
    p->state = PIECE_IN_IO;
    s->bytes_in_flight += p->size;
    s->stats.reads++;
    s->stats.read_bytes += p->size;
    if (p->tried)
        s->stats.retries++;
    return 1;
}

/* Pieces that wait, first those to be tried again. 1: room for more. */
static int submit_waiting(struct expert_store *s, struct err *err)
{
    for (uint32_t i = 0; i < MAX_PIECES; i++) {
        if (s->pieces[i].state != PIECE_AGAIN)
            continue;
        int took = submit_piece(s, &s->pieces[i], err);
        if (took != 1)
            return took;
    }
    return 1;
}

static struct piece *unused_piece(struct expert_store *s)
{
    uint32_t i = 0;

    while (s->pieces[i].state != PIECE_NONE)
        i++;
    s->n_pieces++;
    return &s->pieces[i];
}

/* Feeds the slot's pieces to io. 1: all begun; 0: enough is under way. */
static int submit_slot(struct expert_store *s, uint32_t slot, struct err *err)
{
    while (!all_begun(s, &s->slots[slot])) {
        if (s->n_pieces == MAX_PIECES ||
            (s->bytes_in_flight > 0 &&
             s->bytes_in_flight + next_size(s, &s->slots[slot]) > BYTES_IN_FLIGHT))
            return 0;
        struct piece *p = unused_piece(s);
        next_piece(s, slot, p);
        p->state = PIECE_AGAIN; /* until io takes it */
        int took = submit_piece(s, p, err);
        if (took != 1)
            return took;
    }
    return 1;
}

/* Starts an expert of the order that has no slot yet. 0: not now. */
static int start_missing(struct expert_store *s, struct expert_order *o)
{
    uint32_t slot, index;

    if (o->n_missing == 0 || s->n_reading == s->opt.reads_in_flight ||
        !find_slot(s, o->ordinal, &slot))
        return 0;
    index = o->ordinal * s->n_experts + o->missing[o->missing_head];
    assert(s->slot_of[index] == NO_SLOT); /* the experts of an order are distinct */
    bind_slot(s, slot, index);
    o->missing_head++;
    o->n_missing--;
    s->slots[slot].wanted = true;
    s->reading[s->n_reading++] = slot;
    o->n_reading++;
    return 1;
}

/* Reaps without waiting and keeps the drive busy. */
static int pump(struct expert_order *o, struct err *err)
{
    struct expert_store *s = o->store;
    int room;

    if (reap(s, 0, err) < 0)
        return -1;
    room = submit_waiting(s, err);
    for (uint32_t i = 0; room > 0; i++) {
        if (i == s->n_reading && !start_missing(s, o))
            return 0;
        room = submit_slot(s, s->reading[i], err);
    }
    return room;
}

/* ---- waiting ---- */

/* The slot is of no use until its reads end, if they ever do. */
static int give_up(struct expert_store *s, uint32_t slot, struct err *err)
{
    struct slot *t = &s->slots[slot];
    struct piece *late = NULL;

    for (uint32_t i = 0; i < MAX_PIECES; i++) {
        struct piece *p = &s->pieces[i];

        if (p->state == PIECE_NONE || p->slot != slot)
            continue;
        late = p;
        if (p->state == PIECE_AGAIN) {
            p->state = PIECE_NONE;
            s->n_pieces--;
            t->n_under_way--;
        }
    }
    const struct expert_extent *first = s->opt.map->places[t->index].extents;
    err_set(err, ERR_IO,
            "layer %u expert %u: no answer for %u ms to a read of '%s' at byte %" PRIu64,
            layer_of(s, t->index), t->index % s->n_experts, s->opt.stall_timeout_ms,
            drives_name(s->opt.drives, late ? late->file : first->file),
            late ? late->offset : first->offset);
    stop_reading(s, slot);
    unbind_slot(s, slot);
    t->state = SLOT_STALLED;
    begin_no_more(s, t);
    if (t->n_under_way == 0)
        free_slot(s, slot);
    return -1;
}

/* Gives up the reads of the order that stand still for too long, and says how long the
 * next one may still take: milliseconds, or -1. */
static int check_stalls(struct expert_order *o, struct err *err)
{
    enum { LONGEST_WAIT_MS = 1000 };
    struct expert_store *s = o->store;
    uint64_t now = clock_ms(), patience = LONGEST_WAIT_MS;
    int rc = 0;

    if (s->opt.stall_timeout_ms == 0)
        return LONGEST_WAIT_MS;
    for (uint32_t i = s->n_reading; i-- > 0;) {
        struct slot *t = &s->slots[s->reading[i]];
        uint64_t due = t->progress_ms + s->opt.stall_timeout_ms;

        if (due <= now) {
            bool wanted = t->wanted;
            struct err why;

            give_up(s, s->reading[i], &why);
            if (wanted && rc == 0 && err)
                *err = why;
            if (wanted)
                rc = -1;
        } else if (due - now < patience) {
            patience = due - now;
        }
    }
    return rc < 0 ? -1 : (int)patience;
}

/* Until a read ends. since: when the caller began to wait. */
static int wait_for_read(struct expert_order *o, uint64_t since, struct err *err)
{
    struct expert_store *s = o->store;
    int timeout_ms = check_stalls(o, err);

    if (timeout_ms < 0)
        return -1;
    /* Nothing of ours can begin: every slot, or all of io, belongs to stalled reads. */
    if (s->n_reading == 0 && s->opt.stall_timeout_ms > 0 &&
        clock_ms() - since >= s->opt.stall_timeout_ms)
        return err_set(err, ERR_IO,
                       "layer %u: all expert slots wait for a drive that does not answer",
                       o->layer);
    uint64_t before = clock_ns();
    int n = reap(s, timeout_ms, err);
    s->stats.wait_ns += clock_ns() - before;
    return n < 0 ? -1 : 0;
}

/* ---- orders ---- */

int expert_store_order(struct expert_store *s, struct expert_order **out, uint16_t layer,
                       const uint16_t *experts, size_t n, struct err *err)
{
    struct expert_order *o = &s->order;
    uint32_t ordinal = s->opt.map->moe_ordinal[layer];
    bool sweep = n * 2 > s->n_experts;

    assert(!o->open && n <= s->n_experts && ordinal < s->opt.map->n_moe_layers);
    o->open = true;
    o->failed = false;
    o->layer = layer;
    o->ordinal = ordinal;
    o->ready_head = o->n_ready = o->n_ahead = o->missing_head = o->n_missing = 0;
    o->n_reading = o->n_lent = 0;
    s->stats.orders++;
    if (!sweep)
        evict_visit(s->evict, ordinal);
    for (size_t i = 0; i < n; i++) {
        assert(experts[i] < s->n_experts);
        uint32_t slot = s->slot_of[ordinal * s->n_experts + experts[i]];

        if (slot == NO_SLOT) {
            o->missing[o->n_missing++] = experts[i];
        } else if (s->slots[slot].state == SLOT_READING) {
            assert(!s->slots[slot].wanted);
            s->slots[slot].wanted = true;
            o->n_reading++;
        } else {
            assert(s->slots[slot].state == SLOT_IDLE);
            evict_hold(s->evict, ordinal, experts[i]);
            make_ready(o, slot);
            s->stats.hits++;
        }
        if (!sweep)
            evict_use(s->evict, ordinal, experts[i]);
    }
    s->stats.misses += o->n_missing + o->n_reading;
    if (pump(o, err) < 0) {
        expert_order_close(o);
        return -1;
    }
    *out = o;
    return 0;
}

/* 1, 0, 2 or 3 of expert_order_next from what is known now; -2: only waiting helps. */
static int order_state(const struct expert_order *o)
{
    if (o->n_ready > 0)
        return 1;
    if (o->n_missing == 0 && o->n_reading == 0)
        return 0;
    /* pump has run: what is missing had no slot, unless older reads keep their turn. */
    if (o->n_reading == 0 && o->n_lent > 0 &&
        o->store->n_reading < o->store->opt.reads_in_flight)
        return 2;
    return -2;
}

int expert_order_next(struct expert_order *o, struct expert_loan *out, bool wait, struct err *err)
{
    struct expert_store *s = o->store;
    uint64_t since = clock_ms();
    int state;

    assert(o->open);
    if (o->failed)
        return err_set(err, ERR_IO, "layer %u: this order of experts has failed", o->layer);
    for (;;) {
        if (pump(o, err) < 0)
            goto fail;
        state = order_state(o);
        if (state >= 0)
            break;
        if (!wait) {
            if (check_stalls(o, err) < 0)
                goto fail;
            return 3;
        }
        if (wait_for_read(o, since, err) < 0)
            goto fail;
    }
    if (state != 1)
        return state;

    uint32_t slot = o->ready[o->ready_head];
    struct slot *t = &s->slots[slot];
    o->ready_head = (o->ready_head + 1) % s->n_experts;
    o->n_ready--;
    if (o->n_ahead > o->n_ready)
        o->n_ahead = o->n_ready;
    o->n_lent++;
    t->state = SLOT_LENT;
    *out = (struct expert_loan){
        .id = { .layer = o->layer, .expert = (uint16_t)(t->index % s->n_experts) },
        .place = PLACE_HOST,
        .w = &t->w,
        .slot = slot,
    };
    return 1;

fail:
    o->failed = true;
    return -1;
}

void expert_order_return(struct expert_order *o, const struct expert_loan *loan)
{
    struct slot *t = &o->store->slots[loan->slot];

    assert(o->open && t->state == SLOT_LENT && &t->w == loan->w);
    (void)t;
    o->n_lent--;
    make_idle(o->store, loan->slot);
}

void expert_order_close(struct expert_order *o)
{
    if (!o)
        return;
    struct expert_store *s = o->store;

    assert(o->open && o->n_lent == 0);
    for (; o->n_ready > 0; o->n_ready--) {
        make_idle(s, o->ready[o->ready_head]);
        o->ready_head = (o->ready_head + 1) % s->n_experts;
    }
    /* Reads under way go on; what they bring stays for whoever asks next. */
    for (uint32_t i = 0; i < s->n_reading; i++)
        s->slots[s->reading[i]].wanted = false;
    o->open = false;
}

/* Counted, not followed: reading ahead did not pay where it was measured, unless guesses
 * are right more often than a router's inputs of the layer before allow. */
void expert_store_hint(struct expert_store *s, const struct expert_id *ids, size_t n)
{
    (void)ids;
    s->stats.hinted += n;
}

void expert_store_stats(const struct expert_store *s, struct expert_store_stats *out)
{
    *out = s->stats;
    out->n_used = s->opt.n_slots - s->n_free;
}

void expert_store_close(struct expert_store *s)
{
    if (!s)
        return;
    /* The kernel may write into a slot until its read is reaped. */
    while (s->bytes_in_flight > 0) {
        struct io_done done[MAX_PIECES];
        int n = s->opt.io->ops->reap(s->opt.io, done, MAX_PIECES, 1000, NULL);

        for (int i = 0; i < n; i++)
            s->bytes_in_flight -= s->pieces[done[i].tag].size;
        if (n < 0)
            break;
    }
    region_close(&s->region);
    evict_close(s->evict);
    free(s->slots);
    free(s->free);
    free(s->slot_of);
    free(s->scanned);
    free(s->reading);
    free(s->order.ready);
    free(s->order.missing);
    free(s);
}
