/* Loading what stays in memory: the file's bytes, whatever the buffers and the drive do. */
#include "resident_fixture.h"

#include "util/clock.h"

#include <math.h>

/* Every kind of tensor, at odd bytes, one larger than a read, small ones in between. */
static void lay_out(struct house *h, bool tied)
{
    *h = (struct house){ 0 };
    fixture_init(&h->f, 2);
    h->f.shape.tied_embeddings = tied;
    h->items = calloc(64, sizeof *h->items);
    assert_non_null(h->items);
    h->f.catalog.items = h->items;

    add_item(h, "embed", ROLE_EMBEDDING, 0, 1, DTYPE_BF16, 50, 33);
    add_item(h, "norm.bf16", ROLE_NORM, 0, 0, DTYPE_BF16, 0, 1001);
    add_scale(h, add_item(h, "attention.fp8", ROLE_ATTENTION, 0, 0, DTYPE_F8_E4M3, 300, 257),
              DTYPE_BF16);
    add_item(h, "norm.f32", ROLE_NORM, 0, 2, DTYPE_F32, 0, 77);
    add_item(h, "router.f32", ROLE_ROUTER, 0, 0, DTYPE_F32, 17, 19);
    add_scale(h, add_item(h, "head.fp8", ROLE_HEAD, 0, 100000, DTYPE_F8_E4M3, 2500, 3001),
              DTYPE_F32);
    add_item(h, "dense.f16", ROLE_DENSE_MLP, 1, 3, DTYPE_F16, 21, 23);
    add_item(h, "norm.one", ROLE_NORM, 1, 0, DTYPE_BF16, 0, 1);
    add_item(h, "attention.bf16", ROLE_ATTENTION, 1, 0, DTYPE_BF16, 1200, 1111);
    fixture_experts(&h->f, 2, 5, 130, 260);
    fixture_plain_experts(&h->f, 1, DTYPE_F8_E4M3);
    fixture_write(&h->f);
    fake_io_init(&h->fake);
}

/* Element i of a stored tensor, by the definition of its type. */
static float stored(const struct tensor *t, uint64_t i)
{
    uint64_t at = t->offset + i * (t->dtype == DTYPE_F32 ? 4 : 2);
    uint32_t low = fixture_byte(t->file, at) | (uint32_t)fixture_byte(t->file, at + 1) << 8;
    uint32_t bits = low << 16;
    float value;

    if (t->dtype == DTYPE_F32)
        bits = low | (uint32_t)fixture_byte(t->file, at + 2) << 16 |
               (uint32_t)fixture_byte(t->file, at + 3) << 24;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void check_floats(const float *got, const struct tensor *t, uint64_t n)
{
    assert_int_equal((uintptr_t)got % 4, 0);
    for (uint64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &(float){ stored(t, i) }, sizeof *got) != 0)
            fail_msg("'%s': element %" PRIu64 " is wrong", t->name, i);
}

static void check_all(const struct house *h)
{
    struct err err = { 0 };

    for (uint32_t i = 0; i < h->f.catalog.n_items; i++) {
        const struct catalog_item *item = &h->items[i];
        const struct tensor *t = item->tensor;
        struct matrix m;
        const float *v;

        if (item->want.role == ROLE_EMBEDDING && !h->f.shape.tied_embeddings) {
            assert_int_equal(resident_matrix(&m, h->resident, item->want.name, &err), -1);
            continue;
        }
        if (item->want.n_dims == 1) {
            assert_int_equal(resident_vector(&v, h->resident, item->want.name,
                                             item->want.dims[0], &err), 0);
            assert_int_equal((uintptr_t)v % 64, 0);
            check_floats(v, t, item->want.dims[0]);
            continue;
        }
        assert_int_equal(resident_matrix(&m, h->resident, item->want.name, &err), 0);
        assert_int_equal(m.dtype, t->dtype);
        assert_int_equal(m.rows, t->dims[0]);
        assert_int_equal(m.cols, t->dims[1]);
        assert_int_equal((uintptr_t)m.data % 64, 0);
        for (uint64_t b = 0; b < t->size; b++)
            if (((const uint8_t *)m.data)[b] != fixture_byte(t->file, t->offset + b))
                fail_msg("'%s': byte %" PRIu64 " is wrong", t->name, b);
        if (item->scale)
            check_floats(m.scales, item->scale, item->scale->dims[0] * item->scale->dims[1]);
        else
            assert_null(m.scales);
    }

    const float *scales = resident_expert_scales(h->resident);
    uint32_t n_each = resident_scales_per_expert(h->resident);
    assert_int_equal(n_each, 6 + 6 + 6); /* 130 x 260 in blocks of 128: 2 x 3 */
    for (uint32_t i = 0; i < 2 * 5 * N_PARTS; i++)
        check_floats(scales + i / N_PARTS * n_each + i % N_PARTS * 6,
                     h->f.catalog.expert_scales[i], 6);
}

static void every_tensor_is_in_memory_as_it_is_in_the_file(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct house h;

        lay_out(&h, tied);
        open_ok(&h, &h.fake.io, BUFFERS);
        check_all(&h);
        tear_down(&h);
    }
}

static void buffers_of_any_size_give_the_same(void **state)
{
    (void)state;
    static const uint64_t sizes[] = { LOADER_LEAST_BYTES, 100000, 3 << 20, 40 << 20 };
    struct house h;
    struct err err = { 0 };

    lay_out(&h, true);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        h.fake.most_bytes = 0;
        open_ok(&h, &h.fake.io, sizes[i]);
        check_all(&h);
        assert_true(h.fake.most_bytes <= sizes[i]);
        assert_true(h.fake.most_bytes <= 15 << 20);
        resident_close(h.resident);
        h.resident = NULL;
    }
    assert_int_equal(open_with(&h, &h.fake.io, LOADER_LEAST_BYTES - 1, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
    tear_down(&h);
}

static void the_order_in_which_reads_end_does_not_matter(void **state)
{
    (void)state;
    struct house h;
    struct io *io = NULL;
    struct err err = { 0 };

    lay_out(&h, true);
    h.fake.reorder = true;
    h.fake.delay = 5;
    h.fake.fail_one_in = 5;
    h.fake.retries_work = true;
    open_ok(&h, &h.fake.io, 200000);
    check_all(&h);
    resident_close(h.resident);

    h.fake.room = 1;
    open_ok(&h, &h.fake.io, BUFFERS);
    check_all(&h);
    resident_close(h.resident);

    assert_int_equal(io_open(&io, IO_AUTO, 4, &err), 0);
    open_ok(&h, io, BUFFERS);
    check_all(&h);
    tear_down(&h);
    io_close(io);
}

static void small_neighbours_share_a_read(void **state)
{
    (void)state;
    struct house h;

    lay_out(&h, false);
    open_ok(&h, &h.fake.io, 40 << 20);
    /* 8 tensors, 2 scales and 30 experts' scales, nine megabytes: the gap before the
     * head, the untied embedding and the weights of experts cut some apart. */
    assert_true(h.fake.n_reads < 20);
    tear_down(&h);
}

static void the_size_is_known_beforehand_by_role(void **state)
{
    (void)state;
    struct house h;
    uint64_t by_role[N_ROLES], sum = 0;

    lay_out(&h, false);
    uint64_t total = resident_size(by_role, &h.f.catalog, false);
    assert_int_equal(by_role[ROLE_EMBEDDING], 0);
    assert_int_equal(by_role[ROLE_NORM], 4032 + 320 + 64); /* 1001, 77 and 1 floats */
    assert_int_equal(by_role[ROLE_ROUTER], size_up(17 * 19 * 4, 64));
    assert_int_equal(by_role[ROLE_ATTENTION], size_up(300 * 257, 64) + 64 /* 9 scales */ +
                                              size_up(1200 * 1111 * 2, 64));
    assert_int_equal(by_role[ROLE_HEAD], size_up(2500 * 3001, 64) + size_up(20 * 24 * 4, 64));
    assert_int_equal(by_role[ROLE_EXPERT], size_up(2 * 5 * 18 * 4, 64));
    for (int role = 0; role < N_ROLES; role++)
        sum += by_role[role];
    assert_int_equal(total, size_up(sum, 2 << 20));

    h.f.shape.tied_embeddings = true;
    resident_size(by_role, &h.f.catalog, false);
    assert_int_equal(by_role[ROLE_EMBEDDING], size_up(50 * 33 * 2, 64));
    tear_down(&h);
}

static void a_nan_code_is_refused_with_tensor_and_element(void **state)
{
    (void)state;
    static const uint64_t elements[] = { 0, 4200000, 7502499 };
    static const uint8_t nan_code = 0xFF;

    for (int i = 0; i < 3; i++) {
        struct house h;
        struct err err = { 0 };
        char want[64];

        lay_out(&h, false);
        const struct tensor *t = h.items[5].tensor;
        fixture_poke(&h.f, 0, t->offset + elements[i], &nan_code, 1);
        snprintf(want, sizeof want, "'head.fp8': element %" PRIu64 " ", elements[i]);
        assert_int_equal(open_with(&h, &h.fake.io, BUFFERS, &err), -1);
        assert_int_equal(err.kind, ERR_FORMAT);
        assert_non_null(strstr(err.text, want));
        assert_non_null(strstr(err.text, "shard-0.safetensors"));
        assert_null(h.resident);
        assert_int_equal(h.fake.n_held, 0);
        tear_down(&h);
    }
}

static void a_scale_that_is_not_finite_is_refused_by_name(void **state)
{
    (void)state;
    static const uint8_t infinity[2] = { 0x80, 0x7F };
    struct house h;
    struct err err = { 0 };

    lay_out(&h, false);
    const struct tensor *t = h.f.catalog.expert_scales[fixture_part(&h.f, 1, 3, PART_UP)];
    fixture_poke(&h.f, 1, t->offset + 4, infinity, 2);
    assert_int_equal(open_with(&h, &h.fake.io, BUFFERS, &err), -1);
    assert_int_equal(err.kind, ERR_FORMAT);
    assert_non_null(strstr(err.text, "experts.3.up_proj.weight_scale_inv': element 2 "));
    tear_down(&h);
}

static void a_file_cut_short_is_an_error_that_names_it(void **state)
{
    (void)state;
    struct house h;
    struct err err = { 0 };

    lay_out(&h, false);
    assert_int_equal(drives_open(&h.drives, &h.f.shards, true, &err), 0);
    assert_int_equal(truncate(h.f.files[1].path, 100000), 0);
    assert_int_equal(open_with(&h, &h.fake.io, BUFFERS, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "shard-1.safetensors"));
    assert_non_null(strstr(err.text, "cut short"));
    assert_int_equal(h.fake.n_held, 0);
    tear_down(&h);
}

static void a_read_that_fails_twice_ends_loading_with_none_under_way(void **state)
{
    (void)state;
    struct house h;
    struct err err = { 0 };

    lay_out(&h, false);
    h.fake.delay = 3;
    h.fake.reorder = true;
    h.fake.fail_from = 2;
    h.fake.fail_count = 1000000;
    assert_int_equal(open_with(&h, &h.fake.io, BUFFERS, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    assert_int_equal(h.fake.n_held, 0);
    tear_down(&h);
}

struct told {
    uint64_t last, total, give_up_at;
    int n;
};

static bool tell(void *ctx, uint64_t done, uint64_t total)
{
    struct told *t = ctx;

    assert_true(done >= t->last && done <= total);
    t->last = done;
    t->total = total;
    t->n++;
    return done < t->give_up_at;
}

static void progress_ends_at_the_total_and_may_give_up(void **state)
{
    (void)state;
    struct house h;
    struct told told = { .give_up_at = UINT64_MAX };
    struct err err = { 0 };

    lay_out(&h, false);
    assert_int_equal(drives_open(&h.drives, &h.f.shards, true, &err), 0);
    const struct load_means means = { .drives = h.drives, .io = &h.fake.io,
                                      .buffer_bytes = BUFFERS, .progress = tell, .ctx = &told };
    assert_int_equal(resident_open(&h.resident, &h.f.catalog, false, &means, &err), 0);
    assert_true(told.n >= 1);
    assert_int_equal(told.last, told.total);
    assert_true(told.total > 300 * 257 + 2500 * 3001);
    resident_close(h.resident);
    h.resident = NULL;

    told = (struct told){ 0 };
    assert_int_equal(resident_open(&h.resident, &h.f.catalog, false, &means, &err), -1);
    assert_int_equal(err.kind, ERR_CANCELLED);
    assert_int_equal(h.fake.n_held, 0);
    tear_down(&h);
}

static void a_silent_drive_ends_loading_in_time_and_is_named(void **state)
{
    (void)state;
    struct house h;
    struct told told = { .give_up_at = UINT64_MAX };
    struct err err = { 0 };
    _Atomic uint64_t n_ended = 0;

    lay_out(&h, false);
    assert_int_equal(drives_open(&h.drives, &h.f.shards, true, &err), 0);
    h.fake.never_once = true; /* the first read of all */
    h.fake.io.ended = &n_ended;
    const struct load_means means = { .drives = h.drives, .io = &h.fake.io,
                                      .buffer_bytes = BUFFERS, .stall_timeout_ms = 200,
                                      .progress = tell, .ctx = &told };
    uint64_t before = clock_ms();
    assert_int_equal(resident_open(&h.resident, &h.f.catalog, false, &means, &err), -1);
    assert_in_range(clock_ms() - before, 200, IO_CLOSE_MS + 20000);
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "no answer for 200 ms to a read of 'shard-"));
    assert_true(told.n >= 2); /* whoever waits for it hears something meanwhile */
    assert_int_equal(n_ended, h.fake.n_ended);
    assert_true(n_ended > 10); /* the others came */
    tear_down(&h);
}

static void wrong_questions_are_answered_with_the_name(void **state)
{
    (void)state;
    struct house h;
    struct err err = { 0 };
    struct matrix m;
    const float *v;

    lay_out(&h, false);
    open_ok(&h, &h.fake.io, BUFFERS);
    assert_int_equal(resident_matrix(&m, h.resident, "nobody", &err), -1);
    assert_int_equal(err.kind, ERR_FORMAT);
    assert_non_null(strstr(err.text, "nobody"));
    assert_int_equal(resident_matrix(&m, h.resident, "norm.f32", &err), -1);
    assert_int_equal(resident_vector(&v, h.resident, "router.f32", 17, &err), -1);
    assert_int_equal(resident_vector(&v, h.resident, "norm.f32", 78, &err), -1);
    assert_non_null(strstr(err.text, "norm.f32"));
    tear_down(&h);
}

static void without_expert_scales_there_is_no_block_of_them(void **state)
{
    (void)state;
    struct house h = { 0 };
    uint64_t by_role[N_ROLES];

    fixture_init(&h.f, 1);
    h.items = calloc(4, sizeof *h.items);
    assert_non_null(h.items);
    h.f.catalog.items = h.items;
    add_item(&h, "norm", ROLE_NORM, 0, 7, DTYPE_F32, 0, 5);
    fixture_experts(&h.f, 1, 2, 8, 16);
    fixture_plain_experts(&h.f, 0, DTYPE_BF16);
    fixture_write(&h.f);
    fake_io_init(&h.fake);
    open_ok(&h, &h.fake.io, BUFFERS);
    assert_null(resident_expert_scales(h.resident));
    assert_int_equal(resident_scales_per_expert(h.resident), 0);
    resident_size(by_role, &h.f.catalog, false);
    assert_int_equal(by_role[ROLE_EXPERT], 0);
    tear_down(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_is_in_memory_as_it_is_in_the_file),
        cmocka_unit_test(buffers_of_any_size_give_the_same),
        cmocka_unit_test(the_order_in_which_reads_end_does_not_matter),
        cmocka_unit_test(small_neighbours_share_a_read),
        cmocka_unit_test(the_size_is_known_beforehand_by_role),
        cmocka_unit_test(a_nan_code_is_refused_with_tensor_and_element),
        cmocka_unit_test(a_scale_that_is_not_finite_is_refused_by_name),
        cmocka_unit_test(a_file_cut_short_is_an_error_that_names_it),
        cmocka_unit_test(a_read_that_fails_twice_ends_loading_with_none_under_way),
        cmocka_unit_test(progress_ends_at_the_total_and_may_give_up),
        cmocka_unit_test(a_silent_drive_ends_loading_in_time_and_is_named),
        cmocka_unit_test(wrong_questions_are_answered_with_the_name),
        cmocka_unit_test(without_expert_scales_there_is_no_block_of_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
