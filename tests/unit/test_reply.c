/* Thinking, content, stop strings and marks; tests of calls are in test_reply_json.c and
 * test_reply_xml.c. */
#include "tests/unit/reply_fixture.h"

static void thinking_and_content_are_apart(void **state)
{
    struct reply_options o = reply_defaults(REPLY_NO_TOOLS);

    (void)state;
    gives(&o, "<think>\nTwo sensors.\nNeeded.\n</think>\n\nChecking both.",
          "reasoning: Two sensors.\nNeeded.\ncontent: Checking both.\n");
    gives(&o, "<think>\n\n</think>\n\nyo", "content: yo\n");
    gives(&o, "Hello!\n", "content: Hello!\n\n");
    gives(&o, "\n\nHello", "content: \n\nHello\n");
    gives(&o, "", "");
}

static void only_the_first_newline_of_thinking_and_those_before_its_end_are_layout(void **state)
{
    struct reply_options o = reply_defaults(REPLY_XML);

    (void)state;
    o.start = REPLY_REASONING;
    gives(&o, "\n\na\n\nb\n\n\n</think>\n\n\n c \n", "reasoning: \na\n\nb\ncontent:  c \n\n");
    gives(&o, "a\n\n", "reasoning: a\n\n\n");
    gives_cut(&o, "a\n", "reasoning: a\n\n");
}

static void the_start_says_what_the_first_token_is(void **state)
{
    struct reply_options o = reply_defaults(REPLY_NO_TOOLS);

    (void)state;
    o.start = REPLY_CONTENT;
    gives(&o, "\n<think>a</think>b", "content: \n<think>a</think>b\n");
    o.start = REPLY_REASONING;
    gives(&o, "a<think>b</think>c", "reasoning: a<think>b\ncontent: c\n");
    o.start = REPLY_SNIFF;
    gives(&o, "a<think>b</think>c", "content: a<think>b</think>c\n");
    gives(&o, "~<think>b~</think>c", "content: <think>b</think>c\n");
}

static void tags_are_kept_where_reasoning_is_content(void **state)
{
    struct reply_options o = reply_defaults(REPLY_XML);

    (void)state;
    o.keep_tags = true;
    gives(&o, "<think>\na\n</think>\n\nb\n", "content: <think>\na\n</think>\n\nb\n\n");
    o.start = REPLY_REASONING;
    gives(&o, "\na\n</think>\n\nb", "content: \na\n</think>\n\nb\n");
}

static void stop_strings_end_content_alone(void **state)
{
    const struct text_stop stops[] = { { "END", 3 }, { "\n\n", 2 } };
    struct reply_options o = reply_defaults(REPLY_NO_TOOLS);

    (void)state;
    o.stops = stops;
    o.n_stops = 2;
    gives(&o, "<think>\na END\n\nb\n</think>\n\nc EN ENDd",
          "reasoning: a END\n\nb\ncontent: c EN \nstop\nby stop string\n");
    gives(&o, "a\n\nb", "content: a\nstop\nby stop string\n");
    gives(&o, "a EN", "content: a EN\n");
    o.style = REPLY_JSON;
    gives(&o, "a\n\nb", "content: a\nstop\nby stop string\n");
    gives(&o, "a\n\n", "content: a\nby stop string\n");
}

static void characters_are_whole_and_never_lost(void **state)
{
    struct reply_options o = reply_defaults(REPLY_NO_TOOLS);

    (void)state;
    gives(&o, "<think>\n\xf0\x9f\x98\x80\xf0\x9f\x98</think>\xc3\xa9 \xe2\x82\xac\xff \xf0\x9f",
          "reasoning: \xf0\x9f\x98\x80\xef\xbf\xbd\ncontent: \xc3\xa9 \xe2\x82\xac\xef\xbf\xbd "
          "\xef\xbf\xbd\n");
}

static void tokens_are_counted_by_what_they_belong_to(void **state)
{
    struct reply_options o = reply_defaults(REPLY_NO_TOOLS);
    struct reply_result result;
    struct reply_run run;

    (void)state;
    run_open(&run, &o);
    run_token(&run, THINK, "<think>", 7);
    assert_int_equal(reply_token_kind(run.reply), REPLY_TEXT_REASONING);
    run_token(&run, TEXT, "a", 1);
    run_token(&run, TEXT, "", 0);
    run_token(&run, THINK_END, "</think>", 8);
    assert_int_equal(reply_token_kind(run.reply), REPLY_TEXT_REASONING);
    run_token(&run, TEXT, "\n\n", 2);
    assert_int_equal(reply_token_kind(run.reply), REPLY_TEXT_CONTENT);
    reply_result(run.reply, &result);
    assert_int_equal(result.n_reasoning_tokens, 4);
    assert_int_equal(result.n_content_tokens, 1);
    assert_int_equal(result.n_call_tokens, 0);
    free(run_done(&run, false));
}

static void a_bad_stop_string_is_refused(void **state)
{
    const struct text_stop stop = { "", 0 };
    struct reply_options o = reply_defaults(REPLY_NO_TOOLS);
    struct reply *r = NULL;
    struct err err = { 0 };

    (void)state;
    o.stops = &stop;
    o.n_stops = 1;
    assert_int_equal(reply_open(&r, &o, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    assert_null(r);
    reply_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thinking_and_content_are_apart),
        cmocka_unit_test(only_the_first_newline_of_thinking_and_those_before_its_end_are_layout),
        cmocka_unit_test(the_start_says_what_the_first_token_is),
        cmocka_unit_test(tags_are_kept_where_reasoning_is_content),
        cmocka_unit_test(stop_strings_end_content_alone),
        cmocka_unit_test(characters_are_whole_and_never_lost),
        cmocka_unit_test(tokens_are_counted_by_what_they_belong_to),
        cmocka_unit_test(a_bad_stop_string_is_refused),
    };

    return cmocka_run_group_tests_name("reply", tests, NULL, NULL);
}
