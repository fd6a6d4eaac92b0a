#include "text_data.h"

#include "text/bpe.h"
#include "text/encoding.h"
#include "text/long_word.h"
#include "text/tokenizer_tables.h"

#include <malloc.h>
#include <unistd.h>

enum { MIB = 1 << 20, CONTEXT = 16384, MOST = 4 * CONTEXT + 1024 };

static struct tokenizer *qwen3;

static int open_qwen3(void **state)
{
    (void)state;
    alarm(200); /* whatever hangs here ends here */
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* as in a worker: large blocks grow in place */
    qwen3 = open_tokenizer(QWEN3);
    return 0;
}

static int close_qwen3(void **state)
{
    (void)state;
    tokenizer_close(qwen3);
    return 0;
}

static uint32_t next_random(uint32_t *random)
{
    *random = *random * 1664525 + 1013904223;
    return *random >> 8;
}

/* Bytes of tokens one after the other, at least size of them. letters: only such that one word
 * comes of it. */
static char *random_text(uint32_t seed, size_t *size, bool letters)
{
    char *text = malloc(*size + 256);
    size_t n = 0;

    assert_non_null(text);
    while (n < *size) {
        size_t piece_size;
        const char *piece = tokenizer_piece(qwen3, next_random(&seed) % 151000, &piece_size);
        bool fine = piece_size > 0 && piece_size < 200;
        for (size_t i = 0; letters && i < piece_size; i++)
            fine = fine && ((piece[i] >= 'a' && piece[i] <= 'z') ||
                            (piece[i] >= 'A' && piece[i] <= 'Z'));
        if (!fine)
            continue;
        memcpy(text + n, piece, piece_size);
        n += piece_size;
    }
    *size = n;
    return text;
}

static char *repeated(const char *unit, size_t size)
{
    char *text = malloc(size);
    size_t n = strlen(unit);

    assert_non_null(text);
    for (size_t i = 0; i < size; i++)
        text[i] = unit[i % n];
    return text;
}

/* ---- the same ids ---- */

static struct ids encode_in_portions(const char *text, size_t size, size_t work)
{
    const struct text_run run = { text, size, true };
    struct encoding *e = NULL;
    struct ids out = { 0 };
    struct err err = { 0 };
    int more;

    if (encoding_open(&e, qwen3, &run, 1, 0, 0, &err) < 0)
        fail_msg("%s", err.text);
    while ((more = encoding_step(e, work, 0, &out, &err)) > 0)
        ;
    if (more < 0)
        fail_msg("%s", err.text);
    encoding_close(e);
    return out;
}

static void portions_of_any_size_give_the_same_ids(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 4; seed++) {
        size_t size = 300000;
        char *text = random_text(seed, &size, false);
        struct ids whole = encode(qwen3, text, size, true);
        for (size_t work = 1; work < size; work = work * 30 + 1) {
            struct ids got = encode_in_portions(text, size, work);
            assert_same_ids(&got, &whole, "in portions");
            ids_done(&got);
        }
        ids_done(&whole);
        free(text);
    }
}

/* BPE of the whole word at once is what its windows must give. */
static void a_long_word_has_the_ids_of_its_whole(void **state)
{
    static const char *const units[] = { "a", "ab", "ACGT", "aA", "abcdefghijklmnopqrstuvwxyz",
                                         "thethe", "\xe4\xb8\xad", "\xe0\xb8\x81\xe0\xb8\xb2" };
    enum { N_UNITS = sizeof units / sizeof *units };

    (void)state;
    for (uint32_t k = 0; k < 60; k++) {
        size_t size = 600 + k * 1000;
        char *text = k < N_UNITS ? repeated(units[k], size = size / 12 * 12)
                                 : random_text(k, &size, true);
        struct bpe_scratch scratch = { 0 };
        struct ids whole = { 0 }, got;
        struct err err = { 0 };
        assert_int_equal(bpe_encode(&qwen3->vocab.bpe, text, size, &scratch, &whole, &err), 0);
        got = encode(qwen3, text, size, false);
        assert_same_ids(&got, &whole, k < N_UNITS ? units[k] : "letters");
        ids_done(&got);
        ids_done(&whole);
        bpe_scratch_done(&scratch);
        free(text);
    }
}

static void no_text_has_fewer_tokens_than_the_least(void **state)
{
    struct lines l = lines_open(VECTORS "tokenizer-vectors-qwen3.jsonl");
    json_t *record;

    (void)state;
    while ((record = lines_next(&l))) {
        json_t *text = json_object_get(record, "text");
        struct text_run run = { json_string_value(text), json_string_length(text), true };
        for (int trusted = 0; trusted < 2; trusted++) {
            run.trusted = trusted;
            struct ids got = encode(qwen3, run.bytes, run.size, trusted);
            assert_true(least_tokens(&qwen3->least, &run, 1, true) <= got.n);
            ids_done(&got);
        }
    }
    /* And it is not far from what is there. */
    struct text_run digits = { "0123456789", 10, false };
    assert_int_equal(least_tokens(&qwen3->least, &digits, 1, false), 10);
}

/* ---- memory and time ---- */

static uint64_t peak_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    uint64_t kib = 0;

    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %lu", &kib) == 1)
            break;
    fclose(file);
    assert_true(kib > 0);
    return kib * 1024;
}

static void forget_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");

    assert_non_null(file);
    fputs("5", file);
    fclose(file);
}

static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Encodes with the bound of a context of 16384: 0, or -1 for too long. beside: memory that is
 * taken for a moment and not told. */
static int encode_big(const char *name, const char *text, size_t size, double bound_seconds,
                      uint64_t beside, uint64_t bound_memory)
{
    const struct text_run run = { text, size, false };
    struct encoding *e = NULL;
    struct ids out = { 0 };
    struct err err = { 0 };
    uint64_t told = 0;

    malloc_trim(0);
    forget_peak();
    uint64_t before = peak_bytes();
    double begin = cpu_seconds();
    int more = encoding_open(&e, qwen3, &run, 1, MOST, 0, &err) < 0 ? -1 : 1;
    while (more > 0) {
        more = encoding_step(e, MIB, 0, &out, &err);
        told = encoding_memory(e, &out) > told ? encoding_memory(e, &out) : told;
    }
    double took = cpu_seconds() - begin;
    uint64_t memory = peak_bytes() - before;
    print_message("%zu bytes of %s: %s, %zu ids, %.3f s, %lu KiB more, %lu KiB told\n", size, name,
                  more < 0 ? "too long" : "encoded", out.n, took, memory / 1024, told / 1024);
    if (more < 0 && err.kind != ERR_TOO_LONG)
        fail_msg("%s: %s", name, err.text);
    if (!SANITIZED) {
        if (took > bound_seconds)
            fail_msg("%s: %.3f s", name, took);
        /* An allocator rounds, and leaves some behind. */
        if (memory > told + beside + 512 * 1024 || memory > bound_memory)
            fail_msg("%s: %lu KiB more, %lu KiB told", name, memory / 1024, told / 1024);
    }
    encoding_close(e);
    ids_done(&out);
    return more;
}

static void thirty_mebibytes_are_too_long_at_once_and_for_little_memory(void **state)
{
    static const char *const units[] = {
        "a", " ", "\n", "=", "0", "a ", "<|im_end|", "lorem ipsum dolor sit amet, ",
        "abcdefghijklmnopqrstuvwxyz", "\xe4\xb8\xad", "\xea\xb0\x80", "\xe3\x80\x80",
        "e\xcc\x81", "\xf0\x9f\x98\x80",
    };
    size_t size = 30 * MIB;

    (void)state;
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        char *text = repeated(units[k], size / 12 * 12);
        assert_int_equal(encode_big(units[k][0] == '\n' ? "newline" : units[k], text,
                                    size / 12 * 12, 1, 0, 2 * MIB), -1);
        free(text);
    }
    size_t n = size;
    char *text = random_text(9, &n, false);
    assert_int_equal(encode_big("random tokens", text, n, 1, 0, 2 * MIB), -1);
    free(text);
}

/* Marks without end must be sorted as a whole, which takes eight bytes for each. */
static void a_row_of_marks_without_end_is_too_long(void **state)
{
    size_t size = 4 * MIB;
    char *text = repeated("\xcc\x81\xcc\x96", size);

    (void)state;
    assert_int_equal(encode_big("marks", text, size, 2, 6 * size, 40 * MIB), -1);
    free(text);
}

static void the_longest_words_that_may_fit_take_a_byte_for_each_of_theirs(void **state)
{
    static const struct {
        const char *unit;
        size_t size;
        int want;
    } cases[] = { { " ", 8 * MIB, 0 }, { "a", 2600000, -1 }, { "=", 4 * MIB, 0 } };

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char *text = repeated(cases[k].unit, cases[k].size);
        assert_int_equal(encode_big(cases[k].unit, text, cases[k].size, 3, 0,
                                    cases[k].size + MIB),
                         cases[k].want);
        free(text);
    }
}

static void what_would_take_more_than_there_is_room_for_is_refused(void **state)
{
    char *text = repeated("a", MIB);
    const struct text_run run = { text, MIB, false };
    struct encoding *e = NULL;
    struct ids out = { 0 };
    struct err err = { 0 };
    int more;

    (void)state;
    assert_int_equal(encoding_open(&e, qwen3, &run, 1, 0, 0, &err), 0);
    while ((more = encoding_step(e, 1, 512 * 1024, &out, &err)) > 0)
        assert_true(encoding_memory(e, &out) <= 512 * 1024);
    assert_int_equal(more, -1);
    assert_int_equal(err.kind, ERR_BUDGET);
    encoding_close(e);
    ids_done(&out);
    free(text);
}

/* So that a thread with other duties can turn to them. */
static void a_portion_of_work_is_short(void **state)
{
    static const char *const units[] = { " ", "a", "a b ", "\xe4\xb8\xad" };
    double worst = 0;

    (void)state;
    for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
        char *text = repeated(units[k], MIB / 12 * 12);
        const struct text_run run = { text, MIB / 12 * 12, false };
        struct encoding *e = NULL;
        struct ids out = { 0 };
        struct err err = { 0 };
        int more = 1;
        assert_int_equal(encoding_open(&e, qwen3, &run, 1, 0, 0, &err), 0);
        while (more > 0) {
            double begin = cpu_seconds();
            more = encoding_step(e, 32 << 10, 0, &out, &err);
            double took = cpu_seconds() - begin;
            worst = took > worst ? took : worst;
        }
        assert_int_equal(more, 0);
        encoding_close(e);
        ids_done(&out);
        free(text);
    }
    print_message("a portion of 32 KiB takes %.1f ms at most\n", worst * 1e3);
    assert_true(worst < (SANITIZED ? 1 : 0.1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(portions_of_any_size_give_the_same_ids),
        cmocka_unit_test(a_long_word_has_the_ids_of_its_whole),
        cmocka_unit_test(no_text_has_fewer_tokens_than_the_least),
        cmocka_unit_test(thirty_mebibytes_are_too_long_at_once_and_for_little_memory),
        cmocka_unit_test(a_row_of_marks_without_end_is_too_long),
        cmocka_unit_test(the_longest_words_that_may_fit_take_a_byte_for_each_of_theirs),
        cmocka_unit_test(what_would_take_more_than_there_is_room_for_is_refused),
        cmocka_unit_test(a_portion_of_work_is_short),
    };

    return cmocka_run_group_tests(tests, open_qwen3, close_qwen3);
}
