#include "text_data.h"

#include "text/unicode_tables.h"
#include "util/utf8.h"

#include <unistd.h>

static struct tokenizer *qwen3;

static int open_qwen3(void **state)
{
    (void)state;
    alarm(200); /* whatever hangs here ends here */
    qwen3 = open_tokenizer(QWEN3);
    return 0;
}

static int close_qwen3(void **state)
{
    (void)state;
    tokenizer_close(qwen3);
    return 0;
}

/* ---- the reference's ids ---- */

static void expect_ids(const struct tokenizer *t, json_t *record, const char *key, bool trusted,
                       int line)
{
    json_t *text = json_object_get(record, "text"), *list = json_object_get(record, key), *id;
    struct ids want = { 0 };
    struct err err = { 0 };
    char where[64];
    size_t i;

    snprintf(where, sizeof where, "line %d, %s", line, key);
    json_array_foreach(list, i, id)
        assert_int_equal(ids_put(&want, (uint32_t)json_integer_value(id), &err), 0);

    struct ids got = encode(t, json_string_value(text), json_string_length(text), trusted);
    assert_same_ids(&got, &want, where);
    ids_done(&got);
    ids_done(&want);
}

static void expect_text(const struct tokenizer *t, json_t *record, const char *key, json_t *other,
                        bool skip_special, int line)
{
    json_t *want = json_object_get(record, key), *id, *list = json_object_get(record, "ids");
    struct ids ids = { 0 };
    struct err err = { 0 };
    size_t i, size = 0;

    if (!want)
        want = other;
    json_array_foreach(list, i, id)
        assert_int_equal(ids_put(&ids, (uint32_t)json_integer_value(id), &err), 0);

    char *text = decode(t, &ids, skip_special, &size);
    if (size != json_string_length(want) || memcmp(text, json_string_value(want), size) != 0)
        fail_msg("line %d: %s differs", line, key);
    free(text);
    ids_done(&ids);
}

static void the_reference_ids_of_qwen3_come_out_both_ways(void **state)
{
    struct lines l = lines_open(VECTORS "tokenizer-vectors-qwen3.jsonl");
    json_t *record;
    int n = 0;

    (void)state;
    while ((record = lines_next(&l))) {
        bool plain_differs = json_object_get(record, "ids_plain");
        expect_ids(qwen3, record, "ids", true, l.number);
        expect_ids(qwen3, record, plain_differs ? "ids_plain" : "ids", false, l.number);
        n++;
    }
    assert_int_equal(n, 700);
}

static void the_reference_texts_of_qwen3_come_back(void **state)
{
    struct lines l = lines_open(VECTORS "tokenizer-vectors-qwen3.jsonl");
    json_t *record;

    (void)state;
    while ((record = lines_next(&l))) {
        json_t *text = json_object_get(record, "text");
        json_t *decoded = json_object_get(record, "decoded");
        expect_text(qwen3, record, "decoded", text, false, l.number);
        expect_text(qwen3, record, "decoded_skip_special", decoded ? decoded : text, true,
                    l.number);
    }
}

static void llama_cpp_agrees_on_the_qwen2_vocabulary(void **state)
{
    struct lines l = lines_open(VECTORS "llamacpp-vocab-qwen2.jsonl");
    json_t *record;

    (void)state;
    while ((record = lines_next(&l)))
        expect_ids(qwen3, record, "ids", false, l.number);
    assert_int_equal(l.number, 46);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_ids_of_qwen3_come_out_both_ways),
        cmocka_unit_test(the_reference_texts_of_qwen3_come_back),
        cmocka_unit_test(llama_cpp_agrees_on_the_qwen2_vocabulary),
    };

    return cmocka_run_group_tests(tests, open_qwen3, close_qwen3);
}
