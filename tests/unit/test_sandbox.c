/* What a process can no longer do once it has narrowed itself to a role, and what it still can.
 *
 * What a sandbox does cannot be undone, so each attempt runs in a child of its own, which says by
 * its end what came of it: an errno as its exit status (0: it worked), or SIGSYS. */
#include "daemon/sandbox.h"
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
static int outcome(long rc)
{
    return rc < 0 ? errno : 0;
}

static int narrow(enum role role, struct sandbox *s)
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
static int ending(pid_t pid)
{
    int status;

    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    return WTERMSIG(status) == SIGSYS ? DIES : OTHER_SIGNAL + WTERMSIG(status);
}

static int in_child(enum role role, int (*attempt)(void))
{
    struct sandbox s;
    pid_t pid = fork();

    if (pid == 0)
        _exit(narrow(role, &s) < 0 ? NOT_NARROWED : attempt());
    return ending(pid);
}

/* What this machine has, as a narrowed child sees it. */
static struct sandbox what_holds(void)
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

static void need_seccomp(void)
{
    if (what_holds().seccomp)
        return;
    print_message("this kernel or container has no filters of system calls\n");
    skip();
}

static void need_landlock(int version)
{
    if (what_holds().landlock >= version)
        return;
    print_message("no Landlock of version %d here, or a build with sanitizers\n", version);
    skip();
}

/* ---- attempts ---- */

static int open_passwd(void)
{
    return outcome(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
}

static int open_shard(void)
{
    return outcome(open(here.shard, O_RDONLY | O_CLOEXEC));
}

static int open_linked(void)
{
    return outcome(open(here.linked, O_RDONLY | O_CLOEXEC));
}

static int open_other(void)
{
    return outcome(open(here.other, O_RDONLY | O_CLOEXEC));
}

static int write_shard(void)
{
    return outcome(open(here.shard, O_RDWR | O_CLOEXEC));
}

static int write_linked(void)
{
    return outcome(open(here.linked, O_WRONLY | O_CLOEXEC));
}

static int remove_shard(void)
{
    return outcome(unlink(here.shard));
}

static int make_in(const char *dir)
{
    char path[128];

    snprintf(path, sizeof path, "%s/new", dir);
    return outcome(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
}

static int make_in_model(void)
{
    return make_in(here.model);
}

static int make_in_tmp(void)
{
    return make_in(here.dir);
}

/* As a file is replaced: written beside, then renamed. */
static int replace_in_state(void)
{
    char from[128], to[128], byte = 'x';

    snprintf(from, sizeof from, "%s/part", here.state);
    snprintf(to, sizeof to, "%s/whole", here.state);
    int fd = open(from, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || pwrite(fd, &byte, 1, 0) != 1 || ftruncate(fd, 1) < 0 || fsync(fd) < 0 ||
        rename(from, to) < 0 || unlink(to) < 0)
        return errno;
    return 0;
}

static int look_into_parent(void)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/environ", (int)here.parent);
    return outcome(open(path, O_RDONLY | O_CLOEXEC));
}

/* The kernel's own words: no new privileges, a filter, none of root's rights but two. */
static int read_own_status(void)
{
    const unsigned long long kept = CAP_TO_MASK(CAP_DAC_READ_SEARCH) | CAP_TO_MASK(CAP_IPC_LOCK);
    unsigned long long has;
    char text[4096], *rights;
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (got <= 0)
        return outcome(-1);
    text[got] = '\0';
    rights = strstr(text, "CapPrm:");
    if (!rights || sscanf(rights, "CapPrm: %llx", &has) != 1 || (has & ~kept))
        return EPROTO;
    return strstr(text, "NoNewPrivs:\t1") && strstr(text, "Seccomp:\t2") ? 0 : EPROTO;
}

static int become_root_again(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct all[2] = { { 0 }, { 0 } };

    return outcome(syscall(SYS_capset, &head, all));
}

static int execute_name(void)
{
    return outcome(execl("/bin/true", "true", (char *)NULL));
}

static int execute_descriptor(void)
{
    static char name[] = "true";
    char *argv[] = { name, NULL }, *none[] = { NULL };
    int fd = open("/bin/true", O_RDONLY | O_CLOEXEC);

    return outcome(syscall(SYS_execveat, fd, "", argv, none, AT_EMPTY_PATH));
}

/* As the supervisor starts a child: this program again, which leaves at once. */
static int execute_itself(void)
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

static int make_process(void)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    return outcome(pid);
}

static void *nothing(void *arg)
{
    return arg;
}

static int make_thread(void)
{
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, nothing, NULL);

    return rc ? rc : pthread_join(thread, NULL);
}

static int make_socket(void)
{
    return outcome(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static int make_local_socket(void)
{
    return outcome(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static int connect_held(void)
{
    struct sockaddr_in to = { .sin_family = AF_UNSPEC };

    return outcome(connect(here.client, (struct sockaddr *)&to, sizeof to));
}

static int bind_held(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET };

    return outcome(bind(here.client, (struct sockaddr *)&to, sizeof to));
}

static int trace_parent(void)
{
    return outcome(ptrace(PTRACE_ATTACH, here.parent, NULL, NULL));
}

static int read_parent_memory(void)
{
    char byte;
    struct iovec to = { &byte, 1 }, from = { &here, 1 };

    return outcome(process_vm_readv(here.parent, &to, 1, &from, 1, 0));
}

static int signal_parent(void)
{
    return outcome(kill(here.parent, 0));
}

static int signal_parent_thread(void)
{
    return outcome(syscall(SYS_tgkill, here.parent, here.parent, 0));
}

static int map_executable(void)
{
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);
    return at == MAP_FAILED ? errno : 0;
}

static int make_executable(void)
{
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return at == MAP_FAILED ? EPROTO : outcome(mprotect(at, 4096, PROT_READ | PROT_EXEC));
}

static int raise_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return EPROTO;
    return outcome(setrlimit(RLIMIT_NOFILE, &limit));
}

static int mount_proc(void)
{
    return outcome(mount("proc", here.dir, "proc", 0, NULL));
}

static int new_namespace(void)
{
    return outcome(syscall(SYS_unshare, 0x10000000 /* CLONE_NEWUSER */));
}

static int use_bpf(void)
{
    return outcome(syscall(SYS_bpf, 0, NULL, 0));
}

static int use_io_uring(void)
{
    return outcome(syscall(SYS_io_uring_setup, 1, NULL));
}

static int use_keys(void)
{
    return outcome(syscall(SYS_keyctl, 0, 0, 0, 0, 0));
}

static int use_userfaultfd(void)
{
    return outcome(syscall(SYS_userfaultfd, 0));
}

static int become_another(void)
{
    return outcome(syscall(SYS_setuid, getuid()));
}

/* Stands for all that is on no list. */
static int use_memfd(void)
{
    return outcome(memfd_create("x", MFD_CLOEXEC));
}

static int set_ip_option(void)
{
    int one = 1;

    return outcome(setsockopt(here.client, IPPROTO_IP, IP_TTL, &one, sizeof one));
}

/* ---- what is forbidden ---- */

struct attempt {
    const char *what;
    int (*run)(void);
    int ends[3]; /* by role; -1: not asked */
    bool sanitizers_may; /* their run-time does it: not asked in such a build */
};

static void try_all(const struct attempt *list, size_t n)
{
    bool wrong = false;

    for (size_t i = 0; i < n; i++) {
        for (enum role role = WORKER; role <= SUPERVISOR; role++) {
            if (list[i].ends[role] < 0 || (SANITIZED && list[i].sanitizers_may))
                continue;
            int end = in_child(role, list[i].run);
            if (end == list[i].ends[role])
                continue;
            print_error("%s: %s: ended with %d, not %d\n", role_names[role], list[i].what, end,
                        list[i].ends[role]);
            wrong = true;
        }
    }
    assert_false(wrong);
}

static void hostile_system_calls_end_the_process(void **state)
{
    static const struct attempt list[] = {
        { "executing a name", execute_name, { DIES, DIES, DIES }, true },
        { "executing a descriptor", execute_descriptor, { DIES, DIES, -1 }, false },
        { "a process", make_process, { DIES, DIES, 0 }, true },
        { "a thread", make_thread, { DIES, 0, 0 }, false },
        { "a TCP socket", make_socket, { DIES, DIES, 0 }, false },
        { "a local socket", make_local_socket, { DIES, DIES, 0 }, false },
        { "connect", connect_held, { DIES, DIES, -1 }, false },
        { "bind", bind_held, { DIES, DIES, -1 }, false },
        { "tracing the parent", trace_parent, { DIES, DIES, DIES }, true },
        { "reading the parent's memory", read_parent_memory, { DIES, DIES, DIES }, false },
        { "a signal to the parent", signal_parent, { DIES, DIES, 0 }, true },
        { "a signal to its thread", signal_parent_thread, { DIES, DIES, 0 }, false },
        { "mount", mount_proc, { DIES, DIES, DIES }, false },
        { "a namespace", new_namespace, { DIES, DIES, DIES }, false },
        { "bpf", use_bpf, { DIES, DIES, DIES }, false },
        { "io_uring", use_io_uring, { DIES, DIES, DIES }, false },
        { "keys", use_keys, { DIES, DIES, DIES }, false },
        { "userfaultfd", use_userfaultfd, { DIES, DIES, DIES }, false },
        { "capabilities", become_root_again, { DIES, DIES, 0 }, false },
        { "setuid", become_another, { DIES, DIES, DIES }, false },
    };

    (void)state;
    need_seccomp();
    try_all(list, sizeof list / sizeof list[0]);
}

static void other_system_calls_are_refused(void **state)
{
    static const struct attempt list[] = {
        { "opening a file", open_passwd, { EACCES, -1, 0 }, true },
        { "making a file", make_in_tmp, { EACCES, -1, -1 }, true },
        { "memory to write and execute", map_executable, { EPERM, EPERM, EPERM }, false },
        { "executing written memory", make_executable, { EPERM, EPERM, EPERM }, false },
        { "setting a limit", raise_limit, { EPERM, EPERM, 0 }, false },
        { "what is on no list", use_memfd, { ENOSYS, ENOSYS, 0 }, false },
        { "an option of IP", set_ip_option, { ENOSYS, ENOSYS, 0 }, false },
    };

    (void)state;
    need_seccomp();
    try_all(list, sizeof list / sizeof list[0]);
}

static void the_engine_opens_its_files_and_no_others(void **state)
{
    static const struct attempt list[] = {
        { "a shard", open_shard, { EACCES, 0, -1 }, false },
        { "a shard behind a symlink", open_linked, { EACCES, 0, -1 }, false },
        { "the blob's neighbour", open_other, { EACCES, EACCES, -1 }, false },
        { "/etc/passwd", open_passwd, { EACCES, EACCES, -1 }, false },
        { "writing a shard", write_shard, { EACCES, EACCES, -1 }, false },
        { "writing behind a symlink", write_linked, { EACCES, EACCES, -1 }, false },
        { "removing a shard", remove_shard, { -1, EACCES, -1 }, false },
        { "a new file among the shards", make_in_model, { EACCES, EACCES, -1 }, false },
        { "a new file elsewhere", make_in_tmp, { EACCES, EACCES, -1 }, false },
        { "state", replace_in_state, { -1, 0, -1 }, false },
        { "its own /proc", read_own_status, { EACCES, 0, -1 }, false },
        { "its parent's /proc", look_into_parent, { EACCES, EACCES, -1 }, false },
    };

    (void)state;
    need_landlock(1);
    try_all(list, sizeof list / sizeof list[0]);
    assert_int_equal(access(here.shard, F_OK), 0);
}

static void the_supervisor_executes_only_itself(void **state)
{
    (void)state;
    need_landlock(1);
    assert_int_equal(in_child(SUPERVISOR, execute_descriptor), EACCES);
    assert_int_equal(in_child(SUPERVISOR, execute_itself), 0);
}

/* ---- what still works ---- */

static bool serve_client(void)
{
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    int one = 1;
    char byte;
    int fd = accept4(here.listener, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);

    return fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0 &&
           send(fd, "x", 1, MSG_NOSIGNAL) == 1 && recv(here.client, &byte, 1, 0) == 1 &&
           shutdown(fd, SHUT_RDWR) == 0 && close(fd) == 0;
}

/* A descriptor goes over a channel, as a worker is given its end of one. */
static bool pass_descriptor(void)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    char byte = 'x';
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                              .msg_controllen = sizeof control };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &here.client, sizeof(int));
    return sendmsg(here.pair[0], &message, 0) == 1 &&
           recvmsg(here.pair[1], &message, MSG_CMSG_CLOEXEC) == 1 && message.msg_controllen > 0;
}

static bool run_loop(void)
{
    int loop = epoll_create1(EPOLL_CLOEXEC), event = eventfd(1, EFD_CLOEXEC);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct itimerspec soon = { .it_value.tv_nsec = 1 };
    struct epoll_event watch = { .events = EPOLLIN }, came;

    return loop >= 0 && epoll_ctl(loop, EPOLL_CTL_ADD, event, &watch) == 0 && timer >= 0 &&
           timerfd_settime(timer, 0, &soon, NULL) == 0 && epoll_wait(loop, &came, 1, 1000) == 1 &&
           fcntl(event, F_DUPFD_CLOEXEC, 10) >= 10;
}

static bool use_memory(void)
{
    char *block = malloc(1 << 20);

    if (!block)
        return false;
    memset(block, 1, 1 << 20);
    char *more = realloc(block, 8 << 20);
    if (!more)
        free(block);
    free(more);
    return more != NULL;
}

static bool use_signals_and_clocks(void)
{
    struct timespec moment = { .tv_nsec = 1000 };
    struct rlimit limit;

    signal(SIGUSR1, SIG_IGN);
    return raise(SIGUSR1) == 0 && nanosleep(&moment, NULL) == 0 &&
           clock_gettime(CLOCK_MONOTONIC, &moment) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
           sigprocmask(SIG_SETMASK, &here.none, NULL) == 0;
}

static int live_as_a_worker(void)
{
    return !serve_client() ? 1 : !pass_descriptor() ? 2 : !run_loop() ? 3 : !use_memory() ? 4
           : !use_signals_and_clocks() ? 5 : 0;
}

static void *name_and_compute(void *arg)
{
    return prctl(PR_SET_NAME, "compute-1") == 0 && use_memory() ? arg : NULL;
}

/* As the engine thread: it opens, reads and lists what it may, and starts threads of its own. */
static void *engine_work(void *arg)
{
    char byte;
    void *came = NULL;
    pthread_t thread;
    int fd = open(here.linked, O_RDONLY | O_CLOEXEC);
    DIR *list = opendir(here.model);
    struct stat st;

    if (fd < 0 || pread(fd, &byte, 1, 0) != 1 || fstat(fd, &st) < 0 || !list || !readdir(list) ||
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        return NULL;
    closedir(list);
    if (pthread_create(&thread, NULL, name_and_compute, arg) != 0 ||
        pthread_join(thread, &came) != 0)
        return NULL;
    return came;
}

static int live_as_the_engine(void)
{
    pthread_t thread;
    void *came = NULL;
    char *path = realpath(here.linked, NULL);
    bool resolved = path && strcmp(path, here.blob) == 0;

    free(path);
    if (!resolved)
        return 1;
    if (pthread_create(&thread, NULL, engine_work, &here) != 0 ||
        pthread_join(thread, &came) != 0 || !came)
        return 2;
    return !pass_descriptor() ? 3 : !run_loop() ? 4 : !use_signals_and_clocks() ? 5 : 0;
}

static void each_role_keeps_what_it_lives_by(void **state)
{
    (void)state;
    assert_int_equal(in_child(WORKER, live_as_a_worker), 0);
    assert_int_equal(in_child(ENGINE, live_as_the_engine), 0);
    assert_int_equal(in_child(SUPERVISOR, execute_itself), 0);
}

static int do_abort(void)
{
    struct rlimit limit;

    signal(SIGABRT, SIG_DFL);
    if (getrlimit(RLIMIT_CORE, &limit) < 0 || limit.rlim_max != 0)
        return 1;
    abort();
}

static void abort_is_seen_as_an_abort(void **state)
{
    (void)state;
    for (enum role role = WORKER; role <= SUPERVISOR; role++)
        assert_int_equal(in_child(role, do_abort), OTHER_SIGNAL + SIGABRT);
}

/* ---- limits, and saying what holds ---- */

static int enter(void)
{
    struct rlimit limit;
    struct err err;

    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        return 2;
    if (getrlimit(RLIMIT_CORE, &limit) < 0 || limit.rlim_max != 0)
        return 3;
    if (sandbox_enter(40, &err) < 0)
        return 4;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_max != 40)
        return 5;
    if (sandbox_enter(41, &err) == 0 || err.kind != ERR_INPUT) /* never back up */
        return 6;
    return 0;
}

static void entering_gives_up_privileges_cores_and_descriptors(void **state)
{
    struct err err;
    pid_t pid = fork();

    (void)state;
    if (pid == 0)
        _exit(sandbox_enter(0, &err) < 0 ? 1 : enter());
    assert_int_equal(ending(pid), 0);
}

/* The figure of the kernel, not our own. */
static int seccomp_mode(void)
{
    return prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
}

static int supervisor_mode(void)
{
    return seccomp_mode() == SECCOMP_MODE_FILTER ? 0 : 1;
}

static void what_is_said_is_what_holds(void **state)
{
    struct sandbox s = what_holds();
    char text[160], landlock[24];

    (void)state;
    sandbox_text(text, sizeof text, &s);
    snprintf(landlock, sizeof landlock, "landlock=%d", s.landlock);
    if (s.landlock > 0)
        assert_non_null(strstr(text, landlock));
    else
        assert_non_null(strstr(text, "landlock=none ("));
    assert_non_null(strstr(text, s.seccomp ? "seccomp=on" : "seccomp=none ("));
    assert_int_equal(in_child(SUPERVISOR, supervisor_mode), s.seccomp ? 0 : 1);
}

/* As containers do it: what narrows is itself refused, in each of its ways. */
static bool refuse_narrowing(void)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    bool fine = f &&
                seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(landlock_create_ruleset), 0) ==
                    0 &&
                seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(seccomp), 0) == 0 &&
                seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prctl), 1,
                                 SCMP_A0(SCMP_CMP_EQ, PR_SET_SECCOMP)) == 0 &&
                seccomp_load(f) == 0;

    seccomp_release(f);
    return fine;
}

static int narrow_where_it_is_refused(enum role role)
{
    struct sandbox s;
    char text[160];

    if (!refuse_narrowing() || narrow(role, &s) < 0)
        return 1;
    sandbox_text(text, sizeof text, &s);
    if (s.seccomp || s.landlock || !strstr(text, "seccomp=none ("))
        return 2;
    return SANITIZED || strstr(text, "landlock=none (Operation not permitted)") ? 0 : 3;
}

static void a_container_that_refuses_it_is_lived_in(void **state)
{
    (void)state;
    need_seccomp();
    for (enum role role = WORKER; role <= SUPERVISOR; role++) {
        pid_t pid = fork();

        if (pid == 0)
            _exit(narrow_where_it_is_refused(role));
        assert_int_equal(ending(pid), 0);
    }
}

/* ---- the surroundings ---- */

static void make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "weights", 7), 7);
    close(fd);
}

static int set_up(void **state)
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

static int tear_down(void **state)
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entering_gives_up_privileges_cores_and_descriptors),
        cmocka_unit_test(what_is_said_is_what_holds),
        cmocka_unit_test(a_container_that_refuses_it_is_lived_in),
        cmocka_unit_test(each_role_keeps_what_it_lives_by),
        cmocka_unit_test(hostile_system_calls_end_the_process),
        cmocka_unit_test(other_system_calls_are_refused),
        cmocka_unit_test(the_engine_opens_its_files_and_no_others),
        cmocka_unit_test(the_supervisor_executes_only_itself),
        cmocka_unit_test(abort_is_seen_as_an_abort),
    };

    if (argc > 1 && strcmp(argv[1], "--leave") == 0)
        return 77;
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
