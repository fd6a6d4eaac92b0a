/* Text to ids and back, against Hugging Face tokenizers and llama.cpp; trust; speed. */
#include "text_data.h"

#include "text/unicode_tables.h"
#include "util/utf8.h"

#include <pthread.h>
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

/* ---- trust and runs ---- */

static const char mixed[] = "Hi<|im_end|>\n caf\xc3\xa9  \xe4\xb8\xad\xe6\x96\x87 e\xcc\x81 don't "
                            "<think>12  \n x</think>\xf0\x9f\x98\x80<|im_start|>";

static void a_text_cut_into_runs_anywhere_gives_the_same_ids(void **state)
{
    (void)state;
    for (int trusted = 0; trusted < 2; trusted++) {
        struct ids want = encode(qwen3, mixed, sizeof mixed - 1, trusted);
        for (size_t a = 0; a < sizeof mixed; a++)
            for (size_t b = a; b < sizeof mixed; b += 3) {
                const struct text_run runs[] = {
                    { mixed, a, trusted },
                    { mixed + a, b - a, trusted },
                    { mixed + b, sizeof mixed - 1 - b, trusted },
                };
                struct ids got = { 0 };
                struct err err = { 0 };
                assert_int_equal(tokenizer_encode(qwen3, runs, 3, 0, &got, &err), 0);
                assert_same_ids(&got, &want, "cut");
                ids_done(&got);
            }
        ids_done(&want);
    }
}

static void one_byte_without_trust_keeps_a_token_from_being_one(void **state)
{
    static const char token[] = "<|im_end|>";
    enum { SIZE = sizeof token - 1 };

    (void)state;
    for (size_t at = 0; at < SIZE; at++) {
        const struct text_run runs[] = {
            { token, at, true },
            { token + at, 1, false },
            { token + at + 1, SIZE - at - 1, true },
        };
        struct ids got = { 0 }, plain = encode(qwen3, token, SIZE, false);
        struct err err = { 0 };
        assert_int_equal(tokenizer_encode(qwen3, runs, 3, 0, &got, &err), 0);
        assert_same_ids(&got, &plain, "untrusted byte");
        ids_done(&got);
        ids_done(&plain);
    }
}

static void no_bytes_without_trust_ever_give_an_added_token(void **state)
{
    char all[4096];
    size_t n = 0;

    (void)state;
    for (uint32_t id = 151643; id < tokenizer_vocab(qwen3); id++) {
        size_t size;
        const char *piece = tokenizer_piece(qwen3, id, &size);
        memcpy(all + n, piece, size);
        n += size;
    }
    for (size_t a = 0; a < n; a += 5) {
        const struct text_run runs[] = { { all, a, false }, { all + a, n - a, false } };
        struct ids got = { 0 };
        struct err err = { 0 };
        assert_int_equal(tokenizer_encode(qwen3, runs, 2, 0, &got, &err), 0);
        for (size_t i = 0; i < got.n; i++)
            assert_true(got.id[i] < 151643);
        ids_done(&got);
    }
}

static void invalid_bytes_count_as_replacement_characters(void **state)
{
    static const char *const cases[][2] = {
        { "a\xff" "b", "a\xef\xbf\xbd" "b" },
        { "\xe2\x82" "A", "\xef\xbf\xbd" "A" },
        { "\xf0\x9f\x98", "\xef\xbf\xbd" },
        { "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
        { "<|im_end|>\xc3<|im_end|>", "<|im_end|>\xef\xbf\xbd<|im_end|>" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int trusted = 0; trusted < 2; trusted++) {
            struct ids got = encode(qwen3, cases[i][0], strlen(cases[i][0]), trusted);
            struct ids want = encode(qwen3, cases[i][1], strlen(cases[i][1]), trusted);
            assert_same_ids(&got, &want, "invalid UTF-8");
            ids_done(&got);
            ids_done(&want);
        }
    /* An untrusted half of a character does not spread, nor does trust. */
    const struct text_run runs[] = { { "<|im_end|>\xe4\xb8", 12, true }, { "\xff<think>", 8, false } };
    struct ids got = { 0 };
    struct err err = { 0 };
    assert_int_equal(tokenizer_encode(qwen3, runs, 2, 0, &got, &err), 0);
    assert_int_equal(got.id[0], 151645);
    for (size_t i = 1; i < got.n; i++)
        assert_true(got.id[i] < 151643);
    ids_done(&got);
}

static void white_space_goes_with_a_token_that_takes_it(void **state)
{
    struct tokenizer *t = open_edited(QWEN3, "<|im_start|>", "\"lstrip\": false",
                                      "\"lstrip\": true");
    static const char text[] = "a \xe3\x80\x80\n<|im_start|> b";
    struct ids got = encode(t, text, sizeof text - 1, true);
    struct ids a = encode(t, "a", 1, true), b = encode(t, " b", 2, true);

    (void)state;
    assert_int_equal(got.n, 3);
    assert_int_equal(got.id[0], a.id[0]);
    assert_int_equal(got.id[1], 151644);
    assert_int_equal(got.id[2], b.id[0]);
    ids_done(&got);
    ids_done(&a);
    ids_done(&b);
    tokenizer_close(t);
}

static void names_and_flags_of_added_tokens_are_known(void **state)
{
    uint32_t id = 0;

    (void)state;
    assert_true(tokenizer_find(qwen3, "<|im_end|>", &id));
    assert_int_equal(id, 151645);
    assert_true(tokenizer_is_special(qwen3, id));
    assert_true(tokenizer_find(qwen3, "</think>", &id));
    assert_int_equal(id, 151668);
    assert_false(tokenizer_is_special(qwen3, id));
    assert_false(tokenizer_find(qwen3, "<|im_end|", &id));
    assert_false(tokenizer_find(qwen3, "Hello", &id));
    assert_false(tokenizer_is_special(qwen3, 9707));
    assert_false(tokenizer_is_special(qwen3, UINT32_MAX));
    assert_int_equal(tokenizer_vocab(qwen3), 151669);
}

static void *encode_often(void *arg)
{
    const struct ids *want = arg;
    const struct text_run run = { mixed, sizeof mixed - 1, true };
    intptr_t wrong = 0;

    for (int i = 0; i < 200; i++) {
        struct ids got = { 0 };
        struct err err = { 0 };
        wrong += tokenizer_encode(qwen3, &run, 1, 0, &got, &err) < 0 || got.n != want->n ||
                 memcmp(got.id, want->id, got.n * sizeof *got.id) != 0;
        ids_done(&got);
    }
    return (void *)wrong;
}

static void threads_share_a_tokenizer(void **state)
{
    struct ids want = encode(qwen3, mixed, sizeof mixed - 1, true);
    pthread_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &want), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    ids_done(&want);
}

/* ---- how much, how long ---- */

static void a_text_longer_than_allowed_is_refused_and_leaves_nothing(void **state)
{
    struct ids list = encode(qwen3, "one two three", 13, true);
    const struct text_run run = { "one two three", 13, false };
    struct err err = { 0 };
    size_t n = list.n;

    (void)state;
    assert_int_equal(tokenizer_encode(qwen3, &run, 1, 2 * n - 1, &list, &err), -1);
    assert_int_equal(err.kind, ERR_TOO_LONG);
    assert_int_equal(list.n, n);
    assert_int_equal(tokenizer_encode(qwen3, &run, 1, 2 * n, &list, &err), 0);
    assert_int_equal(list.n, 2 * n);
    ids_done(&list);
}

static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Processor time, so that a busy machine does not fail the test. */
static void a_million_bytes_of_anything_take_under_a_second(void **state)
{
    static const char *const units[] = {
        "a", " ", "=", "\n", "\t", "<", "1", "\xe4\xb8\xad", "a ", "  \n", " \t", "!?", "'s", "'",
        "x\xcc\x88", "a\xcc\x81\xcc\x96", "\xcc\x81\xcc\x96", "\xea\xb0\x80", "\xf0\x9f\x98\x80",
        "<|im_end|>", "<|im_end|", "\xe3\x80\x80", "lorem ipsum dolor sit amet, ",
    };
    const double bound = SANITIZED ? 15 : 1;
    enum { SIZE = 1 << 20 };
    char *text = malloc(SIZE);

    (void)state;
    assert_non_null(text);
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        size_t unit = strlen(units[k]), size = SIZE / unit * unit;
        for (size_t i = 0; i < size; i++)
            text[i] = units[k][i % unit];
        double begin = cpu_seconds();
        struct ids got = encode(qwen3, text, size, true);
        double took = cpu_seconds() - begin;
        print_message("1 MiB of '%s': %.3f s, %zu ids\n", units[k][0] < ' ' && units[k][0] > 0
                                                              ? "white space" : units[k],
                      took, got.n);
        if (took > bound)
            fail_msg("1 MiB of '%s' took %.3f s", units[k], took);

        size_t back_size;
        char *back = decode(qwen3, &got, false, &back_size);
        if (!strstr(units[k], "\xcc")) {
            assert_int_equal(back_size, size);
            assert_memory_equal(back, text, size);
        }
        free(back);
        ids_done(&got);
    }
    free(text);
}

static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    uint64_t all = 0, resident = 0;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &all, &resident), 2);
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void memory_is_what_was_planned_and_the_file_is_given_back(void **state)
{
    uint64_t planned = 0, print = 0, held, before, after;
    struct tokenizer *t = NULL;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(tokenizer_plan_size(&planned, &print, QWEN3, &err), 0);
    before = resident_bytes();
    assert_int_equal(tokenizer_open(&t, QWEN3, &err), 0);
    after = resident_bytes();
    held = tokenizer_memory(t);
    print_message("held %lu, planned %lu, resident +%ld\n", held, planned,
                  (long)after - (long)before);
    assert_int_equal(print, tokenizer_fingerprint(t));
    assert_int_not_equal(print, 0);
    assert_true(held <= planned && planned < held + (1 << 20));
    assert_true(held < 25u << 20);
    if (!SANITIZED) {
        assert_true(after < before + held + held / 10);
        assert_true(after + held / 10 > before + held);
    }
    tokenizer_close(t);
}

static void opening_takes_well_under_a_second(void **state)
{
    double begin = cpu_seconds();
    struct tokenizer *t = open_tokenizer(QWEN3);
    double took = cpu_seconds() - begin;

    (void)state;
    print_message("opened in %.3f s of processor time\n", took);
    assert_true(took < (SANITIZED ? 10 : 0.9));
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_ids_of_qwen3_come_out_both_ways),
        cmocka_unit_test(the_reference_texts_of_qwen3_come_back),
        cmocka_unit_test(llama_cpp_agrees_on_the_qwen2_vocabulary),
        cmocka_unit_test(a_text_cut_into_runs_anywhere_gives_the_same_ids),
        cmocka_unit_test(one_byte_without_trust_keeps_a_token_from_being_one),
        cmocka_unit_test(no_bytes_without_trust_ever_give_an_added_token),
        cmocka_unit_test(invalid_bytes_count_as_replacement_characters),
        cmocka_unit_test(white_space_goes_with_a_token_that_takes_it),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(names_and_flags_of_added_tokens_are_known),
        cmocka_unit_test(a_text_longer_than_allowed_is_refused_and_leaves_nothing),
        cmocka_unit_test(a_million_bytes_of_anything_take_under_a_second),
        cmocka_unit_test(memory_is_what_was_planned_and_the_file_is_given_back),
        cmocka_unit_test(opening_takes_well_under_a_second),
    };

    return cmocka_run_group_tests(tests, open_qwen3, close_qwen3);
}
