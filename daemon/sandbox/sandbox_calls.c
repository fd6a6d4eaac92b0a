/* The lists were made by running the daemon's tests, small models and all settings of io and
 * kernels under a filter that reported instead of refusing; docs/sandbox.md gives the reason of
 * each group and how to repeat that. Names that an architecture does not have are left out there
 * by libseccomp. */
#include "daemon/sandbox/sandbox_calls.h"

#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LENGTH(list) (sizeof(list) / sizeof(list)[0])

/* A call whose answer depends on an argument. */
struct narrow {
    int call;
    uint32_t action;
    struct scmp_arg_cmp arg;
};

#define EQUALS(n, value) { .arg = (n), .op = SCMP_CMP_EQ, .datum_a = (value) }
#define BITS(n, mask, bits)                                                                       \
    { .arg = (n), .op = SCMP_CMP_MASKED_EQ, .datum_a = (mask), .datum_b = (bits) }
#define HAS_BITS(n, bits) BITS(n, bits, bits)
#define LACKS_BITS(n, bits) BITS(n, bits, 0)
#define REFUSE(number) SCMP_ACT_ERRNO(number)

/* ---- no process of ours ---- */

/* Other processes' memory, the kernel's own parts, mounts and namespaces, new identities, and
 * what is better known for its holes than for its use. */
static const int hostile[] = {
    SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev), SCMP_SYS(pidfd_getfd),
    SCMP_SYS(kcmp), SCMP_SYS(process_madvise),
    SCMP_SYS(init_module), SCMP_SYS(finit_module), SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load), SCMP_SYS(kexec_file_load), SCMP_SYS(reboot), SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd), SCMP_SYS(iopl), SCMP_SYS(ioperm),
    SCMP_SYS(swapon), SCMP_SYS(swapoff), SCMP_SYS(acct), SCMP_SYS(quotactl),
    SCMP_SYS(settimeofday), SCMP_SYS(clock_settime), SCMP_SYS(adjtimex), SCMP_SYS(clock_adjtime),
    SCMP_SYS(sethostname), SCMP_SYS(setdomainname), SCMP_SYS(syslog),
    SCMP_SYS(mount), SCMP_SYS(umount2), SCMP_SYS(pivot_root), SCMP_SYS(chroot),
    SCMP_SYS(move_mount), SCMP_SYS(open_tree), SCMP_SYS(fsopen), SCMP_SYS(fsconfig),
    SCMP_SYS(fsmount), SCMP_SYS(fspick), SCMP_SYS(mount_setattr), SCMP_SYS(unshare),
    SCMP_SYS(setns), SCMP_SYS(open_by_handle_at),
    SCMP_SYS(add_key), SCMP_SYS(request_key), SCMP_SYS(keyctl),
    SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter), SCMP_SYS(io_uring_register),
    SCMP_SYS(setuid), SCMP_SYS(setgid), SCMP_SYS(setreuid), SCMP_SYS(setregid),
    SCMP_SYS(setresuid), SCMP_SYS(setresgid), SCMP_SYS(setfsuid), SCMP_SYS(setfsgid),
    SCMP_SYS(setgroups),
};

/* Tracing is LeakSanitizer's way, executing a name the symbolizer's. */
static const int hostile_but_sanitizers[] = { SCMP_SYS(ptrace), SCMP_SYS(execve) };

/* Children are executed by descriptor. Memory is never executable and writable, nor made
 * executable later, which starting a program does not need either. */
static const struct narrow supervisor_narrow[] = {
    { SCMP_SYS(mmap), REFUSE(EPERM), HAS_BITS(2, PROT_WRITE | PROT_EXEC) },
    { SCMP_SYS(mprotect), REFUSE(EPERM), HAS_BITS(2, PROT_EXEC) },
    { SCMP_SYS(pkey_mprotect), REFUSE(EPERM), HAS_BITS(2, PROT_EXEC) },
};

/* ---- workers and the engine ---- */

static const int common[] = {
    /* messages, log, event loop */
    SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(writev), SCMP_SYS(close), SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg), SCMP_SYS(recvfrom), SCMP_SYS(sendto), SCMP_SYS(poll), SCMP_SYS(ppoll),
    SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_pwait2), SCMP_SYS(timerfd_create), SCMP_SYS(timerfd_settime), SCMP_SYS(eventfd2),
    /* memory: malloc grows, moves, trims */
    SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise),
    /* clocks, where the vDSO has none, and sleeping */
    SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(gettimeofday), SCMP_SYS(time),
    SCMP_SYS(nanosleep), SCMP_SYS(clock_nanosleep), SCMP_SYS(restart_syscall),
    /* the C library: locks, signals, random keys, its own limits */
    SCMP_SYS(futex), SCMP_SYS(sched_yield), SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn), SCMP_SYS(sigaltstack), SCMP_SYS(getrandom), SCMP_SYS(getpid),
    SCMP_SYS(gettid), SCMP_SYS(sysinfo), SCMP_SYS(sched_getaffinity), SCMP_SYS(getrusage),
    SCMP_SYS(membarrier), SCMP_SYS(fstat), SCMP_SYS(exit), SCMP_SYS(exit_group),
};

static const struct narrow common_narrow[] = {
    { SCMP_SYS(mmap), SCMP_ACT_ALLOW, LACKS_BITS(2, PROT_EXEC) },
    { SCMP_SYS(mmap), REFUSE(EPERM), HAS_BITS(2, PROT_EXEC) },
    { SCMP_SYS(mprotect), SCMP_ACT_ALLOW, LACKS_BITS(2, PROT_EXEC) },
    { SCMP_SYS(mprotect), REFUSE(EPERM), HAS_BITS(2, PROT_EXEC) },
    { SCMP_SYS(fcntl), SCMP_ACT_ALLOW, EQUALS(1, F_GETFD) },
    { SCMP_SYS(fcntl), SCMP_ACT_ALLOW, EQUALS(1, F_SETFD) },
    { SCMP_SYS(fcntl), SCMP_ACT_ALLOW, EQUALS(1, F_GETFL) },
    { SCMP_SYS(fcntl), SCMP_ACT_ALLOW, EQUALS(1, F_SETFL) },
    { SCMP_SYS(fcntl), SCMP_ACT_ALLOW, EQUALS(1, F_DUPFD_CLOEXEC) },
    { SCMP_SYS(ioctl), SCMP_ACT_ALLOW, EQUALS(1, FIONREAD) },
    /* Reading a limit; a new one is refused. */
    { SCMP_SYS(prlimit64), SCMP_ACT_ALLOW, EQUALS(2, 0) },
    { SCMP_SYS(prlimit64), REFUSE(EPERM), { .arg = 2, .op = SCMP_CMP_NE, .datum_a = 0 } },
};

/* New processes, sockets, and signals to others: neither has a use for them. */
static const int hostile_to_children[] = {
    SCMP_SYS(execveat), SCMP_SYS(fork), SCMP_SYS(vfork),
    SCMP_SYS(socket), SCMP_SYS(socketpair), SCMP_SYS(connect), SCMP_SYS(bind), SCMP_SYS(listen),
    SCMP_SYS(tkill), SCMP_SYS(rt_sigqueueinfo), SCMP_SYS(rt_tgsigqueueinfo),
    SCMP_SYS(pidfd_open), SCMP_SYS(pidfd_send_signal), SCMP_SYS(capset),
};
static const int hostile_to_children_but_sanitizers[] = { SCMP_SYS(kill) };

static const int worker[] = {
    SCMP_SYS(accept4), SCMP_SYS(shutdown),
    SCMP_SYS(getsockname), SCMP_SYS(getpeername), SCMP_SYS(getsockopt),
};

static const struct narrow worker_narrow[] = {
    { SCMP_SYS(setsockopt), SCMP_ACT_ALLOW, EQUALS(1, SOL_SOCKET) },
    { SCMP_SYS(setsockopt), SCMP_ACT_ALLOW, EQUALS(1, IPPROTO_TCP) },
    { SCMP_SYS(ioctl), SCMP_ACT_ALLOW, EQUALS(1, SIOCOUTQ) },
};

/* Libraries may look for a file now and then; they are told the same as by Landlock. */
static const int worker_refused[] = {
    SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(openat2), SCMP_SYS(creat), SCMP_SYS(stat),
    SCMP_SYS(lstat), SCMP_SYS(newfstatat), SCMP_SYS(statx), SCMP_SYS(access),
    SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(readlink), SCMP_SYS(readlinkat),
};

static const int worker_hostile[] = { SCMP_SYS(clone3) };
static const int worker_hostile_but_sanitizers[] = { SCMP_SYS(clone) };

static const int engine[] = {
    /* shards and headers; which, is Landlock's part */
    SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(stat), SCMP_SYS(lstat), SCMP_SYS(newfstatat),
    SCMP_SYS(statx), SCMP_SYS(access), SCMP_SYS(faccessat), SCMP_SYS(faccessat2),
    SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(getcwd), SCMP_SYS(getdents64),
    SCMP_SYS(lseek), SCMP_SYS(pread64), SCMP_SYS(preadv), SCMP_SYS(fadvise64),
    /* state.dir */
    SCMP_SYS(pwrite64), SCMP_SYS(fsync), SCMP_SYS(fdatasync), SCMP_SYS(ftruncate),
    SCMP_SYS(rename), SCMP_SYS(renameat), SCMP_SYS(renameat2), SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    /* threads */
    SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(set_tid_address),
    /* memory.lock */
    SCMP_SYS(mlock), SCMP_SYS(mlock2), SCMP_SYS(mlockall), SCMP_SYS(munlock),
    SCMP_SYS(munlockall),
};

/* clone3 has its flags where no filter can look; with ENOSYS the C library takes clone. */
static const struct narrow engine_narrow[] = {
    { SCMP_SYS(clone), SCMP_ACT_ALLOW, HAS_BITS(0, CLONE_THREAD) },
    { SCMP_SYS(prctl), SCMP_ACT_ALLOW, EQUALS(0, PR_SET_NAME) },
};
static const struct narrow engine_narrow_but_sanitizers[] = {
    { SCMP_SYS(clone), SCMP_ACT_KILL_PROCESS, LACKS_BITS(0, CLONE_THREAD) },
};

/* The search for leaks: it lists and stops its own threads from a process of its own. */
static const int sanitizers_allowed[] = {
    SCMP_SYS(clone), SCMP_SYS(ptrace), SCMP_SYS(wait4), SCMP_SYS(prctl), SCMP_SYS(getppid),
    SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(getdents), SCMP_SYS(getdents64),
    SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(stat), SCMP_SYS(newfstatat),
    SCMP_SYS(access), SCMP_SYS(lseek),
    SCMP_SYS(kill), SCMP_SYS(pipe2), SCMP_SYS(dup2), SCMP_SYS(execve), SCMP_SYS(uname),
    SCMP_SYS(personality), SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(sched_setaffinity),
};

/* ---- putting a filter together ---- */

/* One that is being made: after a first failure nothing more is added. */
struct filter {
    scmp_filter_ctx it;
    bool sanitizers;
    int rc;
};

static void add(struct filter *f, uint32_t action, const int *calls, size_t n)
{
    for (size_t i = 0; i < n && f->rc == 0; i++)
        f->rc = seccomp_rule_add(f->it, action, calls[i], 0);
}

static void add_narrow(struct filter *f, const struct narrow *rules, size_t n)
{
    for (size_t i = 0; i < n && f->rc == 0; i++)
        f->rc = seccomp_rule_add(f->it, rules[i].action, rules[i].call, 1, rules[i].arg);
}

static void add_hostile(struct filter *f)
{
    add(f, SCMP_ACT_KILL_PROCESS, hostile, LENGTH(hostile));
    if (!f->sanitizers)
        add(f, SCMP_ACT_KILL_PROCESS, hostile_but_sanitizers, LENGTH(hostile_but_sanitizers));
}

static void add_common(struct filter *f)
{
    const struct narrow self[] = {
        { SCMP_SYS(tgkill), SCMP_ACT_ALLOW, EQUALS(0, (scmp_datum_t)getpid()) },
        { SCMP_SYS(tgkill), SCMP_ACT_KILL_PROCESS,
          { .arg = 0, .op = SCMP_CMP_NE, .datum_a = (scmp_datum_t)getpid() } },
    };

    add_hostile(f);
    add(f, SCMP_ACT_ALLOW, common, LENGTH(common));
    add_narrow(f, common_narrow, LENGTH(common_narrow));
    add_narrow(f, self, LENGTH(self)); /* abort() signals the thread it runs in */
    add(f, SCMP_ACT_KILL_PROCESS, hostile_to_children, LENGTH(hostile_to_children));
    if (!f->sanitizers)
        add(f, SCMP_ACT_KILL_PROCESS, hostile_to_children_but_sanitizers,
            LENGTH(hostile_to_children_but_sanitizers));
}

static void add_worker(struct filter *f)
{
    add_common(f);
    add(f, SCMP_ACT_ALLOW, worker, LENGTH(worker));
    add_narrow(f, worker_narrow, LENGTH(worker_narrow));
    add(f, SCMP_ACT_KILL_PROCESS, worker_hostile, LENGTH(worker_hostile));
    if (!f->sanitizers) {
        add(f, REFUSE(EACCES), worker_refused, LENGTH(worker_refused));
        add(f, SCMP_ACT_KILL_PROCESS, worker_hostile_but_sanitizers,
            LENGTH(worker_hostile_but_sanitizers));
    }
}

static void add_engine(struct filter *f)
{
    add_common(f);
    add(f, SCMP_ACT_ALLOW, engine, LENGTH(engine));
    if (!f->sanitizers) {
        add_narrow(f, engine_narrow, LENGTH(engine_narrow));
        add_narrow(f, engine_narrow_but_sanitizers, LENGTH(engine_narrow_but_sanitizers));
    }
}

static void add_role(struct filter *f, enum sandbox_role role)
{
    switch (role) {
    case SANDBOX_SUPERVISOR:
        add_hostile(f);
        add_narrow(f, supervisor_narrow, LENGTH(supervisor_narrow));
        return;
    case SANDBOX_WORKER:
        add_worker(f);
        break;
    case SANDBOX_ENGINE:
        add_engine(f);
        break;
    }
    if (f->sanitizers)
        add(f, SCMP_ACT_ALLOW, sanitizers_allowed, LENGTH(sanitizers_allowed));
}

static int set_attributes(scmp_filter_ctx it)
{
    /* A foreign architecture's numbers mean other calls. */
    int rc = seccomp_attr_set(it, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);

    if (rc == 0) /* no_new_privs is ours to set */
        rc = seccomp_attr_set(it, SCMP_FLTATR_CTL_NNP, 0);
    if (rc == 0) /* errors of the kernel as they are */
        rc = seccomp_attr_set(it, SCMP_FLTATR_API_SYSRAWRC, 1);
    /* Kernels before 5.16 otherwise slow down speculation for good, and none of us runs code of
     * strangers. */
    if (rc == 0)
        rc = seccomp_attr_set(it, SCMP_FLTATR_CTL_SSB, 1);
    return rc;
}

/* Asked of the kernel itself, which a container may forbid. */
static bool can_filter(int *why)
{
    uint32_t action = SECCOMP_RET_KILL_PROCESS;

    if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0)
        return true;
    *why = errno;
    return false;
}

int sandbox_calls(enum sandbox_role role, bool sanitizers, int *why, struct err *err)
{
    struct filter f = { .sanitizers = sanitizers };

    if (!can_filter(why))
        return 0;
    f.it = seccomp_init(role == SANDBOX_SUPERVISOR ? SCMP_ACT_ALLOW : REFUSE(ENOSYS));
    if (!f.it)
        return err_set(err, ERR_NOMEM, "filter of system calls");
    f.rc = set_attributes(f.it);
    add_role(&f, role);
    if (f.rc < 0) {
        seccomp_release(f.it);
        errno = -f.rc;
        return err_errno(err, "filter of system calls");
    }
    int rc = seccomp_load(f.it);
    seccomp_release(f.it);
    if (rc == 0)
        return 1;
    if (rc == -ENOSYS || rc == -EINVAL || rc == -EPERM || rc == -EACCES || rc == -EOPNOTSUPP) {
        *why = -rc;
        return 0;
    }
    errno = -rc;
    return err_errno(err, "filter of system calls");
}
