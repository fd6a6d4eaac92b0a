/* The ring between two threads: order, fullness, and wake-ups that are not lost. */
#include "util/err.h"
#include "util/ring.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void items_come_out_in_order_and_the_ring_says_when_it_is_full(void **state)
{
    struct ring *r;
    struct err err;
    uint32_t x;

    (void)state;
    assert_int_equal(ring_open(&r, sizeof x, 5, &err), 0);
    for (int turn = 0; turn < 3; turn++) {
        for (uint32_t i = 0; i < 8; i++) /* 5 is rounded up to 8 */
            assert_true(ring_put(r, &i));
        x = 99;
        assert_false(ring_put(r, &x));
        for (uint32_t i = 0; i < 8; i++) {
            assert_true(ring_get(r, &x));
            assert_int_equal(x, i);
        }
        assert_false(ring_get(r, &x));
    }
    ring_close(r);
}

static bool readable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, 0) == 1;
}

static void the_descriptor_is_readable_after_a_put_until_it_is_drained(void **state)
{
    struct ring *r;
    struct err err;
    uint32_t x = 1;

    (void)state;
    assert_int_equal(ring_open(&r, sizeof x, 4, &err), 0);
    assert_false(readable(ring_fd(r)));
    assert_true(ring_put(r, &x));
    assert_true(readable(ring_fd(r)));
    ring_drain_fd(r);
    assert_false(readable(ring_fd(r)));
    ring_drain_fd(r); /* with nothing there it does not block */
    ring_close(r);
}

static void absurd_sizes_are_refused(void **state)
{
    struct ring *r = NULL;
    struct err err;

    (void)state;
    assert_int_equal(ring_open(&r, 0, 4, &err), -1);
    assert_int_equal(ring_open(&r, 4, 0, &err), -1);
    assert_int_equal(ring_open(&r, SIZE_MAX / 2, 1024, &err), -1);
    assert_null(r);
    ring_close(NULL);
}

struct item {
    uint64_t n, twice;
    char filler[40];
};
enum { N_ITEMS = 200000 };

static void *produce(void *ctx)
{
    for (uint64_t i = 0; i < N_ITEMS;) {
        struct item it = { .n = i, .twice = 2 * i };
        if (ring_put(ctx, &it))
            i++;
    }
    return NULL;
}

/* The consumer sleeps on the descriptor as the engine thread does; a lost wake-up hangs here. */
static void two_threads_lose_nothing_and_no_wake_up(void **state)
{
    struct ring *r;
    struct err err;
    pthread_t thread;
    uint64_t next = 0;

    (void)state;
    assert_int_equal(ring_open(&r, sizeof(struct item), 64, &err), 0);
    assert_int_equal(pthread_create(&thread, NULL, produce, r), 0);
    while (next < N_ITEMS) {
        struct pollfd wait = { .fd = ring_fd(r), .events = POLLIN };
        struct item it;
        assert_int_equal(poll(&wait, 1, 20000), 1);
        ring_drain_fd(r);
        while (ring_get(r, &it)) {
            assert_int_equal(it.n, next);
            assert_int_equal(it.twice, 2 * next);
            next++;
        }
    }
    pthread_join(thread, NULL);
    ring_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_come_out_in_order_and_the_ring_says_when_it_is_full),
        cmocka_unit_test(the_descriptor_is_readable_after_a_put_until_it_is_drained),
        cmocka_unit_test(absurd_sizes_are_refused),
        cmocka_unit_test(two_threads_lose_nothing_and_no_wake_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
