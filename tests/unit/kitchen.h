/* kitchen: an expert store over a made-up checkpoint and a drive that does what the test wants.
 *
 * Every loan is checked byte by byte against what the checkpoint must hold there. */
#ifndef TESTS_KITCHEN_H
#define TESTS_KITCHEN_H

#include "store/expert_store.h"

#include "fake_io.h"
#include "io/drives.h"
#include "store/expert_map.h"

/* A checkpoint, its drives and map, a store over a drive that obeys. */
struct kitchen {
    struct fixture f;
    struct fake_io fake;
    struct io *threads; /* instead of the fake one, when not NULL */
    struct drives *drives;
    struct expert_map *map;
    float *scales;
    struct expert_store *store;
    uint64_t extents; /* of the layout: reads of one expert */
};

enum layout { PLAIN, SCATTERED };

static inline void lay_out_sized(struct kitchen *k, enum layout layout, enum dtype dtype,
                                 uint32_t n_layers, uint32_t n_experts, uint32_t width,
                                 uint32_t hidden)
{
    struct err err = { 0 };

    *k = (struct kitchen){ 0 };
    fixture_init(&k->f, 3);
    fixture_tensor(&k->f, "odd", 0, 0, DTYPE_U8, 0, 333);
    fixture_experts(&k->f, n_layers, n_experts, width, hidden);
    if (layout == PLAIN) {
        fixture_plain_experts(&k->f, 0, dtype);
        k->extents = 1;
    } else {
        for (uint32_t i = 0; i < n_layers * n_experts * N_PARTS; i++) {
            uint32_t file = i % 3;
            bool down = i % N_PARTS == PART_DOWN;

            k->f.catalog.expert_tensors[i] =
                fixture_tensor(&k->f, "scattered", file, fixture_end(&k->f, file) + i % 7, dtype,
                               down ? hidden : width, down ? width : hidden);
        }
        k->extents = 3;
    }
    fixture_write(&k->f);
    if (expert_map_open(&k->map, &k->f.catalog, &err) < 0)
        fail_msg("%s", err.text);
    k->scales = calloc((size_t)n_layers * n_experts * 6, sizeof *k->scales);
    assert_non_null(k->scales);
    fake_io_init(&k->fake);
}

static inline void lay_out(struct kitchen *k, enum layout layout, enum dtype dtype,
                           uint32_t n_layers, uint32_t n_experts)
{
    lay_out_sized(k, layout, dtype, n_layers, n_experts, 48, 130);
}

/* most_slots 0: it will not grow. */
static inline void open_growing(struct kitchen *k, uint32_t n_slots, uint32_t most_slots,
                                uint32_t reads, uint32_t stall_ms, bool direct)
{
    struct err err = { 0 };
    bool scaled = k->map->scale_floats[0] > 0;

    if (drives_open(&k->drives, &k->f.shards, direct, &err) < 0)
        fail_msg("%s", err.text);
    const struct expert_store_options opt = {
        .map = k->map, .drives = k->drives, .io = k->threads ? k->threads : &k->fake.io,
        .scales = scaled ? k->scales : NULL, .n_slots = n_slots, .most_slots = most_slots,
        .reads_in_flight = reads, .stall_timeout_ms = stall_ms,
    };
    if (expert_store_open(&k->store, &opt, &err) < 0)
        fail_msg("%s", err.text);
}

static inline void open_store(struct kitchen *k, uint32_t n_slots, uint32_t reads,
                              uint32_t stall_ms, bool direct)
{
    open_growing(k, n_slots, 0, reads, stall_ms, direct);
}

static inline void close_all(struct kitchen *k)
{
    expert_store_close(k->store);
    io_close(k->threads);
    drives_close(k->drives);
    expert_map_close(k->map);
    free(k->scales);
    fixture_done(&k->f);
}

static inline struct expert_store_stats stats_of(const struct kitchen *k)
{
    struct expert_store_stats stats;

    expert_store_stats(k->store, &stats);
    return stats;
}

static inline void check_matrix(const struct matrix *m, const struct tensor *t)
{
    const uint8_t *bytes = m->data;

    assert_int_equal(m->rows, t->dims[0]);
    assert_int_equal(m->cols, t->dims[1]);
    assert_int_equal(m->dtype, t->dtype);
    for (uint64_t i = 0; i < t->size; i++)
        if (bytes[i] != fixture_byte(t->file, t->offset + i))
            fail_msg("'%s': byte %" PRIu64 " is wrong", t->name, i);
}

/* The loan holds the expert it names, byte by byte. */
static inline void check_loan(const struct kitchen *k, const struct expert_loan *loan)
{
    size_t at = fixture_part(&k->f, loan->id.layer, loan->id.expert, PART_GATE);
    const struct tensor **t = &k->f.catalog.expert_tensors[at];

    assert_int_equal(loan->place, PLACE_HOST);
    check_matrix(&loan->w->gate, t[PART_GATE]);
    check_matrix(&loan->w->up, t[PART_UP]);
    check_matrix(&loan->w->down, t[PART_DOWN]);
    if (k->map->scale_floats[0]) {
        const float *scales = k->scales + at / N_PARTS * 6;

        assert_ptr_equal(loan->w->gate.scales, scales);
        assert_ptr_equal(loan->w->up.scales, scales + 2);
        assert_ptr_equal(loan->w->down.scales, scales + 4);
    } else {
        assert_null(loan->w->gate.scales);
    }
}

static inline struct expert_order *place_order(struct kitchen *k, uint16_t layer,
                                               const uint16_t *experts, size_t n)
{
    struct expert_order *o = NULL;
    struct err err = { 0 };

    if (expert_store_order(k->store, &o, layer, experts, n, &err) < 0)
        fail_msg("%s", err.text);
    return o;
}

/* Takes, checks and returns every loan, one at a time. 0, or -1 with err. */
static inline int serve(struct kitchen *k, uint16_t layer, const uint16_t *experts, size_t n,
                        struct err *err)
{
    struct expert_order *o = NULL;
    struct expert_loan loan;
    bool seen[256] = { false };
    size_t n_seen = 0;
    int rc;

    if (expert_store_order(k->store, &o, layer, experts, n, err) < 0)
        return -1;
    while ((rc = expert_order_next(o, &loan, true, err)) == 1) {
        assert_int_equal(loan.id.layer, layer);
        assert_false(seen[loan.id.expert]);
        seen[loan.id.expert] = true;
        n_seen++;
        check_loan(k, &loan);
        expert_order_return(o, &loan);
    }
    expert_order_close(o);
    assert_true(rc == 0 || rc == -1);
    if (rc < 0)
        return -1;
    assert_int_equal(n_seen, n);
    for (size_t i = 0; i < n; i++)
        assert_true(seen[experts[i]]);
    return 0;
}

static inline void serve_ok(struct kitchen *k, uint16_t layer, const uint16_t *experts, size_t n)
{
    struct err err = { 0 };

    if (serve(k, layer, experts, n, &err) < 0)
        fail_msg("%s", err.text);
}

/* All experts of a layer, in no order. */
static const uint16_t all16[16] = { 3, 0, 1, 2, 15, 14, 4, 5, 9, 8, 6, 7, 13, 12, 10, 11 };

static inline uint32_t random_below(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

/* n distinct experts below 16, in any order. */
static inline size_t random_order(uint16_t *out, uint64_t *seed)
{
    size_t n = 1 + random_below(seed, 16);

    memcpy(out, all16, sizeof all16);
    for (uint32_t i = 15; i > 0; i--) {
        uint32_t j = random_below(seed, i + 1);
        uint16_t t = out[i];

        out[i] = out[j];
        out[j] = t;
    }
    return n;
}

/* One order as a caller might behave: several loans held, returned in any order, checked
 * when taken and when returned, sometimes given up halfway. How many loans, or -1. */
static inline int live_through(struct kitchen *k, uint16_t layer, const uint16_t *experts, size_t n,
                               uint64_t *seed, bool *failed)
{
    struct expert_order *o = NULL;
    struct expert_loan held[16];
    struct err err = { 0 };
    bool seen[16] = { false };
    uint32_t n_held = 0, n_slots = stats_of(k).n_slots, n_taken = 0;
    uint32_t leave_at = random_below(seed, 8) == 0 ? random_below(seed, (uint32_t)n) : UINT32_MAX;
    int rc = 1;

    *failed = false;
    if (expert_store_order(k->store, &o, layer, experts, n, &err) < 0) {
        assert_int_equal(err.kind, ERR_IO);
        *failed = true;
        return 0;
    }
    while (rc != 0 && n_taken != leave_at) {
        bool give = n_held > 0 && random_below(seed, 2) == 0;

        if (!give) {
            rc = expert_order_next(o, &held[n_held], random_below(seed, 2) == 0, &err);
            if (rc < 0)
                break;
            if (rc == 1) {
                assert_false(seen[held[n_held].id.expert]);
                seen[held[n_held].id.expert] = true;
                check_loan(k, &held[n_held++]);
                n_taken++;
            }
            assert_true(rc != 2 || (n_held > 0 && n_held <= n_slots));
            give = rc == 2;
        }
        if (give) {
            uint32_t i = random_below(seed, n_held);

            check_loan(k, &held[i]);
            expert_order_return(o, &held[i]);
            held[i] = held[--n_held];
        }
    }
    while (n_held > 0) {
        check_loan(k, &held[--n_held]);
        expert_order_return(o, &held[n_held]);
    }
    expert_order_close(o);
    if (rc < 0) {
        assert_int_equal(err.kind, ERR_IO);
        *failed = true;
    }
    if (rc == 0)
        assert_int_equal(n_taken, n);
    return (int)n_taken;
}

#endif
