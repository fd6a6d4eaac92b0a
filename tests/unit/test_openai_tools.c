/* Tools of a request: what is offered and chosen, what is refused by its place, and the table that
 * replies are parsed by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/conf/conf.h"
#include "daemon/openai/openai_in.h"
#include "daemon/wire/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char name[] = "house";
static const struct conf conf = { .model_name = name };
static const struct wire_hello hello = { .vocab = 1000, .context = 4096,
                                         .defaults = { .top_p = 1, .repetition_penalty = 1 } };

static int read_body(struct openai_request *r, const char *fields, struct quota *quota,
                     struct api_error *e)
{
    struct openai_rules rules = { &conf, &hello, quota };
    struct buf body;

    buf_init(&body, NULL);
    buf_text(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],");
    buf_text(&body, fields);
    buf_text(&body, "}");
    int rc = openai_in_read(r, OPENAI_CHAT, &body, &rules, e);
    buf_done(&body);
    return rc;
}

static struct openai_request must_read(const char *fields)
{
    struct openai_request r;
    struct api_error e;

    if (read_body(&r, fields, NULL, &e) < 0)
        fail_msg("%s: %s", fields, e.message);
    return r;
}

#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define TWO "\"tools\":[" TOOL("look") "," TOOL("go") "]"

static void what_is_offered_is_kept_as_it_came(void **state)
{
    struct openai_request r = must_read(
        "\"tools\":[{\"type\":\"function\",\"extra\":1,\"function\":{\"name\":\"a.b:c-d_9\","
        "\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":"
        "\"integer\"}},\"required\":[\"x\"]}}}]");
    char *text = json_dumps(r.tools, JSON_COMPACT);

    (void)state;
    assert_string_equal(text, "[{\"type\":\"function\",\"extra\":1,\"function\":{\"name\":"
                              "\"a.b:c-d_9\",\"description\":\"d\",\"parameters\":{\"type\":"
                              "\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},"
                              "\"required\":[\"x\"]}}}]");
    free(text);
    assert_int_equal(r.offer.choice, OPENAI_TOOLS_AUTO);
    assert_false(r.offer.one_call || r.offer.legacy);
    assert_int_equal(r.offer.n, 1);
    assert_int_equal(r.offer.tools[0].size, 9);
    assert_memory_equal(r.offer.tools[0].name, "a.b:c-d_9", 9);
    assert_int_equal(r.offer.tools[0].n_parameters, 1);
    openai_in_done(&r);
}

static void nothing_is_offered_by_an_empty_list(void **state)
{
    static const char *const bodies[] = { "\"tools\":[]", "\"functions\":[],\"tools\":null",
                                          "\"tool_choice\":\"auto\",\"function_call\":\"none\"" };

    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct openai_request r = must_read(bodies[i]);
        assert_null(r.tools);
        assert_int_equal(r.offer.n, 0);
        assert_int_equal(r.offer.choice, OPENAI_TOOLS_NONE);
        openai_in_done(&r);
    }
}

static void choices_are_understood(void **state)
{
    static const struct {
        const char *choice;
        enum openai_tool_choice want;
        size_t named;
    } cases[] = {
        { "null", OPENAI_TOOLS_AUTO, 0 },
        { "\"none\"", OPENAI_TOOLS_NONE, 0 },
        { "\"auto\"", OPENAI_TOOLS_AUTO, 0 },
        { "\"required\"", OPENAI_TOOLS_REQUIRED, 0 },
        { "{\"type\":\"function\",\"function\":{\"name\":\"go\"}}", OPENAI_TOOLS_NAMED, 1 },
        { "{\"type\":\"function\",\"function\":{\"name\":\"look\"}}", OPENAI_TOOLS_NAMED, 0 },
    };
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, TWO ",\"tool_choice\":%s", cases[i].choice);
        struct openai_request r = must_read(text);
        assert_int_equal(r.offer.choice, cases[i].want);
        assert_int_equal(r.offer.named, cases[i].named);
        assert_int_equal(json_array_size(r.tools), 2); /* the prompt stays what it was */
        openai_in_done(&r);
    }
}

static void a_required_call_of_the_only_tool_is_one_by_name(void **state)
{
    struct openai_request r = must_read("\"tools\":[" TOOL("a") "],\"tool_choice\":\"required\"");

    (void)state;
    assert_int_equal(r.offer.choice, OPENAI_TOOLS_NAMED);
    assert_int_equal(r.offer.named, 0);
    openai_in_done(&r);
}

static void only_allowed_tools_are_offered(void **state)
{
    struct openai_request r = must_read(
        "\"tools\":[" TOOL("a") "," TOOL("b") "," TOOL("c") "],\"tool_choice\":{\"type\":"
        "\"allowed_tools\",\"allowed_tools\":{\"mode\":\"required\",\"tools\":[" TOOL("c") ","
        TOOL("a") "]}}");

    (void)state;
    assert_int_equal(r.offer.choice, OPENAI_TOOLS_REQUIRED);
    assert_int_equal(json_array_size(r.tools), 2);
    assert_int_equal(r.offer.n, 2);
    assert_memory_equal(r.offer.tools[0].name, "a", 1);
    assert_memory_equal(r.offer.tools[1].name, "c", 1);
    openai_in_done(&r);
}

static void functions_are_tools_of_an_older_name(void **state)
{
    struct openai_request r = must_read("\"functions\":[{\"name\":\"look\"},{\"name\":\"go\"}],"
                                        "\"function_call\":{\"name\":\"go\"}");
    char *text = json_dumps(r.tools, JSON_COMPACT);

    (void)state;
    assert_string_equal(text, "[{\"type\":\"function\",\"function\":{\"name\":\"look\"}},"
                              "{\"type\":\"function\",\"function\":{\"name\":\"go\"}}]");
    free(text);
    assert_true(r.offer.legacy && r.offer.one_call);
    assert_int_equal(r.offer.choice, OPENAI_TOOLS_NAMED);
    assert_int_equal(r.offer.named, 1);
    openai_in_done(&r);
}

static void what_is_ignored_of_tools_is_said_once(void **state)
{
    struct openai_request r = must_read(
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"strict\":true}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"b\",\"strict\":true}}],\"user\":\"u\"");

    (void)state;
    assert_string_equal(r.ignored, "user,tools.function.strict");
    openai_in_done(&r);
    r = must_read("\"parallel_tool_calls\":false," TWO);
    assert_true(r.offer.one_call);
    assert_string_equal(r.ignored, "");
    openai_in_done(&r);
}

static void refusals_name_the_very_place(void **state)
{
    static const struct {
        const char *fields, *param, *code;
    } cases[] = {
        { "\"tools\":{}", "tools", "invalid_type" },
        { "\"tools\":[1]", "tools[0]", "invalid_type" },
        { "\"tools\":[{}]", "tools[0].type", "missing_required_parameter" },
        { "\"tools\":[{\"type\":5}]", "tools[0].type", "invalid_type" },
        { "\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"x\"}}]", "tools[0].type",
          "unsupported_tool_type" },
        { "\"tools\":[" TOOL("a") ",{\"type\":\"function\"}]", "tools[1].function",
          "missing_required_parameter" },
        { "\"tools\":[{\"type\":\"function\",\"function\":[]}]", "tools[0].function",
          "invalid_type" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{}}]", "tools[0].function.name",
          "missing_required_parameter" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":1}}]",
          "tools[0].function.name", "invalid_type" },
        { "\"tools\":[" TOOL("") "]", "tools[0].function.name", "invalid_value" },
        { "\"tools\":[" TOOL("a b") "]", "tools[0].function.name", "invalid_value" },
        { "\"tools\":[" TOOL("a\\u0000") "]", "tools[0].function.name", "invalid_value" },
        { "\"tools\":[" TOOL("\u00e9") "]", "tools[0].function.name", "invalid_value" },
        { "\"tools\":[" TOOL("a123456789b123456789c123456789d123456789e123456789f123456789g1234")
          "]", "tools[0].function.name", "invalid_value" },
        { "\"tools\":[" TOOL("b") "," TOOL("a") "," TOOL("c") "," TOOL("a") "," TOOL("b") "]",
          "tools[3].function.name", "invalid_value" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":[]}}]",
          "tools[0].function.parameters", "invalid_type" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"description\":1}}]",
          "tools[0].function.description", "invalid_type" },
        { "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"strict\":\"no\"}}]",
          "tools[0].function.strict", "invalid_type" },
        { "\"tool_choice\":\"required\"", "tool_choice", "invalid_value" },
        { "\"tool_choice\":" TOOL("a"), "tool_choice", "invalid_value" },
        { TWO ",\"tool_choice\":\"any\"", "tool_choice", "invalid_value" },
        { TWO ",\"tool_choice\":7", "tool_choice", "invalid_type" },
        { TWO ",\"tool_choice\":{\"type\":\"custom\"}", "tool_choice.type", "invalid_value" },
        { TWO ",\"tool_choice\":{\"type\":\"function\"}", "tool_choice.function",
          "missing_required_parameter" },
        { TWO ",\"tool_choice\":{\"function\":{}}", "tool_choice.function.name",
          "missing_required_parameter" },
        { TWO ",\"tool_choice\":" TOOL("gone"), "tool_choice.function.name", "invalid_value" },
        { TWO ",\"tool_choice\":{\"type\":\"allowed_tools\"}", "tool_choice.allowed_tools",
          "missing_required_parameter" },
        { TWO ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"none\","
              "\"tools\":[]}}", "tool_choice.allowed_tools.mode", "invalid_value" },
        { TWO ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\","
              "\"tools\":[]}}", "tool_choice.allowed_tools.tools", "empty_array" },
        { TWO ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\","
              "\"tools\":[" TOOL("go") "," TOOL("x") "]}}",
          "tool_choice.allowed_tools.tools[1].function.name", "invalid_value" },
        { "\"parallel_tool_calls\":\"yes\"", "parallel_tool_calls", "invalid_type" },
        { "\"functions\":[{}]", "functions[0].name", "missing_required_parameter" },
        { "\"functions\":[{\"name\":\"a\"},{\"name\":\"a\"}]", "functions[1].name",
          "invalid_value" },
        { "\"functions\":[{\"name\":\"a\"}],\"function_call\":\"required\"", "function_call",
          "invalid_value" },
        { "\"functions\":[{\"name\":\"a\"}],\"function_call\":{\"name\":\"b\"}",
          "function_call.name", "invalid_value" },
        { "\"function_call\":{\"name\":\"b\"}", "function_call", "invalid_value" },
        { "\"functions\":[{\"name\":\"a\"}]," TWO, "functions", "invalid_value" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct quota quota = { .cap = 1 << 20 };
        struct openai_request r;
        struct api_error e;
        if (read_body(&r, cases[i].fields, &quota, &e) == 0)
            fail_msg("%s: was read", cases[i].fields);
        if (strcmp(e.param, cases[i].param) != 0 || strcmp(e.code, cases[i].code) != 0)
            fail_msg("%s: %s of %s: %s", cases[i].fields, e.code, e.param, e.message);
        assert_int_equal(e.status, 400);
        assert_int_equal(quota.used, 0);
    }
}

/* ---- schemas ---- */

enum { S = REPLY_MAY_STRING, I = REPLY_MAY_INTEGER, N = REPLY_MAY_NUMBER, B = REPLY_MAY_BOOLEAN,
       Z = REPLY_MAY_NULL, O = REPLY_MAY_OBJECT, A = REPLY_MAY_ARRAY };

static void schemas_say_what_a_value_may_be(void **state)
{
    static const struct {
        const char *schema;
        unsigned want;
    } cases[] = {
        { "{\"type\":\"string\"}", S },
        { "{\"type\":\"integer\"}", I },
        { "{\"type\":\"number\"}", N },
        { "{\"type\":\"boolean\"}", B },
        { "{\"type\":\"object\"}", O },
        { "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}", A },
        { "{\"type\":[\"integer\",\"null\"]}", I | Z },
        { "{\"type\":[\"string\",\"null\"]}", S | Z },
        { "{\"type\":\"integer\",\"nullable\":true}", I | Z },
        { "{\"enum\":[\"C\",\"F\"]}", S },
        { "{\"enum\":[1,2.5,null]}", I | N | Z },
        { "{\"const\":true}", B },
        { "{\"const\":null}", Z },
        { "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", I | Z },
        { "{\"oneOf\":[{\"const\":5},{\"$ref\":\"#/$defs/room\"}]}", I | O },
        { "{\"allOf\":[{\"description\":\"d\"},{\"$ref\":\"#/$defs/level\"}]}", I },
        { "{\"$ref\":\"#/$defs/level\"}", I },
        { "{\"$ref\":\"#/$defs/a~1b~0c\"}", B },
        { "{\"$ref\":\"#/$defs/list/1\"}", N },
        { "{\"properties\":{}}", O },
        { "{\"items\":{}}", A },
        /* What says nothing, or what we cannot follow, is a string. */
        { "{}", S },
        { "true", S },
        { "[]", S },
        { "{\"type\":\"strange\"}", S },
        { "{\"anyOf\":[{\"type\":\"integer\"},{}]}", S },
        { "{\"$ref\":\"#/$defs/self\"}", S },
        { "{\"$ref\":\"#/$defs/gone\"}", S },
        { "{\"$ref\":\"https://example.org/schema\"}", S },
        { "{\"$ref\":5}", S },
    };
    json_t *root = json_loads("{\"$defs\":{\"level\":{\"type\":\"integer\"},\"room\":{\"type\":"
                              "\"object\"},\"a/b~c\":{\"type\":\"boolean\"},\"list\":[{},{\"type\":"
                              "\"number\"}],\"self\":{\"$ref\":\"#/$defs/self\"}}}", 0, NULL);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t steps = 1000;
        json_t *schema = json_loads(cases[i].schema, JSON_DECODE_ANY, NULL);
        unsigned got = openai_schema_types(schema, root, &steps);
        if (got != cases[i].want)
            fail_msg("%s: %#x", cases[i].schema, got);
        json_decref(schema);
    }
    json_decref(root);
}

/* 2^30 ways through it. */
static void a_schema_that_branches_without_end_costs_little(void **state)
{
    struct buf text;
    uint32_t steps = 10000;

    (void)state;
    buf_init(&text, NULL);
    buf_text(&text, "{\"$defs\":{\"d30\":{\"type\":\"integer\"}");
    for (int i = 0; i < 30; i++)
        buf_printf(&text, ",\"d%d\":{\"allOf\":[{},{\"anyOf\":[{\"$ref\":\"#/$defs/d%d\"},"
                          "{\"$ref\":\"#/$defs/d%d\"}]}]}", i, i + 1, i + 1);
    buf_text(&text, "}}");
    json_t *root = json_loadb(text.data, text.size, 0, NULL);
    assert_non_null(root);
    assert_int_equal(openai_schema_types(json_object_get(json_object_get(root, "$defs"), "d0"),
                                         root, &steps), S);
    json_decref(root);
    buf_done(&text);
}

static void the_table_outlives_the_json(void **state)
{
    struct quota quota = { .cap = 1 << 20 };
    struct openai_request r;
    struct api_error e;

    (void)state;
    assert_int_equal(
        read_body(&r, "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"heat\","
                      "\"parameters\":{\"$ref\":\"#/$defs/Heat\",\"$defs\":{\"Heat\":{\"type\":"
                      "\"object\",\"properties\":{\"room\":{\"type\":\"string\"},\"degrees\":{"
                      "\"$ref\":\"#/$defs/Degrees\"},\"quiet\":{\"type\":\"boolean\"}},\"required\":"
                      "[\"degrees\",\"room\",5,\"else\"]},\"Degrees\":{\"type\":\"number\"}}}}},"
                      TOOL("go") "]", &quota, &e), 0);
    uint64_t before = quota.used;
    assert_int_equal(openai_in_settle(&r, &e), 0);
    assert_true(quota.used > 0 && quota.used < before);
    assert_null(r.tools);

    const struct reply_tool *t = r.offer.tools;
    assert_int_equal(r.offer.n, 2);
    assert_memory_equal(t[0].name, "heat", 4);
    assert_int_equal(t[0].n_parameters, 3);
    const struct reply_parameter *p = t[0].parameters;
    assert_true(p[0].size == 4 && memcmp(p[0].name, "room", 4) == 0);
    assert_true(p[0].types == S && p[0].required);
    assert_true(p[1].size == 7 && memcmp(p[1].name, "degrees", 7) == 0);
    assert_true(p[1].types == N && p[1].required);
    assert_true(p[2].types == B && !p[2].required);
    assert_memory_equal(t[1].name, "go", 2);
    assert_int_equal(t[1].n_parameters, 0);
    openai_in_done(&r);
    assert_int_equal(quota.used, 0);
}

static void tools_that_cannot_be_paid_for_are_refused(void **state)
{
    struct buf fields;

    (void)state;
    buf_init(&fields, NULL);
    buf_text(&fields, "\"functions\":[");
    for (int i = 0; i < 200; i++)
        buf_printf(&fields, "%s{\"name\":\"f%d\",\"parameters\":{\"properties\":{\"x\":{}}}}",
                   i ? "," : "", i);
    buf_put(&fields, "]", 2);
    bool read = false;
    for (uint64_t cap = 100000; !read; cap += 5000) {
        struct quota quota = { .cap = cap };
        struct openai_request r;
        struct api_error e;
        read = read_body(&r, fields.data, &quota, &e) == 0;
        if (read)
            openai_in_done(&r);
        else
            assert_true(e.status == 413 || e.status == 503);
        assert_int_equal(quota.used, 0);
        assert_true(cap < 1000000);
    }
    buf_done(&fields);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_offered_is_kept_as_it_came),
        cmocka_unit_test(nothing_is_offered_by_an_empty_list),
        cmocka_unit_test(choices_are_understood),
        cmocka_unit_test(a_required_call_of_the_only_tool_is_one_by_name),
        cmocka_unit_test(only_allowed_tools_are_offered),
        cmocka_unit_test(functions_are_tools_of_an_older_name),
        cmocka_unit_test(what_is_ignored_of_tools_is_said_once),
        cmocka_unit_test(refusals_name_the_very_place),
        cmocka_unit_test(schemas_say_what_a_value_may_be),
        cmocka_unit_test(a_schema_that_branches_without_end_costs_little),
        cmocka_unit_test(the_table_outlives_the_json),
        cmocka_unit_test(tools_that_cannot_be_paid_for_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
