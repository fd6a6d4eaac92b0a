/* What the door counts, as text; who counts as on this machine. */
#include "daemon/base/buf.h"
#include "daemon/base/prom.h"
#include "daemon/host/engine_thread.h"
#include "daemon/host/metrics.h"
#include "daemon/host/recall_store.h"
#include "daemon/openai/api_error.h"
#include "daemon/worker/counting.h"
#include "daemon/worker/metrics_page.h"
#include "daemon/worker/routes.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct metrics *make(void)
{
    struct metrics *m = malloc(sizeof *m);

    assert_non_null(m);
    metrics_init(m);
    return m;
}

static void drop(struct metrics *m)
{
    metrics_done(m);
    free(m);
}

/* With a zero byte behind it; the caller frees. */
static char *text_of(const struct metrics *m, const char *model)
{
    static const struct engine_facts facts = { .facts = { .context = 4096 },
                                               .info = { .model_type = "qwen3_moe", .fp8 = true },
                                               .plan = { .ram = 1000, .total = 900 } };
    static const struct cz_stats stats = { .running = 2, .waiting = 1, .expert_hits = 30,
                                           .expert_misses = 10, .kv_pages = 8,
                                           .kv_pages_used = 2 };
    static const struct recall_store recall = { .hits = 5, .misses = 6, .n_records = 7 };
    struct metrics_view view = { .model = model, .loaded = true, .serving = true,
                                 .facts = &facts, .stats = &stats,
                                 .recall = &recall };
    struct buf text;

    buf_init(&text, NULL);
    metrics_write(&text, m, &view);
    buf_put(&text, "", 1);
    assert_false(text.failed);
    return text.data;
}

static void expect_line(const char *text, const char *line)
{
    char whole[256];

    snprintf(whole, sizeof whole, "\n%s\n", line);
    if (!strstr(text, whole))
        fail_msg("no line '%s' in:\n%s", line, text);
}

static void expect_http(const char *text, const char *rest)
{
    char line[256];

    snprintf(line, sizeof line, "colizig_http_requests_total{method=\"GET\",route=\"other\",%s",
             rest);
    expect_line(text, line);
}

static void expect_duration(const char *text, const char *bound, int n)
{
    char line[256];

    snprintf(line, sizeof line,
             "colizig_http_request_duration_seconds_bucket{route=\"other\",le=\"%s\"} %d", bound,
             n);
    expect_line(text, line);
}

static void what_was_counted_is_said(void **state)
{
    struct metrics *m = make();
    struct wire_count http = { .kind = COUNT_HTTP, .route = routes_other(), .method = METHOD_GET,
                               .status = 404, .duration_us = 300000 };
    struct wire_count end = { .kind = COUNT_END, .end = END_STOP, .duration_us = 2000000,
                              .first_us = 1000000,
                              .usage = { .n_prompt = 100, .n_generated = 16, .queue_ns = 50000000,
                                         .prefill_ns = 800000000, .decode_ns = 1000000000 } };

    (void)state;
    metrics_count(m, &http);
    http.status = 0; /* the client left before there was one */
    metrics_count(m, &http);
    http.status = 777;
    metrics_count(m, &http);
    metrics_count(m, &end);
    end.own = 1;
    end.end = END_LENGTH;
    metrics_count(m, &end);
    end = (struct wire_count){ .kind = COUNT_END, .end = END_CANCELLED, .phase = PHASE_PREFILL };
    metrics_count(m, &end);
    metrics_lost(m, 2);
    metrics_count(m, &(struct wire_count){ .kind = COUNT_TOKENS, .tokens = { 1, 2, 3 },
                                           .style = REPLY_NO_TOOLS });
    metrics_count(m, &(struct wire_count){ .kind = COUNT_END, .end = END_TOOL_CALLS,
                                           .tokens = { [TOKENS_TOOL] = 4 }, .style = REPLY_XML,
                                           .n_calls = 2, .duration_us = 90000000,
                                           .repairs = { [REPLY_KEY_DROPPED] = 5 } });

    char *text = text_of(m, "demo");
    expect_line(text, "colizig_engine_up 1");
    expect_line(text, "colizig_reasoning_memory_hits_total 5");
    expect_line(text, "colizig_reasoning_memory_misses_total 6");
    expect_line(text, "colizig_reasoning_memory_entries 7");
    expect_line(text, "colizig_model_info{model=\"demo\",family=\"qwen3_moe\","
                      "quantization=\"fp8\"} 1");
    expect_http(text, "status=\"404\"} 1");
    expect_http(text, "status=\"499\"} 1");
    expect_http(text, "status=\"other\"} 1");
    expect_duration(text, "0.25", 0);
    expect_duration(text, "0.5", 3);
    expect_line(text, "colizig_http_request_duration_seconds_count{route=\"other\"} 3");
    expect_line(text, "colizig_requests_finished_total{reason=\"stop\"} 1");
    expect_line(text, "colizig_requests_finished_total{reason=\"length\"} 1");
    expect_line(text, "colizig_requests_finished_total{reason=\"tool_calls\"} 1");
    expect_line(text, "colizig_requests_finished_total{reason=\"cancelled\"} 1");
    expect_line(text, "colizig_generation_tokens_total{kind=\"content\"} 1");
    expect_line(text, "colizig_generation_tokens_total{kind=\"reasoning\"} 2");
    expect_line(text, "colizig_generation_tokens_total{kind=\"tool\"} 7");
    expect_line(text, "colizig_tool_calls_total{style=\"json\"} 0");
    expect_line(text, "colizig_tool_calls_total{style=\"xml\"} 2");
    expect_line(text, "colizig_tool_call_repairs_total{kind=\"key_dropped\"} 5");
    expect_line(text, "colizig_requests_finished_total{reason=\"error\"} 2");
    expect_line(text, "colizig_client_disconnects_total{phase=\"prefill\"} 1");
    expect_line(text, "colizig_client_disconnects_total{phase=\"decode\"} 0");
    expect_line(text, "colizig_time_to_first_token_seconds_bucket{le=\"0.5\"} 0");
    expect_line(text, "colizig_time_to_first_token_seconds_bucket{le=\"1\"} 2"); /* at most */
    expect_line(text, "colizig_time_to_first_token_seconds_sum 2");
    expect_line(text, "colizig_queue_seconds_count 2"); /* own figures do not know the queue */
    expect_line(text, "colizig_decode_seconds_count 3");
    expect_line(text, "colizig_request_generation_tokens_bucket{le=\"16\"} 3");
    expect_line(text, "colizig_request_prompt_tokens_bucket{le=\"64\"} 1");
    expect_line(text, "colizig_request_prompt_tokens_sum 200");
    expect_line(text, "colizig_requests_running 2");
    expect_line(text, "colizig_expert_cache_hits_total 30");
    expect_line(text, "colizig_kv_cache_usage_ratio 0.25");
    expect_line(text, "colizig_memory_budget_bytes 1000");
    free(text);
    drop(m);
}

static void only_generations_are_rejected(void **state)
{
    struct metrics *m = make();
    struct wire_count http = { .kind = COUNT_HTTP, .method = METHOD_POST, .status = 400,
                               .reject = REJECT_INVALID };
    uint32_t n = 0;

    (void)state;
    for (http.route = 0; http.route < WIRE_MAX_ROUTES; http.route++) {
        metrics_count(m, &http);
        n += routes_generates(http.route);
    }
    assert_int_equal(n, 2);
    assert_string_equal(routes_label(0), "/chat/completions");
    assert_true(routes_generates(0));
    assert_string_equal(routes_label(routes_other()), "other");
    assert_string_equal(routes_label(UINT32_MAX), "other");
    char *text = text_of(m, "demo");
    expect_line(text, "colizig_requests_rejected_total{reason=\"invalid\"} 2");
    free(text);
    drop(m);
}

static void a_model_s_name_cannot_break_out_of_its_label(void **state)
{
    struct metrics *m = make();
    char *text = text_of(m, "a\"} 1\nevil \\ 2");

    (void)state;
    expect_line(text, "colizig_model_info{model=\"a\\\"} 1\\nevil \\\\ 2\",family=\"qwen3_moe\","
                      "quantization=\"fp8\"} 1");
    free(text);
    drop(m);
}

static void without_an_engine_only_that_is_said(void **state)
{
    struct buf text;

    (void)state;
    buf_init(&text, NULL);
    prom_service(&text, false, false);
    buf_put(&text, "", 1);
    expect_line(text.data, "colizig_engine_up 0");
    expect_line(text.data, "colizig_model_loaded 0");
    assert_null(strstr(text.data, "_total"));
    buf_done(&text);
}

static enum wire_reject reject_of(int status, const char *code)
{
    struct api_error e;

    api_error_set(&e, status, code, NULL, "text");
    return counting_reject(&e);
}

static void refusals_are_told_apart(void **state)
{
    (void)state;
    assert_int_equal(reject_of(400, "invalid_json"), REJECT_INVALID);
    assert_int_equal(reject_of(400, "context_length_exceeded"), REJECT_CONTEXT);
    assert_int_equal(reject_of(413, "request_too_large"), REJECT_INVALID);
    assert_int_equal(reject_of(503, "server_overloaded"), REJECT_FULL);
    assert_int_equal(reject_of(503, "model_loading"), REJECT_LOADING);
    assert_int_equal(reject_of(503, "draining"), REJECT_UNAVAILABLE);
    assert_int_equal(reject_of(500, "engine_error"), REJECT_NONE);
}

static bool may(int family, const char *address)
{
    struct sockaddr_storage from = { .ss_family = (sa_family_t)family };
    struct sockaddr_in in = { .sin_family = AF_INET };
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };

    if (family == AF_INET) {
        assert_int_equal(inet_pton(AF_INET, address, &in.sin_addr), 1);
        memcpy(&from, &in, sizeof in);
    } else if (family == AF_INET6) {
        assert_int_equal(inet_pton(AF_INET6, address, &in6.sin6_addr), 1);
        memcpy(&from, &in6, sizeof in6);
    }
    return metrics_page_may(&from);
}

static void only_this_machine_may_see_them(void **state)
{
    (void)state;
    assert_true(may(AF_INET, "127.0.0.1"));
    assert_true(may(AF_INET, "127.9.9.9"));
    assert_true(may(AF_INET6, "::1"));
    assert_true(may(AF_INET6, "::ffff:127.0.0.1"));
    assert_true(may(AF_UNIX, NULL));
    assert_false(may(AF_INET, "192.168.1.2"));
    assert_false(may(AF_INET, "128.0.0.1"));
    assert_false(may(AF_INET6, "::ffff:10.0.0.1"));
    assert_false(may(AF_INET6, "fe80::1"));
    assert_false(may(AF_INET6, "::"));
    assert_false(may(AF_UNSPEC, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_counted_is_said),
        cmocka_unit_test(only_generations_are_rejected),
        cmocka_unit_test(a_model_s_name_cannot_break_out_of_its_label),
        cmocka_unit_test(without_an_engine_only_that_is_said),
        cmocka_unit_test(refusals_are_told_apart),
        cmocka_unit_test(only_this_machine_may_see_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
