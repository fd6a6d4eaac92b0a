/* Tokens as text again: whole characters, and stop strings that never show. */
#include "text_data.h"

#include "text/stop.h"

#include <unistd.h>

struct outcome {
    char *text;
    size_t size;
    int stopped;
};

static struct text_out *open_with(const char *const *stops, size_t n)
{
    struct text_stop list[TEXT_MAX_STOPS];
    struct text_out *o = NULL;
    struct err err = { 0 };

    for (size_t i = 0; i < n; i++)
        list[i] = (struct text_stop){ stops[i], strlen(stops[i]) };
    if (text_out_open(&o, list, n, &err) < 0)
        fail_msg("%s", err.text);
    return o;
}

static void take(struct text_out *o, struct outcome *out)
{
    size_t size;
    const char *text = text_out_text(o, &size);

    out->text = realloc(out->text, out->size + size + 1);
    assert_non_null(out->text);
    memcpy(out->text + out->size, text, size);
    out->size += size;
    out->text[out->size] = 0;
}

/* Puts the bytes in pieces: bit i of cuts says whether there is a cut behind byte i. */
static struct outcome assemble(const char *bytes, size_t size, uint64_t cuts,
                               const char *const *stops, size_t n_stops)
{
    struct text_out *o = open_with(stops, n_stops);
    struct outcome out = { 0 };
    struct err err = { 0 };
    size_t begin = 0;

    for (size_t i = 0; i < size && !out.stopped; i++) {
        if (i + 1 < size && !(cuts >> i % 64 & 1))
            continue;
        out.stopped = text_out_put(o, bytes + begin, i + 1 - begin, &err);
        assert_true(out.stopped >= 0);
        begin = i + 1;
        take(o, &out);
    }
    int finished = text_out_finish(o, &err);
    assert_true(finished >= 0);
    out.stopped = out.stopped || finished;
    take(o, &out);
    text_out_close(o);
    return out;
}

struct example {
    const char *bytes, *stops[4], *want;
    int stopped;
};

static const struct example examples[] = {
    { "plain", { NULL }, "plain", 0 },
    { "", { "x" }, "", 0 },
    { "one two three", { " two" }, "one", 1 },
    { "stop at once", { "stop" }, "", 1 },
    { "ends in abc", { "abcX" }, "ends in abc", 0 },
    { "ababac!", { "abac" }, "ab", 1 },
    { "aaab", { "aab" }, "a", 1 },
    { "xabcdx", { "bc", "abcd" }, "x", 1 },
    { "xabcex", { "bc", "abcd" }, "xa", 1 },
    { "xabc", { "bc", "abcd" }, "xa", 1 },
    { "x abc y", { "c y", "abc", " abd" }, "x ", 1 },
    { "a\n\nb", { "\n\n", "\n" }, "a", 1 },
    { "caf\xc3\xa9 \xf0\x9f\x98\x80!", { "\xf0\x9f\x98\x80" }, "caf\xc3\xa9 ", 1 },
    { "\xc3\xa8\xc3\xa9", { "\xc3\xa9" }, "\xc3\xa8", 1 },
    { "\xf0\x9f\x98\x80\xe4\xb8\xad", { NULL }, "\xf0\x9f\x98\x80\xe4\xb8\xad", 0 },
    { "cut \xf0\x9f\x98", { NULL }, "cut \xef\xbf\xbd", 0 },
    { "cut \xf0\x9f\x98", { "cut \xf0\x9f\x98\x80" }, "cut \xef\xbf\xbd", 0 },
    { "\xff\xfe a", { NULL }, "\xef\xbf\xbd\xef\xbf\xbd a", 0 },
    { "\xe2\x82" "A", { "A" }, "\xef\xbf\xbd", 1 },
    { "\xed\xa0\x80", { NULL }, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 0 },
    { "\xf0\x9f\xe4\xb8\xad", { "\xe4\xb8\xad" }, "\xef\xbf\xbd", 1 },
    { "no \xef\xbf\xbd", { "\xef\xbf\xbd" }, "no ", 1 },
    { "<|im_end|>", { "<|im_end|>x" }, "<|im_end|>", 0 },
};

static void no_cutting_into_tokens_changes_the_text(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof examples / sizeof *examples; k++) {
        const struct example *e = &examples[k];
        size_t size = strlen(e->bytes), n_stops = 0;
        while (n_stops < 4 && e->stops[n_stops])
            n_stops++;
        uint64_t ways = size ? UINT64_C(1) << (size - 1) : 1;
        for (uint64_t cuts = 0; cuts < ways; cuts++) {
            struct outcome got = assemble(e->bytes, size, cuts, e->stops, n_stops);
            if (got.stopped != e->stopped || got.size != strlen(e->want) ||
                memcmp(got.text, e->want, got.size) != 0)
                fail_msg("example %zu, cuts %llx: '%s' (%d)", k, (unsigned long long)cuts,
                         got.text, got.stopped);
            free(got.text);
        }
    }
}

/* The rule itself, on random texts over two letters, where stops overlap all the time. */
static void the_stop_that_begins_first_ends_the_text(void **state)
{
    uint32_t random = 1;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        char text[25] = { 0 }, stops[3][6] = { { 0 } };
        const char *list[3] = { stops[0], stops[1], stops[2] };
        size_t want = sizeof text - 1;
        for (size_t i = 0; i < sizeof text - 1; i++)
            text[i] = (random = random * 1664525 + 1013904223) >> 30 & 1 ? 'a' : 'b';
        for (int s = 0; s < 3; s++) {
            size_t length = 2 + ((random = random * 1664525 + 1013904223) >> 29) % 4;
            for (size_t i = 0; i < length; i++)
                stops[s][i] = (random = random * 1664525 + 1013904223) >> 30 & 1 ? 'a' : 'b';
            const char *at = strstr(text, stops[s]);
            if (at && (size_t)(at - text) < want)
                want = (size_t)(at - text);
        }
        struct outcome got = assemble(text, sizeof text - 1, random, list, 3);
        if (got.size != want || memcmp(got.text, text, want) != 0)
            fail_msg("'%s' with '%s' '%s' '%s' gave '%s'", text, stops[0], stops[1], stops[2],
                     got.text);
        assert_int_equal(got.stopped, want < sizeof text - 1);
        free(got.text);
    }
}

static void text_that_is_no_stop_is_given_at_once(void **state)
{
    const char *stop = "ENDE";
    struct text_out *o = open_with(&stop, 1);
    struct outcome out = { 0 };
    struct err err = { 0 };

    (void)state;
    assert_int_equal(text_out_put(o, "all of it", 9, &err), 0);
    take(o, &out);
    assert_string_equal(out.text, "all of it");
    assert_int_equal(text_out_put(o, " EN", 3, &err), 0);
    take(o, &out);
    assert_string_equal(out.text, "all of it ");
    assert_int_equal(text_out_put(o, "ough", 4, &err), 0);
    take(o, &out);
    assert_string_equal(out.text, "all of it ENough");
    free(out.text);
    text_out_close(o);
}

static void bytes_after_a_stop_are_ignored(void **state)
{
    const char *stop = "#";
    struct text_out *o = open_with(&stop, 1);
    struct outcome out = { 0 };
    struct err err = { 0 };

    (void)state;
    assert_int_equal(text_out_put(o, "a#b", 3, &err), 1);
    assert_int_equal(text_out_put(o, "c", 1, &err), 1);
    assert_int_equal(text_out_finish(o, &err), 1);
    take(o, &out);
    assert_string_equal(out.text, "a");
    free(out.text);
    text_out_close(o);
}

static void stops_that_cannot_be_are_refused(void **state)
{
    struct text_stop many[TEXT_MAX_STOPS + 1], empty = { "", 0 }, broken = { "\xc3", 1 };
    struct text_out *o = NULL;
    struct err err = { 0 };

    (void)state;
    for (size_t i = 0; i < TEXT_MAX_STOPS + 1; i++)
        many[i] = (struct text_stop){ "x", 1 };
    assert_int_equal(text_out_open(&o, many, TEXT_MAX_STOPS + 1, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    assert_int_equal(text_out_open(&o, &empty, 1, &err), -1);
    assert_non_null(strstr(err.text, "empty"));
    assert_int_equal(text_out_open(&o, &broken, 1, &err), -1);
    assert_non_null(strstr(err.text, "UTF-8"));
    assert_null(o);
}

/* A million bytes that are always about to become a stop, one byte at a time. */
static void what_is_released_is_text_and_begins_no_stop(void **state)
{
    static const char *const stops[] = { "abXY", "bX" };
    struct text_out *o = open_with(stops, 2);
    struct outcome out = { 0 };
    struct err err = { 0 };

    (void)state;
    assert_int_equal(text_out_put(o, "1ab\xe2\x82", 5, &err), 0);
    take(o, &out);
    assert_string_equal(out.text, "1");
    assert_int_equal(text_out_put(o, "ab", 2, &err), 0);
    assert_int_equal(text_out_release(o, &err), 0);
    take(o, &out);
    assert_string_equal(out.text, "1ab\xef\xbf\xbd" "ab");
    assert_int_equal(text_out_put(o, "X", 1, &err), 0);
    take(o, &out);
    assert_string_equal(out.text, "1ab\xef\xbf\xbd" "abX");

    /* A stop string that only waited for one that began before it ends the text. */
    assert_int_equal(text_out_put(o, "2abX", 4, &err), 0);
    assert_int_equal(text_out_release(o, &err), 1);
    take(o, &out);
    assert_string_equal(out.text, "1ab\xef\xbf\xbd" "abX2a");
    assert_int_equal(text_out_release(o, &err), 1);
    assert_in_range(text_out_memory(o), sizeof(void *), 8192);
    text_out_close(o);
    free(out.text);
}

static void a_stop_that_nearly_comes_for_ever_costs_linear_time(void **state)
{
    enum { N = 1 << 20, STOP = 4096 };
    char *stop = malloc(STOP + 1);
    struct err err = { 0 };
    struct outcome out = { 0 };

    (void)state;
    assert_non_null(stop);
    memset(stop, 'a', STOP);
    stop[STOP - 1] = 'b';
    stop[STOP] = 0;
    const char *list = stop;
    struct text_out *o = open_with(&list, 1);
    double begin = seconds();
    for (int i = 0; i < N; i++) {
        size_t size;
        assert_int_equal(text_out_put(o, "a", 1, &err), 0);
        text_out_text(o, &size);
        out.size += size;
    }
    assert_int_equal(text_out_finish(o, &err), 0);
    size_t rest;
    text_out_text(o, &rest);
    assert_int_equal(out.size + rest, N);
    print_message("1 MiB of near stops: %.3f s\n", seconds() - begin);
    assert_true(seconds() - begin < 20);
    text_out_close(o);
    free(stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_cutting_into_tokens_changes_the_text),
        cmocka_unit_test(the_stop_that_begins_first_ends_the_text),
        cmocka_unit_test(text_that_is_no_stop_is_given_at_once),
        cmocka_unit_test(bytes_after_a_stop_are_ignored),
        cmocka_unit_test(stops_that_cannot_be_are_refused),
        cmocka_unit_test(what_is_released_is_text_and_begins_no_stop),
        cmocka_unit_test(a_stop_that_nearly_comes_for_ever_costs_linear_time),
    };

    alarm(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
