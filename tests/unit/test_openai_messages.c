/* Messages of a request: whose they are, and results in the order of the calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/conf/conf.h"
#include "daemon/openai/json_body.h"
#include "daemon/openai/openai_in.h"
#include "daemon/wire/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char house[] = "house";
static const struct conf conf = { .model_name = house };
static const struct wire_hello hello = { .vocab = 1000, .context = 4096,
                                         .defaults = { .repetition_penalty = 1 } };

static int read_with(struct openai_request *r, const char *text, struct quota *quota,
                     struct api_error *e)
{
    const struct openai_rules rules = { .conf = &conf, .hello = &hello, .quota = quota };
    struct buf body;

    buf_init(&body, quota);
    buf_text(&body, text);
    int rc = body.failed ? api_error_set(e, 503, "server_overloaded", NULL, "full")
                         : openai_in_read(r, OPENAI_CHAT, &body, &rules, e);
    buf_done(&body);
    return rc;
}

static struct openai_request must_read(const char *text, struct quota *quota)
{
    struct openai_request r;
    struct api_error e;

    if (read_with(&r, text, quota, &e) < 0)
        fail_msg("%s: %s", text, e.message);
    return r;
}

#define ASK "{\"role\":\"user\",\"content\":\"q\"}"
#define CALLS(ids) "{\"role\":\"assistant\",\"tool_calls\":[" ids "]}"
#define CALL(id) "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"f\"}}"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define CHAT(messages) "{\"messages\":[" messages "]}"

static void results_go_to_the_order_of_their_calls(void **state)
{
    static const struct {
        const char *text, *order;
        bool mended;
    } cases[] = {
        { CHAT(ASK "," CALLS(CALL("a") "," CALL("b") "," CALL("c")) "," RESULT("c", "3") ","
               RESULT("a", "1") "," RESULT("b", "2")), "123", false },
        /* One that answers nothing keeps its place. */
        { CHAT(ASK "," CALLS(CALL("a") "," CALL("b")) "," RESULT("b", "2") "," RESULT("x", "?")
               "," RESULT("a", "1")), "1?2", true },
        /* Two for one call stay as they came; a call without any is no fault. */
        { CHAT(ASK "," CALLS(CALL("a") "," CALL("b")) "," RESULT("b", "2") "," RESULT("b", "3")),
          "23", false },
        /* Each run by the calls before it. */
        { CHAT(ASK "," CALLS(CALL("a") "," CALL("b")) "," RESULT("b", "2") "," RESULT("a", "1")
               "," CALLS(CALL("c") "," CALL("a")) "," RESULT("a", "4") "," RESULT("c", "3")),
          "1234", false },
        /* The legacy role names no call. */
        { CHAT(ASK ",{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\","
               "\"arguments\":\"{}\"}},{\"role\":\"function\",\"name\":\"f\",\"content\":\"1\"}"),
          "1", false },
        { CHAT(ASK "," CALLS(CALL("a") "," CALL("b")) "," RESULT("b", "2") "," ASK ","
               RESULT("a", "1")), "21", false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct quota quota = { .cap = 1 << 20 };
        struct openai_request r = must_read(cases[i].text, &quota);
        char order[16] = "";
        for (size_t k = 0; k < r.chat.n_messages; k++)
            if (r.messages[k].role == CHAT_TOOL)
                strncat(order, r.messages[k].text, r.messages[k].size);
        assert_string_equal(order, cases[i].order);
        assert_int_equal((r.mended & OPENAI_MENDED_RESULTS) != 0, cases[i].mended);
        openai_in_done(&r);
        assert_int_equal(quota.used, 0);
    }
}

static void a_result_before_any_call_is_refused_by_its_place(void **state)
{
    struct openai_request r;
    struct api_error e;

    (void)state;
    assert_int_equal(read_with(&r, CHAT(ASK "," RESULT("a", "1") "," CALLS(CALL("a"))), NULL, &e),
                     -1);
    assert_string_equal(e.code, "invalid_tool_message");
    assert_string_equal(e.param, "messages[1]");
    assert_int_equal(e.status, 400);
}

/* Cost is that of sorting, whoever repeats what. */
static void many_calls_and_results_are_ordered_at_once(void **state)
{
    enum { N = 20000 };
    struct buf body;
    struct quota quota = { .cap = 256 << 20 };
    char *text;

    (void)state;
    alarm(60);
    buf_init(&body, NULL);
    buf_text(&body, "{\"messages\":[" ASK ",{\"role\":\"assistant\",\"tool_calls\":[");
    for (int i = 0; i < N; i++)
        buf_printf(&body, "%s{\"id\":\"c%d\",\"function\":{\"name\":\"f\"}}", i ? "," : "", i);
    buf_text(&body, "]}");
    for (int i = N; i-- > 0;)
        buf_printf(&body, ",{\"role\":\"tool\",\"tool_call_id\":\"c%d\",\"content\":\"%d\"}", i, i);
    buf_text(&body, "]}");
    assert_false(body.failed);
    text = strndup(body.data, body.size);
    buf_done(&body);
    struct openai_request r = must_read(text, &quota);
    for (int i = 0; i < N; i++)
        assert_int_equal(strtol(r.messages[2 + i].text, NULL, 10), i);
    openai_in_done(&r);
    assert_int_equal(quota.used, 0);
    free(text);
}

/* At every size of the buffers: read, or refused with all given back. */
static void a_lack_of_buffers_is_answered_at_every_step(void **state)
{
    static const char text[] =
        CHAT(ASK ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"a\"},"
             "{\"type\":\"reasoning\",\"text\":\"b\"},{\"type\":\"text\",\"text\":\"c\"},"
             "{\"type\":\"text\",\"text\":\"d\"}],\"tool_calls\":[" CALL("a") "," CALL("b") "]},"
             RESULT("b", "2") "," RESULT("a", "1"));
    int fine = 0;

    (void)state;
    for (uint64_t cap = 256; cap < 32 << 10; cap += 97) {
        struct quota quota = { .cap = cap };
        struct openai_request r;
        struct api_error e = { 0 };
        if (read_with(&r, text, &quota, &e) == 0) {
            assert_int_equal(r.messages[1].size, 2);
            assert_memory_equal(r.messages[1].text, "cd", 2);
            assert_int_equal(r.messages[1].reasoning_size, 2);
            assert_memory_equal(r.messages[1].reasoning, "ab", 2);
            openai_in_done(&r);
            fine++;
        } else {
            assert_true(e.status == 413 || e.status == 503);
        }
        assert_int_equal(quota.used, 0);
    }
    assert_true(fine > 0);
}

static void what_was_mended_has_names(void **state)
{
    char text[OPENAI_MENDED_TEXT];

    (void)state;
    assert_string_equal(openai_mended_text(text, 0), "");
    assert_string_equal(openai_mended_text(text, OPENAI_MENDED_RESULTS), "tool_call_id");
    assert_string_equal(openai_mended_text(text, ~0u),
                        "tool_call_arguments,tool_call_id,system_message");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_go_to_the_order_of_their_calls),
        cmocka_unit_test(a_result_before_any_call_is_refused_by_its_place),
        cmocka_unit_test(many_calls_and_results_are_ordered_at_once),
        cmocka_unit_test(a_lack_of_buffers_is_answered_at_every_step),
        cmocka_unit_test(what_was_mended_has_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
