/* JSON of files: typed getters that name the place, and the cursor that reads large documents. */
#include "checkpoint_fixture.h"

#include "formats/json.h"
#include "formats/json_scan.h"
#include "util/hash.h"

static void open_text(struct json *j, const char *text)
{
    struct err err = { 0 };

    if (json_open_buffer(j, "config.json", text, strlen(text), &err) < 0)
        fail_msg("%s", err.text);
}

static void what_is_no_object_is_refused_with_its_place(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", "line 1" },
        { "[1]", "must hold a JSON object" },
        { "{\"a\":1,\n\"a\":2}", "line 2" },
        { "{\"a\":1} x", "line 1" },
        { "{\"a\":NaN}", "line 1" },
        { "{\"a\":\"\xff\"}", "line 1" },
        { "{\"a\":\"\\u0000\"}", "line 1" },
    };
    struct json j = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = { 0 };
        assert_int_equal(json_open_buffer(&j, "config.json", cases[i].text,
                                          strlen(cases[i].text), &err), -1);
        assert_int_equal(err.kind, ERR_FORMAT);
        says(&err, "config.json: ");
        says(&err, cases[i].says);
        assert_null(j.root);
    }
}

static void deep_nesting_is_refused(void **state)
{
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH + 6);
    struct json j;
    struct err err = { 0 };

    (void)state;
    assert_non_null(text);
    memcpy(text, "{\"a\":", 5);
    memset(text + 5, '[', DEPTH);
    assert_int_equal(json_open_buffer(&j, "config.json", text, DEPTH + 5, &err), -1);
    assert_int_equal(err.kind, ERR_FORMAT);
    free(text);
}

static void whole_numbers_are_whole_and_in_range(void **state)
{
    static const char *const bad[] = { "1.0", "1.5", "-1", "4294967296", "\"1\"", "true", "[1]",
                                       "9", "1e1" };
    struct json j;
    struct err err;
    uint32_t x = 77;
    char text[64];

    (void)state;
    open_text(&j, "{\"a\":5,\"b\":null}");
    assert_int_equal(json_u32(&x, &j, "a", 2, 8, &err), 0);
    assert_int_equal(x, 5);
    assert_int_equal(json_u32(&x, &j, "b", 2, 8, &err), -1);
    says(&err, "config.json: 'b' is missing");
    assert_int_equal(json_u32(&x, &j, "c", 2, 8, &err), -1);
    assert_int_equal(json_u32_or(&x, &j, "b", 3, 2, 8, &err), 0);
    assert_int_equal(x, 3);
    json_close(&j);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(text, sizeof text, "{\"a\":%s}", bad[i]);
        open_text(&j, text);
        assert_int_equal(json_u32(&x, &j, "a", 2, 8, &err), -1);
        says(&err, "config.json: 'a' is ");
        says(&err, "a whole number from 2 to 8");
        assert_int_equal(json_u32_or(&x, &j, "a", 3, 2, 8, &err), -1);
        assert_int_equal(x, 3); /* written only on success */
        json_close(&j);
    }
}

static void numbers_booleans_and_strings_keep_their_types(void **state)
{
    struct json j;
    struct err err;
    const char *s;
    double d;
    bool b;

    (void)state;
    open_text(&j, "{\"n\":1e-06,\"i\":10,\"t\":true,\"s\":\"text\",\"z\":null}");
    assert_int_equal(json_f64(&d, &j, "n", 0, 1, &err), 0);
    assert_true(d == 1e-06);
    assert_int_equal(json_f64(&d, &j, "i", 0, 100, &err), 0);
    assert_true(d == 10.0);
    assert_int_equal(json_f64(&d, &j, "i", 0, 1, &err), -1);
    says(&err, "a number from 0 to 1");
    assert_int_equal(json_f64(&d, &j, "s", 0, 1, &err), -1);
    assert_int_equal(json_f64(&d, &j, "z", 0, 1, &err), -1);
    says(&err, "'z' is missing");
    assert_int_equal(json_f64_or(&d, &j, "z", 0.5, 0, 1, &err), 0);
    assert_true(d == 0.5);

    assert_int_equal(json_bool_or(&b, &j, "t", false, &err), 0);
    assert_true(b);
    assert_int_equal(json_bool_or(&b, &j, "z", true, &err), 0);
    assert_true(b);
    assert_int_equal(json_bool_or(&b, &j, "i", false, &err), -1);
    says(&err, "'i' is 10: must be true or false");

    assert_int_equal(json_string_or_null(&s, &j, "s", &err), 0);
    assert_string_equal(s, "text");
    assert_int_equal(json_string_or_null(&s, &j, "none", &err), 0);
    assert_null(s);
    assert_int_equal(json_string_or_null(&s, &j, "n", &err), -1);
    assert_true(json_has(&j, "s") && !json_has(&j, "z") && !json_has(&j, "none"));
    json_close(&j);
}

static void a_list_may_be_one_number(void **state)
{
    struct json j;
    struct err err;
    uint32_t ids[3], n;

    (void)state;
    open_text(&j, "{\"one\":7,\"two\":[8,9],\"many\":[1,2,3,4],\"bad\":[1,-2],\"z\":null}");
    assert_int_equal(json_u32_list(ids, &n, 3, &j, "one", &err), 0);
    assert_true(n == 1 && ids[0] == 7);
    assert_int_equal(json_u32_list(ids, &n, 3, &j, "two", &err), 0);
    assert_true(n == 2 && ids[0] == 8 && ids[1] == 9);
    assert_int_equal(json_u32_list(ids, &n, 3, &j, "z", &err), 0);
    assert_int_equal(n, 0);
    assert_int_equal(json_u32_list(ids, &n, 3, &j, "many", &err), -1);
    says(&err, "'many' has 4 entries; at most 3");
    assert_int_equal(json_u32_list(ids, &n, 3, &j, "bad", &err), -1);
    says(&err, "'bad' is -2");
    json_close(&j);
}

static void a_child_says_where_it_is(void **state)
{
    struct json j, child, none;
    struct err err;
    uint32_t x;

    (void)state;
    open_text(&j, "{\"rope\":{\"factor\":-1},\"list\":[],\"z\":null}");
    assert_int_equal(json_child(&child, &j, "rope", &err), 0);
    assert_int_equal(json_u32(&x, &child, "factor", 0, 9, &err), -1);
    says(&err, "config.json: rope: 'factor' is -1");
    assert_int_equal(json_child(&none, &j, "z", &err), 0);
    assert_null(none.root);
    assert_false(json_has(&none, "factor"));
    assert_int_equal(json_child(&none, &j, "list", &err), -1);
    says(&err, "'list' is []: must be an object");
    json_close(&j);
}

static void files_are_bounded_and_regular(void **state)
{
    struct checkpoint_dir d;
    struct json j;
    struct err err;

    (void)state;
    dir_init(&d);
    dir_text(&d, "config.json", "{\"a\":1}");
    assert_int_equal(json_open(&j, dir_file(&d, "config.json"), 7, &err), 0);
    json_close(&j);
    assert_int_equal(json_open(&j, dir_file(&d, "config.json"), 6, &err), -1);
    says(&err, "7 bytes; at most 6");
    assert_int_equal(json_open(&j, d.path, 100, &err), -1);
    says(&err, "not a regular file");
    assert_int_equal(json_open(&j, dir_file(&d, "none.json"), 100, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    dir_text(&d, "config.json", "version https://git-lfs.github.com/spec/v1\n");
    assert_int_equal(json_open(&j, dir_file(&d, "config.json"), 100, &err), -1);
    says(&err, "Git LFS pointer");
    dir_remove(d.path);
}

/* ---- the cursor ---- */

static bool skips(const char *text)
{
    char *copy = strdup(text);
    struct json_scan s;

    json_scan_init(&s, copy, strlen(copy));
    bool ok = json_scan_skip(&s) && json_scan_done(&s);
    free(copy);
    return ok;
}

static void the_cursor_knows_json_from_what_looks_like_it(void **state)
{
    static const char *const good[] = {
        "0", "-0", "12.5e-3", "1E+2", "true", "false", "null", "\"\"", "\"\\u00e9\\n\\/\"", "[]",
        "{}", " [ 1 , [ ] , { \"a\" : { } } ] ", "{\"a\":[{\"b\":[1,2]},3],\"c\":\"d\"}",
        "\"\xc3\xa9\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00\"",
    };
    static const char *const bad[] = {
        "", "-", "+1", "01", "1.", ".5", "1e", "1e+", "tru", "nul", "NaN", "'a'", "\"", "\"\\x\"",
        "\"\\u12g4\"", "\"\\u12", "\"\\ud83d\"", "\"\\ude00\"", "\"\\ud83d\\u0041\"", "\"\t\"",
        "\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"", "[", "[1", "[1,", "[1,]",
        "[,1]", "{", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,}", "{1:2}", "{a:1}", "[}", "{]",
        "[1 2]", "1 2", "]", "}", "\\", "/**/1",
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!skips(good[i]))
            fail_msg("'%s' is JSON", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (skips(bad[i]))
            fail_msg("'%s' is not JSON", bad[i]);
}

static void the_cursor_nests_to_a_limit_without_recursion(void **state)
{
    char text[256];

    (void)state;
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    text[128] = '\0';
    assert_true(skips(text));
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    text[130] = '\0';
    assert_false(skips(text));
}

static void whole_numbers_reach_to_the_last_of_64_bits(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        uint64_t value;
    } cases[] = {
        { "0", true, 0 },
        { "18446744073709551615", true, UINT64_MAX },
        { "18446744073709551616", false, 0 },
        { "9223372036854775808", true, (uint64_t)1 << 63 },
        { "-1", false, 0 }, { "-0", false, 0 }, { "00", false, 0 }, { "1.0", false, 0 },
        { "1e0", false, 0 }, { "1E0", false, 0 }, { "", false, 0 }, { "+1", false, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *copy = strdup(cases[i].text);
        struct json_scan s;
        uint64_t value = 1;

        json_scan_init(&s, copy, strlen(copy));
        assert_true(json_scan_u64(&s, &value) == cases[i].ok);
        if (cases[i].ok)
            assert_true(value == cases[i].value);
        else
            assert_non_null(s.fault);
        free(copy);
    }
}

static void strings_are_decoded_in_place(void **state)
{
    char text[] = "\"plain\" \"a\\u00e9\\ud83d\\ude00\\\"\\\\\\/\\b\\f\\n\\r\\t\" \"x\\u0000y\"";
    struct json_scan s;
    char *out;
    size_t size;

    (void)state;
    json_scan_init(&s, text, sizeof text - 1);
    assert_true(json_scan_string(&s, &out, &size));
    assert_string_equal(out, "plain");
    assert_true(json_scan_string(&s, &out, &size));
    assert_string_equal(out, "a\xc3\xa9\xf0\x9f\x98\x80\"\\/\b\f\n\r\t");
    assert_int_equal(size, strlen(out));
    assert_true(json_scan_string(&s, &out, &size));
    assert_int_equal(size, 3);
    assert_memory_equal(out, "x\0y", 4);
    assert_true(json_scan_done(&s));
}

/* ---- the table of names ---- */

static void a_table_finds_what_was_added_and_nothing_else(void **state)
{
    enum { N = 20000 };
    static char names[N][16];
    struct hash h;
    struct err err;
    uint32_t value, there;

    (void)state;
    assert_int_equal(hash_open(&h, 0, &err), 0);
    assert_false(hash_find(&h, "", &value));
    for (uint32_t i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%u", i * 7);
        assert_int_equal(hash_add(&h, names[i], i, NULL, &err), 1);
    }
    assert_int_equal(h.n, N);
    for (uint32_t i = 0; i < N; i++) {
        assert_true(hash_find(&h, names[i], &value));
        assert_int_equal(value, i);
    }
    assert_int_equal(hash_add(&h, "7", 99, &there, &err), 0);
    assert_int_equal(there, 1);
    assert_false(hash_find(&h, "8", &value));
    hash_close(&h);
    assert_false(hash_find(&h, "7", &value));
    hash_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_object_is_refused_with_its_place),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(whole_numbers_are_whole_and_in_range),
        cmocka_unit_test(numbers_booleans_and_strings_keep_their_types),
        cmocka_unit_test(a_list_may_be_one_number),
        cmocka_unit_test(a_child_says_where_it_is),
        cmocka_unit_test(files_are_bounded_and_regular),
        cmocka_unit_test(the_cursor_knows_json_from_what_looks_like_it),
        cmocka_unit_test(the_cursor_nests_to_a_limit_without_recursion),
        cmocka_unit_test(whole_numbers_reach_to_the_last_of_64_bits),
        cmocka_unit_test(strings_are_decoded_in_place),
        cmocka_unit_test(a_table_finds_what_was_added_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
