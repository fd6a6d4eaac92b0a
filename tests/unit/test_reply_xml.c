/* Calls as functions with parameters: which text ends a value, and what a value is. */
#include "tests/unit/reply_fixture.h"

static const struct reply_parameter parameters[] = {
    { "room", 4, REPLY_MAY_STRING, true },
    { "s", 1, REPLY_MAY_STRING, false },
    { "maybe", 5, REPLY_MAY_STRING | REPLY_MAY_NULL, false },
    { "n", 1, REPLY_MAY_INTEGER, false },
    { "x", 1, REPLY_MAY_NUMBER | REPLY_MAY_NULL, false },
    { "on", 2, REPLY_MAY_BOOLEAN, false },
    { "o", 1, REPLY_MAY_OBJECT, false },
    { "a", 1, REPLY_MAY_ARRAY | REPLY_MAY_NULL, false },
    { "any", 3, 0, false },
};
static const struct reply_tool tools[] = { { "f", 1, parameters, 9 }, { "now", 3, NULL, 0 } };

static struct reply_options offered(void)
{
    struct reply_options o = reply_defaults(REPLY_XML);

    o.tools = tools;
    o.n_tools = 2;
    return o;
}

/* The same around one parameter. */
static void value_is(const char *key, const char *value, const char *want)
{
    struct reply_options o = offered();
    char script[512], out[512];

    snprintf(script, sizeof script,
             "<tool_call>\n<function=f>\n<parameter=%s>\n%s\n</parameter>\n</function>\n</tool_call>",
             key, value);
    snprintf(out, sizeof out, "call f: {\"%s\": %s\n", key, want);
    gives(&o, script, out);
}

static void two_calls_behind_thinking_and_content(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o,
          "<think>\nTwo sensors needed.\n</think>\n\nChecking both.\n\n<tool_call>\n<function=f>\n"
          "<parameter=room>\nkitchen\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
          "<function=f>\n<parameter=room>\nattic\n</parameter>\n<parameter=s>\nC\n</parameter>\n"
          "</function>\n</tool_call>",
          "reasoning: Two sensors needed.\ncontent: Checking both.\n"
          "call f: {\"room\": \"kitchen\"}\ncall f: {\"room\": \"attic\", \"s\": \"C\"}\n");
    gives(&o, "<tool_call><function=now></function></tool_call>", "call now: {}\n");
    gives(&o, "<tool_call>\n<function= \"now\" >\n</function>\n</tool_call>\n", "call now: {}\n");
    gives(&o, "<tool_call><function=f><parameter=room>a</parameter><parameter= 's'>b</parameter>"
              "</function></tool_call>",
          "call f: {\"room\": \"a\", \"s\": \"b\"}\n");
}

static void strings_are_verbatim(void **state)
{
    (void)state;
    value_is("s", "a \"b\" \\ &lt; \t <x>\n\n  y ", "\"a \\\"b\\\" \\\\ &lt; \\t <x>\\n\\n  y \"}");
    value_is("s", "", "\"\"}");
    value_is("s", "\n", "\"\\n\"}");
    value_is("s", "\nx\n", "\"\\nx\\n\"}");
    value_is("s", "null", "\"null\"}");
    value_is("s", "5", "\"5\"}");
    value_is("any", "{\"a\": 1}", "\"{\\\"a\\\": 1}\"}");
    value_is("other", "5", "\"5\"}");
    value_is("s", "\xf0\x9f\x98\x80\xc3\xa9\x01\x7f", "\"\xf0\x9f\x98\x80\xc3\xa9\\u0001\x7f\"}");
}

static void null_is_null_only_where_it_may_be(void **state)
{
    (void)state;
    value_is("maybe", "null", "null}");
    value_is("maybe", "None", "null}");
    value_is("maybe", "nul", "\"nul\"}");
    value_is("maybe", "nullify", "\"nullify\"}");
    value_is("maybe", "None\n", "\"None\\n\"}");
    value_is("maybe", "", "\"\"}");
    value_is("maybe", "x", "\"x\"}");
}

static void other_types_are_json(void **state)
{
    (void)state;
    value_is("n", "5", "5}");
    value_is("n", " 12345678901234567890123 ", "12345678901234567890123}");
    value_is("x", "1.10", "1.10}");
    value_is("x", "-1e5", "-1e5}");
    value_is("x", "None", "null}");
    value_is("on", "True", "true}");
    value_is("on", "false", "false}");
    value_is("o", "{\"a\": [1, \"</x>\"],\n \"b\": 1.0}", "{\"a\": [1, \"</x>\"],\n \"b\": 1.0}}");
    value_is("a", "[]", "[]}");
    value_is("a", "null", "null}");
    value_is("a", "{\"no\": \"array\"}", "{\"no\": \"array\"}}");
}

static void python_spelling_becomes_json(void **state)
{
    (void)state;
    value_is("o", "{'a': True, 'b': [None, 1.50,], 'c': 'it\\'s \"x\"'}",
             "{\"a\": true, \"b\": [null, 1.50], \"c\": \"it's \\\"x\\\"\"}}\n"
             "repairs: json_mended=1");
}

static void what_its_type_does_not_allow_is_a_string(void **state)
{
    (void)state;
    value_is("n", "five", "\"five\"}\nrepairs: value_as_string=1");
    value_is("n", "05", "\"05\"}\nrepairs: value_as_string=1");
    value_is("n", "", "\"\"}\nrepairs: value_as_string=1");
    value_is("n", "1 2", "\"1 2\"}\nrepairs: value_as_string=1");
    value_is("on", "yes", "\"yes\"}\nrepairs: value_as_string=1");
    value_is("o", "{\"a\": ", "\"{\\\"a\\\": \"}\nrepairs: value_as_string=1");
    value_is("o", "{\"a\": 1} x", "\"{\\\"a\\\": 1} x\"}\nrepairs: value_as_string=1");
    value_is("a", "[1, two]", "\"[1, two]\"}\nrepairs: value_as_string=1");
    value_is("a", " N ", "\" N \"}\nrepairs: value_as_string=1");
}

static void a_closing_tag_closes_only_before_what_may_follow(void **state)
{
    (void)state;
    value_is("s", "a</parameter>b", "\"a</parameter>b\"}");
    value_is("s", "a\n</parameter>\nb", "\"a\\n</parameter>\\nb\"}");
    value_is("s", "a\n</parameter>\n<parameters>", "\"a\\n</parameter>\\n<parameters>\"}");
    value_is("s", "a</parameter>\n</func\n</par", "\"a</parameter>\\n</func\\n</par\"}");
    value_is("s", "</function>", "\"</function>\"}");
    value_is("s", "a\n</function>\n\nb\n</function> ", "\"a\\n</function>\\n\\nb\\n</function> \"}");
    value_is("s", "x <parameter=s>\ny", "\"x <parameter=s>\\ny\"}");
    value_is("s", "x\n<parameter=>\n<parameter=a\n>\n<parameter=<b>",
             "\"x\\n<parameter=>\\n<parameter=a\\n>\\n<parameter=<b>\"}");
    value_is("s", "<tool_call>\n<function=f>~</tool_call></think>",
             "\"<tool_call>\\n<function=f></tool_call></think>\"}");
    value_is("s", "\n\n<\n<<</</p<parameter", "\"\\n\\n<\\n<<</</p<parameter\"}");
    value_is("s", "a</parameter></parameter>b", "\"a</parameter></parameter>b\"}");
}

static void doubled_closing_tags_are_swallowed(void **state)
{
    struct reply_options o = offered();

    (void)state;
    value_is("s", "a\n</parameter>", "\"a\"}\nrepairs: tag_extra=1");
    value_is("s", "a</parameter> </parameter>", "\"a\"}\nrepairs: tag_extra=2");
    gives(&o, "<tool_call><function=f></parameter>\n<parameter=s>\na\n</parameter>\n</function>"
              "</tool_call></tool_call>",
          "call f: {\"s\": \"a\"}\nrepairs: tag_extra=2\n");
    gives(&o, "<tool_call>\n<tool_call><function=now></function></tool_call>",
          "call now: {}\nrepairs: tag_extra=1\n");
}

static void a_parameter_at_a_lines_begin_closes_the_one_before(void **state)
{
    (void)state;
    value_is("s", "a\n<parameter=room>\nb", "\"a\", \"room\": \"b\"}\nrepairs: closer_missing=1");
    value_is("s", "<parameter=room>\nb", "\"\", \"room\": \"b\"}\nrepairs: closer_missing=1");
    value_is("n", "5\n<parameter=room>b", "5, \"room\": \"b\"}\nrepairs: closer_missing=1");
    value_is("s", "a\n</function>\n<parameter=room>\nb",
             "\"a\\n</function>\", \"room\": \"b\"}\nrepairs: closer_missing=1");
}

static void the_first_of_a_doubled_key_wins(void **state)
{
    (void)state;
    value_is("s", "a\n</parameter>\n<parameter=s>\nb\n</parameter>\n<parameter=room>\nc",
             "\"a\", \"room\": \"c\"}\nrepairs: key_dropped=1");
    value_is("n", "1\n</parameter>\n<parameter=n>\ntwo", "1}\nrepairs: key_dropped=1");
}

static void a_missing_opener_is_seen_by_a_declared_name(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o, "I look.\n\n<function=f>\n<parameter=s>\na\n</parameter>\n</function>\n</tool_call>",
          "content: I look.\ncall f: {\"s\": \"a\"}\nrepairs: opener_missing=1\n");
    gives(&o, "<function=now></function>\n<function=now></function></tool_call>",
          "call now: {}\ncall now: {}\nrepairs: opener_missing=2 closer_missing=1\n");
    gives(&o, "<think>\n<function=now>\n</think>\n\n<function=now></function>\n</tool_call>",
          "reasoning: <function=now>\ncall now: {}\nrepairs: opener_missing=1\n");
    gives(&o, "a <function=now></function>", "content: a <function=now></function>\n");
    gives(&o, "<function=then></function>", "content: <function=then></function>\n");
    gives(&o, "<function=no\n<functio\n<function=\n<function=nowhere to go, and more than a name>",
          "content: <function=no\n<functio\n<function=\n"
          "<function=nowhere to go, and more than a name>\n");
    gives(&o, "a\n <function=now>", "content: a\n <function=now>\n");
    gives(&o, "a\n<function=no", "content: a\n<function=no\n");
    o.style = REPLY_JSON;
    gives(&o, "<function=now></function>", "content: <function=now></function>\n");
}

static void missing_closing_tags_are_supplied(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o, "<tool_call><function=f>\n<parameter=s>\na\n</parameter>\n</function>",
          "call f: {\"s\": \"a\"}\nrepairs: closer_missing=1\n");
    gives(&o, "<tool_call><function=f>\n<parameter=s>\na\n</parameter>\n",
          "call f: {\"s\": \"a\"}\nrepairs: closer_missing=1\n");
    gives(&o, "<tool_call><function=f>\n<parameter=s>\na\n</parameter>\n</tool_call>",
          "call f: {\"s\": \"a\"}\nrepairs: closer_missing=1\n");
    gives(&o, "<tool_call><function=f>\n<parameter=s>\na\n</tool_call>",
          "call f: {\"s\": \"a\"}\nrepairs: closer_missing=1\n");
    gives(&o, "<tool_call><function=f>\n<parameter=s>\na\n</function>\n</tool_call>",
          "call f: {\"s\": \"a\"}\nrepairs: closer_missing=1\n");
    gives(&o, "<tool_call><function=f>\n<parameter=s>\na\n</function>",
          "call f: {\"s\": \"a\"}\nrepairs: closer_missing=1\n");
    gives(&o, "<tool_call><function=f>\n<parameter=s>\na\n</para",
          "call f: {\"s\": \"a\\n</para\"}\nrepairs: closer_missing=1\n");
    gives(&o, "<tool_call><function=f>\n<parameter=s>",
          "call f: {\"s\": \"\"}\nrepairs: closer_missing=1\n");
    gives(&o, "<tool_call><function=f>", "call f: {}\nrepairs: closer_missing=1\n");
    gives(&o, "<tool_call><function=f>\n<tool_call><function=now></function></tool_call>",
          "call f: {}\ncall now: {}\nrepairs: closer_missing=2\n");
    gives(&o, "<tool_call><function=now></function><tool_call><function=now></function></tool_call>",
          "call now: {}\ncall now: {}\nrepairs: closer_missing=1\n");
}

static void cut_calls_stay_open(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives_cut(&o, "<tool_call><function=f>\n<parameter=s>\na\nb", "open call f: {\"s\": \"a\\nb\n");
    gives_cut(&o, "<tool_call><function=f>\n<parameter=s>\na\n</para",
              "open call f: {\"s\": \"a\\n</para\n");
    gives_cut(&o, "<tool_call><function=f>\n<parameter=s>\na\n</parameter>\n",
              "open call f: {\"s\": \"a\"\n");
    gives_cut(&o, "<tool_call><function=f>\n<parameter=o>\n{\"a\": [",
              "open call f: {\"o\": {\"a\": [\n");
    gives_cut(&o, "<tool_call><function=f>\n<parameter=maybe>\nnul",
              "open call f: {\"maybe\": \"nul\n");
    gives_cut(&o, "<tool_call><function=f>\n<param", "open call f: {\n");
    gives_cut(&o, "<tool_call><function=f>\n<parameter=", "open call f: {\n");
    gives_cut(&o, "<tool_call><function=f>\n<parameter=s>a</parameter><parameter=ro",
              "open call f: {\"s\": \"a\", \"ro\n");
    gives_cut(&o, "<tool_call><function=f>\n<parameter=s>\na\n</parameter>\n</function>",
              "call f: {\"s\": \"a\"}\n");
    gives_cut(&o, "<tool_call>\n<function=f", "content: <tool_call>\n<function=f\n"
                                              "repairs: block_as_text=1\n");
}

static void what_is_no_call_is_content(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o, "a\n\n<tool_call>\nhm\n</tool_call>",
          "content: a\n\n<tool_call>\nhm\n</tool_call>\nrepairs: block_as_text=1\n");
    gives(&o, "<tool_call>\n<func>x</tool_call>",
          "content: <tool_call>\n<func>x</tool_call>\nrepairs: block_as_text=1\n");
    gives(&o, "<tool_call>\n<function=>x",
          "content: <tool_call>\n<function=>x\nrepairs: block_as_text=1\n");
    gives(&o, "<tool_call>\n<function=f\n<parameter=s>",
          "content: <tool_call>\n<function=f\n<parameter=s>\nrepairs: block_as_text=1\n");
    gives(&o, "<tool_call>\n", "content: <tool_call>\n\nrepairs: block_as_text=1\n");
}

static void text_between_parameters_comes_behind_the_call(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o, "<tool_call><function=f>\nso: {\n<x>\n<parameter=s>\na\n</parameter>\n</function></tool_call>",
          "content: so: {\n<x>\n\ncall f: {\"s\": \"a\"}\nrepairs: text_moved=1\n");
    gives(&o, "<tool_call><function=f><parameter=a\nb>1</function></tool_call>",
          "content: <parameter=a\nb>1\ncall f: {}\nrepairs: text_moved=1\n");
    gives(&o, "<tool_call><function=f><parameter=ab",
          "content: <parameter=ab\ncall f: {}\nrepairs: closer_missing=1 text_moved=1\n");
}

static void either_style_is_understood(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
          "call now: {}\nrepairs: other_style=1\n");
    o.style = REPLY_JSON;
    gives(&o, "<tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>",
          "call f: {\"n\": 5}\nrepairs: other_style=1\n");
}

static void text_behind_the_last_call_ends_the_reply(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o, "<tool_call><function=now></function></tool_call>\n\nDone.",
          "call now: {}\nstop\nrepairs: text_dropped=1\n");
    gives(&o, "<tool_call><function=now></function>\n<b>Done.",
          "call now: {}\nstop\nrepairs: text_dropped=1\n");
    gives(&o, "<tool_call><function=now></function></tool_call>\n<func",
          "call now: {}\nrepairs: text_dropped=1\n");
    gives(&o, "<tool_call><function=now></function></tool_call>\n<func<tool_call>",
          "call now: {}\nstop\nrepairs: text_dropped=1\n");
}

static void an_undeclared_name_is_delivered(void **state)
{
    struct reply_options o = offered();

    (void)state;
    gives(&o, "<tool_call><function=g><parameter=n>\n5\n</parameter></function></tool_call>",
          "call g: {\"n\": \"5\"}\nrepairs: name_undeclared=1\n");
}

static void a_stop_string_may_look_like_a_call(void **state)
{
    const struct text_stop stops[] = { { "\n<function=", 11 }, { "kitchen", 7 } };
    struct reply_options o = offered();

    (void)state;
    o.stops = stops;
    o.n_stops = 2;
    gives(&o, "a\n<function=f><parameter=s>\nkitchen\n</parameter></function></tool_call>",
          "content: a\ncall f: {\"s\": \"kitchen\"}\nrepairs: opener_missing=1\n");
    gives(&o, "a\n<function=g>", "content: a\nstop\nby stop string\n");
    gives(&o, "a\n<function=", "content: a\nby stop string\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_calls_behind_thinking_and_content),
        cmocka_unit_test(strings_are_verbatim),
        cmocka_unit_test(null_is_null_only_where_it_may_be),
        cmocka_unit_test(other_types_are_json),
        cmocka_unit_test(python_spelling_becomes_json),
        cmocka_unit_test(what_its_type_does_not_allow_is_a_string),
        cmocka_unit_test(a_closing_tag_closes_only_before_what_may_follow),
        cmocka_unit_test(doubled_closing_tags_are_swallowed),
        cmocka_unit_test(a_parameter_at_a_lines_begin_closes_the_one_before),
        cmocka_unit_test(the_first_of_a_doubled_key_wins),
        cmocka_unit_test(a_missing_opener_is_seen_by_a_declared_name),
        cmocka_unit_test(missing_closing_tags_are_supplied),
        cmocka_unit_test(cut_calls_stay_open),
        cmocka_unit_test(what_is_no_call_is_content),
        cmocka_unit_test(text_between_parameters_comes_behind_the_call),
        cmocka_unit_test(either_style_is_understood),
        cmocka_unit_test(text_behind_the_last_call_ends_the_reply),
        cmocka_unit_test(an_undeclared_name_is_delivered),
        cmocka_unit_test(a_stop_string_may_look_like_a_call),
    };

    return cmocka_run_group_tests_name("reply_xml", tests, NULL, NULL);
}
