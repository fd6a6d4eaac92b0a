/* Long answers: files written through a call, answers cut anywhere, what is held back, and time. */
#include "tests/unit/reply_fixture.h"
#include "tests/unit/text_data.h"

#include <unistd.h>

static const struct reply_parameter write_parameters[] = {
    { "path", 4, REPLY_MAY_STRING, true },
    { "content", 7, REPLY_MAY_STRING, true },
    { "list", 4, REPLY_MAY_ARRAY, false },
};
static const struct reply_tool tools[] = { { "write", 5, write_parameters, 3 } };

static struct reply_options offered(enum reply_style style)
{
    struct reply_options o = reply_defaults(style);

    o.tools = tools;
    o.n_tools = 1;
    return o;
}

/* About 50 kB of what a model writes about tool calls. */
static struct bytes make_file(void)
{
    static const char *const lines[] = {
        "A parameter ends with </parameter> and a function with </function>.\n",
        "  <parameter name=\"x\">\n  </parameter> and </function>x\n",
        "</function>\n\n",
        "The mark <tool_call> begins one; <parameter= is no tag here.\n",
        "if (a < b && c > d) \"say\" \\ 'it';\t// \xe2\x82\xac \xf0\x9f\xa6\x99\n",
        "\n\n\n",
        "</parameter>\n</parameters>\n",
        "</parameter>\n</functions> </parameter>\n</parameter>\n.\n",
        "<function=write>\n</function> again\n",
    };
    struct bytes file = { 0 };
    uint64_t seed = 7;

    while (file.size < 50000)
        run_say(&file, lines[run_random(&seed) % 9]);
    run_say(&file, "</parameter> the end</function>");
    return file;
}

static void put_file(struct script *s, const char *before, const struct bytes *file,
                     const char *behind)
{
    *s = (struct script){ 0 };
    s->piece[s->n++] = (struct piece){ CALL, strdup("<tool_call>"), 11 };
    script_text(s, before, strlen(before));
    script_text(s, file->at, file->size);
    script_text(s, behind, strlen(behind));
    s->piece[s->n++] = (struct piece){ CALL_END, strdup("</tool_call>"), 12 };
}

/* In tokens of any size the call has the file; what is held back on the way is little. */
static void gives_file(enum reply_style style, const struct script *s, const struct bytes *file)
{
    struct reply_options o = offered(style);
    static const int hows[] = { WHOLE, BY_ONE, BY_THREE, RANDOM };
    static const char begin[] = "call write: ";

    for (size_t i = 0; i < 4; i++) {
        uint64_t memory;
        json_error_t where;
        char *got = run_script(&o, s, false, hows[i], 99, &memory);
        assert_memory_equal(got, begin, sizeof begin - 1);
        char *end = strchr(got, '\n');
        json_t *arguments = json_loadb(got + sizeof begin - 1,
                                       (size_t)(end - got) - sizeof begin + 1, 0, &where);
        if (!arguments)
            fail_msg("%s", where.text);
        json_t *content = json_object_get(arguments, "content");
        assert_string_equal(json_string_value(json_object_get(arguments, "path")), "a.md");
        assert_int_equal(json_string_length(content), file->size);
        assert_memory_equal(json_string_value(content), file->at, file->size);
        assert_string_equal(end, "\n");
        if (hows[i] != WHOLE && memory > 8192)
            fail_msg("%llu bytes held", (unsigned long long)memory);
        json_decref(arguments);
        free(got);
    }
}

static void a_file_about_tool_calls_is_written_whole(void **state)
{
    struct bytes file = make_file(), quoted = { 0 };
    struct script s;

    (void)state;
    put_file(&s,
             "\n<function=write>\n<parameter=path>\na.md\n</parameter>\n<parameter=content>\n",
             &file, "\n</parameter>\n</function>\n");
    gives_file(REPLY_XML, &s, &file);
    script_close(&s);

    json_t *string = json_stringn(file.at, file.size);
    char *text = json_dumps(string, JSON_ENCODE_ANY);
    run_say(&quoted, text);
    put_file(&s, "\n{\"name\": \"write\", \"arguments\": {\"path\": \"a.md\", \"content\": ", &quoted,
             "}}\n");
    gives_file(REPLY_JSON, &s, &file);
    script_close(&s);

    free(text);
    json_decref(string);
    bytes_done(&quoted);
    bytes_done(&file);
}

/* ---- cut anywhere ---- */

/* What of an answer is neither markup nor JSON's punctuation, nor a 0 that completes a number. */
static struct bytes substance(const char *text, size_t size)
{
    struct bytes out = { 0 };

    for (size_t i = 0; i < size; i++)
        if (strchr("QZ@%123456789", text[i]))
            run_put(&out, text + i, 1);
    run_put(&out, "", 1);
    return out;
}

/* Every beginning of the answer: all of its substance comes out, once; as long as the call is
 * known to be one, its arguments begin as those of the whole answer do. */
static void try_cuts(enum reply_style style, const char *answer, const char *arguments)
{
    struct reply_options o = offered(style);

    for (size_t size = 0; size <= strlen(answer); size++)
        for (int cut = 0; cut < 2; cut++) {
            struct script s;
            struct bytes want = substance(answer, size), got_it;
            script_open(&s, answer, size);
            char *got = run_script(&o, &s, cut, BY_THREE, 0, NULL);
            char *repairs = strstr(got, "repairs: ");
            if (repairs)
                *repairs = 0;
            got_it = substance(got, strlen(got));
            if (strcmp(got_it.at, want.at) != 0)
                fail_msg("cut at %zu: '%s' of '%s' in\n%s", size, got_it.at, want.at, got);
            assert_int_equal(strncmp(got, "content: Q1.", 12) != 0, size < 3);
            char *call = strstr(got, "call write: ");
            if (call && !cut) {
                json_error_t where;
                json_t *json = json_loads(call + 12, 0, &where);
                if (!json)
                    fail_msg("cut at %zu: %s in %s", size, where.text, call);
                json_decref(json);
            }
            if (call && cut) {
                size_t n = strcspn(call + 12, "\n");
                size_t same = 0;
                while (same < n && call[12 + same] == arguments[same])
                    same++;
                /* Beyond that there is at most a tag that might have been text. */
                if (same < n && n - same > 16)
                    fail_msg("cut at %zu: %s", size, call);
            }
            free(got);
            bytes_done(&want);
            bytes_done(&got_it);
            script_close(&s);
        }
}

static void an_answer_cut_anywhere_loses_nothing(void **state)
{
    (void)state;
    try_cuts(REPLY_XML,
             "Q1.\n\n<tool_call>\n<function=write>\n<parameter=path>\nZ2/3.md\n</parameter>\n"
             "<parameter=content>\n@4\n</parameter> 5\n\n%6\n</parameter>\n<parameter=list>\n"
             "[\"Q7\", 8]\n</parameter>\n</function>\n</tool_call>",
             "{\"path\": \"Z2/3.md\", \"content\": \"@4\\n</parameter> 5\\n\\n%6\", "
             "\"list\": [\"Q7\", 8]}");
    try_cuts(REPLY_JSON,
             "Q1.\n<tool_call>\n{\"name\": \"write\", \"arguments\": {\"path\": \"Z2/3.md\", "
             "\"content\": \"@4\\n\\u0025 5\\\\\", \"list\": [\"Q7\", 8, true, null, -9.5e1]}}\n"
             "</tool_call>",
             "{\"path\": \"Z2/3.md\", \"content\": \"@4\\n\\u0025 5\\\\\", "
             "\"list\": [\"Q7\", 8, true, null, -9.5e1]}");
}

/* ---- memory and time ---- */

static void what_must_be_held_back_is_what_is_held(void **state)
{
    enum { SIZE = 200000 };
    static const char opening[] = "\n<function=write>\n<parameter=list>\n[";
    struct reply_options o = offered(REPLY_XML);
    struct reply_run run;

    (void)state;
    run_open(&run, &o);
    run_token(&run, CALL, "<tool_call>", 11);
    run_token(&run, TEXT, opening, sizeof opening - 1);
    for (size_t i = 0; i < SIZE / 4; i++)
        run_token(&run, TEXT, "123,", 4);
    assert_in_range(run.most_memory, SIZE, 3 * SIZE);
    run_token(&run, TEXT, "4]\n</parameter>\n</function>", 27);
    run_token(&run, CALL_END, "</tool_call>", 12);
    assert_in_range(reply_memory(run.reply), 1, 3 * SIZE);
    run_token(&run, TEXT, "\n", 1);
    assert_in_range(reply_memory(run.reply), 1, 8192);
    free(run_done(&run, false));

    o.style = REPLY_JSON;
    run_open(&run, &o);
    run_token(&run, CALL, "<tool_call>", 11);
    run_token(&run, TEXT, "{\"arguments\": {\"a\": \"", 21);
    for (size_t i = 0; i < SIZE / 4; i++)
        run_token(&run, TEXT, "1234", 4);
    assert_in_range(run.most_memory, SIZE, 3 * SIZE);
    run_token(&run, TEXT, "\"}, \"name\": \"write\"}", 20);
    run_token(&run, CALL_END, "</tool_call>", 12);
    run_token(&run, TEXT, "\n", 1);
    assert_in_range(reply_memory(run.reply), 1, 8192);
    free(run_done(&run, false));
}

/* What makes the parser hold back, turn back or look up, again and again. */
static void nothing_that_is_repeated_costs_more_than_its_length(void **state)
{
    static const struct {
        enum reply_style style;
        bool in_call;
        const char *begin, *again;
        bool other_keys; /* a number follows, another one each time */
    } hard[] = {
        { REPLY_XML, false, "", "\n<function=writ", false },
        { REPLY_XML, false, "", "\n<function=write ", false },
        { REPLY_XML, false, "", "\n", false },
        { REPLY_XML, true, "\n<function=write>\n<parameter=path>\n", "\n</parameter>", false },
        { REPLY_XML, true, "\n<function=write>\n<parameter=path>\n", "</parameter>x", false },
        { REPLY_XML, true, "\n<function=write>\n<parameter=path>\n", "\n</function>\n", false },
        { REPLY_XML, true, "\n<function=write>\n<parameter=path>\n", "\n<parameter=", false },
        { REPLY_XML, true, "\n<function=write>\n<parameter=path>\n", "\n<parameter=path>", false },
        { REPLY_XML, true, "\n<function=write>", "\n<parameter=", true },
        { REPLY_XML, true, "\n<function=write>\n<parameter=list>\n", "[{'", false },
        { REPLY_XML, true, "\n<function=write>\n", "x <parameter=\n", false },
        { REPLY_JSON, true, "", "\n", false },
        { REPLY_JSON, true, "{\"name\": \"write\", \"arguments\": ", "[", false },
        { REPLY_JSON, true, "{\"name\": \"write\", \"arguments\": {\"a\": x", "[{]}", false },
        { REPLY_JSON, true, "{\"name\": \"write\", \"arguments\": [1", ",      ", false },
        { REPLY_JSON, true, "{", "\"a\": 1, ", false },
        { REPLY_JSON, true, "{\"name\": \"", "\\ud83d", false },
        { REPLY_JSON, true, "{\"name\": \"write\"}", "\n{\"name\": \"write\"}", false },
    };
    enum { SIZE = 1 << 17 };

    (void)state;
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++) {
        struct reply_options o = offered(hard[i].style);
        clock_t begin = clock();
        struct reply_run run;
        bool over = false;

        run_open(&run, &o);
        if (hard[i].in_call)
            run_token(&run, CALL, "<tool_call>", 11);
        run_token(&run, TEXT, hard[i].begin, strlen(hard[i].begin));
        for (size_t size = 0; size < SIZE && !over; size += strlen(hard[i].again)) {
            char number[16];
            over = run_token(&run, TEXT, hard[i].again, strlen(hard[i].again));
            if (hard[i].other_keys && !over)
                over = run_token(&run, TEXT, number, (size_t)sprintf(number, "%zu>", size));
        }
        free(run_done(&run, false));
        double took = (double)(clock() - begin) / CLOCKS_PER_SEC;
        if (took > 0.1)
            print_message("'%s' '%s': %.3f s\n", hard[i].begin, hard[i].again, took);
        assert_true(took < 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_about_tool_calls_is_written_whole),
        cmocka_unit_test(an_answer_cut_anywhere_loses_nothing),
        cmocka_unit_test(what_must_be_held_back_is_what_is_held),
        cmocka_unit_test(nothing_that_is_repeated_costs_more_than_its_length),
    };

    alarm(120);
    return cmocka_run_group_tests_name("reply_long", tests, NULL, NULL);
}
