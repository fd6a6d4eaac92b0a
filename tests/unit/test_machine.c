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
#include <sys/wait.h>
#include <unistd.h>

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
    put("/proc/self/cgroup", "12:memory:/user.slice\n0::/user.slice\n");
    put("/sys/fs/cgroup/user.slice/memory.max", "max\n");
    put("/sys/fs/cgroup/memory/user.slice/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/user.slice/memory.usage_in_bytes", "123\n");
    expect(UINT64_MAX, 8 * GIB, "machine");
}

static void version_2_binds_less_what_is_used_without_file_cache(void **state)
{
    (void)state;
    put_meminfo();
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
    put("/proc/self/cgroup", "3:memory:/docker/0123456789ab\n0::/docker/0123456789ab\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
    expect(2 * GIB, 2 * GIB, "cgroup v1");
    put("/sys/fs/cgroup/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/memory.current", "0\n");
    expect(1 * GIB, 1 * GIB, "cgroup v2");
}

static void a_path_outside_the_namespace_falls_back_to_the_root(void **state)
{
    (void)state;
    put_meminfo();
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
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "12884901888\n");
    put("/sys/fs/cgroup/a/memory.current", "0\n");
    expect(12 * GIB, 8 * GIB, "machine");
}

static void strange_files_are_no_limits_and_no_crash(void **state)
{
    (void)state;
    put_meminfo();
    put("/proc/self/cgroup", "\n:\n::\n:::\n0::\n7:memory:\nmemory\n0::a\n");
    put("/sys/fs/cgroup/memory.max", "-5\n");
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

/* Anonymous memory of a process and its children, to the mebibyte. */
static void touched_memory_is_counted_also_in_a_child(void **state)
{
    const size_t size = 32 << 20;
    uint64_t before, own, both;
    struct err err = { 0 };
    int ready[2], stop[2];
    char byte;
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* its shadow memory is counted too, and is in no fixed proportion */
#endif

    assert_int_equal(machine_anonymous(&before, getpid(), &err), 0);
    char *mine = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(mine != MAP_FAILED);
    memset(mine, 1, size);
    assert_int_equal(machine_anonymous(&own, getpid(), &err), 0);
    assert_true(own >= before + size && own < before + size + 4 * MIB);

    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(stop), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char *theirs = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        close(stop[1]);
        memset(theirs, 1, size);
        _exit(write(ready[1], "r", 1) == 1 && read(stop[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(stop[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    int rc = machine_anonymous(&both, getpid(), &err);
    close(stop[1]);
    int status;
    waitpid(child, &status, 0);
    munmap(mine, size);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(rc, 0);
    assert_int_equal(status, 0);
    assert_true(both >= own + size && both < own + size + 8 * MIB);
}

static void a_process_that_is_not_there_is_an_error(void **state)
{
    uint64_t bytes;
    struct err err = { 0 };
    (void)state;

    assert_int_equal(machine_anonymous(&bytes, 0x3fffffff, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
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
        cmocka_unit_test(touched_memory_is_counted_also_in_a_child),
        cmocka_unit_test(a_process_that_is_not_there_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
