/* head: a request's head says one thing to every reader, or is refused. */
#include "daemon/openai/api_error.h"
#include "daemon/worker/head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* In memory of its own size, so that a sanitizer sees a byte too many read. */
static ssize_t scan(const char *text, size_t size, struct api_error *e)
{
    char *copy = malloc(size ? size : 1);
    struct head_body body;

    assert_non_null(copy);
    memcpy(copy, text, size);
    ssize_t n = head_scan(copy, size, &body, e);
    free(copy);
    return n;
}

static void refuses(const char *text, size_t size, int status, const char *words)
{
    struct api_error e = { 0 };

    if (scan(text, size, &e) != -1)
        fail_msg("accepted: %s", text);
    assert_int_equal(e.status, status);
    assert_true(e.close);
    if (!strstr(e.message, words))
        fail_msg("'%s' lacks '%s'", e.message, words);
}

#define GET "GET /health HTTP/1.1\r\n"
#define HOST "Host: localhost:8080\r\n"
#define END "\r\n"

static void a_whole_head_is_measured_and_what_follows_left_alone(void **state)
{
    static const char *const good[] = {
        GET HOST END, "GET / HTTP/1.0\r\n" END, "\r\n\r\n" GET HOST END,
        "POST /v1/completions HTTP/1.1\r\n" HOST "Content-Length: 5\r\n" END,
        "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n" END,
        "GET http://localhost/health HTTP/1.1\r\n" HOST "X-Tab: a\tb \xc3\xa9\r\n" END,
        "OPTIONS * HTTP/1.1\r\nhost:\t[::1]:8080\r\n" END, "GET / HTTP/1.1\nHost: a\n\n",
    };
    char text[512];
    struct api_error e;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        size_t size = strlen(good[i]);
        assert_int_equal(scan(good[i], size, &e), size);
        memcpy(text, good[i], size);
        memcpy(text + size, "GET rest", 8);
        assert_int_equal(scan(text, size + 8, &e), size);
        for (size_t part = 0; part < size; part++)
            assert_int_equal(scan(good[i], part, &e), 0);
    }
}

static void what_could_be_read_in_two_ways_is_refused(void **state)
{
    static const struct {
        const char *fields, *words;
        int status;
    } bad[] = {
        { HOST HOST, "more than one Host", 400 },
        { "X: y\r\n", "Host header is missing", 400 },
        { "Host: a b\r\n", "no host name", 400 },
        { "Host: a, b\r\n", "no host name", 400 },
        { "Host: a/b\r\n", "no host name", 400 },
        { "Host: u@a\r\n", "no host name", 400 },
        { HOST "Content-Length: 5\r\nContent-Length: 6\r\n", "more than one Content-Length", 400 },
        { HOST "Content-Length: 5\r\ncontent-length: 5\r\n", "more than one Content-Length", 400 },
        { HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "exclude each other", 400 },
        { HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", "more than one", 400 },
        { HOST "Transfer-Encoding: gzip\r\n", "'gzip' is not supported", 501 },
        { HOST "Transfer-Encoding: gzip, chunked\r\n", "not supported", 501 },
        { HOST "Transfer-Encoding: chunked \r\n", "not supported", 501 },
        { HOST "Content-Length: -1\r\n", "no number", 400 },
        { HOST "Content-Length: 1 2\r\n", "no number", 400 },
        { HOST "Content-Length: 5,5\r\n", "no number", 400 },
        { HOST "Content-Length:\r\n", "no number", 400 },
        { HOST "Content-Length: 0x5\r\n", "no number", 400 },
        { HOST "Content-Length: 9999999999999999999\r\n", "larger than any", 413 },
        { HOST "Content-Length : 5\r\n", "no name may hold", 400 },
        { HOST "X-A: 1\r\n folded\r\n", "second line", 400 },
        { HOST "X-A\r\n", "no colon", 400 },
        { HOST ": a\r\n", "no name may hold", 400 },
        { HOST "X-A: a\rContent-Length: 5\r\n", "control character", 400 },
        { HOST "X-A: a\x7f\r\n", "control character", 400 },
    };
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t size = (size_t)snprintf(text, sizeof text, "%s%s%s", "POST / HTTP/1.1\r\n",
                                       bad[i].fields, END);
        refuses(text, size, bad[i].status, bad[i].words);
    }
    refuses("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 29, 400, "control character");
    refuses("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 46, 400, "HTTP/1.0 has no");
}

static void what_is_no_request_is_refused_at_once(void **state)
{
    static const struct {
        const char *text, *words;
        int status;
    } bad[] = {
        { "\x16\x03\x01", "no HTTP request", 400 },
        { "{\"a\":", "no HTTP request", 400 },
        { "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHI", "no HTTP request", 400 },
        { "GET /\r\n", "request line", 400 },
        { "GET\r\n", "request line", 400 },
        { "GET / HTTP/1.1 \r\n", "does not end with", 400 },
        { "GET / http/1.1\r\n", "does not end with", 400 },
        { "GET / HTTP/2.0\r\n", "are spoken", 505 },
        { "GET /a b HTTP/1.1\r\n", "blank or a control", 400 },
        { "GET /a\tb HTTP/1.1\r\n", "blank or a control", 400 },
        { "G(T / HTTP/1.1\r\n", "request line", 400 },
        { "\rGET / HTTP/1.1\r\n", "request line", 400 },
        { "\r\n\r\rGET / HTTP/1.1\r\n", "request line", 400 },
        { "\r\r", "no HTTP request", 400 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuses(bad[i].text, strlen(bad[i].text), bad[i].status, bad[i].words);
}

static void what_is_too_much_is_refused(void **state)
{
    size_t cap = 64 << 10;
    char *text = malloc(cap);
    struct api_error e;

    (void)state;
    assert_non_null(text);
    memset(text, 'a', cap);
    memcpy(text, "GET /", 5);
    assert_int_equal(scan(text, HEAD_MAX - 1, &e), 0);
    refuses(text, HEAD_MAX, 414, "8192");
    memcpy(text + HEAD_MAX_TARGET + 6, " HTTP/1.1\r\n", 11);
    refuses(text, HEAD_MAX_TARGET + 17, 414, "8192");

    memset(text, 'a', cap);
    memcpy(text, GET HOST "X: ", strlen(GET HOST "X: "));
    assert_int_equal(scan(text, HEAD_MAX - 1, &e), 0);
    refuses(text, HEAD_MAX, 431, "16384");
    memcpy(text + HEAD_MAX - 4, "\r\n\r\n", 4);
    assert_int_equal(scan(text, HEAD_MAX + 99, &e), HEAD_MAX);
    memset(text + HEAD_MAX - 4, 'a', 4);
    memcpy(text + HEAD_MAX - 3, "\r\n\r\n", 4);
    refuses(text, HEAD_MAX + 1, 431, "16384");

    size_t size = strlen(GET HOST); /* many short ones take more of libmicrohttpd's memory than their bytes */
    for (; size < 4000; size += 4)
        memcpy(text + size, "a:\r\n", 4);
    memcpy(text + size, "\r\n", 2);
    refuses(text, size + 2, 431, "too many");
    free(text);
}

static void a_whole_url_gives_its_host_and_its_path(void **state)
{
    const char *host;
    size_t size;

    (void)state;
    assert_string_equal(head_target("/a?b", &host, &size), "/a?b");
    assert_null(host);
    assert_string_equal(head_target("http://h:80/a?b", &host, &size), "/a?b");
    assert_int_equal(size, 4);
    assert_memory_equal(host, "h:80", 4);
    assert_string_equal(head_target("HTTPS://h", &host, &size), "/");
    assert_int_equal(size, 1);
    assert_string_equal(head_target("http://h?x", &host, &size), "/");
    assert_string_equal(head_target("http://", &host, &size), "/");
    assert_int_equal(size, 0);
    assert_string_equal(head_target("ftp://h/x", &host, &size), "ftp://h/x");
    assert_null(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_head_is_measured_and_what_follows_left_alone),
        cmocka_unit_test(what_could_be_read_in_two_ways_is_refused),
        cmocka_unit_test(what_is_no_request_is_refused_at_once),
        cmocka_unit_test(what_is_too_much_is_refused),
        cmocka_unit_test(a_whole_url_gives_its_host_and_its_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
