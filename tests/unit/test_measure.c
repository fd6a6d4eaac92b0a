/* measure: the kernel's figures of a process and of a control group. */
#include "daemon/supervisor/measure.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a process ---- */

static void a_process_holds_what_it_touched(void **state)
{
    enum { SIZE = 32 << 20 };
    struct measured_process before, after;

    (void)state;
    assert_true(measure_process(&before, getpid()));
    char *memory = malloc(SIZE);
    assert_non_null(memory);
    memset(memory, 1, SIZE);
    __asm__ volatile("" : : "r"(memory) : "memory");
    assert_true(measure_process(&after, getpid()));
    assert_in_range(after.anonymous - before.anonymous, SIZE / 2, 2 * SIZE);
    free(memory);
}

static void descriptors_are_counted_without_the_one_it_takes_to_count(void **state)
{
    struct measured_process before, after;

    (void)state;
    assert_true(measure_process(&before, getpid()));
    assert_true(before.descriptors_known);
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(measure_process(&after, getpid()));
    assert_int_equal(after.descriptors, before.descriptors + 1);
    close(fd);
}

static void a_process_that_is_gone_has_no_figures(void **state)
{
    struct measured_process out;
    pid_t pid = fork();

    (void)state;
    if (pid == 0)
        _exit(0);
    assert_true(pid > 0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_false(measure_process(&out, pid)); /* a zombie */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(measure_process(&out, pid));
    assert_false(measure_process(&out, 0));
}

/* ---- a control group ---- */

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

static int make_machine(void **state)
{
    struct machine *m = calloc(1, sizeof *m);

    if (!m)
        return -1;
    snprintf(m->root, sizeof m->root, "/tmp/test-measure-XXXXXX");
    *state = m;
    return mkdtemp(m->root) ? 0 : -1;
}

static int remove_machine(void **state)
{
    struct machine *m = *state;
    char command[128];

    snprintf(command, sizeof command, "rm -rf '%s'", m->root);
    free(m);
    return system(command);
}

static void a_group_of_version_2_tells_usage_cache_and_the_tightest_limit(void **state)
{
    const struct machine *m = *state;
    struct measured_cgroup g;

    assert_false(measure_cgroup(&g, m->root));
    put(m, "/proc/self/mountinfo", "31 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put(m, "/proc/self/cgroup", "0::/system.slice/colizigd.service\n");
    assert_false(measure_cgroup(&g, m->root)); /* no memory controller */
    put(m, "/sys/fs/cgroup/system.slice/colizigd.service/memory.current", "5000000\n");
    assert_true(measure_cgroup(&g, m->root));
    assert_true(g.limit == UINT64_MAX);
    put(m, "/sys/fs/cgroup/system.slice/colizigd.service/memory.stat",
        "anon 1\nfile 9999\ninactive_file 300\nactive_file 45\nunevictable 7\n");
    put(m, "/sys/fs/cgroup/system.slice/colizigd.service/memory.max", "max\n");
    put(m, "/sys/fs/cgroup/system.slice/memory.max", "8000000\n");
    put(m, "/sys/fs/cgroup/system.slice/memory.high", "9000000\n");
    assert_true(measure_cgroup(&g, m->root));
    assert_int_equal(g.version, 2);
    assert_int_equal(g.usage, 5000000);
    assert_int_equal(g.file, 345);
    assert_int_equal(g.limit, 8000000);
    assert_string_equal(g.dir, "/sys/fs/cgroup/system.slice/colizigd.service");
}

static void a_group_of_version_1_tells_the_same(void **state)
{
    const struct machine *m = *state;
    struct measured_cgroup g;

    put(m, "/proc/self/mountinfo",
        "31 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "40 30 0:35 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    put(m, "/proc/self/cgroup", "7:memory:/a\n0::/\n");
    put(m, "/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "123456\n");
    put(m, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
    put(m, "/sys/fs/cgroup/memory/a/memory.stat",
        "cache 5\ninactive_file 1\nactive_file 2\ntotal_inactive_file 10\ntotal_active_file 20\n");
    assert_true(measure_cgroup(&g, m->root));
    assert_int_equal(g.version, 1);
    assert_int_equal(g.usage, 123456);
    assert_int_equal(g.file, 30);
    assert_true(g.limit == UINT64_MAX);
    put(m, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "777777\n");
    assert_true(measure_cgroup(&g, m->root));
    assert_int_equal(g.limit, 777777);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_holds_what_it_touched),
        cmocka_unit_test(descriptors_are_counted_without_the_one_it_takes_to_count),
        cmocka_unit_test(a_process_that_is_gone_has_no_figures),
        cmocka_unit_test_setup_teardown(
            a_group_of_version_2_tells_usage_cache_and_the_tightest_limit, make_machine,
            remove_machine),
        cmocka_unit_test_setup_teardown(a_group_of_version_1_tells_the_same, make_machine,
                                        remove_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
