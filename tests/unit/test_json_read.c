/* json_read: the same values as jansson's own reader gives, and as strict. */
#include "daemon/base/buf.h"
#include "daemon/openai/json_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* In memory of its own size, so that a sanitizer sees a byte too many read. */
static json_t *read_text(const char *text, size_t size, const char **problem)
{
    char *copy = malloc(size ? size : 1);
    struct json_read r = { .bytes = copy, .size = size };

    assert_non_null(copy);
    memcpy(copy, text, size);
    json_t *v = json_read(&r);
    assert_true((v == NULL) == (r.problem != NULL));
    if (problem)
        *problem = r.problem;
    free(copy);
    return v;
}

static void good_documents_read_as_jansson_reads_them(void **state)
{
    static const char *const good[] = {
        "{}", "[]", " \t\r\n{ } ", "null", "true", "false", "0", "-0", "-1", "12", "1.5", "-0.25e-3",
        "1E5", "1e+5", "9223372036854775807", "-9223372036854775808", "\"\"", "\"a\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u4e2d\\ud83d\\ude00\"", "\"\\u0000a\"",
        "\"\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80\x7f\"", "[1,2,[3,[4],[]],{}]",
        "{\"a\":1,\"b\":{\"c\":[true,null,\"x\"]},\"a\":2}", "{\"\":{\"\":\"\"}}",
        "{\"a\\u0041\":1,\"\\u00e9\\n\":2}", "[{},{},[[]],\"\",0]", "0.1", "123456789.123456789e-200",
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        json_error_t why;
        const char *problem;
        json_t *want = json_loads(good[i], JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
        json_t *got = read_text(good[i], strlen(good[i]), &problem);
        if (!want || !got || !json_equal(want, got))
            fail_msg("%s: %s", good[i], got ? "another value" : problem);
        json_decref(want);
        json_decref(got);
    }
}

static void bad_documents_are_refused_with_a_reason(void **state)
{
    static const struct {
        const char *text, *words;
    } bad[] = {
        { "", "no JSON value" }, { "{", "no key" }, { "[", "no JSON value" },
        { "{\"a\"", "no colon" }, { "{\"a\":", "no JSON value" }, { "{\"a\":1", "still open" },
        { "{a:1}", "no key" }, { "{'a':1}", "no key" }, { "{\"a\":1,}", "no key" },
        { "[1,]", "no JSON value" }, { "[,1]", "no JSON value" }, { "[1 2]", "no comma" },
        { "{\"a\" 1}", "no colon" }, { "{\"a\":1 \"b\":2}", "no comma" }, { "[1}", "no comma" },
        { "{\"a\":1]", "no comma" }, { "]", "no JSON value" }, { "1 2", "after the value" },
        { "{}{}", "after the value" }, { "nul", "no JSON value" }, { "nulls", "after the value" },
        { "TRUE", "no JSON value" }, { "NaN", "no JSON value" }, { "-", "no JSON value" },
        { "+1", "no JSON value" }, { "01", "after the value" }, { "1.", "after its point" },
        { ".5", "no JSON value" }, { "1e", "exponent" }, { "1e+", "exponent" }, { "0x1", "after" },
        { "\"a", "does not end" }, { "\"a\\", "escape" }, { "\"\\x\"", "escape" },
        { "\"\\u12\"", "hexadecimal" }, { "\"\\u12g4\"", "hexadecimal" }, { "\"a\nb\"", "control" },
        { "\"\x01\"", "control" }, { "\"\xff\"", "UTF-8" }, { "\"\xc3\"", "UTF-8" },
        { "\"\xed\xa0\x80\"", "UTF-8" }, { "\"\xc0\x80\"", "UTF-8" }, { "{\"\\u0000\":1}", "NUL" },
        { "/* a */1", "no JSON value" }, { "[1/**/]", "no comma" }, { "\xef\xbb\xbf{}", "no JSON" },
    };
    const char *problem;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (read_text(bad[i].text, strlen(bad[i].text), &problem))
            fail_msg("accepted: %s", bad[i].text);
        if (!strstr(problem, bad[i].words))
            fail_msg("%s: '%s' lacks '%s'", bad[i].text, problem, bad[i].words);
    }
    assert_null(read_text("1\0", 2, &problem));
    assert_null(read_text("\"\0\"", 3, &problem));
    assert_null(read_text("\0", 1, &problem));
}

static void numbers_beyond_the_types_are_read(void **state)
{
    static const struct {
        const char *text;
        double value;
    } numbers[] = {
        { "9223372036854775808", 0x1p63 }, { "-9223372036854775809", -0x1p63 },
        { "18446744073709551615", 0x1p64 }, { "1e400", 1.7976931348623157e308 },
        { "-1e999999999", -1.7976931348623157e308 }, { "1e-400", 0 },
        { "100000000000000000000000000000000000000000", 1e41 },
    };
    char text[JSON_READ_NUMBER + 2];
    const char *problem;

    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_t *v = read_text(numbers[i].text, strlen(numbers[i].text), NULL);
        assert_true(json_is_real(v));
        assert_true(json_real_value(v) == numbers[i].value);
        json_decref(v);
    }
    memset(text, '7', sizeof text);
    json_t *v = read_text(text, JSON_READ_NUMBER, &problem);
    assert_true(json_is_real(v));
    json_decref(v);
    assert_null(read_text(text, JSON_READ_NUMBER + 1, &problem));
    assert_non_null(strstr(problem, "1024"));
}

/* A doubled key frees the first of two values, and the next one may get its address. */
static void integers_beyond_64_bits_keep_their_digits(void **state)
{
    static const char text[] =
        "{\"a\": 123456789012345678901234567890, \"b\": [-18446744073709551616, 1.5, 12],"
        " \"c\": 99999999999999999999, \"c\": 2.5, \"d\": 3.5, \"e\": 4.5,"
        " \"f\": 9223372036854775807, \"g\": 9223372036854775808, \"h\": 1e30}";
    static const char *const none[] = { "c", "d", "e", "f", "h" };
    const char *problem;
    json_t *root = read_text(text, strlen(text), &problem);

    (void)state;
    assert_non_null(root);
    assert_string_equal(json_read_digits(root, json_object_get(root, "a")),
                        "123456789012345678901234567890");
    const json_t *b = json_object_get(root, "b");
    assert_string_equal(json_read_digits(root, json_array_get(b, 0)), "-18446744073709551616");
    assert_null(json_read_digits(root, json_array_get(b, 1)));
    assert_null(json_read_digits(root, json_array_get(b, 2)));
    assert_string_equal(json_read_digits(root, json_object_get(root, "g")),
                        "9223372036854775808");
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_null(json_read_digits(root, json_object_get(root, none[i])));
    assert_null(json_read_digits(root, root));
    json_decref(root);
}

static void half_surrogate_pairs_become_one_replacement(void **state)
{
    static const char *const cases[][2] = {
        { "\"\\ud800\"", "\xef\xbf\xbd" }, { "\"\\udc00x\"", "\xef\xbf\xbdx" },
        { "\"\\ud83d\\ud83d\\ude00\"", "\xef\xbf\xbd\xf0\x9f\x98\x80" },
        { "\"\\ud83d\\n\"", "\xef\xbf\xbd\n" }, { "\"\\ude00\\ud83d\"", "\xef\xbf\xbd\xef\xbf\xbd" },
        { "\"\\ud83d\\u0041\"", "\xef\xbf\xbd" "A" }, { "\"a\\ud83d\"", "a\xef\xbf\xbd" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *v = read_text(cases[i][0], strlen(cases[i][0]), NULL);
        assert_string_equal(json_string_value(v), cases[i][1]);
        json_decref(v);
    }
}

static void nesting_goes_to_512_levels(void **state)
{
    char text[2 * (JSON_READ_DEPTH + 1)];
    const char *problem;

    (void)state;
    memset(text, '[', JSON_READ_DEPTH + 1);
    memset(text + JSON_READ_DEPTH + 1, ']', JSON_READ_DEPTH + 1);
    json_t *v = read_text(text + 1, 2 * JSON_READ_DEPTH, NULL);
    assert_non_null(v);
    json_decref(v);
    assert_null(read_text(text, sizeof text, &problem));
    assert_non_null(strstr(problem, "512"));
}

static void what_the_quota_lacks_is_said(void **state)
{
    char text[] = "{\"a\":[1,2,3,\"some text\"]}", copy[sizeof text];
    struct quota quota = { .cap = UINT64_MAX };
    struct json_read r = { .bytes = copy, .size = sizeof text - 1, .quota = &quota };

    (void)state;
    memcpy(copy, text, sizeof text);
    json_t *v = json_read(&r);
    assert_non_null(v);
    json_decref(v);
    assert_int_equal(quota.used, r.cost);
    for (uint64_t cap = 0; cap < r.cost; cap += 7) {
        struct quota less = { .cap = cap };
        struct json_read again = { .bytes = copy, .size = sizeof text - 1, .quota = &less };
        memcpy(copy, text, sizeof text);
        assert_null(json_read(&again));
        assert_true(again.lacking > 0 && again.cost + again.lacking > cap);
        assert_int_equal(less.used, again.cost);
    }
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* jansson refuses half pairs and numbers beyond its types, and takes a NUL behind a word for
 * nothing; nothing else may differ. */
static void random_changes_read_as_jansson_reads_them(void **state)
{
    static const char seed_text[] =
        "{\"model\":\"a\\u00e9\\n\",\"messages\":[{\"role\":\"user\",\"content\":\"h\xc3\xa9llo\"},"
        "{\"role\":\"x\",\"content\":[{\"type\":\"text\",\"text\":\"\\\\\"}]}],\"t\":-1.25e+3,"
        "\"n\":12,\"stop\":[\"\",null,true,false,[],{}],\"s\":0.5}";
    static const char marks[] = "{}[]\",:\\ue+-.0123456789 \n\t\xc3\xa9\xff" "abfnrtl";
    uint64_t seed = 7;
    size_t accepted = 0;
    char text[sizeof seed_text + 8];

    (void)state;
    for (int round = 0; round < 200000; round++) {
        size_t size = sizeof seed_text - 1;
        memcpy(text, seed_text, size);
        for (uint64_t k = next(&seed) % 3 + 1; k > 0; k--) {
            size_t at = next(&seed) % size;
            char c = marks[next(&seed) % (sizeof marks - 1)];
            switch (next(&seed) % 3) {
            case 0:
                text[at] = c;
                break;
            case 1:
                memmove(text + at, text + at + 1, --size - at);
                break;
            default:
                memmove(text + at + 1, text + at, size++ - at);
                text[at] = c;
            }
        }
        json_error_t why;
        json_t *want = json_loadb(text, size, JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
        json_t *got = read_text(text, size, NULL);
        accepted += want != NULL;
        bool ours = got && !want && (json_error_code(&why) == json_error_numeric_overflow ||
                                     strstr(why.text, "Unicode"));
        if (!ours && ((want == NULL) != (got == NULL) || (want && !json_equal(want, got))))
            fail_msg("differs: %.*s (%s)", (int)size, text, want ? "good" : why.text);
        json_decref(want);
        json_decref(got);
    }
    assert_true(accepted > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_documents_read_as_jansson_reads_them),
        cmocka_unit_test(bad_documents_are_refused_with_a_reason),
        cmocka_unit_test(numbers_beyond_the_types_are_read),
        cmocka_unit_test(integers_beyond_64_bits_keep_their_digits),
        cmocka_unit_test(half_surrogate_pairs_become_one_replacement),
        cmocka_unit_test(nesting_goes_to_512_levels),
        cmocka_unit_test(what_the_quota_lacks_is_said),
        cmocka_unit_test(random_changes_read_as_jansson_reads_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
