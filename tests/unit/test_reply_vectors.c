/* The assistant turns that transformers renders from conversations, fed back as if a model had
 * written them: the calls are those of the conversation. */
#include "tests/unit/reply_fixture.h"
#include "tests/unit/text_data.h"

#include <unistd.h>

enum { MOST_TOOLS = 64, MOST_PARAMETERS = 256 };

struct offer {
    struct reply_tool tools[MOST_TOOLS];
    struct reply_parameter parameters[MOST_PARAMETERS];
    size_t n_tools, n_parameters;
};

static unsigned type_bits(const json_t *type)
{
    static const char *const names[] = { "string", "integer", "number", "boolean",
                                         "null",   "object",  "array" };
    unsigned bits = 0;
    json_t *one;
    size_t i;

    if (json_is_array(type)) {
        json_array_foreach(type, i, one) bits |= type_bits(one);
        return bits;
    }
    for (i = 0; i < 7 && json_is_string(type); i++)
        if (strcmp(json_string_value(type), names[i]) == 0)
            bits |= 1u << i;
    return bits;
}

static void read_tools(struct offer *offer, const json_t *list)
{
    json_t *tool, *schema;
    const char *key;
    size_t i;

    *offer = (struct offer){ 0 };
    json_array_foreach(list, i, tool)
    {
        json_t *function = json_object_get(tool, "function");
        json_t *f = function ? function : tool;
        const char *name = json_string_value(json_object_get(f, "name"));
        if (!name)
            continue;
        assert_true(offer->n_tools < MOST_TOOLS);
        struct reply_tool *t = &offer->tools[offer->n_tools++];
        *t = (struct reply_tool){ .name = name,
                                  .size = strlen(name),
                                  .parameters = offer->parameters + offer->n_parameters };
        json_t *properties = json_object_get(json_object_get(f, "parameters"), "properties");
        json_object_foreach(properties, key, schema)
        {
            assert_true(offer->n_parameters < MOST_PARAMETERS);
            offer->parameters[offer->n_parameters++] = (struct reply_parameter){
                .name = key,
                .size = strlen(key),
                .types = type_bits(json_object_get(schema, "type")),
            };
            t->n_parameters++;
        }
    }
}

/* The lines that the calls of a message are to give; the caller frees. */
static char *calls_wanted(const json_t *calls)
{
    struct bytes want = { 0 };
    json_t *call;
    size_t i;

    json_array_foreach(calls, i, call)
    {
        json_t *function = json_object_get(call, "function");
        json_t *f = function ? function : call;
        json_t *arguments = json_object_get(f, "arguments");
        char *text = json_is_string(arguments) ? strdup(json_string_value(arguments))
                                               : json_dumps(arguments, JSON_ENCODE_ANY);
        run_say(&want, "call ");
        run_say(&want, json_string_value(json_object_get(f, "name")));
        run_say(&want, ": ");
        run_say(&want, *text ? text : "{}");
        run_say(&want, "\n");
        free(text);
    }
    run_put(&want, "", 1);
    return want.at;
}

/* What conversations hold that is none of the model's faults: a name that is not offered, arguments
 * left empty by the client; and the first template of Qwen3-Coder writes lists as Python does. */
static bool is_expected(const char *repairs)
{
    return *repairs == 0 || strcmp(repairs, "repairs: name_undeclared=1\n") == 0 ||
           strcmp(repairs, "repairs: name_undeclared=2\n") == 0 ||
           strcmp(repairs, "repairs: json_mended=1\n") == 0;
}

/* One turn; its lines of calls must be those. */
static void try_turn(const struct offer *offer, enum reply_style style, const char *turn,
                     size_t size, const json_t *message, const char *where)
{
    struct reply_options o = reply_defaults(style);

    o.tools = offer->tools;
    o.n_tools = offer->n_tools;
    char *want = calls_wanted(json_object_get(message, "tool_calls"));
    char *got = run_every_way(&o, turn, size, false);
    const char *calls = strncmp(got, "call ", 5) == 0 ? got : strstr(got, "\ncall ");
    if (!calls)
        fail_msg("%s: no call in:\n%.*s", where, (int)size, turn);
    calls += *calls == '\n';
    if (strncmp(calls, want, strlen(want)) != 0)
        fail_msg("%s:\n%sinstead of\n%s", where, calls, want);
    const char *behind = calls + strlen(want);
    if (!is_expected(behind))
        fail_msg("%s: %s", where, behind);

    const char *content = json_string_value(json_object_get(message, "content"));
    if (content && *content && !strstr(content, "</think>")) {
        while (*content == ' ' || *content == '\n')
            content++;
        size_t n = strlen(content);
        while (n && (content[n - 1] == ' ' || content[n - 1] == '\n'))
            n--;
        char *line = strstr(got, "content: ");
        if (n && (!line || !memmem(line, strlen(line), content, n)))
            fail_msg("%s: '%s' is missing in:\n%s", where, content, got);
    }
    free(want);
    free(got);
}

/* The turns of assistants in the rendered text belong to the messages of assistants, in order. */
static int try_record(const json_t *record, enum reply_style style)
{
    static const char open[] = "<|im_start|>assistant\n", close[] = "<|im_end|>";
    const char *at = json_string_value(json_object_get(record, "rendered"));
    const char *where = json_string_value(json_object_get(record, "name"));
    json_t *message;
    struct offer offer;
    size_t i;
    int n = 0;

    if (!at)
        return 0;
    read_tools(&offer, json_object_get(record, "tools"));
    json_array_foreach(json_object_get(record, "messages"), i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!role || strcmp(role, "assistant") != 0)
            continue;
        const char *begin = strstr(at, open);
        if (!begin)
            break;
        begin += sizeof open - 1;
        const char *end = strstr(begin, close);
        if (!end)
            break;
        at = end;
        if (!json_array_size(json_object_get(message, "tool_calls")))
            continue;
        try_turn(&offer, style, begin, (size_t)(end - begin), message, where);
        n++;
    }
    return n;
}

static void try_file(const char *path, enum reply_style style, int at_least)
{
    struct lines lines = lines_open(path);
    json_t *record;
    int n = 0;

    while ((record = lines_next(&lines)))
        n += try_record(record, style);
    print_message("%s: %d turns with calls\n", path, n);
    assert_true(n >= at_least);
}

static void calls_in_json_come_back(void **state)
{
    (void)state;
    try_file("tests/data/chat/qwen3-hybrid.jsonl", REPLY_JSON, 10);
    try_file("tests/data/chat/qwen3-hybrid-2025-04.jsonl", REPLY_JSON, 10);
    try_file("tests/data/chat/qwen3-instruct-2507.jsonl", REPLY_JSON, 10);
    try_file("tests/data/chat/qwen3-thinking-2507.jsonl", REPLY_JSON, 10);
}

static void calls_in_xml_come_back(void **state)
{
    (void)state;
    try_file("tests/data/chat/qwen3-coder.jsonl", REPLY_XML, 10);
    try_file("tests/data/chat/qwen3-coder-30b-a3b-2025-07.jsonl", REPLY_XML, 10);
    try_file("tests/data/chat/qwen3.8.jsonl", REPLY_XML, 10);
}

/* The tokens of the released tokenizer, of which some hold part of a character. */
static void tokens_of_the_tokenizer_give_the_same(void **state)
{
    static const char text[] =
        "<think>\nTwo \xf0\x9f\xa6\x99.\n</think>\n\nChecking \xf0\x9f\xa7\xbf.\n<tool_call>\n"
        "{\"name\": \"get\", \"arguments\": {\"a\": \"\xf0\x9f\xab\xa0 \xe7\xbf\xbb\"}}\n"
        "</tool_call>";
    struct tokenizer *t = open_tokenizer(QWEN3);
    struct reply_options o = { .style = REPLY_JSON };
    struct ids ids = encode(t, text, sizeof text - 1, true);
    struct reply_run run;
    size_t n_parts_of_characters = 0;

    (void)state;
    reply_marks_find(&o.marks, t);
    assert_int_equal(o.marks.think, 151667);
    assert_int_equal(o.marks.think_end, 151668);
    assert_int_equal(o.marks.call, 151657);
    assert_int_equal(o.marks.call_end, 151658);
    run_open(&run, &o);
    for (size_t i = 0; i < ids.n; i++) {
        size_t size;
        const char *piece = tokenizer_piece(t, ids.id[i], &size);
        n_parts_of_characters += !utf8_valid(piece, size);
        run_token(&run, ids.id[i], piece, size);
    }
    assert_true(n_parts_of_characters > 2);
    char *got = run_done(&run, false);
    assert_string_equal(got, "reasoning: Two \xf0\x9f\xa6\x99.\ncontent: Checking \xf0\x9f\xa7\xbf.\n"
                             "call get: {\"a\": \"\xf0\x9f\xab\xa0 \xe7\xbf\xbb\"}\n"
                             "repairs: name_undeclared=1\n");
    free(got);
    ids_done(&ids);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_in_json_come_back),
        cmocka_unit_test(calls_in_xml_come_back),
        cmocka_unit_test(tokens_of_the_tokenizer_give_the_same),
    };

    alarm(120);
    return cmocka_run_group_tests_name("reply_vectors", tests, NULL, NULL);
}
