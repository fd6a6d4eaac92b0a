/* What a process can no longer do once it has narrowed itself to a role: each thing is tried. */
#include "sandbox_fixture.h"

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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_system_calls_end_the_process),
        cmocka_unit_test(other_system_calls_are_refused),
        cmocka_unit_test(the_engine_opens_its_files_and_no_others),
        cmocka_unit_test(the_supervisor_executes_only_itself),
    };

    if (argc > 1 && strcmp(argv[1], "--leave") == 0)
        return 77;
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
