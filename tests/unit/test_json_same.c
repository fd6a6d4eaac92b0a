/* Texts that mean the same, and those that only look like it. */
#include "text/json_same.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Exactly as many bytes as there are, so that a read past them is seen by ASan. */
static char *exact(const char *text)
{
    char *copy = malloc(strlen(text) + !*text);

    assert_non_null(copy);
    memcpy(copy, text, strlen(text));
    return copy;
}

static bool same(const char *a, const char *b)
{
    static const struct sip_sum key = { { 7, 9 } };
    char *x = exact(a), *y = exact(b);
    bool there = json_same(x, strlen(a), y, strlen(b), &key);

    assert_int_equal(json_same(y, strlen(b), x, strlen(a), &key), there);
    free(x);
    free(y);
    return there;
}

static void another_spelling_is_the_same(void **state)
{
    static const char *const pairs[][2] = {
        { "{\"a\": 1, \"b\": [true, null]}", " {\"b\":[true,null],\n\"a\":1} " },
        { "{\"x\": {\"p\": 1, \"q\": 2}}", "{\"x\":{\"q\":2,\"p\":1}}" },
        { "{\"a\": 1.0}", "{\"a\": 1}" },
        { "[100]", "[1e2]" },
        { "[100]", "[1.00E+2]" },
        { "[0]", "[-0.0]" },
        { "[0.1]", "[0.10000000000000001]" },
        { "[1e22]", "[10000000000000000000000]" },
        { "[123456789012345678901234567890]", "[123456789012345678901234567890.0]" },
        { "[-2.5e-3]", "[-0.0025]" },
        { "[\"\xc3\xa9/\"]", "[\"\\u00e9\\/\"]" },
        { "[\"\xf0\x9f\x98\x80\"]", "[\"\\ud83d\\ude00\"]" },
        { "[\"a\\nb\\u0001\"]", "[\"a\\u000ab\\u0001\"]" },
        { "{}", "" },
        { "{}", " { } " },
        { "no json", "no json" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!same(pairs[i][0], pairs[i][1]))
            fail_msg("%s is not %s", pairs[i][0], pairs[i][1]);
}

static void another_meaning_is_not(void **state)
{
    static const char *const pairs[][2] = {
        { "{\"a\": 1}", "{\"a\": 2}" },
        { "{\"a\": 1}", "{\"b\": 1}" },
        { "{\"a\": 1}", "{\"a\": 1, \"b\": 1}" },
        { "{\"a\": 1}", "{\"a\": 1, \"a\": 1}" },
        { "{\"a\": \"1\"}", "{\"a\": 1}" },
        { "{\"a\": {\"b\": 1}, \"c\": {}}", "{\"a\": {}, \"c\": {\"b\": 1}}" },
        { "[1, 2]", "[2, 1]" },
        { "[[1], 2]", "[[1, 2]]" },
        { "[]", "{}" },
        { "[]", "[[]]" },
        { "[true]", "[false]" },
        { "[null]", "[\"null\"]" },
        { "[1]", "[-1]" },
        { "[1]", "[10]" },
        { "[0.1]", "[0.11]" },
        { "[9007199254740993]", "[9007199254740992]" },
        { "[1e400]", "[1e401]" },
        { "[\"a\"]", "[\"A\"]" },
        { "[\"a\"]", "[\"a \"]" },
        { "[\"\\ud800\"]", "[\"\\ud801\"]" },
        { "{\"a\": 1}", "{\"a\": 1" },
        { "{\"a\": 1}", "{\"a\": 1}}" },
        { "no json", "no  json" },
        { "{}", "null" },
        { "[1.]", "[1]" },
        { "[01]", "" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (same(pairs[i][0], pairs[i][1]))
            fail_msg("%s is taken for %s", pairs[i][0], pairs[i][1]);
}

/* Cut anywhere, deep, long: an answer, and no read past the end. */
static void hostile_text_has_an_answer(void **state)
{
    static const char whole[] = "{\"a\": [1.5e-3, \"x\\ud83d\\ude00\\n\"], \"b\": {\"c\": null}}";
    char text[4096], other[8192];

    (void)state;
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        memcpy(text, whole, n);
        text[n] = '\0';
        assert_false(same(text, whole));
    }
    memset(text, '[', 2000);
    text[2000] = '\0';
    memset(other, ' ', 1);
    memcpy(other + 1, text, 2001);
    assert_false(same(text, other));
    memset(text, '1', 3000);
    text[3000] = '\0';
    snprintf(other, sizeof other, " %s", text);
    assert_false(same(text, other));
    assert_false(same("1e999999999999999999999", "1e999999999999999999998 2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_spelling_is_the_same),
        cmocka_unit_test(another_meaning_is_not),
        cmocka_unit_test(hostile_text_has_an_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
