/* Answers as bytes: chunks, whole replies and errors as clients know them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/base/buf.h"
#include "daemon/openai/openai_out.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "\"id\":\"chatcmpl-x\",\"object\":\"chat.completion.chunk\",\"created\":5," \
             "\"model\":\"m\\\"\",\"system_fingerprint\":\"fp_00000000ff\""

static const struct openai_reply reply = { .kind = OPENAI_CHAT, .id = "chatcmpl-x", .created = 5,
                                           .model = "m\"", .fingerprint = 0xff };
static const struct openai_usage usage = {
    .engine = { .n_prompt = 10, .n_cached = 4, .n_generated = 5, .queue_ns = 1000000,
                .prefill_ns = 6000000, .decode_ns = 10000000 },
    .n_reasoning = 3,
};

static void assert_text(struct buf *b, const char *text)
{
    assert_false(b->failed);
    if (b->size != strlen(text) || memcmp(b->data, text, b->size) != 0)
        fail_msg("%.*s\n-- instead of --\n%s", (int)b->size, b->data, text);
    buf_done(b);
}

static void chunks_are_byte_for_byte_what_clients_know(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, NULL);
    openai_out_role(&b, &reply, 0);
    assert_text(&b, "data: {" HEAD ",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
                    "\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
    openai_out_delta(&b, &reply, 0, "a\n", 2, NULL);
    assert_text(&b, "data: {" HEAD ",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\\n\"},"
                    "\"logprobs\":null,\"finish_reason\":null}]}\n\n");
    openai_out_noop(&b, &reply, 0, NULL);
    assert_text(&b, "data: {" HEAD ",\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,"
                    "\"finish_reason\":null}]}\n\n");
    openai_out_finish(&b, &reply, 0, "length", NULL, NULL);
    assert_text(&b, "data: {" HEAD ",\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,"
                    "\"finish_reason\":\"length\"}]}\n\n");
    openai_out_done(&b);
    assert_text(&b, "data: [DONE]\n\n");
}

static void chunks_of_completions_carry_text(void **state)
{
    struct openai_reply r = { .kind = OPENAI_COMPLETION, .id = "cmpl-x", .created = 5, .model = "m",
                              .include_usage = true };
    struct buf b;

    (void)state;
    buf_init(&b, NULL);
    openai_out_delta(&b, &r, 3, "a", 1, NULL);
    assert_text(&b, "data: {\"id\":\"cmpl-x\",\"object\":\"text_completion\",\"created\":5,"
                    "\"model\":\"m\",\"system_fingerprint\":\"fp_0000000000\",\"choices\":[{"
                    "\"index\":3,\"text\":\"a\",\"logprobs\":null,\"finish_reason\":null}],"
                    "\"usage\":null}\n\n");
    openai_out_noop(&b, &r, 3, NULL);
    assert_non_null(memmem(b.data, b.size, "\"text\":\"\"", 9));
    buf_done(&b);
}

static void usage_and_timings_add_up(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, NULL);
    openai_out_usage(&b, &reply, &usage);
    json_t *root = json_loadb(b.data + 6, b.size - 6, 0, NULL);
    json_int_t prompt, cached, completion, total, cache_n, prompt_n, predicted_n;
    double prompt_ms, per_token, per_second;
    assert_int_equal(json_unpack(root,
                                 "{s:[], s:{s:I, s:I, s:I, s:{s:I}},"
                                 " s:{s:I, s:I, s:I, s:F, s:F, s:F}}",
                                 "choices", "usage", "prompt_tokens", &prompt, "completion_tokens",
                                 &completion, "total_tokens", &total, "prompt_tokens_details",
                                 "cached_tokens", &cached, "timings", "cache_n", &cache_n,
                                 "prompt_n", &prompt_n, "predicted_n", &predicted_n, "prompt_ms",
                                 &prompt_ms, "prompt_per_token_ms", &per_token,
                                 "predicted_per_second", &per_second), 0);
    assert_int_equal(prompt, 10);
    assert_int_equal(completion, 5);
    assert_int_equal(total, 15);
    assert_int_equal(cached, 4);
    assert_int_equal(cache_n + prompt_n, prompt);
    assert_int_equal(predicted_n, 5);
    assert_true(prompt_ms == 6 && per_token == 1 && per_second == 500);
    json_decref(root);
    buf_done(&b);
}

static void progress_foresees_the_rest(void **state)
{
    struct openai_progress p = { .total = 100, .cached = 20, .processed = 60, .time_ms = 4000 };
    struct buf b;

    (void)state;
    buf_init(&b, NULL);
    openai_out_noop(&b, &reply, 0, &p);
    const char *want = ",\"prompt_progress\":{\"total\":100,\"cache\":20,\"processed\":60,"
                       "\"time_ms\":4000,\"eta_ms\":4000}}\n\n";
    assert_memory_equal(b.data + b.size - strlen(want), want, strlen(want));
    buf_done(&b);
}

static void a_whole_reply_is_one_object(void **state)
{
    struct openai_choice choice;
    struct buf b;

    (void)state;
    buf_init(&b, NULL);
    openai_choice_open(&choice, OPENAI_CHAT, NULL);
    choice.finish = "stop";
    openai_out_reply(&b, &reply, &choice, 1, &usage); /* no text at all */
    json_t *root = json_loadb(b.data, b.size, 0, NULL);
    const char *object, *role, *content, *finish;
    assert_int_equal(json_unpack(root, "{s:s, s:[{s:{s:s, s:s, s:n}, s:n, s:s}]}",
                                 "object", &object,
                                 "choices", "message", "role", &role, "content", &content,
                                 "refusal", "logprobs", "finish_reason", &finish), 0);
    assert_string_equal(object, "chat.completion");
    assert_string_equal(role, "assistant");
    assert_string_equal(content, "");
    assert_string_equal(finish, "stop");
    json_decref(root);
    buf_done(&b);
}

static void deltas_of_calls_name_them_once(void **state)
{
    const struct openai_reply legacy = { .kind = OPENAI_CHAT, .id = "chatcmpl-x", .created = 5,
                                         .model = "m\"", .fingerprint = 0xff,
                                         .legacy_call = true };
    struct buf b;

    (void)state;
    buf_init(&b, NULL);
    openai_out_reasoning(&b, &reply, 1, "so", 2);
    assert_text(&b, "data: {" HEAD ",\"choices\":[{\"index\":1,\"delta\":{\"reasoning_content\":"
                    "\"so\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
    openai_out_call(&b, &reply, 0, 2, "call_a", "f\"", 2);
    assert_text(&b, "data: {" HEAD ",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{"
                    "\"index\":2,\"id\":\"call_a\",\"type\":\"function\",\"function\":{\"name\":"
                    "\"f\\\"\",\"arguments\":\"\"}}]},\"logprobs\":null,\"finish_reason\":null}]}"
                    "\n\n");
    openai_out_arguments(&b, &reply, 0, 2, "{\"", 2);
    assert_text(&b, "data: {" HEAD ",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{"
                    "\"index\":2,\"function\":{\"arguments\":\"{\\\"\"}}]},\"logprobs\":null,"
                    "\"finish_reason\":null}]}\n\n");
    openai_out_call(&b, &legacy, 0, 0, "call_a", "f", 1);
    assert_text(&b, "data: {" HEAD ",\"choices\":[{\"index\":0,\"delta\":{\"function_call\":{"
                    "\"name\":\"f\",\"arguments\":\"\"}},\"logprobs\":null,\"finish_reason\":"
                    "null}]}\n\n");
    openai_out_arguments(&b, &legacy, 0, 0, "{}", 2);
    assert_text(&b, "data: {" HEAD ",\"choices\":[{\"index\":0,\"delta\":{\"function_call\":{"
                    "\"arguments\":\"{}\"}},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

/* The message of a whole reply, as text; the caller frees. */
static char *message_of(const struct openai_reply *r, struct openai_choice *c)
{
    struct buf b;

    buf_init(&b, NULL);
    c->finish = "tool_calls";
    openai_out_reply(&b, r, c, 1, &usage);
    json_t *root = json_loadb(b.data, b.size, 0, NULL);
    assert_non_null(root);
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    char *text = json_dumps(json_object_get(choice, "message"), JSON_COMPACT);
    json_decref(root);
    buf_done(&b);
    return text;
}

static void a_whole_message_holds_what_there_was(void **state)
{
    struct openai_reply legacy = reply;
    struct openai_choice c;

    (void)state;
    legacy.legacy_call = true;
    openai_choice_open(&c, OPENAI_CHAT, NULL);
    buf_text(&c.reasoning, "hm");
    openai_choice_call(&c, &reply, "call_1", "f", 1);
    openai_choice_arguments(&c, "{\"a\":", 5);
    openai_choice_arguments(&c, " 1}", 3);
    openai_choice_call_end(&c, &reply);
    openai_choice_call(&c, &reply, "call_2", "g", 1);
    openai_choice_call_end(&c, &reply);
    char *text = message_of(&reply, &c);
    assert_string_equal(text, "{\"role\":\"assistant\",\"content\":null,\"refusal\":null,"
                              "\"annotations\":[],\"reasoning_content\":\"hm\",\"tool_calls\":[{"
                              "\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":"
                              "\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}},{\"id\":\"call_2\","
                              "\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":"
                              "\"\"}}]}");
    free(text);
    openai_choice_done(&c);

    openai_choice_open(&c, OPENAI_CHAT, NULL);
    buf_text(&c.text, "t");
    openai_choice_call(&c, &legacy, "call_1", "f", 1);
    openai_choice_arguments(&c, "{}", 2);
    openai_choice_call_end(&c, &legacy);
    text = message_of(&legacy, &c);
    assert_string_equal(text, "{\"role\":\"assistant\",\"content\":\"t\",\"refusal\":null,"
                              "\"annotations\":[],\"function_call\":{\"name\":\"f\","
                              "\"arguments\":\"{}\"}}");
    free(text);
    openai_choice_done(&c);
}

static void say(struct openai_logprobs_held *h, const char *text)
{
    const struct openai_logprob token = { text, strlen(text), -0.5, false };
    const struct openai_logprob top[] = { { text, strlen(text), -0.5, false },
                                          { "\xc3", 1, -(double)INFINITY, false } };

    openai_logprobs_add(h, &token, top, 2);
}

static void log_probabilities_of_a_chat_wait_for_their_text(void **state)
{
    struct openai_logprobs_held h;
    struct openai_logprobs l;
    struct buf b;

    (void)state;
    buf_init(&b, NULL);
    openai_logprobs_open(&l, false, NULL);
    openai_logprobs_hold(&h, false, NULL);
    openai_logprobs_put(&b, &l);
    assert_text(&b, "{\"content\":[],\"refusal\":null}");
    say(&h, "ab");
    say(&h, "c");
    say(&h, "d");
    openai_logprobs_tell(&l, &h, 1); /* of "ab" */
    assert_int_equal(l.n, 1);
    openai_logprobs_tell(&l, &h, 1);
    assert_int_equal(l.n, 1);
    openai_logprobs_tell(&l, &h, 1);
    assert_int_equal(l.n, 2);
    openai_logprobs_clear(&l);
    openai_logprobs_tell_all(&l, &h);
    openai_logprobs_put(&b, &l);
    assert_text(&b, "{\"content\":[{\"token\":\"d\",\"bytes\":[100],\"logprob\":-0.5,"
                    "\"top_logprobs\":[{\"token\":\"d\",\"bytes\":[100],\"logprob\":-0.5},{"
                    "\"token\":\"\xef\xbf\xbd\",\"bytes\":[195],\"logprob\":-9999}]}],"
                    "\"refusal\":null}");
    say(&h, "e");
    openai_logprobs_drop(&h);
    openai_logprobs_clear(&l);
    openai_logprobs_tell_all(&l, &h);
    assert_int_equal(l.n, 0);
    openai_logprobs_done(&l);
    openai_logprobs_let_go(&h);
}

static void log_probabilities_of_a_completion_know_their_places(void **state)
{
    struct quota quota = { .cap = 100000 };
    struct openai_logprobs_held h;
    struct openai_logprobs l;
    struct buf b;

    (void)state;
    buf_init(&b, NULL);
    openai_logprobs_open(&l, true, &quota);
    openai_logprobs_hold(&h, true, &quota);
    openai_logprobs_skip(&h, "\xc3\xa9 ", 3); /* two characters, echoed */
    openai_logprobs_tell(&l, &h, 3);
    assert_int_equal(l.n, 0);
    say(&h, "a");
    say(&h, "\xc3");
    say(&h, "\xbc");
    const struct openai_logprob special = { "<x>", 3, -1, true };
    openai_logprobs_add(&h, &special, NULL, 0);
    say(&h, "b");
    openai_logprobs_tell(&l, &h, 4);
    openai_logprobs_put(&b, &l);
    assert_text(&b, "{\"tokens\":[\"a\",\"bytes:\\\\xc3\",\"bytes:\\\\xbc\",\"<x>\",\"b\"],"
                    "\"token_logprobs\":[-0.5,-0.5,-0.5,-1,-0.5],\"top_logprobs\":["
                    "{\"a\":-0.5,\"bytes:\\\\xc3\":-9999},{\"bytes:\\\\xc3\":-0.5},"
                    "{\"bytes:\\\\xbc\":-0.5,\"bytes:\\\\xc3\":-9999},{\"<x>\":-1},"
                    "{\"b\":-0.5,\"bytes:\\\\xc3\":-9999}],\"text_offset\":[2,3,3,4,4]}");
    openai_logprobs_done(&l);
    openai_logprobs_let_go(&h);
    assert_int_equal(quota.used, 0);
}

static void log_probabilities_that_cannot_be_paid_for_are_noticed(void **state)
{
    struct quota quota = { .cap = 3000 };
    struct openai_logprobs_held h;
    struct openai_logprobs l;

    (void)state;
    openai_logprobs_open(&l, false, &quota);
    openai_logprobs_hold(&h, false, &quota);
    for (int i = 0; i < 100; i++)
        say(&h, "abcdefgh");
    openai_logprobs_tell_all(&l, &h);
    assert_true(openai_logprobs_failed(&l));
    openai_logprobs_done(&l);
    openai_logprobs_let_go(&h);
    assert_int_equal(quota.used, 0);
}

static void an_error_event_is_followed_by_done(void **state)
{
    struct api_error e;
    struct buf b;

    (void)state;
    api_error_set(&e, 500, "engine_error", NULL, "broke \"%s\"", "here");
    buf_init(&b, NULL);
    openai_out_error(&b, &e);
    assert_text(&b, "data: {\"error\":{\"message\":\"broke \\\"here\\\"\",\"type\":"
                    "\"server_error\",\"param\":null,\"code\":\"engine_error\"}}\n\n"
                    "data: [DONE]\n\n");
}

static void a_context_error_carries_both_numbers(void **state)
{
    struct api_error e;
    struct buf b;

    (void)state;
    assert_int_equal(api_error_too_long(&e, 140000, false, 131072, "messages"), -1);
    assert_string_equal(e.message,
                        "This model's maximum context length is 131072 tokens. However, your "
                        "messages resulted in 140000 tokens. Please reduce the length of the "
                        "messages.");
    buf_init(&b, NULL);
    api_error_write(&b, &e);
    const char *want = ",\"code\":\"context_length_exceeded\",\"n_prompt_tokens\":140000,"
                       "\"n_ctx\":131072}}";
    assert_memory_equal(b.data + b.size - strlen(want), want, strlen(want));
    buf_done(&b);
}

static void json_strings_are_escaped_and_valid_utf8(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *json;
    } cases[] = {
        { "", 0, "\"\"" },
        { "a\"b\\c/", 6, "\"a\\\"b\\\\c/\"" },
        { "\b\t\n\v\f\r\x1f\x7f", 8, "\"\\b\\t\\n\\u000b\\f\\r\\u001f\\u007f\"" },
        { "a\0b", 3, "\"a\\u0000b\"" },
        { "\xc3\xa9\xf0\x9f\x8c\xb2", 6, "\"\xc3\xa9\xf0\x9f\x8c\xb2\"" },
        { "a\xff" "b", 3, "\"a\xef\xbf\xbd" "b\"" },
        { "\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
        { "a\xf0\x9f", 3, "\"a\xef\xbf\xbd\"" },
    };
    struct buf b;

    (void)state;
    buf_init(&b, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf_json(&b, cases[i].bytes, cases[i].size);
        assert_text(&b, cases[i].json);
    }
    buf_json(&b, NULL, 0);
    assert_text(&b, "\"\"");
}

static void buffers_take_from_the_quota_and_give_it_back(void **state)
{
    struct quota quota = { .cap = 10000 };
    struct buf a, b;
    char filler[4000];

    (void)state;
    memset(filler, 'x', sizeof filler);
    buf_init(&a, &quota);
    buf_init(&b, &quota);
    buf_put(&a, filler, sizeof filler);
    buf_put(&b, filler, sizeof filler);
    assert_false(a.failed || b.failed);
    buf_put(&a, filler, sizeof filler);
    assert_true(a.failed);
    assert_int_equal(a.size, sizeof filler); /* a failed put puts nothing */
    buf_text(&a, "x");
    assert_int_equal(a.size, sizeof filler);
    buf_done(&a);
    buf_put(&b, filler, sizeof filler);
    assert_false(b.failed);
    buf_drop(&b, 7999);
    assert_int_equal(b.size, 1);
    buf_done(&b);
    assert_int_equal(quota.used, 0);
}

static void names_are_random_and_of_their_length(void **state)
{
    char a[65], b[65];

    (void)state;
    openai_out_random(a, 64);
    openai_out_random(b, 64);
    assert_int_equal(strlen(a), 64);
    assert_int_equal(strspn(a, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "abcdefghijklmnopqrstuvwxyz"), 64);
    assert_string_not_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_byte_for_byte_what_clients_know),
        cmocka_unit_test(chunks_of_completions_carry_text),
        cmocka_unit_test(usage_and_timings_add_up),
        cmocka_unit_test(progress_foresees_the_rest),
        cmocka_unit_test(a_whole_reply_is_one_object),
        cmocka_unit_test(deltas_of_calls_name_them_once),
        cmocka_unit_test(a_whole_message_holds_what_there_was),
        cmocka_unit_test(log_probabilities_of_a_chat_wait_for_their_text),
        cmocka_unit_test(log_probabilities_of_a_completion_know_their_places),
        cmocka_unit_test(log_probabilities_that_cannot_be_paid_for_are_noticed),
        cmocka_unit_test(an_error_event_is_followed_by_done),
        cmocka_unit_test(a_context_error_carries_both_numbers),
        cmocka_unit_test(json_strings_are_escaped_and_valid_utf8),
        cmocka_unit_test(buffers_take_from_the_quota_and_give_it_back),
        cmocka_unit_test(names_are_random_and_of_their_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
