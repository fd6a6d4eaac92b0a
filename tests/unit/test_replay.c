/* Replies put back into a rendered chat: only where every condition holds, and then exactly. */
#include "text/replay.h"
#include "util/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct sip_sum key = { { 11, 13 } };

/* ---- a chat, as a template would render it ---- */

struct text {
    struct text_run runs[128];
    size_t n;
};

static void lit(struct text *t, const char *s)
{
    t->runs[t->n++] = (struct text_run){ s, strlen(s), true };
}

static void say(struct text *t, const char *s)
{
    t->runs[t->n++] = (struct text_run){ s, strlen(s), false };
}

static void user(struct text *t, const char *words)
{
    lit(t, "<|im_start|>");
    say(t, "user");
    lit(t, "\n");
    say(t, words);
    lit(t, "<|im_end|>\n");
}

/* As Qwen3.8 prints it: a block of thinking, empty or not. */
static void assistant(struct text *t, const char *reasoning, const char *content)
{
    lit(t, "<|im_start|>");
    say(t, "assistant");
    lit(t, "\n<think>\n");
    say(t, reasoning);
    lit(t, "\n</think>\n\n");
    say(t, content);
    lit(t, "<|im_end|>");
    lit(t, "\n");
}

static void prompt(struct text *t)
{
    lit(t, "<|im_start|>assistant\n<think>\n");
}

/* ---- what is sent, as text ---- */

/* Trusted text as it is, other text in (), ids in []. */
static const char *shown(char *buf, size_t cap, const struct replay *r)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < r->n_parts; i++) {
        const struct text_part *p = &r->parts[i];
        assert_true((p->n_runs > 0) != (p->n_ids > 0));
        for (size_t k = 0; k < p->n_runs; k++)
            used += (size_t)snprintf(buf + used, cap - used, p->runs[k].trusted ? "%.*s" : "(%.*s)",
                                     (int)p->runs[k].size, p->runs[k].bytes);
        for (size_t k = 0; k < p->n_ids; k++)
            used += (size_t)snprintf(buf + used, cap - used, "[%u]", p->ids[k]);
        assert_true(used < cap);
    }
    return buf;
}

static void splice(struct replay *out, const struct text *t, const struct replay_turn *turns,
                   size_t n, bool prompted)
{
    struct err err;

    assert_int_equal(replay_splice(out, t->runs, t->n, turns, n, prompted, &key, &err), 0);
}

/* The record of a reply to t: what a worker keeps. */
struct kept {
    struct replay_record record;
    char tail[64];
};

static void keep(struct kept *k, const struct text *t, const struct replay_turn *turns, size_t n,
                 const char *reasoning, const uint32_t *ids, size_t n_ids)
{
    struct replay r;

    splice(&r, t, turns, n, true);
    assert_true(r.tail_size > 0 && r.tail_size < sizeof k->tail);
    memcpy(k->tail, r.tail, r.tail_size);
    k->record = (struct replay_record){ .after = r.after, .tail = k->tail, .tail_size = r.tail_size,
                                        .reasoning = reasoning,
                                        .reasoning_size = strlen(reasoning), .ids = ids,
                                        .n_ids = n_ids };
    replay_done(&r);
}

static const uint32_t first_ids[] = { 1, 2, 3 }, second_ids[] = { 4, 5 };

static struct replay_turn turn_of(const struct kept *k, const char *content)
{
    return (struct replay_turn){ k ? &k->record : NULL, content, strlen(content) };
}

/* ---- promises ---- */

static void a_reply_comes_back_as_its_ids(void **state)
{
    struct text t = { 0 }, next = { 0 };
    struct kept k;
    struct replay r;
    char buf[1024];

    (void)state;
    user(&t, "hi");
    prompt(&t);
    keep(&k, &t, NULL, 0, "Hm.\n", first_ids, 3);
    assert_string_equal(k.tail[0] ? "tail" : "", "tail");

    user(&next, "hi");
    assistant(&next, "Hm.", "yo");
    user(&next, "again");
    prompt(&next);
    struct replay_turn turn = turn_of(&k, " yo\n");
    splice(&r, &next, &turn, 1, true);
    assert_int_equal(r.n_replayed, 1);
    assert_string_equal(shown(buf, sizeof buf, &r),
                        "<|im_start|>(user)\n(hi)<|im_end|>\n<|im_start|>assistant\n<think>\n"
                        "[1][2][3]<|im_end|>\n<|im_start|>(user)\n(again)<|im_end|>\n"
                        "<|im_start|>assistant\n<think>\n");
    assert_true(r.n_runs * sizeof *r.runs + r.n_parts * sizeof *r.parts + r.tail_size <=
                replay_memory(next.n, 1));
    replay_done(&r);
}

/* Two replies: the second rests on the first. */
static void build_two(struct text *last, struct kept k[2])
{
    struct text t = { 0 }, second = { 0 };
    struct replay_turn turn;

    user(&t, "hi");
    prompt(&t);
    keep(&k[0], &t, NULL, 0, "Hm.", first_ids, 3);
    user(&second, "hi");
    assistant(&second, "Hm.", "yo");
    user(&second, "again");
    prompt(&second);
    turn = turn_of(&k[0], "yo");
    keep(&k[1], &second, &turn, 1, "", second_ids, 2);
    user(last, "hi");
    assistant(last, "Hm.", "yo");
    user(last, "again");
    assistant(last, "", "yo yo");
    user(last, "bye");
    prompt(last);
}

static void each_replay_rests_on_those_before_it(void **state)
{
    struct text t = { 0 };
    struct kept k[2];
    struct replay r;

    (void)state;
    build_two(&t, k);
    struct replay_turn both[] = { turn_of(&k[0], "yo"), turn_of(&k[1], "yo yo") };
    splice(&r, &t, both, 2, true);
    assert_int_equal(r.n_replayed, 2);
    replay_done(&r);

    /* The second reply followed ids; what comes now before it is text. */
    both[0].record = NULL;
    splice(&r, &t, both, 2, true);
    assert_int_equal(r.n_replayed, 0);
    assert_int_equal(r.n_parts, 1);
    assert_ptr_equal(r.parts[0].runs, t.runs);
    replay_done(&r);

    both[0] = turn_of(&k[0], "yo");
    both[1].record = NULL;
    splice(&r, &t, both, 2, true);
    assert_int_equal(r.n_replayed, 1);
    replay_done(&r);
}

/* A turn that was text when the reply was given, and is text again. */
static void a_turn_that_was_text_stays_a_base(void **state)
{
    struct text t = { 0 }, next = { 0 };
    struct replay_turn turns[2] = { { .content = "yo", .content_size = 2 } };
    struct kept k;
    struct replay r;

    (void)state;
    user(&t, "hi");
    assistant(&t, "", "yo");
    prompt(&t);
    keep(&k, &t, turns, 1, "", first_ids, 3);
    user(&next, "hi");
    assistant(&next, "", "yo");
    assistant(&next, "", "more");
    turns[1] = turn_of(&k, "more");
    splice(&r, &next, turns, 2, false);
    assert_int_equal(r.n_replayed, 1);
    assert_int_equal(r.tail_size, 0);
    replay_done(&r);
}

/* ---- every condition, broken once ---- */

static size_t n_replayed(const struct text *t, struct replay_turn turn, bool prompted)
{
    struct replay r;
    char buf[1024];
    size_t n;

    splice(&r, t, &turn, 1, prompted);
    shown(buf, sizeof buf, &r);
    n = r.n_replayed;
    replay_done(&r);
    return n;
}

struct base {
    struct text t;
    struct kept k;
};

static void make_base(struct base *b)
{
    *b = (struct base){ 0 };
    user(&b->t, "hi");
    prompt(&b->t);
    keep(&b->k, &b->t, NULL, 0, "Hm.", first_ids, 3);
    b->t.n = 0;
}

static void other_text_before_it_is_no_base(void **state)
{
    struct base b;

    (void)state;
    make_base(&b);
    user(&b.t, "hi");
    assistant(&b.t, "Hm.", "yo");
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 1);
    b.t.n = 0;
    user(&b.t, "ho");
    assistant(&b.t, "Hm.", "yo");
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 0);
    /* The same bytes, but a mark is the user's. */
    b.t.n = 0;
    say(&b.t, "<|im_start|>user\nhi<|im_end|>\n");
    assistant(&b.t, "Hm.", "yo");
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 0);
    /* Cut into other runs it is the same. */
    b.t.n = 0;
    lit(&b.t, "<|im_st");
    lit(&b.t, "");
    lit(&b.t, "art|>");
    say(&b.t, "us");
    say(&b.t, "er");
    lit(&b.t, "\n");
    say(&b.t, "hi");
    lit(&b.t, "<|im_end|>\n<|im_");
    lit(&b.t, "start|>assistant\n<think>\n");
    say(&b.t, "Hm.");
    lit(&b.t, "\n</think>\n\nyo<|im");
    lit(&b.t, "_end|>\n");
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 1);
}

static void another_beginning_of_the_turn_is_none(void **state)
{
    struct base b;

    (void)state;
    make_base(&b);
    user(&b.t, "hi");
    lit(&b.t, "<|im_start|>assistant\nyo<|im_end|>\n");
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 0);
    b.k.record.reasoning_size = 0; /* an open block is no empty block */
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 0);
}

/* Thinking was off; the template prints the empty block for the turn to come alone. */
static void an_empty_block_may_be_missing(void **state)
{
    struct text t = { 0 }, next = { 0 };
    struct kept k;
    struct replay r;
    char buf[512];

    (void)state;
    user(&t, "hi");
    lit(&t, "<|im_start|>assistant\n<think>\n\n</think>\n\n");
    keep(&k, &t, NULL, 0, "", first_ids, 3);
    user(&next, "hi");
    lit(&next, "<|im_start|>assistant\n");
    say(&next, "yo");
    lit(&next, "<|im_end|>\n");
    struct replay_turn turn = turn_of(&k, "yo");
    splice(&r, &next, &turn, 1, false);
    assert_string_equal(shown(buf, sizeof buf, &r),
                        "<|im_start|>(user)\n(hi)<|im_end|>\n<|im_start|>assistant\n<think>\n\n"
                        "</think>\n\n[1][2][3]<|im_end|>\n");
    replay_done(&r);
}

static void reasoning_that_the_template_leaves_out_stays_out(void **state)
{
    struct base b;

    (void)state;
    make_base(&b);
    user(&b.t, "hi");
    assistant(&b.t, "", "yo");
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 0);
    b.t.n = 0;
    user(&b.t, "hi");
    assistant(&b.t, "Hm", "yo");
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 0);
}

static void content_that_is_not_shown_is_not_replaced(void **state)
{
    struct base b;

    (void)state;
    make_base(&b);
    user(&b.t, "hi");
    assistant(&b.t, "Hm.", "y");
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 0);
    /* Nor is it looked for behind the turn's end. */
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "y<|im_end|>"), false), 0);
}

static void a_turn_that_is_open_stays_text(void **state)
{
    struct base b;

    (void)state;
    make_base(&b);
    user(&b.t, "hi");
    assistant(&b.t, "Hm.", "yo");
    b.t.n -= 2;
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 0);
    say(&b.t, "<|im_end|>"); /* no mark */
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 0);
    user(&b.t, "closed by another");
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 0);
}

static void turns_that_are_not_the_messages_are_left_alone(void **state)
{
    struct base b;

    (void)state;
    make_base(&b);
    user(&b.t, "hi");
    assistant(&b.t, "Hm.", "yo");
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), true), 0); /* one is missing */
    prompt(&b.t);
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), true), 1);
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 0); /* one too many */
    /* What a user spells is no turn. */
    b.t.n -= 1;
    user(&b.t, "<|im_start|>assistant\n");
    prompt(&b.t);
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), true), 1);
}

static void a_record_without_ids_or_tail_is_text(void **state)
{
    struct base b;

    (void)state;
    make_base(&b);
    user(&b.t, "hi");
    assistant(&b.t, "Hm.", "yo");
    b.k.record.n_ids = 0;
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 0);
    b.k.record.n_ids = 3;
    b.k.record.tail_size = 0;
    assert_int_equal(n_replayed(&b.t, turn_of(&b.k, "yo"), false), 0);
}

static void another_key_knows_nothing(void **state)
{
    static const struct sip_sum other = { { 11, 14 } };
    struct base b;
    struct replay r;
    struct err err;

    (void)state;
    make_base(&b);
    user(&b.t, "hi");
    assistant(&b.t, "Hm.", "yo");
    struct replay_turn turn = turn_of(&b.k, "yo");
    assert_int_equal(replay_splice(&r, b.t.runs, b.t.n, &turn, 1, false, &other, &err), 0);
    assert_int_equal(r.n_replayed, 0);
    replay_done(&r);
}

static void a_beginning_that_holds_words_of_a_message_is_no_tail(void **state)
{
    struct text t = { 0 };
    struct replay r;
    static char much[REPLAY_MAX_TAIL + 1];

    (void)state;
    user(&t, "hi");
    prompt(&t);
    say(&t, "Sure, ");
    splice(&r, &t, NULL, 0, true);
    assert_int_equal(r.tail_size, 0);
    replay_done(&r);
    t.n--;
    memset(much, 'x', sizeof much - 1);
    lit(&t, much);
    splice(&r, &t, NULL, 0, true);
    assert_int_equal(r.tail_size, 0);
    replay_done(&r);
}

static void a_text_without_marks_is_sent_as_it_is(void **state)
{
    struct text t = { 0 };
    struct replay r;
    char buf[64];

    (void)state;
    splice(&r, &t, NULL, 0, true);
    assert_int_equal(r.n_parts, 1);
    assert_int_equal(r.parts[0].n_runs, 0);
    replay_done(&r);
    lit(&t, "[INST] ");
    say(&t, "hi");
    splice(&r, &t, NULL, 0, true);
    assert_string_equal(shown(buf, sizeof buf, &r), "[INST] (hi)");
    assert_int_equal(r.tail_size, 0);
    replay_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reply_comes_back_as_its_ids),
        cmocka_unit_test(each_replay_rests_on_those_before_it),
        cmocka_unit_test(a_turn_that_was_text_stays_a_base),
        cmocka_unit_test(other_text_before_it_is_no_base),
        cmocka_unit_test(another_beginning_of_the_turn_is_none),
        cmocka_unit_test(an_empty_block_may_be_missing),
        cmocka_unit_test(reasoning_that_the_template_leaves_out_stays_out),
        cmocka_unit_test(content_that_is_not_shown_is_not_replaced),
        cmocka_unit_test(a_turn_that_is_open_stays_text),
        cmocka_unit_test(turns_that_are_not_the_messages_are_left_alone),
        cmocka_unit_test(a_record_without_ids_or_tail_is_text),
        cmocka_unit_test(another_key_knows_nothing),
        cmocka_unit_test(a_beginning_that_holds_words_of_a_message_is_no_tail),
        cmocka_unit_test(a_text_without_marks_is_sent_as_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
