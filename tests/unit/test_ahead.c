/* ahead: of requests sent together each head is looked at, and the end of the last one is known. */
#include "daemon/openai/api_error.h"
#include "daemon/worker/ahead.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HOST "Host: localhost\r\n"
#define GET "GET /health HTTP/1.1\r\n" HOST "\r\n"
#define SIZED "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n"
#define CHUNKED "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
#define BODY "3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\n"

/* In memory of its own size, so that a sanitizer sees a byte too many read. */
static int look(struct ahead *out, const char *text, size_t size)
{
    char *copy = malloc(size ? size : 1);
    struct api_error e = { 0 };

    assert_non_null(copy);
    memcpy(copy, text, size);
    int rc = ahead_look(out, copy, size, &e);
    free(copy);
    if (rc < 0) {
        assert_in_range(e.status, 400, 505);
        assert_true(e.close);
    }
    return rc;
}

static void finds(const char *text, uint32_t n, uint64_t size)
{
    struct ahead a;

    assert_int_equal(look(&a, text, strlen(text)), 1);
    assert_int_equal(a.n, n);
    assert_int_equal(a.size, size);
}

static void requests_that_came_together_are_counted_to_the_end_of_the_last(void **state)
{
    (void)state;
    finds(GET, 1, strlen(GET));
    finds(GET GET "\r\n" GET, 3, 3 * strlen(GET) + 2);
    finds(SIZED "12345\r\n", 1, strlen(SIZED) + 7); /* the blank line is nobody's */
    finds(SIZED "12345" GET, 2, strlen(SIZED) + 5 + strlen(GET));
    finds(CHUNKED BODY, 1, strlen(CHUNKED BODY));
    finds(GET CHUNKED BODY GET, 3, strlen(GET CHUNKED BODY GET));
    finds(CHUNKED "1\nx\n0\n\n" GET, 2, strlen(CHUNKED "1\nx\n0\n\n" GET));
}

static void a_body_that_is_still_to_come_is_counted_too(void **state)
{
    (void)state;
    finds(SIZED, 1, strlen(SIZED) + 5);
    finds(GET SIZED "12", 2, strlen(GET SIZED) + 5);
    finds("PUT / HTTP/1.1\r\n" HOST "Content-Length: 999999999999999999\r\n\r\n", 1,
          strlen("PUT / HTTP/1.1\r\n" HOST "Content-Length: 999999999999999999\r\n\r\n") +
              UINT64_C(999999999999999999));
}

static void where_chunks_end_that_did_not_all_come_nobody_can_say(void **state)
{
    struct ahead a;

    (void)state;
    for (size_t n = 0; n < strlen(BODY); n++) {
        assert_int_equal(look(&a, CHUNKED BODY, strlen(CHUNKED) + n), 1);
        assert_int_equal(a.n, 1);
        assert_int_equal(a.size, 0);
    }
    finds(CHUNKED "ffffffffffffffff\r\nabc", 1, 0);
}

static void what_is_no_request_ends_the_count(void **state)
{
    (void)state;
    finds(GET "BAD\r\n\r\n" GET, 1, strlen(GET));
    finds(GET "GET /hea", 1, strlen(GET));
    finds(GET CHUNKED "zz\r\n", 1, strlen(GET));
    finds(SIZED "12345(" GET, 1, strlen(SIZED) + 5);
}

static void the_first_head_is_whole_or_not_or_refused(void **state)
{
    static const char *const bad[] = {
        CHUNKED "zz\r\n", CHUNKED "\r\n", CHUNKED "-1\r\n", CHUNKED "0x2\r\n", CHUNKED " 2\r\n",
        CHUNKED "2 \r\n", CHUNKED "2\r2", CHUNKED "2\r\nabc", CHUNKED "2\r\nab\rx",
        CHUNKED "11111111111111111\r\n", CHUNKED "2\r\nab\r\nq", "BAD\r\n\r\n",
    };
    struct ahead a;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (look(&a, bad[i], strlen(bad[i])) != -1)
            fail_msg("accepted: %s", bad[i]);
    for (size_t n = 0; n < strlen(GET); n++)
        assert_int_equal(look(&a, GET, n), 0);
}

/* Whatever the answer, it is one, and no byte beyond the last is read. */
static void any_byte_may_be_another(void **state)
{
    static const char whole[] = GET SIZED "12345\r\n" CHUNKED BODY GET;
    static const char others[] = { 0, ' ', '\t', '\r', '\n', ':', ';', '-', '0', '9', 'f', 'g', 0x7f,
                                   (char)0x80, (char)0xff };
    char text[sizeof whole - 1];
    struct ahead a;

    (void)state;
    for (size_t i = 0; i < sizeof text; i++) {
        for (size_t k = 0; k < sizeof others; k++) {
            memcpy(text, whole, sizeof text);
            text[i] = others[k];
            if (look(&a, text, sizeof text) == 1)
                assert_in_range(a.n, 1, 4);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_that_came_together_are_counted_to_the_end_of_the_last),
        cmocka_unit_test(a_body_that_is_still_to_come_is_counted_too),
        cmocka_unit_test(where_chunks_end_that_did_not_all_come_nobody_can_say),
        cmocka_unit_test(what_is_no_request_ends_the_count),
        cmocka_unit_test(the_first_head_is_whole_or_not_or_refused),
        cmocka_unit_test(any_byte_may_be_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
