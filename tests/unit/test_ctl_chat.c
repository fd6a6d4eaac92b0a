/* The parts of chat that need no server: events out of bytes, thoughts out of text, text made
 * harmless, the file of what was typed. */
#include "daemon/ctl/ctl_chat_admin.h"
#include "daemon/ctl/ctl_chat_past.h"
#include "daemon/ctl/ctl_chat_sse.h"
#include "daemon/ctl/ctl_chat_text.h"
#include "util/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- events ---- */

static int note_event(void *ctx, const char *data, size_t size, struct err *err)
{
    struct buf *all = ctx;

    (void)err;
    assert_int_equal(data[size], '\0');
    buf_put(all, data, size);
    buf_text(all, ";");
    return 0;
}

/* Fed `step` bytes at a time. */
static void expect_events(const char *stream, size_t step, const char *events)
{
    struct chat_sse sse;
    struct buf all;
    struct err err;
    size_t size = strlen(stream);

    chat_sse_init(&sse);
    buf_init(&all, NULL);
    for (size_t i = 0; i < size; i += step)
        assert_int_equal(chat_sse_feed(&sse, stream + i, i + step < size ? step : size - i,
                                       note_event, &all, &err), 0);
    buf_put(&all, "", 1);
    assert_string_equal(all.data, events);
    buf_done(&all);
    chat_sse_done(&sse);
}

static void events_are_whole_wherever_they_are_cut(void **state)
{
    static const char stream[] = ": a comment\n\ndata: one\n\ndata:two\r\n\r\nevent: x\nid: 7\n"
                                 "data: three\ndata: lines\n\n\n\ndata:\n\ndata: cut off";

    (void)state;
    for (size_t step = 1; step <= sizeof stream; step++)
        expect_events(stream, step, "one;two;three\nlines;;");
}

static void an_endless_event_is_refused(void **state)
{
    struct chat_sse sse;
    struct buf all;
    struct err err;
    char block[4096];
    int rc = 0;

    (void)state;
    memset(block, 'x', sizeof block);
    chat_sse_init(&sse);
    buf_init(&all, NULL);
    for (size_t sent = 0; rc == 0 && sent < 2 * (size_t)CHAT_SSE_MAX; sent += sizeof block)
        rc = chat_sse_feed(&sse, block, sizeof block, note_event, &all, &err);
    assert_int_equal(rc, -1);
    assert_int_equal(err.kind, ERR_FORMAT);
    assert_true(sse.line.size <= CHAT_SSE_MAX);
    chat_sse_done(&sse);

    chat_sse_init(&sse);
    block[sizeof block - 1] = '\n';
    memcpy(block, "data: ", 6);
    rc = 0;
    for (size_t sent = 0; rc == 0 && sent < 2 * (size_t)CHAT_SSE_MAX; sent += sizeof block)
        rc = chat_sse_feed(&sse, block, sizeof block, note_event, &all, &err);
    assert_int_equal(rc, -1);
    assert_int_equal(all.size, 0);
    buf_done(&all);
    chat_sse_done(&sse);
}

/* ---- thoughts ---- */

static void note_part(void *ctx, enum chat_part part, const char *text, size_t size)
{
    struct buf *parts = ctx;

    buf_put(&parts[part], text, size);
    if (part == CHAT_WAS_THOUGHT)
        buf_text(&parts[part], "!");
}

static void expect_parts(const char *text, size_t step, const char *thought, const char *answer,
                         bool was_thought)
{
    struct chat_think think = { 0 };
    struct buf parts[3];
    size_t size = strlen(text);

    for (size_t i = 0; i < 3; i++)
        buf_init(&parts[i], NULL);
    for (size_t i = 0; i < size; i += step)
        chat_think_put(&think, text + i, i + step < size ? step : size - i, note_part, parts);
    chat_think_end(&think, note_part, parts);
    for (size_t i = 0; i < 3; i++)
        buf_put(&parts[i], "", 1);
    assert_string_equal(parts[CHAT_THOUGHT].data, thought);
    assert_string_equal(parts[CHAT_ANSWER].data, answer);
    assert_string_equal(parts[CHAT_WAS_THOUGHT].data, was_thought ? "!" : "");
    for (size_t i = 0; i < 3; i++)
        buf_done(&parts[i]);
}

static void thoughts_are_split_off_wherever_tags_are_cut(void **state)
{
    static const struct {
        const char *text, *thought, *answer;
        bool was_thought;
    } cases[] = {
        { "plain", "", "plain", false },
        { "<think>\na\nb\n</think>\n\nc\n", "a\nb\n", "c\n", false },
        { "<think>\n\n</think>\n\nc", "", "c", false },
        { "<think>never closed", "never closed", "", false },
        { "<think>a < b </thin </think>c", "a < b </thin ", "c", false },
        { "<<think>x", "", "<<think>x", false },
        { "<thin", "", "<thin", false },
        { "a <think>b", "", "a <think>b", false },     /* later it is text */
        { "<think>a</think>b </think>", "a", "b </think>", false },
        { "a</think>\n\nb", "", "ab", true },           /* the prompt had opened it */
        { "</think>b", "", "b", true },
        { "</thought>", "", "</thought>", false },
        { "", "", "", false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t step = 1; step <= 40; step++)
            expect_parts(cases[i].text, step, cases[i].thought, cases[i].answer,
                         cases[i].was_thought);
    /* Characters of several bytes come whole, as JSON gives them. */
    expect_parts("<think>\xc3\xa4</think>\xf0\x9f\x98\x80", 64, "\xc3\xa4", "\xf0\x9f\x98\x80",
                 false);
    expect_parts("\xc3\xa4</think>x", 64, "", "\xc3\xa4x", true);
}

/* ---- harmless ---- */

static void expect_harmless(const char *text, size_t size, const char *shown)
{
    struct buf out;

    buf_init(&out, NULL);
    chat_harmless(&out, text, size);
    buf_put(&out, "", 1);
    assert_string_equal(out.data, shown);
    buf_done(&out);
}

static void nothing_that_a_terminal_obeys_gets_through(void **state)
{
    struct buf out;

    (void)state;
    expect_harmless("a\tb\n\xc3\xa4", 6, "a\tb\n\xc3\xa4");
    expect_harmless("\033[2J", 4, "\u241b[2J");
    expect_harmless("x\r\ny\rz", 6, "x\ny\u240dz");
    expect_harmless("\0", 1, "\u2400");
    expect_harmless("\x7f\xc2\x9b" "31m", 6, "\u2421<U+009B>31m");
    expect_harmless("\xe2\x80\xae\xe2\x81\xa6", 6, "<U+202E><U+2066>");
    expect_harmless("\xff\xe2\x82", 3, "\ufffd\ufffd");
    expect_harmless("", 0, "");

    /* Every byte and every pair: no control byte but LF and tab, no C1, always valid. */
    for (unsigned pair = 0; pair < 65536; pair++) {
        const char text[2] = { (char)(pair >> 8), (char)(pair & 255) };
        buf_init(&out, NULL);
        chat_harmless(&out, text, 2);
        for (size_t i = 0; i < out.size; i++) {
            unsigned char c = (unsigned char)out.data[i];
            assert_true((c >= 0x20 || c == '\n' || c == '\t') && c != 0x7f);
            assert_false(c == 0xc2 && (unsigned char)out.data[i + 1] < 0xa0);
        }
        buf_done(&out);
    }
}

/* ---- the past ---- */

static void note_entry(void *ctx, const char *text)
{
    struct buf *all = ctx;

    buf_printf(all, "%s;", text);
}

static void what_was_typed_is_kept_private_and_bounded(void **state)
{
    char dir[] = "/tmp/test-chat-XXXXXX", path[64];
    struct chat_past past;
    struct stat st;
    struct buf all;
    struct err err;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/past", dir);
    buf_init(&all, NULL);
    assert_int_equal(chat_past_open(&past, path, 3, note_entry, &all, &err), 0);
    for (int i = 0; i < 8; i++) {
        char text[32];
        snprintf(text, sizeof text, "line %d\nof it", i);
        chat_past_add(&past, text);
    }
    chat_past_close(&past);
    assert_int_equal(all.size, 0);
    assert_int_equal(chmod(path, 0666), 0);

    assert_int_equal(chat_past_open(&past, path, 3, note_entry, &all, &err), 0);
    chat_past_add(&past, "new");
    chat_past_close(&past);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(chat_past_open(&past, path, 9, note_entry, &all, &err), 0);
    chat_past_close(&past);
    buf_put(&all, "", 1);
    assert_string_equal(all.data, "line 5\nof it;line 6\nof it;line 7\nof it;"
                                  "line 5\nof it;line 6\nof it;line 7\nof it;new;");
    buf_done(&all);

    /* What is no file is left alone. */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(chat_past_open(&past, path, 3, note_entry, NULL, &err), -1);
    assert_non_null(strstr(err.text, path));
    chat_past_add(&past, "nowhere");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void the_past_lies_where_the_standard_says(void **state)
{
    char dir[] = "/tmp/test-chat-XXXXXX", path[256], want[256];

    (void)state;
    assert_non_null(mkdtemp(dir));
    setenv("HOME", dir, 1);
    unsetenv("XDG_STATE_HOME");
    assert_true(chat_past_path(path, sizeof path));
    snprintf(want, sizeof want, "%s/.local/state/colizig/chat-history", dir);
    assert_string_equal(path, want);
    snprintf(want, sizeof want, "%s/s", dir);
    setenv("XDG_STATE_HOME", want, 1);
    assert_true(chat_past_path(path, sizeof path));
    strcat(want, "/colizig/chat-history");
    assert_string_equal(path, want);
    setenv("XDG_STATE_HOME", "relative", 1);
    assert_true(chat_past_path(path, sizeof path));
    assert_non_null(strstr(path, "/.local/state/"));
    assert_false(chat_past_path(path, 8));
    unsetenv("HOME");
    assert_false(chat_past_path(path, sizeof path));

    static const char *const made[] = { ".local/state/colizig", ".local/state", ".local",
                                        "s/colizig", "s" };
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, made[i]);
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}

/* ---- the hit rate ---- */

static void a_hit_rate_is_shown_only_where_it_is_this_answers(void **state)
{
    struct chat_counters before = { .known = true, .hits = 100, .misses = 50, .submitted = 3,
                                    .generated = 1000 };
    struct chat_counters after = { .known = true, .hits = 190, .misses = 60, .submitted = 4,
                                   .generated = 1010 };
    uint64_t n_others = 9;

    (void)state;
    assert_true(chat_admin_hit_rate(&before, &after, 10, &n_others) == 0.9);
    assert_int_equal(n_others, 0);
    assert_true(chat_admin_hit_rate(&before, &after, 500, &n_others) < 0); /* another daemon's */
    assert_true(chat_admin_hit_rate(&after, &before, 10, &n_others) < 0);  /* started again */
    assert_true(chat_admin_hit_rate(&before, &before, 0, &n_others) < 0);
    after.submitted = 6;
    assert_true(chat_admin_hit_rate(&before, &after, 10, &n_others) > 0);
    assert_int_equal(n_others, 2);
    after.known = false;
    assert_true(chat_admin_hit_rate(&before, &after, 10, &n_others) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_whole_wherever_they_are_cut),
        cmocka_unit_test(an_endless_event_is_refused),
        cmocka_unit_test(thoughts_are_split_off_wherever_tags_are_cut),
        cmocka_unit_test(nothing_that_a_terminal_obeys_gets_through),
        cmocka_unit_test(what_was_typed_is_kept_private_and_bounded),
        cmocka_unit_test(the_past_lies_where_the_standard_says),
        cmocka_unit_test(a_hit_rate_is_shown_only_where_it_is_this_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
