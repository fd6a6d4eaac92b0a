/* What an order waits for is held in its slot until it was lent, so that each expert is read
 * once in an order, however small the cache.
 *
 * A miss is an expert without a slot. pump starts misses while fewer than
 * reads_in_flight experts are being read. It runs whenever the caller asks for a loan,
 * so reading goes on while the caller computes. */
#include "store/expert_store.h"

#include "io/drives.h"
#include "store/evict.h"
#include "store/expert_map.h"
#include "store/expert_reads.h"
#include "store/expert_slots.h"
#include "store/hottest.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/region.h"
#include "util/size.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

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
    uint32_t n_experts;
    struct expert_slots slots;
    uint8_t *scanned;      /* owned; [ordinal, expert] bits: looked at for NaN codes */
    struct expert_reads *reads; /* owned */
    struct expert_order order;
    struct expert_store_stats stats;
};

uint32_t expert_store_min_slots(uint32_t experts_per_token, uint32_t reads_in_flight)
{
    return experts_per_token + reads_in_flight;
}

/* ---- opening ---- */

static int take_tables(struct expert_store *s, struct err *err)
{
    const struct expert_map *m = s->opt.map;

    s->scanned = calloc((size_t)m->n_moe_layers * m->n_experts / 8 + 1, 1);
    s->order.ready = calloc(m->n_experts, sizeof *s->order.ready);
    s->order.missing = calloc(m->n_experts, sizeof *s->order.missing);
    if (!s->scanned || !s->order.ready || !s->order.missing)
        return err_set(err, ERR_NOMEM, "tables of %u experts", m->n_moe_layers * m->n_experts);
    return expert_slots_open(&s->slots, m, s->opt.scales, s->opt.n_slots, s->opt.most_slots,
                             s->opt.experts_per_token, err);
}

uint64_t expert_store_size(uint32_t n_layers, uint32_t n_experts, uint32_t most_slots)
{
    return (uint64_t)n_layers * n_experts / 8 + n_experts * (sizeof(uint32_t) + sizeof(uint16_t)) +
           expert_slots_size(n_layers, n_experts, most_slots) + expert_reads_size(most_slots);
}

int expert_store_open(struct expert_store **out, const struct expert_store_options *opt,
                      struct err *err)
{
    const struct expert_map *m = opt->map;

    if (m->n_moe_layers == 0)
        return err_set(err, ERR_INPUT, "an expert store for a model without experts");
    if (opt->reads_in_flight < 1 || opt->n_slots < 1 ||
        opt->n_slots < expert_store_min_slots(opt->experts_per_token, opt->reads_in_flight))
        return err_set(err, ERR_BUDGET,
                       "%u expert slots are too few: %u experts per token and %u reads under "
                       "way need %u", opt->n_slots, opt->experts_per_token, opt->reads_in_flight,
                       expert_store_min_slots(opt->experts_per_token, opt->reads_in_flight));

    struct expert_store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "expert store");
    s->opt = *opt;
    s->n_experts = m->n_experts;
    s->order.store = s;
    if (take_tables(s, err) < 0)
        goto fail;
    const struct expert_reads_options reads = {
        .map = m, .drives = opt->drives, .io = opt->io, .slots = s->slots.region.base,
        .n_slots = s->slots.most, .most = opt->reads_in_flight,
        .stall_timeout_ms = opt->stall_timeout_ms,
    };
    if (expert_reads_open(&s->reads, &reads, err) < 0)
        goto fail;
    *out = s;
    return 0;

fail:
    expert_store_close(s);
    return -1;
}

/* ---- a slot's way ---- */

static void make_ready(struct expert_order *o, uint32_t slot)
{
    struct expert_store *s = o->store;

    o->ready[(o->ready_head + o->n_ready++) % s->n_experts] = slot;
}

/* A slot for a new expert: a free one, or the victim's. Where computing is slower than
 * reading, reads that ran ahead of it would throw out experts for no gain. */
static bool find_slot(struct expert_store *s, uint32_t ordinal, uint32_t *out)
{
    if (expert_slots_take_free(&s->slots, out))
        return true;
    return s->order.n_ahead < s->opt.reads_in_flight &&
           expert_slots_evict(&s->slots, ordinal, out);
}

/* ---- reading ---- */

/* The read of this slot is over; whether the open order waited for it. */
static bool stop_wanting(struct expert_store *s, uint32_t slot)
{
    bool wanted = s->slots.list[slot].wanted;

    s->slots.list[slot].wanted = false;
    s->order.n_reading -= wanted;
    return wanted;
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

/* What nobody waits for fails again when it is asked for: only then is it an error. */
static int end_read(struct expert_store *s, const struct read_end *end, struct err *err)
{
    const struct slot *t = &s->slots.list[end->slot];
    int rc;

    if (end->outcome == READ_LATE) {
        expert_slots_free(&s->slots, end->slot);
        return 0;
    }
    bool wanted = stop_wanting(s, end->slot);
    struct err *why = wanted ? err : NULL;
    rc = end->outcome == READ_FAILED ? expert_reads_why(s->reads, end->slot, why)
                                     : scan_expert(s, t, why);
    if (rc < 0) {
        expert_slots_unbind(&s->slots, end->slot);
        expert_slots_free(&s->slots, end->slot);
        return wanted ? -1 : 0;
    }
    if (wanted) {
        s->slots.list[end->slot].state = SLOT_ORDERED;
        make_ready(&s->order, end->slot);
        s->order.n_ahead++;
    } else {
        expert_slots_release(&s->slots, end->slot);
    }
    return 0;
}

/* Takes all that has ended, whatever fails, with the first error. */
static int reap(struct expert_store *s, int timeout_ms, struct err *err)
{
    struct read_end ends[READ_ENDS];
    int n = expert_reads_reap(s->reads, ends, timeout_ms, err), rc = n < 0 ? -1 : 0;

    for (int i = 0; i < n; i++)
        if (end_read(s, &ends[i], rc < 0 ? NULL : err) < 0)
            rc = -1;
    return rc;
}

/* Begins to read an expert of the order that has no slot yet; false: not now. */
static bool start_missing(struct expert_store *s, struct expert_order *o)
{
    uint32_t slot, index;

    if (o->n_missing == 0 || expert_reads_count(s->reads) == s->opt.reads_in_flight ||
        !find_slot(s, o->ordinal, &slot))
        return false;
    index = o->ordinal * s->n_experts + o->missing[o->missing_head];
    assert(s->slots.slot_of[index] == NO_SLOT); /* the experts of an order are distinct */
    expert_slots_bind(&s->slots, slot, index);
    expert_reads_begin(s->reads, slot, index);
    o->missing_head++;
    o->n_missing--;
    o->n_reading++;
    return true;
}

/* Takes what is done, without waiting, and keeps the drive busy. */
static int pump(struct expert_order *o, struct err *err)
{
    struct expert_store *s = o->store;
    int room;

    if (reap(s, 0, err) < 0)
        return -1;
    do
        room = expert_reads_feed(s->reads, err);
    while (room > 0 && start_missing(s, o));
    return room;
}

/* Slots whose reads stand still are of no use until the drive answers. */
static int give_up_stalled(struct expert_store *s, struct err *err)
{
    struct err why;
    uint32_t slot;
    bool is_free;
    int rc = 0;

    while (expert_reads_give_up(s->reads, &slot, &is_free, &why)) {
        if (stop_wanting(s, slot)) {
            if (rc == 0 && err)
                *err = why;
            rc = -1;
        }
        expert_slots_unbind(&s->slots, slot);
        s->slots.list[slot].state = SLOT_STALLED;
        if (is_free)
            expert_slots_free(&s->slots, slot);
    }
    return rc;
}

/* Until a read ends. since_ms: when the caller began to wait. */
static int wait_for_read(struct expert_order *o, uint64_t since_ms, struct err *err)
{
    struct expert_store *s = o->store;
    uint64_t before;
    int rc;

    if (give_up_stalled(s, err) < 0)
        return -1;
    /* Nothing of ours can begin: every slot, or all of io, belongs to stalled reads. */
    if (expert_reads_count(s->reads) == 0 && s->opt.stall_timeout_ms > 0 &&
        clock_ms() - since_ms >= s->opt.stall_timeout_ms)
        return err_set(err, ERR_IO,
                       "layer %u: all expert slots wait for a drive that does not answer",
                       o->layer);
    before = clock_ns();
    rc = reap(s, expert_reads_patience_ms(s->reads), err);
    s->stats.wait_ns += clock_ns() - before;
    return rc;
}

/* ---- more and fewer slots ---- */

/* The first slot from n on that a read may still write into; NO_SLOT: none. */
static uint32_t find_busy(const struct expert_store *s, uint32_t n)
{
    for (uint32_t i = n; i < s->slots.n; i++)
        if (s->slots.list[i].state == SLOT_READING || s->slots.list[i].state == SLOT_STALLED)
            return i;
    return NO_SLOT;
}

/* Until no read is under way into a slot from n on. What they bring stays, as after an order. */
static int settle_reads(struct expert_store *s, uint32_t n, struct err *err)
{
    for (uint32_t slot; (slot = find_busy(s, n)) != NO_SLOT;) {
        if (s->slots.list[slot].state == SLOT_STALLED) {
            uint32_t index = s->slots.list[slot].index;

            return err_set(err, ERR_IO,
                           "%u expert slots: a read of '%s' does not answer and may still write "
                           "into a slot that should go", n,
                           drives_name(s->opt.drives, s->opt.map->places[index].extents[0].file));
        }
        if (expert_reads_feed(s->reads, err) < 0 ||
            reap(s, expert_reads_patience_ms(s->reads), err) < 0)
            return -1;
        give_up_stalled(s, NULL);
    }
    return 0;
}

int expert_store_resize(struct expert_store *s, uint32_t n_slots, struct err *err)
{
    uint32_t least = expert_store_min_slots(s->opt.experts_per_token, s->opt.reads_in_flight);

    assert(!s->order.open);
    if (n_slots < least || n_slots > s->slots.most)
        return err_set(err, ERR_BUDGET, "%u expert slots: not between %u and %u", n_slots, least,
                       s->slots.most);
    if (settle_reads(s, n_slots, err) < 0)
        return -1;
    return expert_slots_resize(&s->slots, n_slots, err);
}

void expert_store_lock(struct expert_store *s)
{
    region_lock(&s->slots.region);
}

void expert_store_drop_reserve(struct expert_store *s)
{
    region_drop_reserve(&s->slots.region);
    s->slots.most = s->slots.n;
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
        evict_visit(s->slots.evict, ordinal);
    for (size_t i = 0; i < n; i++) {
        assert(experts[i] < s->n_experts);
        uint32_t slot = s->slots.slot_of[ordinal * s->n_experts + experts[i]];

        if (slot == NO_SLOT) {
            o->missing[o->n_missing++] = experts[i];
        } else if (s->slots.list[slot].state == SLOT_READING) {
            assert(!s->slots.list[slot].wanted);
            s->slots.list[slot].wanted = true;
            o->n_reading++;
        } else {
            expert_slots_hold(&s->slots, slot, SLOT_ORDERED);
            make_ready(o, slot);
            s->stats.hits++;
            s->slots.layers[ordinal].hits++;
        }
        if (!sweep)
            evict_use(s->slots.evict, ordinal, experts[i]);
    }
    s->stats.misses += o->n_missing + o->n_reading;
    s->slots.layers[ordinal].misses += o->n_missing + o->n_reading;
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
        expert_reads_count(o->store->reads) < o->store->opt.reads_in_flight)
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
            if (give_up_stalled(s, err) < 0)
                goto fail;
            return 3;
        }
        if (wait_for_read(o, since, err) < 0)
            goto fail;
    }
    if (state != 1)
        return state;

    uint32_t slot = o->ready[o->ready_head];
    struct slot *t = &s->slots.list[slot];
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
    struct slot *t = &o->store->slots.list[loan->slot];

    assert(o->open && t->state == SLOT_LENT && &t->w == loan->w);
    (void)t;
    o->n_lent--;
    expert_slots_release(&o->store->slots, loan->slot);
}

void expert_order_close(struct expert_order *o)
{
    if (!o)
        return;
    struct expert_store *s = o->store;

    assert(o->open && o->n_lent == 0);
    for (; o->n_ready > 0; o->n_ready--) {
        expert_slots_release(&s->slots, o->ready[o->ready_head]);
        o->ready_head = (o->ready_head + 1) % s->n_experts;
    }
    /* Reads under way go on; what they bring stays for whoever asks next. */
    for (uint32_t i = 0; o->n_reading > 0; i++)
        stop_wanting(s, i);
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
    struct expert_reads_stats reads;

    expert_reads_stats(s->reads, &reads);
    *out = s->stats;
    out->reads = reads.reads;
    out->retries = reads.retries;
    out->read_bytes = reads.bytes;
    out->evictions = s->slots.n_evictions;
    out->n_slots = s->slots.n;
    out->most_slots = s->slots.most;
    out->n_used = s->slots.n - s->slots.n_free;
}

/* ---- lists for people ---- */

uint32_t expert_store_layers(const struct expert_store *s, struct cz_expert_layer *out,
                             uint32_t cap)
{
    uint32_t n = s->opt.map->n_moe_layers < cap ? s->opt.map->n_moe_layers : cap;

    for (uint32_t i = 0; i < n; i++) {
        out[i] = s->slots.layers[i];
        out[i].layer = expert_reads_layer(s->reads, i * s->n_experts);
        out[i].n_experts = s->n_experts;
        out[i].n_resident = evict_slots(s->slots.evict, i);
    }
    return n;
}

uint32_t expert_store_hottest(const struct expert_store *s, struct cz_expert_heat *out,
                              uint32_t cap)
{
    uint32_t n_layers = s->opt.map->n_moe_layers;
    struct hottest hottest;

    hottest_begin(&hottest, out, cap);
    for (uint32_t ordinal = 0; ordinal < n_layers; ordinal++) {
        uint32_t layer = expert_reads_layer(s->reads, ordinal * s->n_experts);

        for (uint32_t e = 0; e < s->n_experts; e++) {
            double heat = evict_heat(s->slots.evict, ordinal, e);

            if (heat > 0.0)
                hottest_add(&hottest, (struct cz_expert_heat){
                    .layer = (uint16_t)layer, .expert = (uint16_t)e, .heat = (float)heat,
                    .resident = s->slots.slot_of[ordinal * s->n_experts + e] != NO_SLOT });
        }
    }
    return hottest_end(&hottest);
}

void expert_store_close(struct expert_store *s)
{
    if (!s)
        return;
    if (!expert_reads_close(s->reads))
        region_abandon(&s->slots.region); /* a drive that never answered may write there yet */
    expert_slots_close(&s->slots);
    free(s->scanned);
    free(s->order.ready);
    free(s->order.missing);
    free(s);
}
