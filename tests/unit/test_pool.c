/* The pool: every item once, whatever the number of threads, and no time used when idle. */
#include "util/clock.h"
#include "util/cpu_quota.h"
#include "util/err.h"
#include "util/pool.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { ITEMS_MAX = 5000 };

struct count {
    uint32_t times[ITEMS_MAX]; /* plain: each item is written by the thread that has it */
    uint32_t n_threads;
    _Atomic uint32_t pieces, bad;
};

static void count_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    struct count *c = ctx;

    if (begin >= end || thread >= c->n_threads)
        c->bad++;
    c->pieces++;
    for (uint32_t i = begin; i < end; i++)
        c->times[i]++;
}

static struct pool *open_pool(uint32_t n_threads)
{
    struct pool *p = NULL;
    struct err err;

    if (pool_open(&p, n_threads, &err) < 0)
        fail_msg("%s", err.text);
    return p;
}

static void every_item_is_done_once_by_any_number_of_threads(void **state)
{
    static const uint32_t sizes[] = { 0, 1, 2, 3, 7, 64, 65, 1000, 5000 };
    static const uint32_t grains[] = { 0, 1, 2, 16, 100, 6000 };
    static struct count c;

    (void)state;
    for (uint32_t n_threads = 1; n_threads <= 5; n_threads++) {
        struct pool *p = open_pool(n_threads);

        assert_int_equal(pool_threads(p), n_threads);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t g = 0; g < sizeof grains / sizeof *grains; g++) {
                memset(c.times, 0, sizeof c.times);
                c.n_threads = n_threads;
                c.pieces = c.bad = 0;
                pool_run(p, count_items, &c, sizes[s], grains[g]);
                assert_int_equal(c.bad, 0);
                for (uint32_t i = 0; i < ITEMS_MAX; i++)
                    assert_int_equal(c.times[i], i < sizes[s] ? 1 : 0);
            }
        pool_close(p);
    }
}

/* Results of one job are the input of the next, without any lock of the caller's: what a
 * thread wrote must be seen by all in the following job. */
struct chain {
    uint64_t now[257], next[257];
};

static void chain_step(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    struct chain *c = ctx;

    (void)thread;
    for (uint32_t i = begin; i < end; i++)
        c->next[i] = c->now[i] + c->now[(i + 100) % 257];
}

static void jobs_follow_each_other_in_order(void **state)
{
    enum { JOBS = 3000 };
    struct chain want, got;

    (void)state;
    for (uint32_t i = 0; i < 257; i++)
        want.now[i] = i;
    for (int job = 0; job < JOBS; job++) {
        chain_step(&want, 0, 257, 0);
        memcpy(want.now, want.next, sizeof want.now);
    }
    for (uint32_t n_threads = 2; n_threads <= 5; n_threads++) {
        struct pool *p = open_pool(n_threads);

        for (uint32_t i = 0; i < 257; i++)
            got.now[i] = i;
        for (int job = 0; job < JOBS; job++) {
            pool_run(p, chain_step, &got, 257, 16);
            memcpy(got.now, got.next, sizeof got.now);
        }
        assert_memory_equal(got.now, want.now, sizeof got.now);
        assert_int_equal(pool_jobs(p), JOBS);
        pool_close(p);
    }
}

static void nap(long ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

    nanosleep(&t, NULL);
}

struct meeting {
    _Atomic uint32_t here;
    _Atomic bool met;
};

/* Ends only when two threads are in it at once, or after ten seconds. */
static void meet(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    struct meeting *m = ctx;
    uint64_t limit = clock_ms() + 10000;

    (void)begin;
    (void)end;
    (void)thread;
    if (++m->here >= 2)
        m->met = true;
    while (!m->met && clock_ms() < limit)
        sched_yield();
}

static void a_sleeping_thread_comes_when_there_is_work(void **state)
{
    struct pool *p = open_pool(2);

    (void)state;
    for (int i = 0; i < 20; i++) {
        struct meeting m = { .here = 0, .met = false };

        nap(i % 4); /* within the spin, and long after it */
        pool_run(p, meet, &m, 2, 1);
        assert_true(m.met);
    }
    pool_close(p);
}

static void sleep_a_little(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    _Atomic uint32_t *done = ctx;

    (void)begin;
    (void)end;
    nap(thread == 0 ? 1 : 5);
    ++*done;
}

static void a_job_ends_only_when_its_slowest_piece_is_done(void **state)
{
    struct pool *p = open_pool(4);

    (void)state;
    for (int i = 0; i < 10; i++) {
        _Atomic uint32_t done = 0;
        pool_run(p, sleep_a_little, &done, 6, 1);
        assert_int_equal(done, 6);
    }
    pool_close(p);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void an_idle_pool_uses_no_time(void **state)
{
    static struct count c = { .n_threads = 5 };
    struct pool *p = open_pool(5);

    (void)state;
    pool_run(p, count_items, &c, 1000, 1);
    nap(50); /* the spin is over long before */
    uint64_t before = cpu_ns();
    nap(300);
    assert_true(cpu_ns() - before < 5000000);
    pool_close(p);
}

static void one_thread_means_no_other_thread(void **state)
{
    static struct count c = { .n_threads = 1 };
    struct pool *p = open_pool(1);

    (void)state;
    pool_run(p, count_items, &c, 100, 1);
    assert_int_equal(c.pieces, 1);
    assert_int_equal(pool_jobs(p), 0);
    pool_close(p);
    pool_close(NULL);
}

static void a_senseless_number_of_threads_is_refused(void **state)
{
    struct pool *p = NULL;
    struct err err;

    (void)state;
    assert_int_equal(pool_open(&p, 1000000, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    assert_null(p);
}

/* ---- how many ---- */

static void automatic_threads_follow_the_affinity_mask(void **state)
{
    cpu_set_t before, one;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_true(pool_auto_threads() >= 1);
    assert_true(pool_auto_threads() <= (uint32_t)CPU_COUNT(&before));

    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &before)) {
            CPU_SET(cpu, &one);
            break;
        }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    uint32_t n = pool_auto_threads();
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(n, 1);
}

/* A folder that looks like a machine. */
struct machine {
    char root[64];
};

static void put(const struct machine *m, const char *path, const char *text)
{
    char full[512];

    snprintf(full, sizeof full, "%s%s", m->root, path);
    for (char *slash = strchr(full + strlen(m->root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static struct machine make_machine(void)
{
    struct machine m;

    snprintf(m.root, sizeof m.root, "/tmp/test-pool-XXXXXX");
    assert_non_null(mkdtemp(m.root));
    return m;
}

static void remove_machine(const struct machine *m)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf '%s'", m->root);
    assert_int_equal(system(command), 0);
}

#define MOUNT_V2 "31 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
#define MOUNT_V1 \
    "24 1 0:22 / / rw - ext4 /dev/vda rw\n" \
    "40 30 0:35 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" \
    "41 30 0:36 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"

static void the_tightest_group_above_counts_in_cgroup_v2(void **state)
{
    struct machine m = make_machine();

    (void)state;
    assert_int_equal(cpu_quota(m.root), UINT32_MAX); /* nothing there: nothing limits */
    put(&m, "/proc/self/mountinfo", MOUNT_V2);
    put(&m, "/proc/self/cgroup", "0::/system.slice/colizigd.service\n");
    put(&m, "/sys/fs/cgroup/system.slice/colizigd.service/cpu.max", "max 100000\n");
    assert_int_equal(cpu_quota(m.root), UINT32_MAX);
    put(&m, "/sys/fs/cgroup/system.slice/cpu.max", "250000 100000\n");
    assert_int_equal(cpu_quota(m.root), 3);
    put(&m, "/sys/fs/cgroup/system.slice/colizigd.service/cpu.max", "800000 100000\n");
    assert_int_equal(cpu_quota(m.root), 3);
    put(&m, "/sys/fs/cgroup/system.slice/colizigd.service/cpu.max", "20000 100000\n");
    assert_int_equal(cpu_quota(m.root), 1);
    put(&m, "/sys/fs/cgroup/system.slice/colizigd.service/cpu.max", "what\n");
    assert_int_equal(cpu_quota(m.root), 3);
    remove_machine(&m);
}

static void the_tightest_group_above_counts_in_cgroup_v1(void **state)
{
    struct machine m = make_machine();

    (void)state;
    put(&m, "/proc/self/mountinfo", MOUNT_V1);
    put(&m, "/proc/self/cgroup", "7:memory:/other\n4:cpuset:/x\n3:cpu,cpuacct:/a/b\n");
    put(&m, "/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n");
    put(&m, "/sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpu_quota(m.root), UINT32_MAX);
    put(&m, "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "100000\n");
    put(&m, "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "50000\n");
    assert_int_equal(cpu_quota(m.root), 2);
    remove_machine(&m);
}

static void a_container_sees_the_limit_at_its_mount_point(void **state)
{
    struct machine m = make_machine();

    (void)state;
    /* The group is the mount's root itself. */
    put(&m, "/proc/self/mountinfo",
        "31 24 0:26 /docker/77 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
    put(&m, "/proc/self/cgroup", "0::/docker/77\n");
    put(&m, "/sys/fs/cgroup/cpu.max", "400000 100000\n");
    assert_int_equal(cpu_quota(m.root), 4);
    /* A group below it. */
    put(&m, "/proc/self/cgroup", "0::/docker/77/inner\n");
    put(&m, "/sys/fs/cgroup/inner/cpu.max", "200000 100000\n");
    assert_int_equal(cpu_quota(m.root), 2);
    /* Seen from another namespace: the path leads nowhere. */
    put(&m, "/proc/self/cgroup", "0::/../../elsewhere\n");
    assert_int_equal(cpu_quota(m.root), 4);
    remove_machine(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once_by_any_number_of_threads),
        cmocka_unit_test(jobs_follow_each_other_in_order),
        cmocka_unit_test(a_sleeping_thread_comes_when_there_is_work),
        cmocka_unit_test(a_job_ends_only_when_its_slowest_piece_is_done),
        cmocka_unit_test(an_idle_pool_uses_no_time),
        cmocka_unit_test(one_thread_means_no_other_thread),
        cmocka_unit_test(a_senseless_number_of_threads_is_refused),
        cmocka_unit_test(automatic_threads_follow_the_affinity_mask),
        cmocka_unit_test(the_tightest_group_above_counts_in_cgroup_v2),
        cmocka_unit_test(the_tightest_group_above_counts_in_cgroup_v1),
        cmocka_unit_test(a_container_sees_the_limit_at_its_mount_point),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
