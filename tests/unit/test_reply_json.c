/* Calls as JSON objects: what models are taught to write, and what they write instead. */
#include "tests/unit/reply_fixture.h"

static const struct reply_parameter rooms[] = {
    { "room", 4, REPLY_MAY_STRING, true },
    { "unit", 4, REPLY_MAY_STRING, false },
};
static const struct reply_tool tools[] = { { "get_temp", 8, rooms, 2 }, { "now", 3, NULL, 0 } };

static struct reply_options offered(void)
{
    struct reply_options o = reply_defaults(REPLY_JSON);

    o.tools = tools;
    o.n_tools = 2;
    return o;
}

static void two_calls_behind_thinking_and_content(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o,
          "<think>\nTwo sensors needed.\n</think>\n\nChecking both.\n<tool_call>\n"
          "{\"name\": \"get_temp\", \"arguments\": {\"room\": \"kitchen\"}}\n</tool_call>\n"
          "<tool_call>\n"
          "{\"name\": \"get_temp\", \"arguments\": {\"room\": \"attic\", \"unit\": \"C\"}}\n"
          "</tool_call>",
          "reasoning: Two sensors needed.\ncontent: Checking both.\n"
          "call get_temp: {\"room\": \"kitchen\"}\n"
          "call get_temp: {\"room\": \"attic\", \"unit\": \"C\"}\n");
    gives(&o, "<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>", "call now: {}\n");
}

static void arguments_are_the_models_own_bytes(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o,
          "<tool_call>\n{ \"name\" : \"get_temp\" , \"arguments\" :  {\"a\":1.10,  \"b\" :[ 1e5 , "
          "{\"c}\":\"\\u00e9\\\"}\\\\\"} ], \n\t\"d\":\"<b>&amp;</b>\xf0\x9f\x98\x80\"} }\n"
          "</tool_call>\n",
          "call get_temp: {\"a\":1.10,  \"b\" :[ 1e5 , {\"c}\":\"\\u00e9\\\"}\\\\\"} ], \n\t"
          "\"d\":\"<b>&amp;</b>\xf0\x9f\x98\x80\"}\n");
}

static void the_other_ways_to_spell_a_call(void **state)
{
    struct reply_options o = offered();

    (void)state;
    /* arguments before the name; another word for them; as a string; absent; null */
    gives(&o,
          "<tool_call>{\"arguments\": {\"room\": \"a\"}, \"name\": \"get_temp\"}</tool_call>\n"
          "<tool_call>{\"name\": \"get_temp\", \"parameters\": {\"room\": \"b\"}}</tool_call>"
          "<tool_call>{\"name\": \"get_temp\", \"arguments\": "
          "\"{\\\"room\\\": \\\"c\\\\n\\ud83d\\ude00\\\"}\"}</tool_call>"
          "<tool_call>{\"name\": \"now\"}</tool_call>"
          "<tool_call>{\"name\": \"now\", \"arguments\": null}</tool_call>"
          "<tool_call>{\"name\": \"now\", \"arguments\": \"\"}</tool_call>"
          "<tool_call>{\"arguments\": \"{\\\"a\\\": 1}\", \"name\": \"n\\u006fw\"}</tool_call>",
          "call get_temp: {\"room\": \"a\"}\ncall get_temp: {\"room\": \"b\"}\n"
          "call get_temp: {\"room\": \"c\\n\xf0\x9f\x98\x80\"}\n"
          "call now: {}\ncall now: {}\ncall now: {}\ncall now: {\"a\": 1}\n");
}

static void keys_that_mean_nothing_are_dropped_and_counted(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o,
          "<tool_call>{\"id\": [1, {}], \"type\": \"function\", \"name\": \"now\", "
          "\"arguments\": {}, \"arguments\": {\"a\": 1}}</tool_call>",
          "call now: {}\nrepairs: key_dropped=3\n");
}

static void marks_inside_a_call_are_text(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o,
          "<tool_call>{\"name\": \"get_temp\", \"arguments\": {\"room\": \"<tool_call><think>"
          "~</tool_call>\"}}</tool_call>",
          "call get_temp: {\"room\": \"<tool_call><think></tool_call>\"}\n");
}

static void an_undeclared_name_is_delivered(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o, "<tool_call>{\"name\": \"reboot\", \"arguments\": {}}</tool_call>",
          "call reboot: {}\nrepairs: name_undeclared=1\n");
}

static void nearly_json_is_made_json(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o,
          "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": [1, 2, ], \"b\": True, }, }"
          "</tool_call>",
          "call now: {\"a\": [1, 2 ], \"b\": true }\nrepairs: json_mended=2\n");
    gives(&o, "<tool_call>{'name': 'now', 'arguments': {'a': 'it\\'s \"x\"', 'b': None}}</tool_call>",
          "call now: {\"a\": \"it's \\\"x\\\"\", \"b\": null}\nrepairs: json_mended=2\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"1\n2\t\x01\\d \\u12x\"}}</tool_call>",
          "call now: {\"a\": \"1\\n2\\t\\u0001\\\\d \\\\u12x\"}\nrepairs: json_mended=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": }</tool_call>"
              "<tool_call>{\"arguments\": , \"name\": \"now\"}</tool_call>",
          "call now: {}\ncall now: {}\nrepairs: json_mended=2\n");
    gives(&o, "<tool_call>{\"name\": \"now\" \"arguments\": {}}</tool_call>",
          "call now: {}\nrepairs: json_mended=1\n");
}

static void what_is_not_closed_is_closed(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": [{\"b\": \"c",
          "call now: {\"a\": [{\"b\": \"c\"}]}\nrepairs: closer_missing=1 json_mended=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1}\n</tool_call>",
          "call now: {\"a\": 1}\nrepairs: closer_missing=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1, \"b\"</tool_call>",
          "call now: {\"a\": 1, \"b\": null}\nrepairs: closer_missing=1 json_mended=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1.",
          "call now: {\"a\": 1.0}\nrepairs: closer_missing=1 json_mended=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": [1, tr",
          "call now: {\"a\": [1, true]}\nrepairs: closer_missing=1 json_mended=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"b\\",
          "call now: {\"a\": \"b\\\\\"}\nrepairs: closer_missing=1 json_mended=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", ", "call now: {}\nrepairs: closer_missing=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"argum", "call now: {}\nrepairs: closer_missing=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"argum oh",
          "call now: {}\nrepairs: closer_missing=1 key_dropped=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {}}",
          "call now: {}\nrepairs: closer_missing=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {}}}}</tool_call>",
          "call now: {}\nrepairs: tag_extra=2\n");
}

static void several_objects_in_one_block_are_several_calls(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o, "<tool_call>\n{\"name\": \"now\"}\n{\"name\": \"now\"}\n</tool_call>",
          "call now: {}\ncall now: {}\nrepairs: opener_missing=1 closer_missing=1\n");
}

static void what_is_no_call_is_content(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o, "Look:\n\n<tool_call>\nno JSON\n</tool_call> more",
          "content: Look:\n\n<tool_call>\nno JSON\n</tool_call> more\nrepairs: block_as_text=1\n");
    gives(&o, "<tool_call></tool_call>",
          "content: <tool_call></tool_call>\nrepairs: block_as_text=1\n");
    gives(&o, "<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>",
          "content: <tool_call>{\"arguments\": {\"a\": 1}}</tool_call>\n"
          "repairs: block_as_text=1\n");
    gives(&o, "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>",
          "content: <tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>\n"
          "repairs: block_as_text=1\n");
    gives(&o, "<tool_call>{\"name\": \"\"}</tool_call>",
          "content: <tool_call>{\"name\": \"\"}</tool_call>\nrepairs: block_as_text=1\n");
    gives(&o, "<tool_call>[1]</tool_call><tool_call>{\"name\": \"now\"}</tool_call>",
          "content: <tool_call>[1]</tool_call>\ncall now: {}\nrepairs: block_as_text=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\"}</tool_call>\n<tool_call>{oh}</tool_call>\n"
              "<tool_call>{\"name\": \"now\"}</tool_call>",
          "content: \n<tool_call>{oh}</tool_call>\ncall now: {}\ncall now: {}\n"
          "repairs: block_as_text=1\n");
}

static void broken_arguments_stay_as_they_are(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o,
          "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": kitchen, \"b\": {\"}\": [1}}}"
          "</tool_call>",
          "call now: {\"a\": kitchen, \"b\": {\"}\": [1}}\nrepairs: json_broken=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\" 1, \"b\": \"}\"}}</tool_call>",
          "call now: {\"a\" 1, \"b\": \"}\"}\nrepairs: json_broken=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 01}}</tool_call>",
          "call now: {\"a\": 01}\nrepairs: json_broken=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": kitchen}</tool_call>",
          "call now: kitchen\nrepairs: json_broken=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": [1, 2]}</tool_call>",
          "call now: [1, 2]\n");
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": \"{\\\"a\\\": 1} x\"}</tool_call>",
          "call now: {\"a\": 1}x\nrepairs: json_broken=1\n");
    /* The object around them is none: its rest comes behind the call. */
    gives(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {} oh}\n</tool_call>",
          "content: oh}\n\ncall now: {}\nrepairs: json_broken=1 text_moved=1\n");
}

static void cut_arguments_stay_open(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives_cut(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": [1, \"b",
              "open call now: {\"a\": [1, \"b\n");
    gives_cut(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1, ",
              "open call now: {\"a\": 1, \n");
    gives_cut(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"\\u12",
              "open call now: {\"a\": \"\\u12\n");
    gives_cut(&o, "<tool_call>{\"name\": \"now\"", "open call now: \n");
    gives_cut(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {}", "call now: {}\n");
    gives_cut(&o, "<tool_call>{\"name\": \"now\", \"arguments\": {}}", "call now: {}\n");
    gives_cut(&o, "<tool_call>\n{\"name\": \"no",
              "content: <tool_call>\n{\"name\": \"no\nrepairs: block_as_text=1\n");
}

static void text_behind_the_last_call_ends_the_reply(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o, "<tool_call>{\"name\": \"now\"}</tool_call>\n\n</tool_call>\nI called it.",
          "call now: {}\nstop\nrepairs: tag_extra=1 text_dropped=1\n");
    gives(&o, "<tool_call>{\"name\": \"now\"}</tool_call> \n", "call now: {}\n");
    gives(&o, "<tool_call>{\"name\": \"now\"}</tool_call>~<tool_call>{\"name\": \"now\"}~</tool_call>",
          "call now: {}\ncall now: {}\n");
}

static void one_call_is_the_last(void **state)
{
    struct reply_options o = offered();

    (void)state;
    o.one_call = true;
    gives(&o, "a\n<tool_call>{\"name\": \"now\"}</tool_call>\n<tool_call>{\"name\": \"now\"}</tool_call>",
          "content: a\ncall now: {}\nstop\n");
    gives(&o, "<tool_call>{\"name\": \"now\"}<tool_call>{\"name\": \"now\"}</tool_call>",
          "call now: {}\nstop\nrepairs: text_dropped=1\n");
}

static void thinking_is_closed_by_a_call(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o, "<think>\nHm.\n\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
          "reasoning: Hm.\ncall now: {}\nrepairs: thinking_open=1\n");
    o.keep_tags = true;
    gives(&o, "<think>\nHm.\n\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
          "content: <think>\nHm.\ncall now: {}\nrepairs: thinking_open=1\n");
    o = reply_defaults(REPLY_NO_TOOLS);
    gives(&o, "<think>\nHm.\n<tool_call>\n{\"name\": \"now\"}\n</tool_call></think>a<tool_call>",
          "reasoning: Hm.\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n"
          "content: a<tool_call>\n");
}

static void stop_strings_meet_no_call(void **state)
{
    const struct text_stop stops[] = { { "\n<tool", 6 }, { "kitchen", 7 }, { "abX", 3 } };
    struct reply_options o = offered();

    (void)state;
    o.stops = stops;
    o.n_stops = 3;
    gives(&o, "see ab\n<tool_call>{\"name\": \"get_temp\", \"arguments\": {\"room\": \"kitchen\"}}</tool_call>",
          "content: see ab\ncall get_temp: {\"room\": \"kitchen\"}\n");
    gives(&o, "the kitchen\n<tool_call>{\"name\": \"now\"}</tool_call>",
          "content: the \nstop\nby stop string\n");
    gives(&o, "a\n~<tool_call>{\"name\": \"now\"}", "content: a\nstop\nby stop string\n");
    /* What is no call is content, and ends where content ends. */
    gives(&o, "a\n<tool_call>the kitchen is warm", "content: a\nstop\nby stop string\n"
                                                    "repairs: block_as_text=1\n");
}

static void tokens_of_calls_are_counted_apart(void **state)
{
    struct reply_options o = offered();
    struct reply_result result;
    struct reply_run run;

    (void)state;
    run_open(&run, &o);
    run_token(&run, TEXT, "a", 1);
    run_token(&run, CALL, "<tool_call>", 11);
    assert_int_equal(reply_token_kind(run.reply), REPLY_CALL);
    run_token(&run, TEXT, "{\"name\": \"now\"}", 15);
    assert_int_equal(reply_token_kind(run.reply), REPLY_CALL);
    run_token(&run, CALL_END, "</tool_call>", 12);
    assert_int_equal(reply_token_kind(run.reply), REPLY_CALL);
    reply_result(run.reply, &result);
    assert_int_equal(result.n_content_tokens, 1);
    assert_int_equal(result.n_call_tokens, 3);
    assert_int_equal(result.n_calls, 1);
    free(run_done(&run, false));
}

static void the_name_is_told_before_the_arguments_come(void **state)
{
    struct reply_options o = offered();
    struct reply_part part;
    struct reply *r;
    struct err err;

    (void)state;
    assert_int_equal(reply_open(&r, &o, &err), 0);
    assert_int_equal(reply_put(r, CALL, "<tool_call>", 11, &err), 0);
    assert_false(reply_next(r, &part));
    assert_int_equal(reply_put(r, TEXT, "{\"name\": \"now\"", 14, &err), 0);
    assert_true(reply_next(r, &part));
    assert_int_equal(part.kind, REPLY_CALL);
    assert_int_equal(part.call, 0);
    assert_memory_equal(part.text, "now", 3);
    assert_int_equal(part.size, 3);
    assert_false(reply_next(r, &part));
    assert_int_equal(reply_put(r, TEXT, ", \"arguments\": {\"a\": \"xy", 24, &err), 0);
    assert_true(reply_next(r, &part));
    assert_int_equal(part.kind, REPLY_ARGUMENTS);
    assert_int_equal(part.size, 9);
    assert_memory_equal(part.text, "{\"a\": \"xy", 9);
    assert_false(reply_next(r, &part));
    reply_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_calls_behind_thinking_and_content),
        cmocka_unit_test(arguments_are_the_models_own_bytes),
        cmocka_unit_test(the_other_ways_to_spell_a_call),
        cmocka_unit_test(keys_that_mean_nothing_are_dropped_and_counted),
        cmocka_unit_test(marks_inside_a_call_are_text),
        cmocka_unit_test(an_undeclared_name_is_delivered),
        cmocka_unit_test(nearly_json_is_made_json),
        cmocka_unit_test(what_is_not_closed_is_closed),
        cmocka_unit_test(several_objects_in_one_block_are_several_calls),
        cmocka_unit_test(what_is_no_call_is_content),
        cmocka_unit_test(broken_arguments_stay_as_they_are),
        cmocka_unit_test(cut_arguments_stay_open),
        cmocka_unit_test(text_behind_the_last_call_ends_the_reply),
        cmocka_unit_test(one_call_is_the_last),
        cmocka_unit_test(thinking_is_closed_by_a_call),
        cmocka_unit_test(stop_strings_meet_no_call),
        cmocka_unit_test(tokens_of_calls_are_counted_apart),
        cmocka_unit_test(the_name_is_told_before_the_arguments_come),
    };

    return cmocka_run_group_tests_name("reply_json", tests, NULL, NULL);
}
