/* tokenizer.json as others write it: what is understood, what is refused and with which words. */
#include "text_data.h"

#include <unistd.h>

/* ---- other tokenizer files ---- */

#define MINI "tests/data/tokenizers/qwen3.8/tokenizer-mini.json"

static void another_split_pattern_gives_the_ids_of_that_pattern(void **state)
{
    struct tokenizer *t = open_edited(
        QWEN3, "\"Regex\"", "]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+",
        "]?[\\\\p{L}\\\\p{M}]+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+");
    struct lines l = lines_open(VECTORS "llamacpp-vocab-qwen35.jsonl");
    json_t *record;

    (void)state;
    while ((record = lines_next(&l)))
        expect_ids(t, record, "ids", false, l.number);
    assert_int_equal(l.number, 47);
    tokenizer_close(t);
}

static void a_vocabulary_with_gaps_gives_the_ids_of_the_file(void **state)
{
    struct tokenizer *t = open_tokenizer(MINI);
    struct lines l = lines_open(VECTORS "ds4-flash-next-vectors.jsonl");
    json_t *record;
    size_t size = 1;

    (void)state;
    while ((record = lines_next(&l)))
        expect_ids(t, record, "ids", true, l.number);
    assert_int_equal(l.number, 58);
    assert_true(tokenizer_vocab(t) > 300000);
    assert_string_equal(tokenizer_piece(t, 299999, &size), "");
    assert_int_equal(size, 0);
    tokenizer_piece(t, UINT32_MAX, &size);
    assert_int_equal(size, 0);
    tokenizer_close(t);
}

/* The records know the added tokens of Qwen3.5, which are all here as well. */
static void the_whole_248k_vocabulary_gives_the_published_ids(void **state)
{
    struct tokenizer *t = open_tokenizer(QWEN38);
    struct lines l = lines_open(VECTORS "kitoken-qwen3.5-vectors.jsonl");
    json_t *record;

    (void)state;
    assert_int_equal(tokenizer_vocab(t), 248077);
    while ((record = lines_next(&l)))
        expect_ids(t, record, "ids", true, l.number);
    assert_int_equal(l.number, 141);
    tokenizer_close(t);
}

/* A mark that joins letters: the pattern before this one would cut at it. */
static void letters_keep_their_marks(void **state)
{
    static const char conjunct[] = "\xe0\xa4\x95\xe0\xa5\x8d";
    struct tokenizer *t = open_tokenizer(QWEN38);
    struct ids got = encode(t, conjunct, sizeof conjunct - 1, true);

    (void)state;
    assert_int_equal(got.n, 1);
    assert_int_equal(got.id[0], 149567);
    ids_done(&got);
    tokenizer_close(t);
}

/* Not the pattern of the file but that of GPT-2, and merges in the older spelling. */
static void a_byte_level_that_splits_by_itself_is_understood(void **state)
{
    size_t size;
    char *text = read_file(MINI, &size), *begin = strstr(text, "\"pre_tokenizer\"");
    struct tokenizer *t = NULL;
    struct err err = { 0 };
    struct ids got;

    (void)state;
    char *end = strstr(begin, "\"post_processor\"");
    static const char own[] = "\"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                              "\"add_prefix_space\": false, \"use_regex\": true},";
    assert_true((size_t)(end - begin) > sizeof own);
    memset(begin, ' ', (size_t)(end - begin));
    memcpy(begin, own, sizeof own - 1);
    assert_int_equal(tokenizer_open_buffer(&t, "mini", text, size, &err), 0);
    /* Digits stay together under this pattern, but have no merges here. */
    got = encode(t, "in 12", 5, true);
    assert_true(got.n >= 3);
    ids_done(&got);
    tokenizer_close(t);
    free(text);
}

static void what_is_not_built_is_refused_by_name(void **state)
{
    static const struct {
        const char *after, *from, *to, *want;
    } cases[] = {
        { "\"normalizer\"", "NFC", "NFKC", "normalizer" },
        { "\"pre_tokenizer\"", "Isolated", "Removed", "pre_tokenizer" },
        { "\"pre_tokenizer\"", "\"invert\": false", "\"invert\": true", "pre_tokenizer" },
        { "\"pre_tokenizer\"", "\"use_regex\": false", "\"use_regex\": true", "pre_tokenizer" },
        { "\"pre_tokenizer\"", "\"add_prefix_space\": false", "\"add_prefix_space\": true",
          "pre_tokenizer" },
        { "\"pre_tokenizer\"", "\"Split\"", "\"Digits\"", "pre_tokenizer" },
        { "\"pre_tokenizer\"", "\\\\p{N}", "\\\\p{Lu}", "split pattern" },
        { "\"pre_tokenizer\"", "\\\\p{N}", "\\\\d", "split pattern" },
        { "\"pre_tokenizer\"", "\\\\p{N}", "\xc3\xa4", "split pattern" },
        { "\"pre_tokenizer\"", "(?i:", "(?x:", "split pattern" },
        { "\"pre_tokenizer\"", "'ll", "'ss", "split pattern" },
        { "\"post_processor\"", "ByteLevel", "TemplateProcessing", "post_processor" },
        { "\"decoder\"", "ByteLevel", "Metaspace", "decoder" },
        { "\"model\"", "\"BPE\"", "\"Unigram\"", "model.type" },
        { "\"model\"", "\"dropout\": null", "\"dropout\": 0.1", "model.dropout" },
        { "\"model\"", "\"byte_fallback\": false", "\"byte_fallback\": true",
          "model.byte_fallback" },
        { "\"model\"", "\"ignore_merges\": false", "\"ignore_merges\": true",
          "model.ignore_merges" },
        { "\"model\"", "\"end_of_word_suffix\": \"\"", "\"end_of_word_suffix\": \"</w>\"",
          "model.end_of_word_suffix" },
        { "\"added_tokens\"", "\"single_word\": false", "\"single_word\": true", "single_word" },
        { "\"added_tokens\"", "\"normalized\": false", "\"normalized\": true", "normalized" },
        { "\"version\"", "1.0", "2.0", "version" },
        { "\"version\"", "\"version\"", "\"shape\"", "shape" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t = NULL;
        struct err err = { 0 };
        size_t size;
        char *text = edited(MINI, cases[i].after, cases[i].from, cases[i].to, &size);
        int rc = tokenizer_open_buffer(&t, "some/tokenizer.json", text, size, &err);
        if (rc == 0 || err.kind != ERR_UNSUPPORTED || !strstr(err.text, cases[i].want) ||
            !strstr(err.text, "some/tokenizer.json"))
            fail_msg("%s -> %s: %d %s", cases[i].from, cases[i].to, rc, err.text);
        free(text);
    }
}

static void a_broken_file_is_refused_with_file_and_place(void **state)
{
    static const struct {
        const char *after, *from, *to, *want;
    } cases[] = {
        { "\"vocab\"", "\"vocab\"", "\"voc\"", "model.vocab" },
        { "\"vocab\"", ": 5,", ": 6,", "id 6" },
        { "\"vocab\"", ": 5,", ": 5.5,", "model.vocab: token" },
        { "\"vocab\"", ": 5,", ": -5,", "model.vocab: token" },
        { "\"vocab\"", ": 5,", ": 4294967296,", "model.vocab: token" },
        { "\"vocab\"", ": 5,", ": 99999999,", "id 99999999" },
        { "\"vocab\"", "\"&\"", "\"%\"", "same text" },
        { "\"vocab\"", "\"&\"", "\"&&&&\"", "no token for byte 0x26" },
        { "\"vocab\"", "\"&\"", "\"\\ud800\"", "surrogate" },
        { "\"vocab\"", "\"&\"", "\"\xff\"", "UTF-8" },
        { "\"merges\"", "[\n\"i\",\n\"n\"\n]", "[\n\"i\"\n]", "model.merges[1]" },
        { "\"merges\"", "\"n\"", "\"zzzz\"", "second part" },
        { "\"merges\"", "[\n\"i\",\n\"n\"\n]", "\"i n n\"", "one space" },
        { "\"merges\"", "[\n\"i\",\n\"n\"\n]", "5", "model.merges[1]" },
        { "\"added_tokens\"", "248045", "248044", "added_tokens[" },
        { "\"added_tokens\"", "248045", "-1", "added_tokens[1].id" },
        { "\"added_tokens\"", "\"<|im_start|>\"", "7", "added_tokens[1].content" },
        { "\"added_tokens\"", "\"lstrip\": false", "\"lstrip\": 0", "lstrip" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t = NULL;
        struct err err = { 0 };
        size_t size;
        char *text = edited(MINI, cases[i].after, cases[i].from, cases[i].to, &size);
        int rc = tokenizer_open_buffer(&t, "some/tokenizer.json", text, size, &err);
        if (rc == 0 || err.kind != ERR_FORMAT || !strstr(err.text, cases[i].want) ||
            !strstr(err.text, "some/tokenizer.json"))
            fail_msg("%s -> %s: %d %s", cases[i].from, cases[i].to, rc, err.text);
        free(text);
    }
}

static void no_beginning_of_a_file_passes_for_the_file(void **state)
{
    size_t size;
    char *text = read_file(MINI, &size);
    struct tokenizer *t = NULL;
    struct err err = { 0 };

    (void)state;
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == ' '))
        size--;
    for (size_t cut = 0; cut < size; cut += cut < size - 400 ? 7 : 1) {
        char *part = malloc(cut + 1); /* so that a read past the end is seen */
        assert_non_null(part);
        memcpy(part, text, cut);
        assert_int_equal(tokenizer_open_buffer(&t, "cut", part, cut, &err), -1);
        assert_int_equal(err.kind, ERR_FORMAT);
        free(part);
    }
    free(text);
}

static void a_missing_file_and_a_lfs_pointer_are_named(void **state)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
    struct tokenizer *t = NULL;
    struct err err = { 0 };
    uint64_t size, print;

    (void)state;
    assert_int_equal(tokenizer_open(&t, "build/no-such/tokenizer.json", &err), -1);
    assert_non_null(strstr(err.text, "build/no-such/tokenizer.json"));
    assert_int_equal(tokenizer_plan_size(&size, &print, "build/no-such/tokenizer.json", &err), -1);
    assert_int_equal(tokenizer_open(&t, "tests", &err), -1);
    assert_int_equal(err.kind, ERR_FORMAT);
    assert_int_equal(tokenizer_open_buffer(&t, "x", pointer, sizeof pointer - 1, &err), -1);
    assert_non_null(strstr(err.text, "Git LFS"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_split_pattern_gives_the_ids_of_that_pattern),
        cmocka_unit_test(a_vocabulary_with_gaps_gives_the_ids_of_the_file),
        cmocka_unit_test(the_whole_248k_vocabulary_gives_the_published_ids),
        cmocka_unit_test(letters_keep_their_marks),
        cmocka_unit_test(a_byte_level_that_splits_by_itself_is_understood),
        cmocka_unit_test(what_is_not_built_is_refused_by_name),
        cmocka_unit_test(a_broken_file_is_refused_with_file_and_place),
        cmocka_unit_test(no_beginning_of_a_file_passes_for_the_file),
        cmocka_unit_test(a_missing_file_and_a_lfs_pointer_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
