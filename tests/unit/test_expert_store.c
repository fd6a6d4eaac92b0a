/* Orders and loans of experts, over a drive that delays, reorders, fails and falls silent. */
#include "store/expert_store.h"

#include "fake_io.h"
#include "io/drives.h"
#include "store/expert_map.h"
#include "util/clock.h"

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

static void lay_out_sized(struct kitchen *k, enum layout layout, enum dtype dtype,
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

static void lay_out(struct kitchen *k, enum layout layout, enum dtype dtype, uint32_t n_layers,
                    uint32_t n_experts)
{
    lay_out_sized(k, layout, dtype, n_layers, n_experts, 48, 130);
}

static void open_store(struct kitchen *k, uint32_t n_slots, uint32_t reads, uint32_t stall_ms,
                       bool direct)
{
    struct err err = { 0 };
    bool scaled = k->map->scale_floats[0] > 0;

    if (drives_open(&k->drives, &k->f.shards, direct, &err) < 0)
        fail_msg("%s", err.text);
    const struct expert_store_options opt = {
        .map = k->map, .drives = k->drives, .io = k->threads ? k->threads : &k->fake.io,
        .scales = scaled ? k->scales : NULL, .n_slots = n_slots, .reads_in_flight = reads,
        .stall_timeout_ms = stall_ms,
    };
    if (expert_store_open(&k->store, &opt, &err) < 0)
        fail_msg("%s", err.text);
}

static void close_all(struct kitchen *k)
{
    expert_store_close(k->store);
    io_close(k->threads);
    drives_close(k->drives);
    expert_map_close(k->map);
    free(k->scales);
    fixture_done(&k->f);
}

static struct expert_store_stats stats_of(const struct kitchen *k)
{
    struct expert_store_stats stats;

    expert_store_stats(k->store, &stats);
    return stats;
}

static void check_matrix(const struct matrix *m, const struct tensor *t)
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
static void check_loan(const struct kitchen *k, const struct expert_loan *loan)
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

static struct expert_order *place_order(struct kitchen *k, uint16_t layer,
                                        const uint16_t *experts, size_t n)
{
    struct expert_order *o = NULL;
    struct err err = { 0 };

    if (expert_store_order(k->store, &o, layer, experts, n, &err) < 0)
        fail_msg("%s", err.text);
    return o;
}

/* Takes, checks and returns every loan, one at a time. 0, or -1 with err. */
static int serve(struct kitchen *k, uint16_t layer, const uint16_t *experts, size_t n,
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

static void serve_ok(struct kitchen *k, uint16_t layer, const uint16_t *experts, size_t n)
{
    struct err err = { 0 };

    if (serve(k, layer, experts, n, &err) < 0)
        fail_msg("%s", err.text);
}

static const uint16_t all16[16] = { 3, 0, 1, 2, 15, 14, 4, 5, 9, 8, 6, 7, 13, 12, 10, 11 };

static void an_order_larger_than_the_cache_still_completes(void **state)
{
    (void)state;
    for (uint32_t slots = 1; slots <= 5; slots++) {
        for (enum layout layout = PLAIN; layout <= SCATTERED; layout++) {
            struct kitchen k;

            lay_out(&k, layout, DTYPE_BF16, 2, 16);
            open_store(&k, slots, 1, 0, true);
            for (uint16_t round = 0; round < 4; round++)
                serve_ok(&k, round % 2, all16, 16);
            assert_int_equal(stats_of(&k).orders, 4);
            assert_int_equal(stats_of(&k).hits + stats_of(&k).misses, 64);
            assert_int_equal(stats_of(&k).n_used, slots);
            close_all(&k);
        }
    }
}

static void each_expert_of_an_order_is_read_once(void **state)
{
    (void)state;
    struct kitchen k;

    lay_out(&k, SCATTERED, DTYPE_F8_E4M3, 2, 16);
    open_store(&k, 4, 2, 0, true);
    for (uint16_t round = 0; round < 6; round++) {
        uint64_t reads = stats_of(&k).reads, misses = stats_of(&k).misses;

        serve_ok(&k, round % 2, all16, 16);
        assert_int_equal(stats_of(&k).reads - reads,
                         (stats_of(&k).misses - misses) * k.extents);
        assert_true(stats_of(&k).misses - misses <= 16);
    }
    close_all(&k);
}

static void what_is_resident_comes_first_and_costs_no_read(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };
    struct expert_loan loan;

    lay_out(&k, PLAIN, DTYPE_F8_E4M3, 1, 16);
    open_store(&k, 8, 2, 0, true);
    serve_ok(&k, 0, (const uint16_t[]){ 5, 6, 7 }, 3);
    uint64_t bytes = stats_of(&k).read_bytes;
    assert_true(bytes >= 3 * k.map->weight_bytes);

    k.fake.silent = true;
    struct expert_order *o = place_order(&k, 0, (const uint16_t[]){ 1, 7, 2, 5, 6 }, 5);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(expert_order_next(o, &loan, false, &err), 1);
        assert_true(loan.id.expert >= 5);
        check_loan(&k, &loan);
        expert_order_return(o, &loan);
    }
    assert_int_equal(expert_order_next(o, &loan, false, &err), 3);
    fake_io_answer(&k.fake);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(expert_order_next(o, &loan, true, &err), 1);
        check_loan(&k, &loan);
        expert_order_return(o, &loan);
    }
    assert_int_equal(expert_order_next(o, &loan, true, &err), 0);
    expert_order_close(o);
    assert_int_equal(stats_of(&k).hits, 3);
    assert_int_equal(stats_of(&k).misses, 5);
    close_all(&k);
}

static void two_is_said_only_while_every_slot_is_lent(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };
    struct expert_loan loans[3], more;

    lay_out(&k, PLAIN, DTYPE_BF16, 1, 16);
    open_store(&k, 3, 2, 0, true);
    struct expert_order *o = place_order(&k, 0, all16, 16);

    for (int i = 0; i < 3; i++)
        assert_int_equal(expert_order_next(o, &loans[i], true, &err), 1);
    assert_int_equal(expert_order_next(o, &more, true, &err), 2);
    assert_int_equal(expert_order_next(o, &more, false, &err), 2);
    for (int left = 13; left > 0; left--) {
        for (int i = 0; i < 3; i++)
            check_loan(&k, &loans[i]); /* a loan stays what it was */
        expert_order_return(o, &loans[left % 3]);
        assert_int_equal(expert_order_next(o, &loans[left % 3], true, &err), 1);
    }
    for (int i = 0; i < 3; i++)
        expert_order_return(o, &loans[i]);
    assert_int_equal(expert_order_next(o, &more, true, &err), 0);
    expert_order_close(o);
    assert_int_equal(stats_of(&k).misses, 16);
    assert_int_equal(stats_of(&k).reads, 16);
    close_all(&k);
}

static void reads_under_way_are_limited(void **state)
{
    (void)state;
    struct kitchen k;

    lay_out(&k, SCATTERED, DTYPE_F32, 1, 16);
    open_store(&k, 16, 3, 0, true);
    k.fake.delay = 4;
    serve_ok(&k, 0, all16, 16);
    assert_true(k.fake.most_held <= 3 * k.extents);
    assert_true(k.fake.most_held >= 2 * k.extents); /* and really several at once */
    assert_true(k.fake.most_bytes <= 12 << 20);
    close_all(&k);
}

static void a_crowded_io_is_no_fault(void **state)
{
    (void)state;
    struct kitchen k;

    lay_out(&k, SCATTERED, DTYPE_F32, 1, 16);
    open_store(&k, 16, 4, 0, true);
    k.fake.room = 1;
    k.fake.delay = 1;
    serve_ok(&k, 0, all16, 16);
    close_all(&k);
}

static void a_large_expert_comes_in_pieces(void **state)
{
    (void)state;
    struct kitchen k;
    static const uint16_t both[2] = { 1, 0 };

    lay_out_sized(&k, PLAIN, DTYPE_BF16, 1, 2, 1200, 1151); /* 8.3 MB each */
    open_store(&k, 2, 2, 0, true);
    k.fake.reorder = true;
    k.fake.delay = 3;
    k.fake.fail_one_in = 2;
    k.fake.retries_work = true;
    serve_ok(&k, 0, both, 2);
    assert_int_equal(stats_of(&k).reads, 4 + stats_of(&k).retries);
    assert_true(k.fake.most_bytes <= 12 << 20);
    assert_true(k.fake.most_held >= 2);
    close_all(&k);
}

static void computing_slowly_costs_no_warm_expert_more_than_needed(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };
    struct expert_loan loan;
    struct expert_order *o;

    lay_out(&k, PLAIN, DTYPE_BF16, 2, 16);
    open_store(&k, 16, 2, 0, true);
    serve_ok(&k, 0, all16, 16);
    o = place_order(&k, 1, all16, 16); /* the drive is at once done with each read */
    for (int i = 0; i < 16; i++) {
        assert_int_equal(expert_order_next(o, &loan, true, &err), 1);
        expert_order_return(o, &loan);
    }
    expert_order_close(o);
    assert_int_equal(stats_of(&k).n_used, 16);
    uint64_t misses = stats_of(&k).misses;
    serve_ok(&k, 0, all16, 16);
    assert_true(stats_of(&k).misses - misses <= 5); /* two read, two ready, one lent */
    close_all(&k);
}

static void nearly_all_slots_are_used_once_enough_was_asked_for(void **state)
{
    (void)state;
    struct kitchen k;

    lay_out(&k, PLAIN, DTYPE_F8_E4M3, 4, 16);
    open_store(&k, 40, 2, 0, true);
    for (uint16_t layer = 0; layer < 4; layer++)
        for (uint16_t i = 0; i < 16; i += 4)
            serve_ok(&k, layer, all16 + i, 4);
    assert_int_equal(stats_of(&k).n_used, 40);
    close_all(&k);

    lay_out(&k, PLAIN, DTYPE_F8_E4M3, 4, 16); /* sweeps fill free slots as well */
    open_store(&k, 40, 2, 0, true);
    for (uint16_t layer = 0; layer < 4; layer++)
        serve_ok(&k, layer, all16, 16);
    assert_int_equal(stats_of(&k).n_used, 40);
    close_all(&k);
}

static void a_sweep_leaves_the_hot_experts_in_their_slots(void **state)
{
    (void)state;
    struct kitchen k;
    static const uint16_t hot[4] = { 2, 4, 8, 15 };

    lay_out(&k, PLAIN, DTYPE_BF16, 4, 16);
    open_store(&k, 22, 2, 0, true);
    for (int token = 0; token < 20; token++)
        for (uint16_t layer = 0; layer < 4; layer++)
            serve_ok(&k, layer, hot, 4);
    for (int sweep = 0; sweep < 3; sweep++)
        for (uint16_t layer = 0; layer < 4; layer++)
            serve_ok(&k, layer, all16, 16);
    uint64_t misses = stats_of(&k).misses;
    for (uint16_t layer = 0; layer < 4; layer++)
        serve_ok(&k, layer, hot, 4);
    assert_int_equal(stats_of(&k).misses, misses);
    close_all(&k);
}

static void a_failed_read_is_tried_once_more(void **state)
{
    (void)state;
    struct kitchen k;

    lay_out(&k, SCATTERED, DTYPE_BF16, 1, 16);
    open_store(&k, 6, 2, 0, true);
    k.fake.fail_one_in = 4;
    k.fake.retries_work = true;
    k.fake.reorder = true;
    k.fake.delay = 2;
    serve_ok(&k, 0, all16, 16);
    assert_true(stats_of(&k).retries > 0);
    assert_int_equal(stats_of(&k).reads, 48 + stats_of(&k).retries);
    close_all(&k);
}

static void a_read_that_fails_twice_fails_the_order_and_not_the_store(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };

    lay_out(&k, PLAIN, DTYPE_BF16, 2, 16);
    open_store(&k, 6, 1, 0, true);
    k.fake.fail_from = k.fake.n_ended + 4;
    k.fake.fail_count = 2;
    assert_int_equal(serve(&k, 1, all16, 16, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    const struct tensor *t = k.f.catalog.expert_tensors[fixture_part(&k.f, 1, 15, PART_DOWN)];
    char offset[32];
    snprintf(offset, sizeof offset, "byte %" PRIu64 " ", t->offset / 4096 * 4096);
    assert_non_null(strstr(err.text, "layer 1 expert 15"));
    assert_non_null(strstr(err.text, "shard-0.safetensors"));
    assert_non_null(strstr(err.text, offset));

    serve_ok(&k, 1, all16, 16);
    serve_ok(&k, 0, all16, 16);
    assert_int_equal(stats_of(&k).retries, 1);
    close_all(&k);
}

static void after_an_error_an_order_gives_no_more_loans(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };
    struct expert_loan first, loan;

    lay_out(&k, PLAIN, DTYPE_BF16, 1, 16);
    open_store(&k, 6, 1, 0, true);
    struct expert_order *o = place_order(&k, 0, all16, 16);
    assert_int_equal(expert_order_next(o, &first, true, &err), 1);
    k.fake.fail_one_in = 1;
    while (expert_order_next(o, &loan, true, &err) == 1)
        expert_order_return(o, &loan);
    assert_int_equal(err.kind, ERR_IO);
    k.fake.fail_one_in = 0;
    assert_int_equal(expert_order_next(o, &loan, true, &err), -1);
    assert_int_equal(expert_order_next(o, &loan, false, &err), -1);
    check_loan(&k, &first);
    expert_order_return(o, &first);
    expert_order_close(o);
    serve_ok(&k, 0, all16, 16);
    close_all(&k);
}

static void a_shard_cut_short_is_an_error_and_the_store_lives(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };

    for (int direct = 0; direct < 2; direct++) {
        lay_out(&k, PLAIN, DTYPE_BF16, 2, 16);
        open_store(&k, 6, 1, 0, direct);
        serve_ok(&k, 0, all16, 2);
        const struct tensor *t = k.f.catalog.expert_tensors[fixture_part(&k.f, 1, 9, PART_DOWN)];
        assert_int_equal(truncate(k.f.files[0].path, (off_t)t->offset + 100), 0);
        assert_int_equal(serve(&k, 1, all16, 16, &err), -1);
        assert_int_equal(err.kind, ERR_IO);
        assert_non_null(strstr(err.text, "cut short"));
        serve_ok(&k, 0, all16, 16);
        close_all(&k);
    }
}

static void a_nan_code_is_refused_with_tensor_and_byte(void **state)
{
    (void)state;
    static const uint8_t nan_codes[2] = { 0x7F, 0xFF };

    for (int i = 0; i < 2; i++) {
        struct kitchen k;
        struct err err = { 0 };

        lay_out(&k, PLAIN, DTYPE_F8_E4M3, 2, 16);
        open_store(&k, 6, 2, 0, true);
        const struct tensor *t = k.f.catalog.expert_tensors[fixture_part(&k.f, 1, 14, PART_UP)];
        fixture_poke(&k.f, 0, t->offset + 6239, &nan_codes[i], 1);
        assert_int_equal(serve(&k, 1, all16, 16, &err), -1);
        assert_int_equal(err.kind, ERR_FORMAT);
        assert_non_null(strstr(err.text, "model.layers.1.mlp.experts.14.up_proj.weight"));
        assert_non_null(strstr(err.text, "element 6239 "));
        assert_int_equal(serve(&k, 1, (const uint16_t[]){ 14 }, 1, &err), -1);
        assert_int_equal(err.kind, ERR_FORMAT);
        serve_ok(&k, 1, all16, 4);
        serve_ok(&k, 0, all16, 16);
        close_all(&k);
    }
}

static void a_nan_code_in_bf16_bytes_is_no_nan(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };
    struct expert_loan loan;
    static const uint8_t byte = 0x7F;

    lay_out(&k, PLAIN, DTYPE_BF16, 1, 16);
    open_store(&k, 6, 2, 0, true);
    const struct tensor *t = k.f.catalog.expert_tensors[fixture_part(&k.f, 0, 14, PART_UP)];
    fixture_poke(&k.f, 0, t->offset + 11, &byte, 1);
    struct expert_order *o = place_order(&k, 0, (const uint16_t[]){ 14 }, 1);
    assert_int_equal(expert_order_next(o, &loan, true, &err), 1);
    assert_int_equal(((const uint8_t *)loan.w->up.data)[11], 0x7F);
    expert_order_return(o, &loan);
    expert_order_close(o);
    close_all(&k);
}

static void a_silent_drive_ends_the_order_in_time(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };

    lay_out(&k, PLAIN, DTYPE_BF16, 2, 16);
    open_store(&k, 4, 1, 80, true);
    serve_ok(&k, 0, all16, 2);
    k.fake.silent = true;
    uint64_t before = clock_ms();
    assert_int_equal(serve(&k, 1, all16, 16, &err), -1);
    assert_in_range(clock_ms() - before, 75, 10000);
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "layer 1 expert 3"));
    assert_non_null(strstr(err.text, "shard-0.safetensors"));

    /* What is resident is still served; the rest fails in its time, also when no slot
     * is left that no read may write into. */
    serve_ok(&k, 0, all16, 2);
    for (int i = 0; i < 5; i++)
        assert_int_equal(serve(&k, 1, all16, 16, &err), -1);
    assert_int_equal(err.kind, ERR_IO);

    fake_io_answer(&k.fake);
    for (uint16_t round = 0; round < 4; round++)
        serve_ok(&k, round % 2, all16, 16);
    assert_int_equal(stats_of(&k).n_used, 4);
    close_all(&k);
}

static void a_stalled_slot_is_left_alone_until_its_read_ends(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };

    lay_out(&k, PLAIN, DTYPE_BF16, 1, 16);
    open_store(&k, 3, 2, 60, true);
    k.fake.never_once = true;
    assert_int_equal(serve(&k, 0, all16, 16, &err), -1);
    for (int round = 0; round < 3; round++)
        serve_ok(&k, 0, all16, 16); /* through the other slots, content checked */
    fake_io_answer(&k.fake);
    serve_ok(&k, 0, all16, 16);
    serve_ok(&k, 0, all16, 16);
    assert_int_equal(k.fake.n_held, 0);
    close_all(&k);
}

static void an_order_may_be_closed_with_reads_under_way(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };
    struct expert_loan loan;

    lay_out(&k, SCATTERED, DTYPE_BF16, 2, 16);
    open_store(&k, 5, 2, 0, true);
    k.fake.delay = 3;
    k.fake.reorder = true;
    for (uint32_t taken = 0; taken < 6; taken++) {
        struct expert_order *o = place_order(&k, (uint16_t)(taken % 2), all16, 16);

        for (uint32_t i = 0; i < taken; i++) {
            assert_int_equal(expert_order_next(o, &loan, true, &err), 1);
            check_loan(&k, &loan);
            expert_order_return(o, &loan);
        }
        expert_order_close(o);
    }
    serve_ok(&k, 0, all16, 16);
    expert_order_close(place_order(&k, 1, all16, 16));
    close_all(&k); /* and the store too */
}

static uint32_t random_below(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

/* n distinct experts below 16, in any order. */
static size_t random_order(uint16_t *out, uint64_t *seed)
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
static int live_through(struct kitchen *k, uint16_t layer, const uint16_t *experts, size_t n,
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

static void every_loan_is_right_whatever_the_drive_does(void **state)
{
    (void)state;
    uint32_t n_loans = 0, n_failed = 0;

    for (uint32_t run = 0; run < 24; run++) {
        struct kitchen k;
        uint64_t seed = run * 77 + 5;

        lay_out(&k, run % 2 ? PLAIN : SCATTERED, run % 3 ? DTYPE_F8_E4M3 : DTYPE_BF16, 3, 16);
        uint32_t slots = 1 + run % 9 + (run % 4 == 3 ? 30 : 0), reads = 1 + run % 4;
        open_store(&k, slots, reads < slots ? reads : slots, 0, run % 5 != 0);
        k.fake.seed = seed;
        k.fake.reorder = run % 2 == 0;
        k.fake.delay = run % 5;
        k.fake.fail_one_in = run % 4 == 1 ? 12 : 0;
        k.fake.room = run % 6 == 5 ? 2 : FAKE_IO_MAX;
        for (int i = 0; i < 60; i++) {
            uint16_t experts[16], layer = (uint16_t)random_below(&seed, 3);
            size_t n = random_order(experts, &seed);
            bool failed;

            n_loans += (uint32_t)live_through(&k, layer, experts, n, &seed, &failed);
            n_failed += failed;
            assert_true(!failed || k.fake.fail_one_in > 0);
        }
        assert_true(stats_of(&k).evictions > 0 || stats_of(&k).n_slots >= 31);
        close_all(&k);
    }
    print_message("%u loans checked, %u orders failed on purpose\n", n_loans, n_failed);
    assert_true(n_loans > 5000);
    assert_true(n_failed > 0);
}

static void threads_and_drives_give_the_same_bytes(void **state)
{
    (void)state;
    for (int run = 0; run < 4; run++) {
        struct kitchen k;
        struct err err = { 0 };
        uint64_t seed = (uint64_t)run + 1;

        lay_out(&k, run % 2 ? PLAIN : SCATTERED, DTYPE_F8_E4M3, 3, 16);
        assert_int_equal(io_open(&k.threads, IO_THREADS, 3, &err), 0);
        open_store(&k, 3 + (uint32_t)run * 9, 3, 10000, run >= 2);
        for (int i = 0; i < 60; i++) {
            uint16_t experts[16], layer = (uint16_t)random_below(&seed, 3);
            size_t n = random_order(experts, &seed);
            bool failed;

            live_through(&k, layer, experts, n, &seed, &failed);
            assert_false(failed);
        }
        close_all(&k);
    }
}

static void too_few_slots_are_refused_with_the_number_needed(void **state)
{
    (void)state;
    struct kitchen k;
    struct err err = { 0 };

    lay_out(&k, PLAIN, DTYPE_BF16, 1, 16);
    open_store(&k, 10, 2, 0, true);
    struct expert_store_options opt = {
        .map = k.map, .drives = k.drives, .io = &k.fake.io, .n_slots = 9,
        .reads_in_flight = 2, .experts_per_token = 8,
    };
    struct expert_store *s = NULL;
    assert_int_equal(expert_store_min_slots(8, 2), 10);
    assert_int_equal(expert_store_open(&s, &opt, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
    assert_non_null(strstr(err.text, "10"));
    opt.n_slots = 10;
    assert_int_equal(expert_store_open(&s, &opt, &err), 0);
    expert_store_close(s);
    close_all(&k);
}

static void hints_change_nothing_that_is_answered(void **state)
{
    (void)state;
    struct kitchen k;
    static const struct expert_id ids[2] = { { 0, 3 }, { 1, 4 } };

    lay_out(&k, PLAIN, DTYPE_BF16, 2, 16);
    open_store(&k, 4, 2, 0, true);
    expert_store_hint(k.store, ids, 2);
    serve_ok(&k, 0, all16, 16);
    assert_int_equal(stats_of(&k).hinted, 2);
    close_all(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_order_larger_than_the_cache_still_completes),
        cmocka_unit_test(each_expert_of_an_order_is_read_once),
        cmocka_unit_test(what_is_resident_comes_first_and_costs_no_read),
        cmocka_unit_test(two_is_said_only_while_every_slot_is_lent),
        cmocka_unit_test(reads_under_way_are_limited),
        cmocka_unit_test(a_crowded_io_is_no_fault),
        cmocka_unit_test(a_large_expert_comes_in_pieces),
        cmocka_unit_test(computing_slowly_costs_no_warm_expert_more_than_needed),
        cmocka_unit_test(nearly_all_slots_are_used_once_enough_was_asked_for),
        cmocka_unit_test(a_sweep_leaves_the_hot_experts_in_their_slots),
        cmocka_unit_test(a_failed_read_is_tried_once_more),
        cmocka_unit_test(a_read_that_fails_twice_fails_the_order_and_not_the_store),
        cmocka_unit_test(after_an_error_an_order_gives_no_more_loans),
        cmocka_unit_test(a_shard_cut_short_is_an_error_and_the_store_lives),
        cmocka_unit_test(a_nan_code_is_refused_with_tensor_and_byte),
        cmocka_unit_test(a_nan_code_in_bf16_bytes_is_no_nan),
        cmocka_unit_test(a_silent_drive_ends_the_order_in_time),
        cmocka_unit_test(a_stalled_slot_is_left_alone_until_its_read_ends),
        cmocka_unit_test(an_order_may_be_closed_with_reads_under_way),
        cmocka_unit_test(every_loan_is_right_whatever_the_drive_does),
        cmocka_unit_test(threads_and_drives_give_the_same_bytes),
        cmocka_unit_test(too_few_slots_are_refused_with_the_number_needed),
        cmocka_unit_test(hints_change_nothing_that_is_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
