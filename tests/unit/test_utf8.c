/* UTF-8 by its definition, over every code point and every short sequence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "util/utf8.h"

#include <string.h>

static void every_code_point_survives_and_surrogates_do_not(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        char text[4];
        uint32_t back = 0;
        size_t size = utf8_put(text, cp);
        if (cp >= 0xd800 && cp <= 0xdfff) {
            assert_int_equal(utf8_next(text, size, &back), -1);
            continue;
        }
        assert_int_equal(utf8_next(text, size, &back), size);
        assert_int_equal(back, cp);
        for (size_t cut = 0; cut < size; cut++)
            assert_int_equal(utf8_next(text, cut, NULL), 0);
    }
}

/* A decoder by the definition: gather the bits, then ask whether the shortest form, the range
 * and the surrogates allow it. */
static int by_definition(const unsigned char *s, size_t size)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    size_t length = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3
                                  : s[0] < 0xf8   ? 4 : 0;
    uint32_t cp = length == 1 ? s[0] : s[0] & (0x7fu >> length);

    if (length == 0 || length > size)
        return -1;
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return -1;
        cp = cp << 6 | (s[i] & 0x3f);
    }
    if (cp < least[length] || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
        return -1;
    return (int)length;
}

static void sequences_are_valid_exactly_when_the_definition_says_so(void **state)
{
    static const unsigned char edges[] = { 0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                           0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee,
                                           0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xf8, 0xff };
    enum { N = sizeof edges };

    (void)state;
    for (int i = 0; i < N * N * N * N; i++) {
        unsigned char s[4] = { edges[i % N], edges[i / N % N], edges[i / N / N % N],
                               edges[i / N / N / N] };
        int want = by_definition(s, 4), got = utf8_next((const char *)s, 4, NULL);
        if (want != got)
            fail_msg("%02x %02x %02x %02x: %d instead of %d", s[0], s[1], s[2], s[3], got, want);
    }
}

/* The table in the Unicode Standard, chapter 3.9, and what Rust and browsers do. */
static void one_replacement_stands_for_a_maximal_subpart(void **state)
{
    static const struct {
        const char *bytes;
        size_t want;
    } cases[] = {
        { "\x80", 1 },         { "\xff", 1 },         { "\xc0\xaf", 1 },
        { "\xe2\x82", 2 },     { "\xe2\x82\x41", 2 }, { "\xf0\x9f\x98", 3 },
        { "\xf0\x9f\x41", 2 }, { "\xe0\x9f\x80", 1 }, { "\xed\xa0\x80", 1 },
        { "\xf4\x90\x80", 1 }, { "\xc3", 1 },         { "\xf1\x80\xe1\x80", 2 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(utf8_bad(cases[i].bytes, strlen(cases[i].bytes)), cases[i].want);
    assert_int_equal(utf8_bad("", 0), 0);
}

static void a_text_is_valid_only_as_a_whole(void **state)
{
    (void)state;
    assert_true(utf8_valid("", 0));
    assert_true(utf8_valid("a\0b", 3));
    assert_true(utf8_valid("\xf0\x9f\x98\x80 \xe4\xb8\xad", 8));
    assert_false(utf8_valid("ok \xe4\xb8", 5));
    assert_false(utf8_valid("\xed\xa0\x80", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_survives_and_surrogates_do_not),
        cmocka_unit_test(sequences_are_valid_exactly_when_the_definition_says_so),
        cmocka_unit_test(one_replacement_stands_for_a_maximal_subpart),
        cmocka_unit_test(a_text_is_valid_only_as_a_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
