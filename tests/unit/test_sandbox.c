/* What a process can no longer do once it has narrowed itself. Each case in a child. */
#include "daemon/sandbox.h"
#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* What a sandbox does cannot be undone, so each case runs in a child that says by its status
 * which check failed; 0: none. */
static int in_child(int (*body)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(body());
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int enter(void)
{
    struct rlimit limit;
    struct err err;

    if (sandbox_enter(40, &err) < 0)
        return 1;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        return 2;
    if (getrlimit(RLIMIT_CORE, &limit) < 0 || limit.rlim_max != 0)
        return 3;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_max != 40)
        return 4;
    if (sandbox_enter(41, &err) == 0 || err.kind != ERR_INPUT) /* never back up */
        return 5;
    return 0;
}

static void entering_gives_up_privileges_cores_and_descriptors(void **state)
{
    (void)state;
    assert_int_equal(in_child(enter), 0);
}

/* Whatever the kernel can do, what is said is what holds. */
static int no_files(void)
{
    struct err err;
    int pipe_fds[2];
    char byte = 1;

    if (sandbox_enter(0, &err) < 0)
        return 1;
    int enforced = sandbox_no_files(&err);
    if (enforced < 0)
        return 2;
    int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    if (enforced ? fd >= 0 || errno != EACCES : fd < 0)
        return 3;
    int made = open("/tmp/colizig-test-sandbox", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (enforced && (made >= 0 || errno != EACCES))
        return 4;
    if (made >= 0)
        unlink("/tmp/colizig-test-sandbox");
    /* What a worker lives by still works. */
    if (pipe2(pipe_fds, O_CLOEXEC) < 0 || write(pipe_fds[1], &byte, 1) != 1 ||
        read(pipe_fds[0], &byte, 1) != 1 || socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0)
        return 5;
    return 0;
}

static void no_files_means_that_none_can_be_opened_or_made(void **state)
{
    (void)state;
    assert_int_equal(in_child(no_files), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entering_gives_up_privileges_cores_and_descriptors),
        cmocka_unit_test(no_files_means_that_none_can_be_opened_or_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
