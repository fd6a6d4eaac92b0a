/* Rows of the token embedding, read one by one from a drive or taken from memory. */
#include "store/row_store.h"

#include "fake_io.h"
#include "io/drives.h"
#include "util/clock.h"

enum { ROWS = 40, COLS = 1500 };

struct table {
    struct fixture f;
    struct fake_io fake;
    struct drives *drives;
    struct row_store *rows;
    const struct tensor *tensor;
    uint32_t n_lost; /* reads that will never end */
};

static void open_patient(struct table *t, enum dtype dtype, uint32_t depth, uint32_t stall_ms)
{
    struct err err = { 0 };

    *t = (struct table){ 0 };
    fixture_init(&t->f, 1);
    t->tensor = fixture_tensor(&t->f, "embed", 0, 4093, dtype, ROWS, COLS);
    fixture_write(&t->f);
    fake_io_init(&t->fake);
    assert_int_equal(drives_open(&t->drives, &t->f.shards, true, &err), 0);
    if (row_store_open(&t->rows, t->tensor, t->drives, &t->fake.io, depth, stall_ms, &err) <
        0)
        fail_msg("%s", err.text);
}

static void open_table(struct table *t, enum dtype dtype, uint32_t depth)
{
    open_patient(t, dtype, depth, 0);
}

static void close_table(struct table *t)
{
    row_store_close(t->rows);
    drives_close(t->drives);
    fixture_done(&t->f);
}

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

static void check_rows(struct table *t, const uint32_t *ids, uint32_t n)
{
    float *out = calloc((size_t)n * COLS, sizeof *out);
    struct err err = { 0 };

    assert_non_null(out);
    if (row_store_read(t->rows, out, ids, n, &err) < 0)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < COLS; c++)
            if (memcmp(&out[i * COLS + c],
                       &(float){ stored(t->tensor, (uint64_t)ids[i] * COLS + c) }, 4) != 0)
                fail_msg("row %u (%u): column %u is wrong", i, ids[i], c);
    free(out);
    assert_int_equal(t->fake.n_held, t->n_lost);
}

static const uint32_t some[] = { 0, 39, 1, 1, 1, 38, 20, 0, 39, 7, 8, 9, 10, 11, 12, 13, 14 };
enum { N_SOME = sizeof some / sizeof *some };

static void rows_come_as_f32_in_the_order_of_their_ids(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = { DTYPE_BF16, DTYPE_F32 };

    for (int d = 0; d < 2; d++) {
        for (uint32_t depth = 1; depth <= 64; depth *= 8) {
            struct table t;

            open_table(&t, dtypes[d], depth);
            check_rows(&t, some, N_SOME);
            check_rows(&t, some + 5, 1);
            check_rows(&t, some, 0);
            assert_true(t.fake.most_held <= depth);
            close_table(&t);
        }
    }
}

static void a_drive_that_reorders_delays_and_fails_once_changes_nothing(void **state)
{
    (void)state;
    struct table t;

    open_table(&t, DTYPE_BF16, 5);
    t.fake.reorder = true;
    t.fake.delay = 4;
    t.fake.fail_one_in = 3;
    t.fake.retries_work = true;
    t.fake.room = 3;
    for (int i = 0; i < 5; i++)
        check_rows(&t, some, N_SOME);
    close_table(&t);
}

static void a_row_that_cannot_be_read_is_an_error_and_the_store_lives(void **state)
{
    (void)state;
    struct table t;
    struct err err = { 0 };
    static float out[N_SOME * COLS];

    open_table(&t, DTYPE_BF16, 3);
    t.fake.fail_one_in = 1;
    assert_int_equal(row_store_read(t.rows, out, some, N_SOME, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "of 'embed'"));
    assert_non_null(strstr(err.text, "shard-0.safetensors"));
    t.fake.fail_one_in = 0;
    check_rows(&t, some, N_SOME); /* reads of before that end now are nobody's */
    assert_int_equal(t.fake.n_held, 0);

    assert_int_equal(truncate(t.f.files[0].path, 20000), 0);
    static const uint32_t last[] = { 39 };
    assert_int_equal(row_store_read(t.rows, out, last, 1, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    check_rows(&t, (const uint32_t[]){ 0, 1 }, 2);
    close_table(&t);
}

static void a_silent_drive_is_an_error_in_time_and_the_store_lives(void **state)
{
    (void)state;
    struct table t;
    struct err err = { 0 };
    static float out[N_SOME * COLS];

    open_patient(&t, DTYPE_BF16, 4, 60);
    t.fake.never_once = true; /* one buffer is lost, the others serve */
    uint64_t before = clock_ms();
    assert_int_equal(row_store_read(t.rows, out, some, N_SOME, &err), -1);
    assert_in_range(clock_ms() - before, 55, 10000);
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "no answer for 60 ms"));
    assert_non_null(strstr(err.text, "shard-0.safetensors"));
    t.n_lost = 1;
    for (int i = 0; i < 4; i++)
        check_rows(&t, some, N_SOME);

    t.n_lost = 0;
    t.fake.silent = true; /* all are lost: each call ends in its time */
    for (int i = 0; i < 3; i++)
        assert_int_equal(row_store_read(t.rows, out, some, N_SOME, &err), -1);
    fake_io_answer(&t.fake);
    for (int i = 0; i < 4; i++)
        check_rows(&t, some, N_SOME);

    t.fake.silent = true;
    assert_int_equal(row_store_read(t.rows, out, some, N_SOME, &err), -1);
    before = clock_ms();
    close_table(&t);
    assert_in_range(clock_ms() - before, IO_CLOSE_MS / 2, IO_CLOSE_MS + 10000);
}

static void buffers_are_what_was_promised(void **state)
{
    (void)state;
    struct tensor t = { .dtype = DTYPE_BF16, .n_dims = 2, .dims = { 10, 2048 } };

    assert_int_equal(row_store_size(&t, 8), 8 * 8192);
    t.dims[1] = 2049;
    assert_int_equal(row_store_size(&t, 8), 8 * 12288);
}

static void rows_of_a_resident_table_need_no_drive(void **state)
{
    (void)state;
    static const uint16_t bf16[3][2] = { { 0x3F80, 0x4000 }, { 0xBF80, 0x0000 }, { 0x3F00, 0x4040 } };
    const struct matrix m = { .dtype = DTYPE_BF16, .rows = 3, .cols = 2, .data = bf16 };
    struct row_store *s = NULL;
    struct err err = { 0 };
    float out[6];

    assert_int_equal(row_store_open_resident(&s, &m, &err), 0);
    assert_int_equal(row_store_read(s, out, (const uint32_t[]){ 2, 0, 1 }, 3, &err), 0);
    static const float want[6] = { 0.5f, 3.0f, 1.0f, 2.0f, -1.0f, 0.0f };
    assert_memory_equal(out, want, sizeof want);
    row_store_close(s);
}

static void tables_that_are_no_tables_are_refused(void **state)
{
    (void)state;
    struct row_store *s = NULL;
    struct err err = { 0 };
    struct tensor t = { .name = "embed", .dtype = DTYPE_F8_E4M3, .n_dims = 2, .dims = { 2, 2 } };

    assert_int_equal(row_store_open(&s, &t, NULL, NULL, 4, 0, &err), -1);
    assert_int_equal(err.kind, ERR_UNSUPPORTED);
    t.dtype = DTYPE_BF16;
    t.size = 9;
    assert_int_equal(row_store_open(&s, &t, NULL, NULL, 4, 0, &err), -1);
    assert_int_equal(err.kind, ERR_FORMAT);
    t.size = 8;
    assert_int_equal(row_store_open(&s, &t, NULL, NULL, 0, 0, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    const struct matrix m = { .dtype = DTYPE_F8_E4M3, .rows = 1, .cols = 1, .data = "x" };
    assert_int_equal(row_store_open_resident(&s, &m, &err), -1);
    assert_int_equal(err.kind, ERR_UNSUPPORTED);
    assert_null(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_as_f32_in_the_order_of_their_ids),
        cmocka_unit_test(a_drive_that_reorders_delays_and_fails_once_changes_nothing),
        cmocka_unit_test(a_row_that_cannot_be_read_is_an_error_and_the_store_lives),
        cmocka_unit_test(a_silent_drive_is_an_error_in_time_and_the_store_lives),
        cmocka_unit_test(buffers_are_what_was_promised),
        cmocka_unit_test(rows_of_a_resident_table_need_no_drive),
        cmocka_unit_test(tables_that_are_no_tables_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
