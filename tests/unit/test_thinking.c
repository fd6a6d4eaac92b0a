/* What is forced when a reply thinks: the rules by themselves, over made-up tokens. */
#include "run/thinking.h"
#include "util/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { OPEN = 90, CLOSE = 91, CALL = 92, STOP = 99, VOCAB = 100 };

static const uint32_t closing[] = { 70, CLOSE, 71 }, forced[] = { 80, 81 }, behind[] = { 85 };

static struct cz_request thinks(bool inside, uint32_t budget)
{
    return (struct cz_request){ .thinking = { .open = OPEN, .close = CLOSE, .inside = inside,
                                              .may_open = !inside, .budget = budget,
                                              .closing = closing, .n_closing = 3 } };
}

static void put_words(char *said, const struct thinking_words *w)
{
    for (int list = 0; list < 2; list++)
        for (uint32_t i = 0; i < w->n[list]; i++)
            sprintf(said + strlen(said), "(%u)", w->ids[list][i]);
}

/* The reply when these are sampled, one after the other: forced ones in parentheses, a full stop
 * where it ends. */
static const char *reply(const struct cz_request *r, const uint32_t *sampled, uint32_t n)
{
    static char said[256];
    struct thinking_words words;
    struct thinking t;
    struct err err;

    said[0] = '\0';
    if (thinking_check(r, VOCAB, &err) < 0 || thinking_open(&t, r, &err) < 0)
        fail_msg("%s", err.text);
    thinking_begin(&t, &words);
    put_words(said, &words);
    for (uint32_t i = 0; i < n; i++) {
        thinking_take(&t, sampled[i], sampled[i] == STOP, &words);
        if (!words.instead && sampled[i] == STOP) {
            strcat(said, ".");
            break;
        }
        if (!words.instead)
            sprintf(said + strlen(said), " %u", sampled[i]);
        put_words(said, &words);
    }
    thinking_close(&t);
    return said;
}

#define REPLY(r, ...) \
    reply(r, (const uint32_t[]){ __VA_ARGS__ }, sizeof((uint32_t[]){ __VA_ARGS__ }) / 4)

static void a_request_without_rules_is_left_alone(void **state)
{
    struct cz_request r = { 0 };

    (void)state;
    assert_string_equal(REPLY(&r, 1, 0, OPEN, CLOSE, 2, STOP), " 1 0 90 91 2.");
}

static void a_budget_ends_with_its_last_token(void **state)
{
    struct cz_request r = thinks(true, 3);

    (void)state;
    assert_string_equal(REPLY(&r, 1, 2, 3, 4, 5, STOP), " 1 2 3(70)(91)(71) 4 5.");
    assert_string_equal(REPLY(&r, 1, 2, CLOSE, 4, 5, 6, STOP), " 1 2 91 4 5 6.");
    r.thinking.budget = 0;
    assert_string_equal(REPLY(&r, 1, STOP), "(70)(91)(71) 1.");
    r = thinks(false, 2); /* the mark that opens is not counted */
    assert_string_equal(REPLY(&r, OPEN, 1, 2, 3, STOP), " 90 1 2(70)(91)(71) 3.");
    r.thinking.budget = 0;
    assert_string_equal(REPLY(&r, OPEN, 1, STOP), " 90(70)(91)(71) 1.");
}

static void a_stop_token_inside_is_answered_once(void **state)
{
    struct cz_request r = thinks(true, CZ_NO_BUDGET);

    (void)state;
    assert_string_equal(REPLY(&r, 1, STOP, 2, STOP), " 1(70)(91)(71) 2.");
    assert_string_equal(REPLY(&r, STOP, STOP), "(70)(91)(71).");
    assert_string_equal(REPLY(&r, 1, CLOSE, STOP), " 1 91.");
    r.thinking.n_closing = 0; /* nobody wants it closed */
    assert_string_equal(REPLY(&r, 1, STOP), " 1.");
}

static void only_the_first_token_opens(void **state)
{
    struct cz_request r = thinks(false, 1);

    (void)state;
    assert_string_equal(REPLY(&r, 1, OPEN, 2, 3, STOP), " 1 90 2 3.");
    r.thinking.budget = CZ_NO_BUDGET;
    assert_string_equal(REPLY(&r, OPEN, STOP, OPEN, 1, STOP), " 90(70)(91)(71) 90 1.");
}

static void forced_tokens_begin_a_reply_that_does_not_think(void **state)
{
    struct cz_request r = { .forced = forced, .n_forced = 2 };

    (void)state;
    assert_string_equal(REPLY(&r, 1, STOP), "(80)(81) 1.");
    r = thinks(false, CZ_NO_BUDGET);
    r.forced = forced;
    r.n_forced = 2;
    assert_string_equal(REPLY(&r, 1, 2, STOP), "(80)(81) 2."); /* in place of the first */
    assert_string_equal(REPLY(&r, STOP, 2, STOP), "(80)(81) 2.");
    assert_string_equal(REPLY(&r, OPEN, 1, CLOSE, 2, STOP), " 90 1 91 2.");
    r.thinking.inside = true; /* goes before may_open */
    assert_string_equal(REPLY(&r, 1, CLOSE, 2, STOP), " 1 91 2.");
}

static void what_is_forced_behind_thinking_follows_the_mark(void **state)
{
    struct cz_request r = thinks(true, 2);

    (void)state;
    r.forced = forced;
    r.n_forced = 2;
    r.forced_behind = behind;
    r.n_forced_behind = 1;
    assert_string_equal(REPLY(&r, 1, CLOSE, 2, STOP), " 1 91(85) 2.");
    assert_string_equal(REPLY(&r, 1, 2, 3, STOP), " 1 2(70)(91)(85) 3.");
    assert_string_equal(REPLY(&r, STOP, 3, STOP), "(70)(91)(85) 3.");
    r.thinking.call_closes = true; /* it calls by itself: nothing is forced on it any more */
    r.thinking.call = CALL;
    assert_string_equal(REPLY(&r, 1, CALL, 2, 3, 4, STOP), " 1 92 2 3 4.");
    r.thinking.call_closes = false;
    assert_string_equal(REPLY(&r, 1, CALL, 2, STOP), " 1 92(70)(91)(85) 2.");
}

static void rules_that_cannot_be_followed_are_refused(void **state)
{
    static const uint32_t without[] = { 70, 71 }, outside[] = { 70, CLOSE, VOCAB };
    static uint32_t many[CZ_MAX_FORCED + 1];
    struct cz_request good = thinks(true, 3), r;
    struct err err;

    (void)state;
    many[0] = CLOSE;
    assert_int_equal(thinking_check(&good, VOCAB, &err), 0);
#define REFUSED(change, word)                                 \
    r = good;                                                 \
    change;                                                   \
    assert_int_equal(thinking_check(&r, VOCAB, &err), -1);    \
    assert_int_equal(err.kind, ERR_INPUT);                    \
    assert_non_null(strstr(err.text, word))
    REFUSED((r.thinking.closing = without, r.thinking.n_closing = 2), "does not hold");
    REFUSED(r.thinking.closing = outside, "closing: token 100");
    REFUSED(r.thinking.n_closing = 0, "budget");
    REFUSED(r.thinking.close = VOCAB, "marks");
    REFUSED((r.thinking.inside = false, r.thinking.may_open = true, r.thinking.open = CZ_NO_TOKEN),
            "marks");
    REFUSED((r.thinking.call_closes = true, r.thinking.call = VOCAB), "call");
    REFUSED((r.thinking.closing = many, r.thinking.n_closing = CZ_MAX_FORCED + 1), "closing: 513");
    REFUSED((r.forced = many, r.n_forced = CZ_MAX_FORCED + 1), "forced: 513");
    REFUSED((r.forced_behind = outside, r.n_forced_behind = 3), "forced_behind: token 100");
#undef REFUSED
    r = good;
    r.thinking.closing = many;
    r.thinking.n_closing = CZ_MAX_FORCED;
    assert_int_equal(thinking_check(&r, VOCAB, &err), 0);
    assert_true(thinking_most() >= 3 * sizeof many - 3 * sizeof many[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_without_rules_is_left_alone),
        cmocka_unit_test(a_budget_ends_with_its_last_token),
        cmocka_unit_test(a_stop_token_inside_is_answered_once),
        cmocka_unit_test(only_the_first_token_opens),
        cmocka_unit_test(forced_tokens_begin_a_reply_that_does_not_think),
        cmocka_unit_test(what_is_forced_behind_thinking_follows_the_mark),
        cmocka_unit_test(rules_that_cannot_be_followed_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
