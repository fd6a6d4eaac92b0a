/* Processes that narrow themselves to a role, for tests that try what they still can.
 *
 * What a sandbox does cannot be undone, so each attempt runs in a child of its own, which says by
 * its end what came of it: an errno as its exit status (0: it worked), or SIGSYS. */
#ifndef TESTS_SANDBOX_FIXTURE_H
#define TESTS_SANDBOX_FIXTURE_H

#include "daemon/sandbox/sandbox.h"
#include "util/err.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

enum { DIES = 1000, /* of SIGSYS */ NOT_NARROWED = 250, OTHER_SIGNAL = 2000 };

enum role { WORKER, ENGINE, SUPERVISOR };
static const char *const role_names[] = { "worker", "engine", "supervisor" };

/* What the attempts need, made before anything is given up. */
static struct {
    char dir[64]; /* holds model, state, blob and other */
    char model[96], state[96], shard[128], linked[128], blob[96], other[96];
    int listener, client; /* connected to it, not yet accepted */
    int pair[2];
    sigset_t none;
    pid_t parent;
} here;

/* The file's own errno, or 0. */
static inline int outcome(long rc)
{
    return rc < 0 ? errno : 0;
}

static inline int narrow(enum role role, struct sandbox *s)
{
    struct sandbox_files files = { .model_dir = here.model, .state_dir = here.state };
    struct err err;

    if (role == SUPERVISOR)
        return sandbox_supervisor(s, &err);
    if (sandbox_enter(0, &err) < 0)
        return -1;
    return role == WORKER ? sandbox_worker(s, &err) : sandbox_engine(s, &files, &err);
}

/* An exit status, DIES, or OTHER_SIGNAL and its number. */
static inline int ending(pid_t pid)
{
    int status;

    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    return WTERMSIG(status) == SIGSYS ? DIES : OTHER_SIGNAL + WTERMSIG(status);
}

static inline int in_child(enum role role, int (*attempt)(void))
{
    struct sandbox s;
    pid_t pid = fork();

    if (pid == 0)
        _exit(narrow(role, &s) < 0 ? NOT_NARROWED : attempt());
    return ending(pid);
}

/* What this machine has, as a narrowed child sees it. */
static inline struct sandbox what_holds(void)
{
    struct sandbox s = { 0 };
    int pipe_fds[2];

    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        bool fine = narrow(WORKER, &s) == 0 && write(pipe_fds[1], &s, sizeof s) == sizeof s;
        _exit(fine ? 0 : NOT_NARROWED);
    }
    close(pipe_fds[1]);
    ssize_t got = read(pipe_fds[0], &s, sizeof s);
    close(pipe_fds[0]);
    assert_int_equal(ending(pid), 0);
    assert_int_equal(got, sizeof s);
    return s;
}

static inline void need_seccomp(void)
{
    if (what_holds().seccomp)
        return;
    print_message("this kernel or container has no filters of system calls\n");
    skip();
}

static inline void need_landlock(int version)
{
    if (what_holds().landlock >= version)
        return;
    print_message("no Landlock of version %d here, or a build with sanitizers\n", version);
    skip();
}

/* ---- the surroundings ---- */

static inline void make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "weights", 7), 7);
    close(fd);
}

static inline int set_up(void **state)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    char *real;

    (void)state;
    snprintf(here.dir, sizeof here.dir, "/tmp/colizig-sandbox-XXXXXX");
    assert_non_null(mkdtemp(here.dir));
    real = realpath(here.dir, NULL);
    assert_non_null(real);
    snprintf(here.model, sizeof here.model, "%s/model", real);
    snprintf(here.state, sizeof here.state, "%s/state", real);
    snprintf(here.shard, sizeof here.shard, "%s/a.safetensors", here.model);
    snprintf(here.linked, sizeof here.linked, "%s/b.safetensors", here.model);
    snprintf(here.blob, sizeof here.blob, "%s/blob", real);
    snprintf(here.other, sizeof here.other, "%s/other", real);
    free(real);
    assert_int_equal(mkdir(here.model, 0700) | mkdir(here.state, 0700), 0);
    make_file(here.shard);
    make_file(here.blob);
    make_file(here.other);
    assert_int_equal(symlink("../blob", here.linked), 0);

    here.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    here.client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(here.listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(here.listener, 1), 0);
    assert_int_equal(getsockname(here.listener, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(connect(here.client, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, here.pair), 0);
    sigemptyset(&here.none);
    here.parent = getpid();
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    unlink(here.shard);
    unlink(here.linked);
    unlink(here.blob);
    unlink(here.other);
    rmdir(here.model);
    rmdir(here.state);
    return rmdir(here.dir);
}

/* As the supervisor starts a child: this program again, which leaves at once. */
static inline int execute_itself(void)
{
    static char name[] = "test_sandbox", word[] = "--leave";
    char *argv[] = { name, word, NULL };
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), status;
    pid_t pid = fork();

    if (pid == 0) {
        fexecve(fd, argv, environ);
        _exit(errno);
    }
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return EPROTO;
    return WEXITSTATUS(status) == 77 ? 0 : WEXITSTATUS(status);
}

#endif
