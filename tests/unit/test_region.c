/* Regions: all there when open, grown and shrunk in place, and what is given back is really the
 * kernel's again. */
#include "util/region.h"

#include "memory_group.h"
#include "util/err.h"
#include "util/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

static void open_ok(struct region *r, uint64_t size, uint64_t most, enum region_pages pages)
{
    struct err err;

    if (region_reserve(r, size, most, pages, &err) < 0)
        fail_msg("%s", err.text);
}

static void resize_ok(struct region *r, uint64_t size)
{
    struct err err;

    if (region_resize(r, size, &err) < 0)
        fail_msg("%s", err.text);
}

static bool all_there(const struct region *r)
{
    static unsigned char there[1 << 16];

    assert_true(r->size / 4096 <= sizeof there);
    assert_int_equal(mincore(r->base, r->size, there), 0);
    for (uint64_t page = 0; page < r->size / 4096; page++)
        if (!(there[page] & 1))
            return false;
    return true;
}

/* Whether the kernel would let anybody touch it: asked without touching. */
static bool can_be_read(const char *at)
{
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    bool can = write(fds[1], at, 1) == 1;
    assert_true(can || errno == EFAULT);
    close(fds[0]);
    close(fds[1]);
    return can;
}

static void a_region_is_aligned_zeroed_and_all_there(void **state)
{
    struct region r;
    struct err err;

    (void)state;
    assert_int_equal(region_open(&r, 5 * MIB, REGION_HUGE, &err), 0);
    assert_int_equal(r.size, 6 * MIB);
    assert_int_equal((uintptr_t)r.base % (2 * MIB), 0);
    assert_true(all_there(&r));
    for (uint64_t at = 0; at < r.size; at += 4096)
        assert_int_equal(r.base[at], 0);
    region_close(&r);
    assert_null(r.base);
    region_close(&r);

    assert_int_equal(region_open(&r, 0, REGION_SMALL, &err), 0);
    region_close(&r);
    assert_int_equal(region_open(&r, UINT64_MAX - 5, REGION_HUGE, &err), -1);
    assert_int_equal(err.kind, ERR_NOMEM);
}

static void it_grows_and_shrinks_in_place_and_keeps_what_it_holds(void **state)
{
    struct region r;

    (void)state;
    open_ok(&r, 4 * MIB, 64 * MIB, REGION_HUGE);
    char *base = r.base;
    for (uint64_t at = 0; at < r.size; at += 4096)
        r.base[at] = (char)(at / 4096);
    for (uint64_t size = 4; size <= 64; size *= 2) {
        resize_ok(&r, size * MIB);
        assert_ptr_equal(r.base, base);
        assert_int_equal(r.size, size * MIB);
        assert_true(all_there(&r));
    }
    r.base[63 * MIB] = 5;
    resize_ok(&r, 3 * MIB); /* whole pages: 4 MiB stay */
    assert_int_equal(r.size, 4 * MIB);
    for (uint64_t at = 0; at < r.size; at += 4096)
        assert_int_equal(r.base[at], (char)(at / 4096));
    resize_ok(&r, 64 * MIB);
    assert_int_equal(r.base[63 * MIB], 0); /* not what was there before */
    resize_ok(&r, 0);
    resize_ok(&r, 2 * MIB);
    assert_int_equal(r.base[0], 0);
    region_close(&r);
}

static void what_is_beyond_its_size_costs_nothing_and_cannot_be_touched(void **state)
{
    struct region r;
    struct err err;
    uint64_t before = own_anonymous();

    (void)state;
    open_ok(&r, 2 * MIB, 1ull << 40, REGION_HUGE); /* a tebibyte of addresses */
    assert_true(own_anonymous() < before + 8 * MIB);
    assert_true(can_be_read(r.base + r.size - 1));
    assert_false(can_be_read(r.base + r.size));
    assert_int_equal(region_resize(&r, (1ull << 40) + 1, &err), -1);
    assert_int_equal(err.kind, ERR_NOMEM);
    assert_int_equal(r.size, 2 * MIB);
    region_drop_reserve(&r);
    assert_int_equal(r.most, 2 * MIB);
    assert_int_equal(region_resize(&r, 4 * MIB, &err), -1);
    region_close(&r);
}

static void where_addresses_are_limited_none_are_set_aside(void **state)
{
    struct rlimit before, limit;
    struct region r;
    struct err err;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = 1ull << 46;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    open_ok(&r, 2 * MIB, 1ull << 32, REGION_HUGE);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(r.most, 2 * MIB);
    assert_int_equal(region_resize(&r, 4 * MIB, &err), -1);
    resize_ok(&r, 0);
    resize_ok(&r, 2 * MIB);
    region_close(&r);
}

static uint64_t locked(void)
{
    return group_number("/proc/self/status", "VmLck:") * 1024;
}

static void wired_memory_is_given_back_all_the_same(void **state)
{
    struct region r;
    uint64_t before = locked();

    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip(); /* it makes munlock do nothing */
#endif
    open_ok(&r, 2 * MIB, 64 * MIB, REGION_HUGE);
    assert_int_equal(mlock2(r.base, r.size, MLOCK_ONFAULT), 0); /* 8 MiB are allowed to anybody */
    region_lock(&r);
    assert_int_equal(locked(), before + 2 * MIB);
    resize_ok(&r, 6 * MIB);
    assert_int_equal(locked(), before + 6 * MIB);
    uint64_t anonymous = own_anonymous();
    resize_ok(&r, 2 * MIB);
    assert_int_equal(locked(), before + 2 * MIB);
    assert_true(own_anonymous() + 3 * MIB < anonymous);
    region_close(&r);
}

/* A huge page of which a part is unmapped stays charged whole; whole ones come back. */
static void what_is_cut_off_leaves_the_group_and_the_process(void **state)
{
    struct memory_group group;
    struct region r;
    uint64_t anonymous[3], charged[3];

    (void)state;
    if (!group_enter(&group, 0))
        skip();
    uint64_t anonymous_before = own_anonymous(), charged_before = group_usage(&group);
    open_ok(&r, 96 * MIB, 96 * MIB, REGION_HUGE);
    for (int i = 0; i < 3; i++) {
        anonymous[i] = own_anonymous() - anonymous_before;
        charged[i] = group_usage(&group) - charged_before;
        resize_ok(&r, i == 0 ? 31 * MIB : 96 * MIB);
    }
    region_close(&r);
    group_leave(&group);
    /* The kernel counts in batches, and takes some pages for itself. */
    static const uint64_t expected[3] = { 96 * MIB, 32 * MIB, 96 * MIB };
    for (int i = 0; i < 3; i++) {
        assert_in_range(anonymous[i], expected[i] - MIB, expected[i] + 2 * MIB);
        assert_in_range(charged[i], expected[i] - MIB, expected[i] + 4 * MIB);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_region_is_aligned_zeroed_and_all_there),
        cmocka_unit_test(it_grows_and_shrinks_in_place_and_keeps_what_it_holds),
        cmocka_unit_test(what_is_beyond_its_size_costs_nothing_and_cannot_be_touched),
        cmocka_unit_test(where_addresses_are_limited_none_are_set_aside),
        cmocka_unit_test(wired_memory_is_given_back_all_the_same),
        cmocka_unit_test(what_is_cut_off_leaves_the_group_and_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
