/* Dense weights that become FP8 as they are loaded: the bits are those of the whole matrix rounded
 * at once, whatever buffers, threads and the drive do. */
#include "resident_fixture.h"

#include "kernels/quantize.h"
#include "util/pool.h"

/* One matrix of each kind, of whole blocks and not, one of many reads; and what stays. The
 * fixture's bytes are finite as BF16 and as F32. */
static void lay_out_dense(struct house *h)
{
    *h = (struct house){ .f8_dense = true };
    fixture_init(&h->f, 2);
    h->f.shape.tied_embeddings = true;
    h->items = calloc(64, sizeof *h->items);
    assert_non_null(h->items);
    h->f.catalog.items = h->items;

    add_item(h, "embed", ROLE_EMBEDDING, 0, 1, DTYPE_BF16, 50, 33);
    add_item(h, "linear.bf16", ROLE_LINEAR, 0, 0, DTYPE_BF16, 256, 128);
    add_scale(h, add_item(h, "attention.fp8", ROLE_ATTENTION, 0, 0, DTYPE_F8_E4M3, 300, 257),
              DTYPE_BF16);
    add_item(h, "router.bf16", ROLE_ROUTER, 0, 1, DTYPE_BF16, 17, 19);
    add_item(h, "streams.f32", ROLE_STREAMS, 0, 0, DTYPE_F32, 4, 1029);
    add_item(h, "norm.bf16", ROLE_NORM, 0, 0, DTYPE_BF16, 0, 1001);
    add_item(h, "shared.bf16", ROLE_SHARED, 0, 0, DTYPE_BF16, 1, 257);
    add_item(h, "ngram.f32", ROLE_NGRAM, 1, 3, DTYPE_F32, 129, 130);
    add_item(h, "mlp.bf16", ROLE_DENSE_MLP, 1, 0, DTYPE_BF16, 385, 127);
    add_item(h, "attention.bf16", ROLE_ATTENTION, 1, 0, DTYPE_BF16, 1200, 1111);
    add_item(h, "head.bf16", ROLE_HEAD, 1, 70001, DTYPE_BF16, 1023, 640);
    fixture_write(&h->f);
    fake_io_init(&h->fake);
}

static bool becomes_f8(const struct catalog_item *item)
{
    return strchr("lsnmah", item->want.name[0]) && item->want.n_dims == 2 && !item->scale;
}

static void check_f8(const struct matrix *m, const struct tensor *t)
{
    uint64_t row_size = t->size / t->dims[0], n_blocks = size_div_up(t->dims[1], 128);
    uint8_t *raw = malloc(t->size), *codes = malloc(t->dims[0] * t->dims[1]);
    float *scales = malloc(size_div_up(t->dims[0], 128) * n_blocks * sizeof *scales);

    assert_true(raw && codes && scales);
    for (uint64_t i = 0; i < t->size; i++)
        raw[i] = fixture_byte(t->file, t->offset + i);
    for (uint64_t row = 0; row < t->dims[0]; row += 128) {
        const struct quantize_strip strip = {
            .weights = raw + row * row_size, .dtype = t->dtype,
            .rows = (uint32_t)(t->dims[0] - row < 128 ? t->dims[0] - row : 128),
            .cols = (uint32_t)t->dims[1], .codes = codes + row * t->dims[1],
            .scales = scales + row / 128 * n_blocks,
        };
        assert_true(quantize_strip(&strip, NULL));
    }
    assert_int_equal(m->dtype, DTYPE_F8_E4M3);
    assert_int_equal(m->rows, t->dims[0]);
    assert_int_equal(m->cols, t->dims[1]);
    if (memcmp(m->data, codes, t->dims[0] * t->dims[1]) != 0)
        fail_msg("'%s': codes are wrong", t->name);
    if (memcmp(m->scales, scales, size_div_up(t->dims[0], 128) * n_blocks * sizeof *scales) != 0)
        fail_msg("'%s': scales are wrong", t->name);
    free(raw);
    free(codes);
    free(scales);
}

static void check_dense(const struct house *h)
{
    struct err err = { 0 };
    uint32_t n = 0;

    for (uint32_t i = 0; i < h->f.catalog.n_items; i++) {
        const struct catalog_item *item = &h->items[i];
        struct matrix m;

        if (item->want.n_dims == 1)
            continue;
        assert_int_equal(resident_matrix(&m, h->resident, item->want.name, &err), 0);
        assert_int_equal((uintptr_t)m.data % 64, 0);
        if (becomes_f8(item)) {
            check_f8(&m, item->tensor);
            n++;
            continue;
        }
        assert_int_equal(m.dtype, item->tensor->dtype);
        for (uint64_t b = 0; b < item->tensor->size; b++)
            if (((const uint8_t *)m.data)[b] !=
                fixture_byte(item->tensor->file, item->tensor->offset + b))
                fail_msg("'%s': byte %" PRIu64 " is wrong", item->want.name, b);
    }
    assert_int_equal(n, 7);
}

static void dense_weights_become_fp8_whatever_buffers_and_threads(void **state)
{
    (void)state;
    static const uint64_t sizes[] = { LOADER_LEAST_BYTES, 100000, 1 << 20, 40 << 20 };
    struct house h;
    struct err err = { 0 };

    lay_out_dense(&h);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(pool_open(&h.pool, (uint32_t)i + 1, &err), 0);
        open_ok(&h, &h.fake.io, sizes[i]);
        check_dense(&h);
        resident_close(h.resident);
        h.resident = NULL;
        pool_close(h.pool);
    }
    h.pool = NULL;
    open_ok(&h, &h.fake.io, BUFFERS);
    check_dense(&h);
    tear_down(&h);
}

static void the_order_of_reads_changes_no_bit_of_fp8(void **state)
{
    (void)state;
    struct house h;
    struct io *io = NULL;
    struct err err = { 0 };

    lay_out_dense(&h);
    h.fake.reorder = true;
    h.fake.delay = 5;
    h.fake.fail_one_in = 5;
    h.fake.retries_work = true;
    for (uint64_t bytes = LOADER_LEAST_BYTES; bytes < 3 << 20; bytes *= 9) {
        open_ok(&h, &h.fake.io, bytes);
        check_dense(&h);
        resident_close(h.resident);
    }
    h.fake.room = 1;
    open_ok(&h, &h.fake.io, BUFFERS);
    check_dense(&h);
    resident_close(h.resident);

    assert_int_equal(io_open(&io, IO_AUTO, 4, &err), 0);
    open_ok(&h, io, 300000);
    check_dense(&h);
    tear_down(&h);
    io_close(io);
}

static void the_size_of_fp8_is_known_to_the_byte(void **state)
{
    (void)state;
    struct house h;
    uint64_t by_role[N_ROLES];

    lay_out_dense(&h);
    resident_size(by_role, &h.f.catalog, true);
    assert_int_equal(by_role[ROLE_EMBEDDING], size_up(50 * 33 * 2, 64));
    assert_int_equal(by_role[ROLE_ROUTER], size_up(17 * 19 * 2, 64));
    assert_int_equal(by_role[ROLE_NORM], 4032);
    assert_int_equal(by_role[ROLE_LINEAR], 256 * 128 + 64); /* 2 scales */
    assert_int_equal(by_role[ROLE_STREAMS], size_up(4 * 1029, 64) + 64);
    assert_int_equal(by_role[ROLE_NGRAM], size_up(129 * 130, 64) + 64);
    assert_int_equal(by_role[ROLE_ATTENTION], size_up(300 * 257, 64) + 64 +
                                              size_up(1200 * 1111, 64) + size_up(10 * 9 * 4, 64));
    assert_int_equal(by_role[ROLE_HEAD], 1023 * 640 + size_up(8 * 5 * 4, 64));
    /* One strip of the widest beside it, never a whole matrix. */
    assert_int_equal(resident_strip_size(&h.f.catalog, true), size_up(128 * 1111 * 2, 4096));
    assert_int_equal(resident_strip_size(&h.f.catalog, false), 0);
    tear_down(&h);
}

static void a_weight_that_cannot_be_rounded_is_refused_by_name(void **state)
{
    (void)state;
    static const uint8_t nan[2] = { 0xC0, 0x7F };

    for (int small = 0; small < 2; small++) {
        struct house h;
        struct err err = { 0 };

        lay_out_dense(&h);
        const struct tensor *t = h.items[9].tensor;
        fixture_poke(&h.f, 1, t->offset + 2 * (700 * 1111 + 300), nan, sizeof nan);
        assert_int_equal(open_with(&h, &h.fake.io, small ? LOADER_LEAST_BYTES : BUFFERS, &err), -1);
        assert_int_equal(err.kind, ERR_FORMAT);
        assert_non_null(strstr(err.text, "'attention.bf16': element 778000 is not finite"));
        assert_null(h.resident);
        assert_int_equal(h.fake.n_held, 0);
        tear_down(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_weights_become_fp8_whatever_buffers_and_threads),
        cmocka_unit_test(the_order_of_reads_changes_no_bit_of_fp8),
        cmocka_unit_test(the_size_of_fp8_is_known_to_the_byte),
        cmocka_unit_test(a_weight_that_cannot_be_rounded_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
