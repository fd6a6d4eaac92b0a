/* The small things everything stands on: errors, sizes, arenas. */
#include "util/arena.h"
#include "util/err.h"
#include "util/size.h"
#include "util/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void an_error_tells_where_it_was(void **state)
{
    struct err err;

    (void)state;
    assert_int_equal(err_set(&err, ERR_FORMAT, "tensor '%s': too short", "a"), -1);
    assert_int_equal(err_within(&err, "shard %d", 3), -1);
    assert_string_equal(err.text, "shard 3: tensor 'a': too short");
    assert_int_equal(err.kind, ERR_FORMAT);
    errno = ENOENT;
    err_errno(&err, "open '%s'", "x");
    assert_string_equal(err.text, "open 'x': No such file or directory");
    assert_int_equal(err.kind, ERR_IO);
    assert_int_equal(err_set(NULL, ERR_IO, "nobody cares"), -1);
}

static void a_long_error_is_cut_and_stays_a_string(void **state)
{
    char longer[2000];
    struct err err;

    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    err_set(&err, ERR_IO, "%s", longer);
    err_within(&err, "%s", longer);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

static void an_error_is_utf8_where_a_character_was_cut(void **state)
{
    char longer[2000];
    struct err err;

    (void)state;
    err_set(&err, ERR_INPUT, "'%.3s' is no size", "\xc3\xa9\xc3\xa9");
    assert_string_equal(err.text, "'\xc3\xa9?' is no size");
    err_within(&err, "%.4s", "\xf0\x9f\x98\x80");
    assert_string_equal(err.text, "\xf0\x9f\x98\x80: '\xc3\xa9?' is no size");
    errno = ENOENT;
    err_errno(&err, "%.2s", "\xe2\x82\xac");
    assert_true(strncmp(err.text, "??: ", 4) == 0);
    for (size_t i = 0; i + 2 < sizeof longer; i += 2)
        memcpy(longer + i, "\xc3\xa9", 2);
    longer[sizeof longer - 2] = '\0';
    for (int shift = 0; shift < 2; shift++) {
        err_set(&err, ERR_IO, "%s", longer + shift);
        assert_true(utf8_valid(err.text, strlen(err.text)));
    }
    memmove(longer + 1, longer, sizeof longer - 2);
    longer[0] = 'x';
    err_set(&err, ERR_IO, "%s", longer);
    assert_true(utf8_valid(err.text, strlen(err.text)));
}

static void kinds_have_their_exit_status(void **state)
{
    (void)state;
    assert_int_equal(err_exit_status(ERR_INPUT), 2);
    assert_int_equal(err_exit_status(ERR_FORMAT), 3);
    assert_int_equal(err_exit_status(ERR_UNSUPPORTED), 3);
    assert_int_equal(err_exit_status(ERR_BUDGET), 4);
    assert_int_equal(err_exit_status(ERR_IO), 1);
}

static void sizes_are_read_as_people_write_them(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        { "0", 0 },          { "1", 1 },           { "512M", 512 * MIB }, { "8G", 8 * GIB },
        { "8GiB", 8 * GIB }, { "8GB", 8 * GIB },   { "64KiB", 65536 },    { "1.5G", 1536 * MIB },
        { "2 GiB", 2 * GIB }, { "1T", 1024 * GIB }, { "100B", 100 },      { "0.25k", 256 },
    };
    static const char *const bad[] = { "",    "-1",   "12 giraffes", "1e30", "G",   "1.",
                                       "1..5G", "8GG", "8Gi",        "+5",   " 8G", "99999999999999999999",
                                       "20000000000G", "0x10" };
    uint64_t bytes;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(size_parse(&bytes, good[i].text));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (size_parse(&bytes, bad[i]))
            fail_msg("'%s' was taken for a size", bad[i]);
}

static void sizes_are_written_short(void **state)
{
    char buf[16];

    (void)state;
    assert_string_equal(size_text(buf, sizeof buf, 0), "0 B");
    assert_string_equal(size_text(buf, sizeof buf, 1023), "1023 B");
    assert_string_equal(size_text(buf, sizeof buf, 7 * GIB + GIB / 2), "7.50 GiB");
    assert_string_equal(size_text(buf, sizeof buf, UINT64_MAX), "16384.00 PiB");
}

static void sums_and_products_do_not_wrap(void **state)
{
    uint64_t n;

    (void)state;
    assert_true(size_mul(&n, 1ull << 31, 1ull << 31));
    assert_false(size_mul(&n, 1ull << 33, 1ull << 33));
    assert_false(size_add(&n, UINT64_MAX, 1));
    assert_int_equal(size_div_up(7, 4), 2);
    assert_int_equal(size_up(4097, 4096), 8192);
    assert_int_equal(size_down(4097, 4096), 4096);
}

static void an_arena_gives_back_to_a_mark_and_says_when_it_is_full(void **state)
{
    static _Alignas(64) char memory[1024];
    struct arena a;

    (void)state;
    arena_init(&a, memory, sizeof memory);
    char *first = arena_take(&a, 1);
    uint64_t mark = arena_mark(&a);
    char *second = arena_take(&a, 100);
    assert_true(first == memory && second == memory + 64);
    assert_null(arena_take(&a, 1000));
    assert_null(arena_take(&a, UINT64_MAX));
    arena_back(&a, mark);
    assert_ptr_equal(arena_take(&a, 960), second);
    assert_null(arena_take(&a, 1));
    assert_int_equal(a.peak, 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_tells_where_it_was),
        cmocka_unit_test(a_long_error_is_cut_and_stays_a_string),
        cmocka_unit_test(an_error_is_utf8_where_a_character_was_cut),
        cmocka_unit_test(kinds_have_their_exit_status),
        cmocka_unit_test(sizes_are_read_as_people_write_them),
        cmocka_unit_test(sizes_are_written_short),
        cmocka_unit_test(sums_and_products_do_not_wrap),
        cmocka_unit_test(an_arena_gives_back_to_a_mark_and_says_when_it_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
