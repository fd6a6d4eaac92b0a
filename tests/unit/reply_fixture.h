/* What the tests of reply share: an answer as a script, fed in any tokens, and what came out of it
 * as one text.
 *
 * In a script "<think>", "</think>", "<tool_call>" and "</tool_call>" are the marks; "~<" is "<"
 * and makes the same words text. What came out is written as
 *
 *     reasoning: ...        (joined, when there was any)
 *     content: ...
 *     call NAME: ARGUMENTS  (one line each; "open" in front when it has no end)
 *     stop                  (the parser asked to stop generating)
 *     by stop string
 *     repairs: NAME=COUNT ...
 */
#ifndef TESTS_REPLY_FIXTURE_H
#define TESTS_REPLY_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "text/bytes.h"
#include "text/reply.h"
#include "text/stop.h"
#include "util/err.h"
#include "util/utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THINK = 1, THINK_END, CALL, CALL_END, TEXT = 100 };

static const char *const mark_texts[] = { "", "<think>", "</think>", "<tool_call>",
                                          "</tool_call>" };

static inline struct reply_options reply_defaults(enum reply_style style)
{
    return (struct reply_options){ .start = REPLY_SNIFF,
                                   .style = style,
                                   .marks = { THINK, THINK_END, CALL, CALL_END } };
}

struct reply_run {
    struct reply *reply;
    struct bytes reasoning, content, calls;
    bool in_call, stopped;
    size_t call_begin;
    uint64_t most_memory;
};

static inline void run_put(struct bytes *to, const char *text, size_t size)
{
    struct err err;

    if (bytes_put(to, text, size, &err) < 0)
        fail_msg("%s", err.text);
}

static inline void run_say(struct bytes *to, const char *text)
{
    run_put(to, text, strlen(text));
}

static inline void run_take(struct reply_run *run)
{
    struct reply_part part;

    while (reply_next(run->reply, &part)) {
        if (!utf8_valid(part.text, part.size))
            fail_msg("a part is no whole UTF-8");
        switch (part.kind) {
        case REPLY_TEXT_REASONING:
            run_put(&run->reasoning, part.text, part.size);
            break;
        case REPLY_TEXT_CONTENT:
            run_put(&run->content, part.text, part.size);
            break;
        case REPLY_CALL:
            assert_false(run->in_call);
            run->in_call = true;
            run->call_begin = run->calls.size;
            run_say(&run->calls, "call ");
            run_put(&run->calls, part.text, part.size);
            run_say(&run->calls, ": ");
            break;
        case REPLY_ARGUMENTS:
            assert_true(run->in_call);
            run_put(&run->calls, part.text, part.size);
            break;
        case REPLY_CALL_END:
            assert_true(run->in_call);
            run->in_call = false;
            run_say(&run->calls, "\n");
            break;
        }
    }
    if (reply_memory(run->reply) > run->most_memory)
        run->most_memory = reply_memory(run->reply);
}

static inline void run_open(struct reply_run *run, const struct reply_options *o)
{
    struct err err;

    *run = (struct reply_run){ 0 };
    if (reply_open(&run->reply, o, &err) < 0)
        fail_msg("%s", err.text);
}

/* True when generation must stop. */
static inline bool run_token(struct reply_run *run, uint32_t id, const char *text, size_t size)
{
    struct err err;
    int rc = reply_put(run->reply, id, text, size, &err);

    if (rc < 0)
        fail_msg("%s", err.text);
    run_take(run);
    run->stopped |= rc == 1;
    return rc == 1;
}

/* What came out; the run is closed. The caller frees. */
static inline char *run_done(struct reply_run *run, bool cut)
{
    struct bytes all = { 0 };
    struct reply_result result;
    struct err err;
    bool repaired = false;

    if (reply_finish(run->reply, cut, &err) < 0)
        fail_msg("%s", err.text);
    run_take(run);
    reply_result(run->reply, &result);
    assert_int_equal(result.unfinished_call, run->in_call);
    if (run->reasoning.size) {
        run_say(&all, "reasoning: ");
        run_put(&all, run->reasoning.at, run->reasoning.size);
        run_say(&all, "\n");
    }
    if (run->content.size) {
        run_say(&all, "content: ");
        run_put(&all, run->content.at, run->content.size);
        run_say(&all, "\n");
    }
    run_put(&all, run->calls.at, run->in_call ? run->call_begin : run->calls.size);
    if (run->in_call) {
        run_say(&all, "open ");
        run_put(&all, run->calls.at + run->call_begin, run->calls.size - run->call_begin);
        run_say(&all, "\n");
    }
    if (run->stopped)
        run_say(&all, "stop\n");
    if (result.by_stop_string)
        run_say(&all, "by stop string\n");
    for (int i = 0; i < N_REPLY_REPAIRS; i++) {
        char line[64];
        if (!result.repairs[i])
            continue;
        snprintf(line, sizeof line, "%s%s=%u", repaired ? " " : "repairs: ",
                 reply_repair_name(i), result.repairs[i]);
        run_say(&all, line);
        repaired = true;
    }
    if (repaired)
        run_say(&all, "\n");
    run_put(&all, "", 1);
    reply_close(run->reply);
    bytes_done(&run->reasoning);
    bytes_done(&run->content);
    bytes_done(&run->calls);
    return all.at;
}

/* A script as pieces: marks, and the text between them. */
struct piece {
    uint32_t id;
    char *text; /* owned */
    size_t size;
};
struct script {
    struct piece piece[256];
    size_t n;
    size_t text_size; /* of all pieces that are text */
};

static inline void script_text(struct script *s, const char *text, size_t size)
{
    if (s->n == 0 || s->piece[s->n - 1].id != TEXT)
        s->piece[s->n++] = (struct piece){ .id = TEXT };
    struct piece *p = &s->piece[s->n - 1];
    p->text = realloc(p->text, p->size + size + 1);
    memcpy(p->text + p->size, text, size);
    p->size += size;
    s->text_size += size;
}

static inline void script_open(struct script *s, const char *text, size_t size)
{
    *s = (struct script){ 0 };
    for (size_t at = 0; at < size;) {
        uint32_t id = 0;
        assert_true(s->n < 255);
        for (uint32_t mark = THINK; mark <= CALL_END; mark++)
            if (size - at >= strlen(mark_texts[mark]) &&
                memcmp(text + at, mark_texts[mark], strlen(mark_texts[mark])) == 0)
                id = mark;
        if (id) {
            s->piece[s->n++] = (struct piece){ id, strdup(mark_texts[id]), strlen(mark_texts[id]) };
            at += strlen(mark_texts[id]);
            continue;
        }
        if (text[at] == '~' && at + 1 < size && text[at + 1] == '<')
            at++;
        script_text(s, text + at, 1);
        at++;
    }
}

static inline void script_close(struct script *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->piece[i].text);
}

enum how { BY_ONE = 1, BY_THREE = 3, WHOLE = 0, AT_POINT = -1, RANDOM = -2 };

static inline uint32_t run_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Feeds a script in tokens of a size, or each text cut at a point of all text, or at random. */
static inline char *run_script(const struct reply_options *o, const struct script *s, bool cut,
                               int how, uint64_t detail, uint64_t *memory)
{
    struct reply_run run;
    size_t before = 0;
    bool over = false;

    run_open(&run, o);
    for (size_t i = 0; i < s->n && !over; i++) {
        const struct piece *p = &s->piece[i];
        if (p->id != TEXT) {
            over = run_token(&run, p->id, p->text, p->size);
            continue;
        }
        for (size_t at = 0; at < p->size && !over;) {
            size_t n = p->size - at;
            if (how > 0 && n > (size_t)how)
                n = (size_t)how;
            else if (how == AT_POINT && detail > before + at && detail < before + p->size)
                n = detail - before - at;
            else if (how == RANDOM)
                n = 1 + run_random(&detail) % (n < 9 ? n : 9);
            over = run_token(&run, TEXT, p->text + at, n);
            at += n;
        }
        before += p->size;
    }
    if (memory)
        *memory = run.most_memory;
    return run_done(&run, cut);
}

/* Whatever the tokens, the same comes out; what that is, is returned and freed by the caller. */
static inline char *run_every_way(const struct reply_options *o, const char *text, size_t size,
                                  bool cut)
{
    struct script s;

    script_open(&s, text, size);
    char *want = run_script(o, &s, cut, WHOLE, 0, NULL);
    for (int how = 1; how <= 3; how += 2) {
        char *got = run_script(o, &s, cut, how, 0, NULL);
        assert_string_equal(got, want);
        free(got);
    }
    for (size_t at = 1; at < s.text_size; at++) {
        char *got = run_script(o, &s, cut, AT_POINT, at, NULL);
        assert_string_equal(got, want);
        free(got);
    }
    for (uint64_t seed = 1; seed <= 8; seed++) {
        char *got = run_script(o, &s, cut, RANDOM, seed, NULL);
        assert_string_equal(got, want);
        free(got);
    }
    script_close(&s);
    return want;
}

/* The script gives exactly this, in whatever tokens. */
static inline void gives(const struct reply_options *o, const char *script, const char *want)
{
    char *got = run_every_way(o, script, strlen(script), false);

    assert_string_equal(got, want);
    free(got);
}

static inline void gives_cut(const struct reply_options *o, const char *script, const char *want)
{
    char *got = run_every_way(o, script, strlen(script), true);

    assert_string_equal(got, want);
    free(got);
}

#endif
