/* Memory limits out of made-up /proc and /sys/fs/cgroup trees. */
#include "store/machine.h"

#include "util/err.h"
#include "util/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/colizig-machine-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[128];
    (void)state;

    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command) == 0 ? 0 : -1;
}

/* Writes a file below the root, with its directories. */
static void put(const char *path, const char *text)
{
    char full[512];

    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(full, 0755);
        *at = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void put_meminfo(void)
{
    put("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1048576 kB\n"
                         "MemAvailable:    8388608 kB\nCached:          4194304 kB\n");
}

static void mount_v2(void)
{
    put("/proc/self/mountinfo", "30 25 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
}

static void mount_hybrid(void)
{
    put("/proc/self/mountinfo", "30 25 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
                                "31 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
                                "32 30 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                                "33 30 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup "
                                "rw,hugetlb,memory\n");
}

static void expect(uint64_t limit, uint64_t available, const char *source)
{
    struct machine_memory m;
    struct err err = { 0 };

    if (machine_memory(&m, root, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(m.total, 16 * GIB);
    assert_int_equal(m.limit, limit);
    assert_int_equal(m.available, available);
    assert_string_equal(m.source, source);
}

static void without_cgroups_the_machine_binds(void **state)
{
    (void)state;
    put_meminfo();
    expect(UINT64_MAX, 8 * GIB, "machine");
    put("/proc/self/cgroup", "");
    expect(UINT64_MAX, 8 * GIB, "machine");
}

static void unlimited_groups_do_not_bind(void **state)
{
    (void)state;
    put_meminfo();
    mount_hybrid();
    put("/proc/self/cgroup", "12:memory:/user.slice\n0::/user.slice\n");
    put("/sys/fs/cgroup/unified/user.slice/memory.max", "max\n");
    put("/sys/fs/cgroup/memory/user.slice/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/user.slice/memory.usage_in_bytes", "123\n");
    expect(UINT64_MAX, 8 * GIB, "machine");
}

static void version_2_binds_less_what_is_used_without_file_cache(void **state)
{
    (void)state;
    put_meminfo();
    mount_v2();
    put("/proc/self/cgroup", "0::/system.slice/colizigd.service\n");
    put("/sys/fs/cgroup/system.slice/colizigd.service/memory.max", "4294967296\n");
    put("/sys/fs/cgroup/system.slice/colizigd.service/memory.current", "2147483648\n");
    put("/sys/fs/cgroup/system.slice/colizigd.service/memory.stat",
        "anon 1073741824\nfile 1073741824\nactive_file 536870912\ninactive_file 268435456\n"
        "active_anon 99\n");
    /* 4 GiB - (2 GiB - 768 MiB) */
    expect(4 * GIB, 4 * GIB - (2 * GIB - 768 * MIB), "cgroup v2");
}

static void a_tighter_group_above_binds(void **state)
{
    (void)state;
    put_meminfo();
    mount_v2();
    put("/proc/self/cgroup", "0::/a/b/c\n");
    put("/sys/fs/cgroup/a/b/c/memory.max", "6442450944\n");
    put("/sys/fs/cgroup/a/b/c/memory.current", "0\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/memory.max", "5368709120\n");
    put("/sys/fs/cgroup/a/memory.current", "4294967296\n");
    expect(5 * GIB, 1 * GIB, "cgroup v2");
}

static void memory_high_is_a_limit_too(void **state)
{
    (void)state;
    put_meminfo();
    mount_v2();
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "max\n");
    put("/sys/fs/cgroup/a/memory.high", "3221225472\n");
    put("/sys/fs/cgroup/a/memory.current", "1073741824\n");
    expect(3 * GIB, 2 * GIB, "cgroup v2");
}

static void version_1_binds(void **state)
{
    (void)state;
    put_meminfo();
    mount_hybrid();
    put("/proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/x/y\n1:name=systemd:/z\n");
    put("/sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "2147483648\n");
    put("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1073741824\n");
    put("/sys/fs/cgroup/memory/x/memory.stat",
        "cache 900000000\ntotal_inactive_file 268435456\ntotal_active_file 268435456\n");
    expect(2 * GIB, 1 * GIB + 512 * MIB, "cgroup v1");
}

static void a_hybrid_system_is_asked_in_both_places(void **state)
{
    (void)state;
    put_meminfo();
    mount_hybrid();
    put("/proc/self/cgroup", "5:hugetlb,memory:/job\n0::/job\n");
    put("/sys/fs/cgroup/unified/job/cgroup.procs", "1\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3221225472\n");
    put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1024\n");
    expect(3 * GIB, 3 * GIB - 1024, "cgroup v1");
    put("/sys/fs/cgroup/unified/job/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/unified/job/memory.current", "4096\n");
    expect(1 * GIB, 1 * GIB - 4096, "cgroup v2");
}

static void a_container_that_sees_only_its_own_root_is_bound_by_it(void **state)
{
    (void)state;
    put_meminfo();
    mount_hybrid();
    put("/proc/self/cgroup", "3:memory:/docker/0123456789ab\n0::/docker/0123456789ab\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
    expect(2 * GIB, 2 * GIB, "cgroup v1");
    put("/sys/fs/cgroup/unified/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/unified/memory.current", "0\n");
    expect(1 * GIB, 1 * GIB, "cgroup v2");
}

static void a_path_outside_the_namespace_falls_back_to_the_root(void **state)
{
    (void)state;
    put_meminfo();
    mount_v2();
    put("/proc/self/cgroup", "0::/../../other\n");
    put("/sys/fs/cgroup/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/memory.current", "536870912\n");
    put("/other/memory.max", "1\n");
    expect(1 * GIB, 512 * MIB, "cgroup v2");
}

static void use_beyond_the_limit_leaves_nothing(void **state)
{
    (void)state;
    put_meminfo();
    mount_v2();
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "1000\n");
    put("/sys/fs/cgroup/a/memory.current", "5000\n");
    put("/sys/fs/cgroup/a/memory.stat", "active_file garbage\n");
    expect(1000, 0, "cgroup v2");
}

static void a_roomy_group_leaves_the_machine_to_bind(void **state)
{
    (void)state;
    put_meminfo();
    mount_v2();
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "12884901888\n");
    put("/sys/fs/cgroup/a/memory.current", "0\n");
    expect(12 * GIB, 8 * GIB, "machine");
}

static void strange_files_are_no_limits_and_no_crash(void **state)
{
    (void)state;
    put_meminfo();
    mount_hybrid();
    put("/proc/self/cgroup", "\n:\n::\n:::\n0::\n7:memory:\nmemory\n0::a\n");
    put("/sys/fs/cgroup/unified/memory.max", "-5\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "99999999999999999999999\n");
    expect(UINT64_MAX, 8 * GIB, "machine");
}

static void a_machine_that_tells_nothing_is_an_error(void **state)
{
    struct machine_memory m;
    struct err err = { 0 };
    (void)state;

    assert_int_equal(machine_memory(&m, root, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    put("/proc/meminfo", "MemTotal:       16777216 kB\n");
    assert_int_equal(machine_memory(&m, root, &err), -1);
    assert_non_null(strstr(err.text, "MemAvailable"));
}

static void this_machine_has_memory(void **state)
{
    struct machine_memory m;
    struct err err = { 0 };
    (void)state;

    assert_int_equal(machine_memory(&m, "", &err), 0);
    assert_true(m.total > 64 * MIB && m.available > 0 && m.available <= m.total);
}

/* ---- asked again and again ---- */

static void what_is_asked_again_is_read_again_without_opening(void **state)
{
    struct machine_memory now;
    struct machine *m;
    struct err err = { 0 };
    (void)state;

    put_meminfo();
    mount_v2();
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.current", "1073741824\n");
    put("/sys/fs/cgroup/a/b/memory.stat", "active_file 0\n");
    put("/sys/fs/cgroup/a/memory.max", "4294967296\n");
    put("/sys/fs/cgroup/a/memory.current", "1073741824\n");
    put("/proc/self/status", "Name:\tx\nVmPTE:\t  4 kB\nVmSwap:\t  0 kB\nRssAnon:\t  2048 kB\n"
                             "RssFile:\t  77 kB\nRssShmem:\t  8 kB\n");
    put("/proc/pressure/memory", "some avg10=5.00 avg60=0.00 avg300=0.00 total=1\n"
                                 "full avg10=1.25 avg60=0.00 avg300=0.00 total=1\n");
    put("/sys/fs/cgroup/a/b/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
                                              "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
    assert_int_equal(machine_open(&m, root, &err), 0);
    assert_int_equal(machine_read(m, &now, &err), 0);
    assert_int_equal(now.free, 8 * GIB);
    assert_int_equal(now.group_room, 3 * GIB);
    assert_int_equal(now.own, 2060 * KIB);
    assert_int_equal(now.swapped, 0);
    assert_int_equal(now.machine_stall, 125);
    assert_int_equal(now.group_stall, 0);

    /* Everything changes, a limit is set in our own group, and no path leads here any more. */
    put("/proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:     524288 kB\n");
    put("/sys/fs/cgroup/a/b/memory.max", "2147483648\n");
    put("/sys/fs/cgroup/a/b/memory.current", "2147483640\n");
    put("/sys/fs/cgroup/a/b/memory.stat", "anon 5\nactive_file 1048576\n");
    put("/proc/self/status", "VmSwap:\t  12 kB\nRssAnon:\t  1 kB\n");
    put("/sys/fs/cgroup/a/b/memory.pressure", "full avg10=99.99 avg60=0.00\n");
    char hidden[96];
    snprintf(hidden, sizeof hidden, "%s-hidden", root);
    assert_int_equal(rename(root, hidden), 0);
    assert_int_equal(machine_read(m, &now, &err), 0);
    assert_int_equal(rename(hidden, root), 0);
    assert_int_equal(now.free, 512 * MIB);
    assert_int_equal(now.limit, 2 * GIB);
    assert_int_equal(now.group_room, 1 * MIB + 8);
    assert_int_equal(now.available, 1 * MIB + 8);
    assert_int_equal(now.own, 1 * KIB);
    assert_int_equal(now.swapped, 12 * KIB);
    assert_int_equal(now.group_stall, 9999);
    machine_close(m);
}

static void this_process_holds_what_it_touched(void **state)
{
    struct machine_memory before, after;
    struct machine *m;
    struct err err = { 0 };
    const size_t size = 32 << 20;
    (void)state;

    assert_int_equal(machine_open(&m, "", &err), 0);
    assert_int_equal(machine_read(m, &before, &err), 0);
    char *mine = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(mine != MAP_FAILED);
    memset(mine, 1, size);
    assert_int_equal(machine_read(m, &after, &err), 0);
    munmap(mine, size);
    machine_close(m);
    assert_in_range(after.own - before.own, size - MIB, 2 * size);
}

#define TREE_TEST(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TREE_TEST(without_cgroups_the_machine_binds),
        TREE_TEST(unlimited_groups_do_not_bind),
        TREE_TEST(version_2_binds_less_what_is_used_without_file_cache),
        TREE_TEST(a_tighter_group_above_binds),
        TREE_TEST(memory_high_is_a_limit_too),
        TREE_TEST(version_1_binds),
        TREE_TEST(a_hybrid_system_is_asked_in_both_places),
        TREE_TEST(a_container_that_sees_only_its_own_root_is_bound_by_it),
        TREE_TEST(a_path_outside_the_namespace_falls_back_to_the_root),
        TREE_TEST(use_beyond_the_limit_leaves_nothing),
        TREE_TEST(a_roomy_group_leaves_the_machine_to_bind),
        TREE_TEST(strange_files_are_no_limits_and_no_crash),
        TREE_TEST(a_machine_that_tells_nothing_is_an_error),
        cmocka_unit_test(this_machine_has_memory),
        TREE_TEST(what_is_asked_again_is_read_again_without_opening),
        cmocka_unit_test(this_process_holds_what_it_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
