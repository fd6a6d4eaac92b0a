/* What a process keeps once it has narrowed itself to a role, and what it says of that. */
#include "sandbox_fixture.h"

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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entering_gives_up_privileges_cores_and_descriptors),
        cmocka_unit_test(what_is_said_is_what_holds),
        cmocka_unit_test(a_container_that_refuses_it_is_lived_in),
        cmocka_unit_test(each_role_keeps_what_it_lives_by),
        cmocka_unit_test(abort_is_seen_as_an_abort),
    };

    if (argc > 1 && strcmp(argv[1], "--leave") == 0)
        return 77;
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
