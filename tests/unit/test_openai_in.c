/* Bodies of requests: which fields arrive how, which are refused by name, and what parsing may
 * take of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/conf/conf.h"
#include "daemon/openai/json_body.h"
#include "daemon/openai/json_read.h"
#include "daemon/openai/openai_in.h"
#include "daemon/wire/wire.h"
#include "daemon/worker/routes.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char name[] = "house", alias[] = "home";

static const struct conf conf = { .model_name = name, .aliases = { alias }, .n_aliases = 1 };
static const struct wire_hello hello = {
    .vocab = 1000,
    .context = 4096,
    .n_stop_ids = 2,
    .stop_ids = { 7, 9 },
    .defaults = { .temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .repetition_penalty = 1 },
};

/* A body as a connection gathers it, not counted. */
static struct buf body_of(const char *text, size_t size)
{
    struct buf body;

    buf_init(&body, NULL);
    buf_put(&body, text, size);
    assert_false(body.failed);
    return body;
}

static int read_with(struct openai_request *r, enum openai_kind kind, const char *text, size_t size,
                     struct quota *quota, struct api_error *e)
{
    struct openai_rules rules = { &conf, &hello, quota };
    struct buf body = body_of(text, size);
    int rc = openai_in_read(r, kind, &body, &rules, e);

    buf_done(&body);
    return rc;
}

/* Parses a copy of text. */
static int parse(json_t **root, uint64_t *cost, const char *text, size_t size, struct quota *quota,
                 struct api_error *e)
{
    struct buf body = body_of(text, size);
    int rc = json_body_parse(root, cost, &body, quota, e);

    buf_done(&body);
    return rc;
}

static struct openai_request must_read(enum openai_kind kind, const char *text)
{
    struct openai_request r;
    struct api_error e;

    if (read_with(&r, kind, text, strlen(text), NULL, &e) < 0)
        fail_msg("%s: %s", text, e.message);
    return r;
}

static struct api_error must_refuse(enum openai_kind kind, const char *text)
{
    struct openai_request r;
    struct api_error e;

    if (read_with(&r, kind, text, strlen(text), NULL, &e) == 0)
        fail_msg("%s: was read", text);
    assert_true(e.message[0]);
    return e;
}

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void sampling_starts_from_the_checkpoints_defaults(void **state)
{
    struct openai_request r = must_read(OPENAI_CHAT, "{" USER "}");

    (void)state;
    assert_true(r.sampling.temperature == 0.6f && r.sampling.top_p == 0.95f);
    assert_int_equal(r.sampling.top_k, 20);
    assert_int_equal(r.max_tokens, 0);
    assert_int_equal(r.n_stop_ids, 2);
    assert_int_equal(r.stop_ids[1], 9);
    assert_int_equal(r.chat.n_messages, 1);
    assert_true(r.chat.add_generation_prompt);
    assert_memory_equal(r.messages[0].text, "hi", 2);
    openai_in_done(&r);
}

static void every_sampling_field_arrives(void **state)
{
    struct openai_request r = must_read(
        OPENAI_CHAT, "{" USER ",\"temperature\":1.5,\"top_p\":0.5,\"top_k\":-1,\"min_p\":0.1,"
                     "\"presence_penalty\":-1,\"frequency_penalty\":2,\"repetition_penalty\":1.25,"
                     "\"seed\":12345678901234,\"logit_bias\":{\"5\":-100,\"6\":1.5},"
                     "\"min_tokens\":4,\"ignore_eos\":true,\"stop_token_ids\":[3,4.0],"
                     "\"stop\":[\"a\",\"b\\u0000c\"]}");

    (void)state;
    assert_true(r.sampling.temperature == 1.5f && r.sampling.top_p == 0.5f);
    assert_int_equal(r.sampling.top_k, 0);
    assert_true(r.sampling.min_p == 0.1f && r.sampling.presence_penalty == -1);
    assert_true(r.sampling.frequency_penalty == 2 && r.sampling.repetition_penalty == 1.25f);
    assert_int_equal(r.sampling.seed, 12345678901234);
    assert_int_equal(r.n_bias, 2);
    assert_int_equal(r.min_tokens, 4);
    assert_int_equal(r.n_stop_ids, 2);
    assert_int_equal(r.stop_ids[0], 3);
    assert_int_equal(r.stop_ids[1], 4);
    assert_int_equal(r.n_stops, 2);
    assert_int_equal(r.stops[1].size, 3);
    openai_in_done(&r);
}

static void top_p_zero_means_the_likeliest_token(void **state)
{
    struct openai_request r = must_read(OPENAI_CHAT, "{" USER ",\"top_p\":0}");

    (void)state;
    assert_int_equal(r.sampling.top_k, 1);
    assert_true(r.sampling.top_p == 1);
    openai_in_done(&r);
}

static void settling_keeps_what_the_answer_needs(void **state)
{
    struct quota quota = { .cap = 1 << 20 };
    struct api_error e;
    struct openai_request r;
    const char *text = "{" USER ",\"stop\":[\"one\",\"t\\u0000wo\"],\"logit_bias\":{\"5\":1}}";

    (void)state;
    assert_int_equal(read_with(&r, OPENAI_CHAT, text, strlen(text), &quota, &e), 0);
    assert_true(quota.used > strlen(text));
    assert_int_equal(openai_in_settle(&r, &e), 0);
    assert_int_equal(quota.used, 0);
    assert_memory_equal(r.stops[0].bytes, "one", 3);
    assert_int_equal(r.stops[1].size, 4);
    assert_memory_equal(r.stops[1].bytes, "t\0wo", 4);
    assert_int_equal(r.bias[0].token, 5);
    openai_in_done(&r);
}

static void limits_take_the_newer_name_and_know_no_limit(void **state)
{
    static const struct {
        const char *fields;
        uint32_t chat, completion;
    } cases[] = {
        { "", 0, 16 },
        { ",\"max_tokens\":5", 5, 5 },
        { ",\"max_tokens\":-1", 0, 0 },
        { ",\"n_predict\":6", 6, 6 },
        { ",\"max_tokens\":5,\"max_completion_tokens\":3", 3, 3 },
        { ",\"max_tokens\":99999999999", UINT32_MAX, UINT32_MAX },
    };
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{" USER ",\"prompt\":\"x\"%s}", cases[i].fields);
        struct openai_request r = must_read(OPENAI_CHAT, text);
        assert_int_equal(r.max_tokens, cases[i].chat);
        openai_in_done(&r);
        r = must_read(OPENAI_COMPLETION, text);
        assert_int_equal(r.max_tokens, cases[i].completion);
        openai_in_done(&r);
    }
}

static void prompts_are_text_or_ids_or_lists_of_them(void **state)
{
    struct openai_request r =
        must_read(OPENAI_COMPLETION, "{\"prompt\":[\"a\",[1,2.0,999],\"b\"]}");

    (void)state;
    assert_int_equal(r.n_prompts, 3);
    assert_memory_equal(r.prompts[0].text.bytes, "a", 1);
    assert_null(r.prompts[1].text.bytes);
    assert_int_equal(r.prompts[1].n_ids, 3);
    assert_int_equal(r.prompts[1].ids[2], 999);
    openai_in_done(&r);
    r = must_read(OPENAI_COMPLETION, "{\"prompt\":[5,6]}");
    assert_int_equal(r.n_prompts, 1);
    assert_int_equal(r.prompts[0].n_ids, 2);
    openai_in_done(&r);
    must_refuse(OPENAI_COMPLETION, "{\"prompt\":[\"a\",[1,1000]]}");
}

static void a_refusal_names_its_field(void **state)
{
    static const struct {
        const char *fields, *param, *code;
    } cases[] = {
        { "\"temperature\":\"hot\"", "temperature", "invalid_type" },
        { "\"top_k\":0.5", "top_k", "invalid_type" },
        { "\"seed\":1e30", "seed", "invalid_type" },
        { "\"n\":5", "n", "integer_above_max_value" },
        { "\"best_of\":2", "best_of", "unsupported_value" },
        { "\"logprobs\":1", "logprobs", "invalid_type" },
        { "\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", "integer_above_max_value" },
        { "\"top_logprobs\":1", "top_logprobs", "invalid_value" },
        { "\"reasoning_format\":\"pretty\"", "reasoning_format", "invalid_value" },
        { "\"include_reasoning\":1", "include_reasoning", "invalid_type" },
        { "\"thinking_budget\":-1", "thinking_budget", "integer_below_min_value" },
        { "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":\"x\"}",
          "thinking.budget_tokens", "invalid_type" },
        { "\"guided_json\":{}", "guided_json", "unsupported_parameter" },
        { "\"stop_token_ids\":[1000]", "stop_token_ids", "invalid_value" },
        { "\"logit_bias\":{\"1000\":1}", "logit_bias", "invalid_value" },
        { "\"logit_bias\":{\" 5\":1}", "logit_bias", "invalid_value" },
        { "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]",
          "messages[0].content[0].type", "unsupported_content_type" },
    };
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{" USER ",%s}", cases[i].fields);
        struct api_error e = must_refuse(OPENAI_CHAT, text);
        assert_int_equal(e.status, 400);
        assert_string_equal(e.param, cases[i].param);
        assert_string_equal(e.code, cases[i].code);
    }
}

/* A number can miss an integer in ways that make no sense of a boolean. */
static void a_wrong_type_is_told_in_fitting_words(void **state)
{
    static const struct {
        const char *fields, *message;
    } cases[] = {
        { "\"stream\":1.0", "'stream' must be a boolean, not a number." },
        { "\"stream\":0.5", "'stream' must be a boolean, not a number." },
        { "\"stream\":\"yes\"", "'stream' must be a boolean, not a string." },
        { "\"top_k\":0.5", "'top_k' must be an integer, not a fraction." },
        { "\"seed\":1e30", "'seed' must be an integer that 64 bits hold, not 1e+30." },
        { "\"top_k\":[]", "'top_k' must be an integer, not an array." },
        { "\"messages\":null", "'messages' is missing." },
    };
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{" USER ",%s}", cases[i].fields);
        assert_string_equal(must_refuse(OPENAI_CHAT, text).message, cases[i].message);
    }
}

static void what_the_answer_is_to_hold_arrives(void **state)
{
    struct openai_request r = must_read(
        OPENAI_CHAT, "{" USER ",\"n\":4,\"best_of\":1,\"logprobs\":true,\"top_logprobs\":20,"
                     "\"reasoning_format\":\"none\",\"include_reasoning\":false}");

    (void)state;
    assert_int_equal(r.n_choices, 4);
    assert_true(r.logprobs && r.keep_tags && r.hide_reasoning);
    assert_int_equal(r.n_top, 20);
    assert_true(r.thinking_budget == UINT32_MAX);
    assert_string_equal(r.ignored, "");
    openai_in_done(&r);
    r = must_read(OPENAI_COMPLETION, "{\"prompt\":\"a\",\"logprobs\":0}");
    assert_int_equal(r.n_choices, 1);
    assert_true(r.logprobs && r.n_top == 0);
    openai_in_done(&r);
    must_refuse(OPENAI_COMPLETION, "{\"prompt\":\"a\",\"logprobs\":true}");
    must_refuse(OPENAI_COMPLETION, "{\"prompt\":\"a\",\"logprobs\":21}");
}

static void the_most_explicit_thinking_budget_counts(void **state)
{
    static const struct {
        const char *fields;
        uint32_t budget;
    } cases[] = {
        { "\"reasoning\":{\"max_tokens\":1}", 1 },
        { "\"reasoning\":{\"max_tokens\":1},\"thinking\":{\"type\":\"enabled\","
          "\"budget_tokens\":2}", 2 },
        { "\"thinking_budget\":3,\"reasoning\":{\"max_tokens\":1}", 3 },
        { "\"max_reasoning_tokens\":4,\"thinking_budget\":3", 4 },
        { "\"max_reasoning_tokens\":4,\"chat_template_kwargs\":{\"thinking_budget\":0}", 0 },
        { "\"max_reasoning_tokens\":99999999999", UINT32_MAX },
    };
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{" USER ",%s}", cases[i].fields);
        struct openai_request r = must_read(OPENAI_CHAT, text);
        assert_true(r.thinking_budget == cases[i].budget);
        openai_in_done(&r);
    }
}

static void a_ban_stands_above_the_requests_own_bias(void **state)
{
    struct openai_request r = must_read(OPENAI_CHAT, "{" USER ",\"logit_bias\":{\"5\":50}}");

    (void)state;
    openai_in_ban(&r, 5);
    for (uint32_t i = 1; i < OPENAI_MAX_BANS; i++)
        openai_in_ban(&r, 5 + i);
    assert_int_equal(r.n_bias, OPENAI_MAX_BANS);
    assert_true(r.bias[0].token == 5 && r.bias[0].value == -100);
    openai_in_done(&r);
}

static void text_of_parts_is_joined_and_lent_otherwise(void **state)
{
    struct openai_request r = must_read(
        OPENAI_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
                     "\"one \"},{\"type\":\"text\",\"text\":\"two\"}]},{\"role\":\"assistant\","
                     "\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}]}");

    (void)state;
    assert_int_equal(r.n_joined, 1);
    assert_int_equal(r.messages[0].size, 7);
    assert_memory_equal(r.messages[0].text, "one two", 7);
    assert_memory_equal(r.messages[1].text, "no", 2);
    openai_in_done(&r);
}

/* ---- bodies ---- */

/* The n first bytes of every prefix, and every byte changed: no crash, no leak. */
static void broken_bodies_are_refused_or_read_but_never_crash(void **state)
{
    static const char good[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\""
        "\\ud83d\\ude00\\ud800\"}]}],\"stop\":[\"a\"],\"logit_bias\":{\"5\":1},"
        "\"seed\":-1,\"top_p\":0.5}";
    static const char changes[] = "\0\"\\{}[],:u0x\xff\xd8";
    size_t size = sizeof good - 1;
    char text[sizeof good];
    struct openai_request r;
    struct api_error e;

    (void)state;
    for (size_t i = 0; i <= size; i++)
        if (read_with(&r, OPENAI_CHAT, good, i, NULL, &e) == 0)
            openai_in_done(&r);
    for (size_t i = 0; i < size; i++)
        for (size_t k = 0; k < sizeof changes - 1; k++) {
            memcpy(text, good, sizeof text);
            text[i] = changes[k];
            if (read_with(&r, i % 2 ? OPENAI_CHAT : OPENAI_COMPLETION, text, size, NULL, &e) == 0)
                openai_in_done(&r);
            else
                assert_in_range(e.status, 400, 499);
        }
}

static void lone_surrogates_become_replacement_characters(void **state)
{
    static const char *const cases[][2] = {
        { "\"\\ud800\"", "\xef\xbf\xbd" },
        { "\"a\\uDC00b\"", "a\xef\xbf\xbd" "b" },
        { "\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80" },
        { "\"\\ud83d\\ud83d\\ude00\"", "\xef\xbf\xbd\xf0\x9f\x98\x80" },
        { "\"\\\\ud800\"", "\\ud800" },
        { "\"\\ude00\\ud83d\"", "\xef\xbf\xbd\xef\xbf\xbd" },
    };
    char text[128];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root;
        uint64_t cost;
        struct api_error e;
        int n = snprintf(text, sizeof text, "{\"x\":%s}", cases[i][0]);
        if (parse(&root, &cost, text, (size_t)n, NULL, &e) < 0)
            fail_msg("%s: %s", cases[i][0], e.message);
        assert_string_equal(json_string_value(json_object_get(root, "x")), cases[i][1]);
        json_decref(root);
    }
}

static char *repeat(const char *begin, const char *one, size_t n, const char *end, size_t *size)
{
    char *text = malloc(strlen(begin) + n * strlen(one) + strlen(end) + 1), *at = text;

    assert_non_null(text);
    at = stpcpy(at, begin);
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, one);
    at = stpcpy(at, end);
    *size = (size_t)(at - text);
    return text;
}

static void nesting_is_bounded_before_it_is_parsed(void **state)
{
    struct api_error e;
    json_t *root;
    uint64_t cost;
    size_t size;

    (void)state;
    for (int depth = JSON_READ_DEPTH - 1; depth <= 1000000; depth = depth * 2 + 2) {
        char *text = repeat("{\"a\":", "[", (size_t)depth, "", &size);
        assert_int_equal(parse(&root, &cost, text, size, NULL, &e), -1);
        assert_string_equal(e.code, "invalid_json");
        assert_int_equal(depth >= JSON_READ_DEPTH, strstr(e.message, "deeper") != NULL);
        free(text);
    }
}

/* The estimate bounds what the parser really takes, for each kind of value that is cheap to
 * write and dear to hold. */
static void the_memory_of_a_document_is_known_before_it_is_parsed(void **state)
{
    static const char *const values[] = { "{},", "[],", "1,", "\"\",", "{\"a\":1},", "[1],",
                                          "null,", "{\"a\":{\"b\":\"c\"}}," };

    (void)state;
#if !defined(__SANITIZE_ADDRESS__)
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct quota quota = { .cap = UINT64_MAX };
        struct api_error e;
        json_t *root;
        uint64_t cost;
        size_t size;
        char *text = repeat("{\"x\":[", values[i], 50000, "0]}", &size);
        struct mallinfo2 before = mallinfo2();
        assert_int_equal(parse(&root, &cost, text, size, &quota, &e), 0);
        struct mallinfo2 after = mallinfo2();
        uint64_t took = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
        if (took > cost)
            fail_msg("%s took %lu bytes, %lu were foreseen", values[i], took, cost);
        assert_int_equal(quota.used, cost);
        json_decref(root);
        free(text);
    }
#else
    assert_non_null(values[0]); /* the sanitizer's allocator keeps no such figures */
#endif
}

static uint64_t status_kib(const char *key)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    uint64_t kib = 0;

    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), ": %lu", &kib);
    fclose(file);
    return kib;
}

/* jansson holds a long string twice for a moment. */
static void a_body_and_its_document_never_take_more_than_is_counted(void **state)
{
    static const char *const units[] = { "a", "\\n", "\\u00e9", "\",\"" };

    (void)state;
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* as in a worker */
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        struct quota quota = { .cap = UINT64_MAX };
        struct api_error e;
        json_t *root;
        uint64_t cost;
        size_t size, n = (i == 3 ? 4000000 : 24000000) / strlen(units[i]);
        char *text = repeat("{\"x\":[\"", units[i], n, "\"]}", &size);
        struct buf body = body_of(text, size);
        free(text);
        malloc_trim(0);
        FILE *file = fopen("/proc/self/clear_refs", "we");
        assert_non_null(file);
        fputs("5", file);
        fclose(file);
        uint64_t before = status_kib("VmRSS") * 1024;
        assert_int_equal(json_body_parse(&root, &cost, &body, &quota, &e), 0);
        uint64_t peak = status_kib("VmHWM") * 1024;
        assert_null(body.data);
        print_message("%zu bytes: %lu counted beside, %lu taken\n", size, cost, peak - before);
#if !defined(__SANITIZE_ADDRESS__)
        assert_true(peak - before < cost + (1 << 20));
#endif
        json_body_drop(root, cost, &quota);
        assert_int_equal(quota.used, 0);
    }
}

static void a_document_over_the_quota_is_refused_before_it_is_parsed(void **state)
{
    struct quota quota = { .cap = 100000 };
    struct api_error e;
    json_t *root;
    uint64_t cost;
    size_t size;

    (void)state;
    char *text = repeat("{\"x\":[", "{},", 1000, "0]}", &size);
    assert_int_equal(parse(&root, &cost, text, size, &quota, &e), -1);
    assert_int_equal(e.status, 413);
    free(text);
    quota.used = 90000; /* now it is a matter of time */
    text = repeat("{\"x\":[", "{},", 50, "0]}", &size);
    assert_int_equal(parse(&root, &cost, text, size, &quota, &e), -1);
    assert_int_equal(e.status, 503);
    assert_true(e.retry_after_s > 0);
    assert_int_equal(quota.used, 90000);
    free(text);
}

/* ---- paths and names ---- */

static void paths_are_folded_and_decoded(void **state)
{
    static const char *const cases[][2] = {
        { "/", "" }, { "", "" }, { "/v1", "" }, { "/v1/", "" }, { "/v1/models", "/models" },
        { "/v1/v1/models", "/models" }, { "/v1/v1/v1/models", "/v1/models" },
        { "//v1//models//", "/models" }, { "/v1x", "/v1x" }, { "/models/a%2Fb", "/models/a/b" },
        { "/models/%e6%A3%ae", "/models/\xe6\xa3\xae" }, { "/%00", NULL }, { "/a%0", NULL },
        { "/a%", NULL }, { "/a%zz", NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = routes_path(cases[i][0]);
        if (cases[i][1])
            assert_string_equal(path, cases[i][1]);
        else
            assert_null(path);
        free(path);
    }
}

static void only_this_machine_is_loopback(void **state)
{
    static const char *const yes[] = { "localhost", "LOCALHOST:80", "127.0.0.1", "127.9.9.9:1",
                                       "[::1]", "[::1]:8080" };
    static const char *const no[] = { "", ":", "localhost.evil", "127.0.0.1.evil", "[::1", "[::2]",
                                      "128.0.0.1", "localhost:80x", "evil:localhost", "127.1",
                                      "[::1]evil", "localhost/", "a@localhost" };

    (void)state;
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!routes_host_is_loopback(yes[i]))
            fail_msg("%s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (routes_host_is_loopback(no[i]))
            fail_msg("%s", no[i]);
    assert_true(routes_origin_is_loopback("http://localhost:3000"));
    assert_true(routes_origin_is_loopback("https://127.0.0.1"));
    assert_false(routes_origin_is_loopback("null"));
    assert_false(routes_origin_is_loopback("http://localhost:3000/x"));
    assert_false(routes_origin_is_loopback("ftp://localhost"));
}

static void banning_every_token_is_refused(void **state)
{
    const struct wire_hello three = { .vocab = 3, .context = 64, .n_stop_ids = 1, .stop_ids = { 2 },
                                      .defaults = { .repetition_penalty = 1 } };
    static const struct {
        const char *fields;
        int rc;
    } cases[] = {
        { "\"logit_bias\":{\"0\":-100,\"1\":-100,\"2\":-100}", -1 },
        { "\"logit_bias\":{\"0\":-100,\"1\":-100},\"min_tokens\":1", -1 },
        { "\"logit_bias\":{\"0\":-100,\"1\":-100}", 0 },
        { "\"logit_bias\":{\"0\":-100,\"1\":-99,\"2\":-100}", 0 },
        { "\"logit_bias\":{\"0\":-100,\"00\":-100,\"2\":-100}", 0 },
    };
    struct openai_rules rules = { &conf, &three, NULL };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct openai_request r;
        struct api_error e = { 0 };
        char text[256];
        int n = snprintf(text, sizeof text, "{" USER ",%s}", cases[i].fields);
        struct buf body = body_of(text, (size_t)n);
        assert_int_equal(openai_in_read(&r, OPENAI_CHAT, &body, &rules, &e), cases[i].rc);
        if (cases[i].rc == 0)
            openai_in_done(&r);
        else
            assert_string_equal(e.param, "logit_bias");
        buf_done(&body);
    }
}

static void beyond_loopback_hosts_are_checked_once_some_are_named(void **state)
{
    static char first[] = "llm.home.lan", second[] = "[fd00::7]";
    const struct conf none = { 0 }, some = { .hosts = { first, second }, .n_hosts = 2 };
    static const char *const fine[] = { "llm.home.lan", "LLM.home.lan:80", "[fd00::7]:8080",
                                        "localhost", "127.0.0.1:80" };
    static const char *const numbers[] = { "192.168.1.7", "192.168.1.7:80", "[fd00::9]" };
    static const char *const bad[] = { "", "rebound.example", "llm.home.lan.evil", "192.168.1.7.evil",
                                       "[fd00::7", "llm.home.lan:80x", "xllm.home.lan" };

    (void)state;
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        assert_true(routes_host_is_served(&some, true, fine[i]));
        assert_true(routes_host_is_served(&some, false, fine[i]));
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        assert_false(routes_host_is_served(&some, true, numbers[i]));
        assert_true(routes_host_is_served(&some, false, numbers[i]));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(routes_host_is_served(&some, true, bad[i]));
        assert_false(routes_host_is_served(&some, false, bad[i]));
        assert_false(routes_host_is_served(&none, true, bad[i]));
        assert_true(routes_host_is_served(&none, false, bad[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sampling_starts_from_the_checkpoints_defaults),
        cmocka_unit_test(every_sampling_field_arrives),
        cmocka_unit_test(top_p_zero_means_the_likeliest_token),
        cmocka_unit_test(settling_keeps_what_the_answer_needs),
        cmocka_unit_test(limits_take_the_newer_name_and_know_no_limit),
        cmocka_unit_test(prompts_are_text_or_ids_or_lists_of_them),
        cmocka_unit_test(a_refusal_names_its_field),
        cmocka_unit_test(a_wrong_type_is_told_in_fitting_words),
        cmocka_unit_test(text_of_parts_is_joined_and_lent_otherwise),
        cmocka_unit_test(what_the_answer_is_to_hold_arrives),
        cmocka_unit_test(the_most_explicit_thinking_budget_counts),
        cmocka_unit_test(a_ban_stands_above_the_requests_own_bias),
        cmocka_unit_test(broken_bodies_are_refused_or_read_but_never_crash),
        cmocka_unit_test(lone_surrogates_become_replacement_characters),
        cmocka_unit_test(nesting_is_bounded_before_it_is_parsed),
        cmocka_unit_test(the_memory_of_a_document_is_known_before_it_is_parsed),
        cmocka_unit_test(a_body_and_its_document_never_take_more_than_is_counted),
        cmocka_unit_test(a_document_over_the_quota_is_refused_before_it_is_parsed),
        cmocka_unit_test(paths_are_folded_and_decoded),
        cmocka_unit_test(banning_every_token_is_refused),
        cmocka_unit_test(beyond_loopback_hosts_are_checked_once_some_are_named),
        cmocka_unit_test(only_this_machine_is_loopback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
