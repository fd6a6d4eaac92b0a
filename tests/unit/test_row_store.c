/* Rows of the token embedding, read one by one from a drive or taken from memory. */
#include "store/row_store.h"

#include "fake_io.h"
#include "io/drives.h"
#include "util/clock.h"

#include <fcntl.h>
#include <unistd.h>

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
    const struct row_table table = { .parts = &t->tensor, .n_parts = 1 };
    if (row_store_open(&t->rows, &table, t->drives, &t->fake.io, depth, stall_ms, &err) < 0)
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

static void check_rows(struct table *t, const uint64_t *ids, uint32_t n)
{
    float *out = calloc((size_t)n * COLS, sizeof *out);
    struct err err = { 0 };

    assert_non_null(out);
    if (row_store_read(t->rows, out, ids, n, &err) < 0)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < COLS; c++)
            if (memcmp(&out[i * COLS + c],
                       &(float){ stored(t->tensor, ids[i] * COLS + c) }, 4) != 0)
                fail_msg("row %u (%u): column %u is wrong", i, (uint32_t)ids[i], c);
    free(out);
    assert_int_equal(t->fake.n_held, t->n_lost);
}

static const uint64_t some[] = { 0, 39, 1, 1, 1, 38, 20, 0, 39, 7, 8, 9, 10, 11, 12, 13, 14 };
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
    static const uint64_t last[] = { 39 };
    assert_int_equal(row_store_read(t.rows, out, last, 1, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    check_rows(&t, (const uint64_t[]){ 0, 1 }, 2);
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

    assert_int_equal(row_store_size(&t, 0, 8), 8 * 8192);
    t.dims[1] = 2049;
    assert_int_equal(row_store_size(&t, 0, 8), 8 * 12288);
}

/* Three parts in two files, rows of 160 bytes: dozens share a page of the drive. */
struct parted {
    struct fixture f;
    struct fake_io fake;
    struct drives *drives;
    struct row_store *rows;
    const struct tensor *parts[3];
};

enum { SMALL = 160, PART_ROWS = 300 };

static void open_parted(struct parted *p, enum dtype dtype, uint32_t cached)
{
    static const char *const names[] = { "shard_0", "shard_1", "shard_2" };
    struct err err = { 0 };

    *p = (struct parted){ 0 };
    fixture_init(&p->f, 2);
    for (uint32_t i = 0; i < 3; i++)
        p->parts[i] = fixture_tensor(&p->f, names[i], i == 1, 100 + 7 * i, dtype,
                                     PART_ROWS - 10 * i, SMALL);
    fixture_write(&p->f);
    fake_io_init(&p->fake);
    assert_int_equal(drives_open(&p->drives, &p->f.shards, true, &err), 0);
    const struct row_table table = { .parts = p->parts, .n_parts = 3, .scale = 0.25f,
                                     .cached = cached };
    assert_int_equal(row_store_open(&p->rows, &table, p->drives, &p->fake.io, 8, 0, &err), 0);
    assert_int_equal(row_store_rows(p->rows), 3 * PART_ROWS - 30);
}

static void close_parted(struct parted *p)
{
    row_store_close(p->rows);
    drives_close(p->drives);
    fixture_done(&p->f);
}

static void check_parted(struct parted *p, const uint64_t *ids, uint32_t n)
{
    float *out = calloc((size_t)n * SMALL, sizeof *out);
    struct err err = { 0 };

    if (row_store_read(p->rows, out, ids, n, &err) < 0)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t row = ids[i], part = 0;
        while (row >= p->parts[part]->dims[0])
            row -= p->parts[part++]->dims[0];
        for (uint32_t c = 0; c < SMALL; c++) {
            const struct tensor *t = p->parts[part];
            float want = t->dtype == DTYPE_BF16
                             ? stored(t, row * SMALL + c)
                             : dtype_f8_e4m3_to_f32(fixture_byte(
                                   t->file, t->offset + row * SMALL + c)) * 0.25f;
            assert_memory_equal(&out[i * SMALL + c], &want, sizeof want);
        }
    }
    free(out);
}

static void rows_of_a_table_in_parts_share_their_reads(void **state)
{
    (void)state;
    static const uint64_t edges[] = { 0, PART_ROWS - 1, PART_ROWS, 2 * PART_ROWS - 11,
                                      2 * PART_ROWS - 10, 3 * PART_ROWS - 31 };
    uint64_t all[3 * PART_ROWS - 30];
    struct row_store_stats stats;
    struct parted p;

    open_parted(&p, DTYPE_BF16, 0);
    check_parted(&p, edges, 6);
    for (uint32_t i = 0; i < 3 * PART_ROWS - 30; i++)
        all[i] = (i * 401u) % (3 * PART_ROWS - 30);
    check_parted(&p, all, 3 * PART_ROWS - 30);
    row_store_stats(p.rows, &stats);
    assert_int_equal(stats.hits, 0);
    assert_int_equal(stats.misses, 3 * PART_ROWS - 24);
    /* 278,400 bytes of rows in buffers of 8 KiB, asked for in four portions. */
    assert_true(stats.reads < 6 + 4 * 90);
    close_parted(&p);

    open_parted(&p, DTYPE_F8_E4M3, 0); /* the fixture's bytes are all numbers */
    check_parted(&p, all, 3 * PART_ROWS - 30);
    close_parted(&p);
}

static void a_code_for_no_number_is_named(void **state)
{
    (void)state;
    struct parted p;
    struct err err = { 0 };
    float out[2 * SMALL];

    open_parted(&p, DTYPE_F8_E4M3, 4);
    const struct tensor *t = p.parts[1];
    int fd = open(p.f.files[t->file].path, O_WRONLY);
    assert_int_equal(pwrite(fd, "\x7f", 1, (off_t)(t->offset + 12 * SMALL + 5)), 1);
    close(fd);
    const uint64_t ids[] = { PART_ROWS + 12, PART_ROWS + 13 };
    for (int again = 0; again < 2; again++) {
        assert_int_equal(row_store_read(p.rows, out, ids, 2, &err), -1);
        assert_int_equal(err.kind, ERR_NUMERIC);
        assert_non_null(strstr(err.text, "row 12 of 'shard_1' holds the code 0x7f"));
    }
    check_parted(&p, ids + 1, 1);
    close_parted(&p);
}

static void what_was_read_last_is_not_read_again(void **state)
{
    (void)state;
    static const uint64_t few[] = { 3, 800, 3, 450, 3 }, others[] = { 5, 6, 7, 8 };
    struct row_store_stats before, after;
    struct parted p;

    open_parted(&p, DTYPE_BF16, 6);
    check_parted(&p, few, 5);
    row_store_stats(p.rows, &before);
    assert_int_equal(before.misses, 5);
    assert_int_equal(before.reads, 3);
    check_parted(&p, few, 5);
    row_store_stats(p.rows, &after);
    assert_int_equal(after.reads, before.reads);
    assert_int_equal(after.hits, 5);

    check_parted(&p, others, 4); /* 800 was unused for longest, and makes way */
    row_store_stats(p.rows, &before);
    check_parted(&p, few + 2, 2);
    row_store_stats(p.rows, &after);
    assert_int_equal(after.reads, before.reads);
    check_parted(&p, few + 1, 1);
    row_store_stats(p.rows, &after);
    assert_int_equal(after.reads, before.reads + 1);
    close_parted(&p);
}

static void a_cache_of_any_size_gives_the_same_rows(void **state)
{
    (void)state;
    for (uint32_t cached = 1; cached < 2000; cached = cached * 3 + 1) {
        struct parted p;
        uint64_t ids[400], seed = cached;

        open_parted(&p, DTYPE_BF16, cached);
        p.fake.reorder = true;
        for (int round = 0; round < 4; round++) {
            for (int i = 0; i < 400; i++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                ids[i] = (seed >> 33) % (i % 2 ? 60 : 3 * PART_ROWS - 30);
            }
            check_parted(&p, ids, 400);
        }
        close_parted(&p);
    }
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
    assert_int_equal(row_store_read(s, out, (const uint64_t[]){ 2, 0, 1 }, 3, &err), 0);
    static const float want[6] = { 0.5f, 3.0f, 1.0f, 2.0f, -1.0f, 0.0f };
    assert_memory_equal(out, want, sizeof want);
    row_store_close(s);
}

static void tables_that_are_no_tables_are_refused(void **state)
{
    (void)state;
    struct row_store *s = NULL;
    struct err err = { 0 };
    struct tensor t = { .name = "embed", .dtype = DTYPE_I64, .n_dims = 2, .dims = { 2, 2 } }, u;
    const struct tensor *parts[] = { &t, &u };
    const struct row_table table = { .parts = parts, .n_parts = 2 };

    assert_int_equal(row_store_open(&s, &table, NULL, NULL, 4, 0, &err), -1);
    assert_int_equal(err.kind, ERR_UNSUPPORTED);
    t.dtype = DTYPE_BF16;
    t.size = 9;
    assert_int_equal(row_store_open(&s, &table, NULL, NULL, 4, 0, &err), -1);
    assert_int_equal(err.kind, ERR_FORMAT);
    t.size = 8;
    u = t;
    u.name = "other";
    u.dims[1] = 4;
    u.dims[0] = 1;
    assert_int_equal(row_store_open(&s, &table, NULL, NULL, 4, 0, &err), -1);
    assert_int_equal(err.kind, ERR_FORMAT);
    assert_non_null(strstr(err.text, "'other'"));
    assert_int_equal(row_store_open(&s, &table, NULL, NULL, 0, 0, &err), -1);
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
        cmocka_unit_test(rows_of_a_table_in_parts_share_their_reads),
        cmocka_unit_test(a_code_for_no_number_is_named),
        cmocka_unit_test(what_was_read_last_is_not_read_again),
        cmocka_unit_test(a_cache_of_any_size_gives_the_same_rows),
        cmocka_unit_test(rows_of_a_resident_table_need_no_drive),
        cmocka_unit_test(tables_that_are_no_tables_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
