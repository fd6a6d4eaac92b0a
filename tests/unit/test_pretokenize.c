/* Text cut into words before BPE, and NFC, against Oniguruma, utf8proc and the reference's cuts. */
#include "text_data.h"

#include "text/bytes.h"
#include "text/nfc.h"
#include "text/pattern.h"
#include "text/pretokenize.h"
#include "text/unicode_tables.h"
#include "util/utf8.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utf8proc.h>

#define QWEN38_PATTERN                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"                  \
    "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static struct pretokenizer *open_pattern(const char *pattern)
{
    struct pretokenizer *p = NULL;
    struct err err = { 0 };

    if (pretokenizer_open(&p, pattern, strlen(pattern), &err) < 0)
        fail_msg("%s", err.text);
    return p;
}

/* Bytes of the first n characters. */
static size_t bytes_of(const char *text, size_t n)
{
    size_t at = 0;

    for (; n > 0; n--) {
        int length = utf8_next(text + at, 4, NULL);
        assert_true(length > 0);
        at += (size_t)length;
    }
    return at;
}

/* Sizes of the pieces, in bytes, of a text put in portions of up to `portion` bytes. */
static struct ids piece_sizes(const struct pretokenizer *p, const char *text, size_t size,
                              size_t portion)
{
    struct pieces *walk = NULL;
    struct ids out = { 0 };
    struct err err = { 0 };
    size_t put = 0, given = 0, n = 0;
    int more = 0;

    assert_int_equal(pieces_open(&walk, p, &err), 0);
    do {
        if (more == 0) {
            size_t end = size - put < portion ? size : put + portion;
            while (end < size && ((unsigned char)text[end] & 0xc0) == 0x80)
                end++;
            assert_int_equal(pieces_put(walk, text + put, end - put, &err), 0);
            put = end;
            if (put == size)
                pieces_end(walk);
        }
        while ((more = pieces_next(walk, &n, &err)) > 0) {
            assert_true(n > 0);
            assert_int_equal(ids_put(&out, (uint32_t)bytes_of(text + given, n), &err), 0);
            given += bytes_of(text + given, n);
        }
        if (more < 0)
            fail_msg("%s", err.text);
    } while (put < size);
    assert_int_equal(given, size);
    assert_int_equal(pieces_held(walk), 0);
    pieces_close(walk);
    return out;
}

/* The pieces with a bar between them. */
static char *cut(const struct pretokenizer *p, const char *text, size_t size, size_t portion)
{
    struct ids sizes = piece_sizes(p, text, size, portion);
    struct bytes out = { 0 };
    struct err err = { 0 };

    for (size_t i = 0; i < sizes.n; i++) {
        assert_int_equal(bytes_put(&out, "|", out.size > 0, &err), 0);
        assert_int_equal(bytes_put(&out, text, sizes.id[i], &err), 0);
        text += sizes.id[i];
    }
    assert_int_equal(bytes_put(&out, "", 1, &err), 0);
    ids_done(&sizes);
    return out.at;
}

static int n_pieces_wrong(const struct pretokenizer *p, size_t portion)
{
    struct lines l = lines_open(VECTORS "pretok-vectors-qwen3.8.jsonl");
    json_t *record;
    int wrong = 0;

    while ((record = lines_next(&l))) {
        json_t *text = json_object_get(record, "text"), *want, *list;
        struct bytes composed = { 0 };
        struct err err = { 0 };
        size_t i, at = 0;

        list = json_object_get(record, "pieces");
        if (nfc_append(&composed, json_string_value(text), json_string_length(text), &err) < 0)
            return -1;
        struct ids sizes = piece_sizes(p, composed.at, composed.size, portion);
        bool same = sizes.n == json_array_size(list);
        json_array_foreach(list, i, want) {
            same = same && sizes.id[i] == json_string_length(want) &&
                   memcmp(composed.at + at, json_string_value(want), sizes.id[i]) == 0;
            at += same ? sizes.id[i] : 0;
        }
        ids_done(&sizes);
        bytes_done(&composed);
        wrong += !same;
    }
    return l.number == 696 ? wrong : -1;
}

static void the_reference_cuts_of_the_248k_pattern_come_out(void **state)
{
    struct pretokenizer *p = open_pattern(QWEN38_PATTERN);

    (void)state;
    assert_int_equal(n_pieces_wrong(p, SIZE_MAX), 0);
    assert_int_equal(n_pieces_wrong(p, 1), 0);
    assert_int_equal(n_pieces_wrong(p, 5), 0);
    pretokenizer_close(p);
}

static bool in_ranges(json_t *ranges, uint32_t cp)
{
    json_t *range;
    size_t i;

    json_array_foreach(ranges, i, range)
        if (cp >= json_integer_value(json_array_get(range, 0)) &&
            cp <= json_integer_value(json_array_get(range, 1)))
            return true;
    return false;
}

static void the_frozen_tables_are_the_data_they_were_made_from(void **state)
{
    json_t *classes = json_load_file(VECTORS "unicode-classes-oniguruma.json", 0, NULL);
    json_t *later = json_load_file(VECTORS "nfc-later-than-unicode-9.json", 0, NULL);
    json_t *l = json_object_get(classes, "L"), *n = json_object_get(classes, "N");
    json_t *m = json_object_get(classes, "M"), *s = json_object_get(classes, "s");

    (void)state;
    assert_non_null(s);
    for (uint32_t cp = 0; cp < 0x110000; cp += cp < 0x20000 ? 1 : 97) {
        enum unicode_class want = in_ranges(l, cp)   ? UNICODE_L
                                  : in_ranges(n, cp) ? UNICODE_N
                                  : in_ranges(m, cp) ? UNICODE_M
                                  : in_ranges(s, cp) ? UNICODE_SPACE
                                                     : UNICODE_OTHER;
        assert_int_equal(unicode_class(cp), want);
        assert_int_equal(unicode_unknown_to_nfc(cp), in_ranges(later, cp));
    }
    json_decref(classes);
    json_decref(later);
}

/* What oniguruma does where other engines differ: the long s and the Kelvin sign, what lies
 * between matches, and empty matches. */
static void cuts_follow_oniguruma(void **state)
{
    static const struct {
        const char *pattern, *text, *want;
    } cases[] = {
        { "(?i:'s|'k)|\\p{L}+", "'\xc5\xbftop", "'\xc5\xbf|top" },
        { "(?i:'s|'k)|\\p{L}+", "'\xe2\x84\xaax", "'\xe2\x84\xaa|x" },
        { "'s|\\p{L}+", "'\xc5\xbftop", "'|\xc5\xbftop" },
        { "(?i:[r-t])", "\xc5\xbfSq", "\xc5\xbf|S|q" },
        { "(?i:[^s])+", "ab\xc5\xbf\x73x", "ab|\xc5\xbfs|x" },
        { "b", "aabaa", "aa|b|aa" },
        { "x*", "axxb", "a|xx|b" },
        { "x*?", "ab", "a|b" },
        { "\\s{2}", "a   b", "a|  | b" },
        { "[a\\-z]", "-am", "-|a|m" },
        { "(?<=a)b|(?=c)", "abcab", "a|b|ca|b" },
        { ".", "a\n\xe4\xb8\xad", "a|\n|\xe4\xb8\xad" },
        { "\\P{L}", "1a2", "1|a|2" },
        { "\\p{^L}+", "12a", "12|a" },
        { "[^\\S\\n]+", "a \t\n", "a| \t|\n" },
        { "\\x41|\\.", "A.B", "A|.|B" },
        { "\\p{N}{1,3}", "1234567", "123|456|7" },
        { "a{,2}b", "aaab", "a|aab" },
        { "", "ab", "a|b" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pretokenizer *p = open_pattern(cases[i].pattern);
        for (size_t portion = 1; portion < 9; portion++) {
            char *got = cut(p, cases[i].text, strlen(cases[i].text), portion);
            if (strcmp(got, cases[i].want) != 0)
                fail_msg("'%s' cuts '%s' into '%s'", cases[i].pattern, cases[i].text, got);
            free(got);
        }
        pretokenizer_close(p);
    }
}

static void patterns_that_mean_something_else_here_are_refused(void **state)
{
    static const char *const patterns[] = {
        "\\p{Lu}", "\\p{Han}", "\\pL", "\\p", "\\p{", "\\d", "\\w+", "\\b", "\\1", "\\K", "\\",
        "^a", "a$", "[a", "[]", "[[:alpha:]]", "[a&&b]", "[z-a]", "[\\s-a]", "(a", "a)", "(?i)a",
        "(?<n>a)", "(?#x)", "(*UTF)", "a{2}?", "a{1,2}+", "a{x}", "a{", "\xc3\xa4", "[\xc3\xa4]",
        "(?i:ss)", "(?i:\\p{L})", "\\x80", "\\u0041", "*a", "a]",
    };

    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        struct pretokenizer *p = NULL;
        struct err err = { 0 };
        if (pretokenizer_open(&p, patterns[i], strlen(patterns[i]), &err) == 0)
            fail_msg("'%s' was accepted", patterns[i]);
        assert_true(err.kind == ERR_UNSUPPORTED || err.kind == ERR_FORMAT);
        assert_non_null(strstr(err.text, "pattern"));
    }
}

static void a_pattern_worse_than_linear_ends_in_an_error(void **state)
{
    struct pretokenizer *p = open_pattern("(?:a|aa)+(?:b|c)|d");
    struct pieces *walk = NULL;
    struct err err = { 0 };
    char text[400];
    size_t n;

    (void)state;
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'd';
    alarm(60);
    assert_int_equal(pieces_open(&walk, p, &err), 0);
    assert_int_equal(pieces_put(walk, text, sizeof text, &err), 0);
    pieces_end(walk);
    assert_int_equal(pieces_next(walk, &n, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    assert_non_null(strstr(err.text, "limit"));
    pieces_close(walk);
    pretokenizer_close(p);
}

/* As systemd's MemoryDenyWriteExecute does it. */
static int forbid_executable_memory(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    const struct sock_fprog program = { .len = sizeof filter / sizeof *filter, .filter = filter };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Must be the first test: memory that PCRE2's JIT got once would be used again. */
static void a_system_that_forbids_jit_gets_the_same_cuts(void **state)
{
    uint64_t *without = mmap(NULL, sizeof *without, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint32_t has_jit = 0;
    int status = 0;

    (void)state;
    assert_true(without != MAP_FAILED);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct pretokenizer *p = NULL;
        struct err err = { 0 };
        if (forbid_executable_memory() < 0)
            _exit(10);
        if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
            MAP_FAILED)
            _exit(11);
        if (pretokenizer_open(&p, QWEN38_PATTERN, strlen(QWEN38_PATTERN), &err) < 0)
            _exit(12);
        *without = pretokenizer_memory(p);
        _exit(n_pieces_wrong(p, 64) == 0 ? 0 : 13);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);

    struct pretokenizer *p = open_pattern(QWEN38_PATTERN);
    pcre2_config(PCRE2_CONFIG_JIT, &has_jit);
    if (has_jit)
        assert_true(*without < pretokenizer_memory(p));
    pretokenizer_close(p);
    munmap(without, sizeof *without);
}

/* ---- NFC ---- */

static struct bytes nfc(const char *text, size_t size)
{
    struct bytes out = { 0 };
    struct err err = { 0 };

    if (nfc_append(&out, text, size, &err) < 0)
        fail_msg("%s", err.text);
    return out;
}

static void nfc_is_that_of_utf8proc_for_characters_both_know(void **state)
{
    uint32_t random = 7;
    int n_changed = 0;

    (void)state;
    for (int round = 0; round < 40000; round++) {
        char text[64];
        size_t size = 0;
        for (int i = 0; i < 8; i++) {
            static const uint32_t from[] = { 0x41, 0x300, 0x3b1, 0x1f00, 0x1100, 0xac00, 0x915,
                                             0xf900 };
            static const uint32_t count[] = { 58, 112, 24, 256, 120, 11172, 60, 300 };
            uint32_t cp;
            random = random * 1664525 + 1013904223;
            cp = from[random >> 29] + (random >> 8 & 0xffff) % count[random >> 29];
            /* utf8proc 2.8 swallows U+11A7 behind a syllable; the standard does not. */
            if (unicode_unknown_to_nfc(cp) || cp == 0x11a7)
                continue;
            size += utf8_put(text + size, cp);
        }
        text[size] = 0;
        char *want = (char *)utf8proc_NFC((const utf8proc_uint8_t *)text);
        assert_non_null(want);
        struct bytes got = nfc(text, size);
        if (got.size != strlen(want) || memcmp(got.at, want, got.size) != 0)
            fail_msg("NFC of '%s' is '%s' and not '%.*s'", text, want, (int)got.size, got.at);
        n_changed += got.size != size;
        free(want);
        bytes_done(&got);
    }
    assert_true(n_changed > 1000);
}

/* What a portion of text may end with. */
static void text_cut_at_a_border_has_the_same_nfc(void **state)
{
    static const uint32_t some[] = { 'a', 0xe9, 0x300, 0x316, 0x344, 0x212b, 0x958, 0x915, 0x93c,
                                     0x1100, 0x1161, 0x11a8, 0xac00, 0x11a7, 0x16d63, 0x16d67,
                                     0x4e00, 0x1f600, 0x3b9, 0x308, 0x301, 0x9c7, 0x9be };
    uint32_t random = 3;
    int n_cuts = 0;

    (void)state;
    for (int round = 0; round < 40000; round++) {
        char text[64];
        size_t size = 0;
        for (int i = 0; i < 10; i++) {
            random = random * 1664525 + 1013904223;
            size += utf8_put(text + size, some[(random >> 8) % (sizeof some / sizeof *some)]);
        }
        size_t border = nfc_border(text, 0, size);
        if (border == 0)
            continue;
        struct bytes whole = nfc(text, size), cut_up = nfc(text, border);
        struct err err = { 0 };
        assert_int_equal(nfc_append(&cut_up, text + border, size - border, &err), 0);
        if (cut_up.size != whole.size || memcmp(cut_up.at, whole.at, whole.size) != 0)
            fail_msg("'%.*s' may not be cut at %zu", (int)size, text, border);
        bytes_done(&whole);
        bytes_done(&cut_up);
        n_cuts++;
    }
    assert_true(n_cuts > 30000);
}

/* Made with the reference library (tokenizers 0.23.3): what it does not compose or reorder. */
static void characters_unknown_to_the_reference_stay_as_they_are(void **state)
{
    static const struct {
        uint32_t in[4], want[4];
    } cases[] = {
        { { 0x16d63, 0x16d67 }, { 0x16d63, 0x16d67 } },
        { { 0x105d2, 0x307 }, { 0x105d2, 0x307 } },
        { { 0x11935, 0x11930 }, { 0x11935, 0x11930 } },
        { { 'q', 0x1ac1, 0x334, 0 }, { 'q', 0x1ac1, 0x334, 0 } },
        { { 'e', 0x8ca, 0x301, 0 }, { 'e', 0x8ca, 0x301, 0 } },
        { { 'e', 0x301, 0x8ca, 0 }, { 0xe9, 0x8ca, 0 } },
        { { 0xac00, 0x11a7, 0x11a8, 0 }, { 0xac00, 0x11a7, 0x11a8, 0 } },
        { { 0x212b, 0x915, 0x93c, 0 }, { 0xc5, 0x915, 0x93c, 0 } },
        { { 0x958, 0 }, { 0x915, 0x93c, 0 } },
        { { '>', 0x338, 0 }, { 0x226f, 0 } },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char in[16], want[16];
        size_t in_size = 0, want_size = 0;
        for (int k = 0; k < 4 && cases[i].in[k]; k++)
            in_size += utf8_put(in + in_size, cases[i].in[k]);
        for (int k = 0; k < 4 && cases[i].want[k]; k++)
            want_size += utf8_put(want + want_size, cases[i].want[k]);
        struct bytes got = nfc(in, in_size);
        if (got.size != want_size || memcmp(got.at, want, want_size) != 0)
            fail_msg("case %zu", i);
        bytes_done(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_system_that_forbids_jit_gets_the_same_cuts),
        cmocka_unit_test(the_reference_cuts_of_the_248k_pattern_come_out),
        cmocka_unit_test(the_frozen_tables_are_the_data_they_were_made_from),
        cmocka_unit_test(cuts_follow_oniguruma),
        cmocka_unit_test(patterns_that_mean_something_else_here_are_refused),
        cmocka_unit_test(a_pattern_worse_than_linear_ends_in_an_error),
        cmocka_unit_test(nfc_is_that_of_utf8proc_for_characters_both_know),
        cmocka_unit_test(text_cut_at_a_border_has_the_same_nfc),
        cmocka_unit_test(characters_unknown_to_the_reference_stay_as_they_are),
    };

    alarm(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
