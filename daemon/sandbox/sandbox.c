#include "daemon/sandbox/sandbox.h"

#include "daemon/sandbox/sandbox_calls.h"
#include "daemon/sandbox/sandbox_files.h"
#include "util/err.h"

#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* LeakSanitizer reads /proc and traces its parent when the process ends, and reports call a
 * symbolizer: a build with sanitizers keeps its files, and its filter lets those calls through. */
#ifdef __has_feature /* clang says it so, gcc with a macro for each */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WITH_SANITIZERS
#endif
#endif
#if defined(WITH_SANITIZERS) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZERS = 1 };
#else
enum { SANITIZERS = 0 };
#endif

static int no_core_dumps(struct err *err)
{
    struct rlimit none = { 0, 0 };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_errno(err, "no_new_privs");
    if (setrlimit(RLIMIT_CORE, &none) < 0)
        return err_errno(err, "limit of core dumps");
    return 0;
}

int sandbox_enter(uint32_t n_fds, struct err *err)
{
    struct rlimit files;

    if (no_core_dumps(err) < 0)
        return -1;
    if (n_fds == 0)
        return 0;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return err_errno(err, "limit of descriptors");
    if (n_fds > files.rlim_max)
        return err_set(err, ERR_INPUT,
                       "%u descriptors are needed and the limit is %llu: lower http.connections or "
                       "raise LimitNOFILE",
                       n_fds, (unsigned long long)files.rlim_max);
    files.rlim_cur = files.rlim_max = n_fds;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        return err_errno(err, "limit of %u descriptors", n_fds);
    return 0;
}

/* For a daemon that root started by hand: with the rights of root one could look into other
 * processes past Landlock. */
static int keep_capabilities(uint32_t kept, struct err *err)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct has[2];

    if (syscall(SYS_capget, &head, has) < 0)
        return err_errno(err, "capabilities");
    if ((has[0].permitted & ~kept) == 0 && has[1].permitted == 0)
        return 0; /* the rule: no root, and perhaps a filter that would refuse what comes next */
    has[0].effective = has[0].permitted &= kept;
    has[1].effective = has[1].permitted = 0;
    has[0].inheritable = has[1].inheritable = 0;
    return syscall(SYS_capset, &head, has) < 0 ? err_errno(err, "giving up capabilities") : 0;
}

static int filter_calls(struct sandbox *s, enum sandbox_role role, struct err *err)
{
    int rc = sandbox_calls(role, SANITIZERS, &s->seccomp_error, err);

    s->seccomp = rc > 0;
    return rc < 0 ? -1 : 0;
}

static int allow_own_program(struct sandbox_rules *rules, struct err *err)
{
    return sandbox_rules_allow(rules, "/proc/self/exe", SANDBOX_EXECUTE, err) < 0
               ? -1
               : sandbox_rules_allow_loader(rules, err);
}

static int limit_executing(struct sandbox *s, struct err *err)
{
    struct sandbox_rules rules;
    int rc = SANITIZERS ? 0 : sandbox_rules_begin(&rules, SANDBOX_COVERS_EXECUTING,
                                                  &s->landlock_error, err);

    if (rc <= 0)
        return rc;
    if (allow_own_program(&rules, err) < 0) {
        sandbox_rules_drop(&rules);
        return -1;
    }
    s->landlock = rules.version;
    return sandbox_rules_enforce(&rules, err);
}

int sandbox_supervisor(struct sandbox *out, struct err *err)
{
    *out = (struct sandbox){ 0 };
    return no_core_dumps(err) < 0 || limit_executing(out, err) < 0
               ? -1
               : filter_calls(out, SANDBOX_SUPERVISOR, err);
}

/* Nothing is granted: what is covered is gone. */
static int give_up_files(struct sandbox *s, struct err *err)
{
    struct sandbox_rules rules;
    int rc = SANITIZERS ? 0 : sandbox_rules_begin(&rules, SANDBOX_COVERS_ALL, &s->landlock_error,
                                                  err);

    if (rc <= 0)
        return rc;
    s->landlock = rules.version;
    return sandbox_rules_enforce(&rules, err);
}

int sandbox_worker(struct sandbox *out, struct err *err)
{
    struct rlimit none = { 0, 0 };

    *out = (struct sandbox){ 0 };
    /* Where there is no filter, this still keeps all users but root from making processes. */
    if (!SANITIZERS && setrlimit(RLIMIT_NPROC, &none) < 0)
        return err_errno(err, "limit of processes");
    if (keep_capabilities(0, err) < 0)
        return -1;
    return give_up_files(out, err) < 0 ? -1 : filter_calls(out, SANDBOX_WORKER, err);
}

/* /proc and the control groups tell what memory there is and what is used; other processes stay
 * closed even so, for Landlock lets nobody look into a process outside. */
static int grant_files(struct sandbox_rules *rules, const struct sandbox_files *files,
                       struct err *err)
{
    if (sandbox_rules_allow_tree(rules, files->model_dir, SANDBOX_READ, err) < 0 ||
        sandbox_rules_allow(rules, "/proc", SANDBOX_READ, err) < 0 ||
        sandbox_rules_allow(rules, "/sys/fs/cgroup", SANDBOX_READ, err) < 0)
        return -1;
    if (files->template_file &&
        sandbox_rules_allow(rules, files->template_file, SANDBOX_READ, err) < 0)
        return -1;
    if (!files->state_dir)
        return 0;
    return sandbox_rules_allow(rules, files->state_dir, SANDBOX_READ_WRITE, err) < 0 ? -1 : 0;
}

static int limit_files(struct sandbox *s, const struct sandbox_files *files, struct err *err)
{
    struct sandbox_rules rules;
    int rc = SANITIZERS ? 0 : sandbox_rules_begin(&rules, SANDBOX_COVERS_ALL, &s->landlock_error,
                                                  err);

    if (rc <= 0)
        return rc;
    if (grant_files(&rules, files, err) < 0) {
        sandbox_rules_drop(&rules);
        return -1;
    }
    s->landlock = rules.version;
    return sandbox_rules_enforce(&rules, err);
}

int sandbox_engine(struct sandbox *out, const struct sandbox_files *files, struct err *err)
{
    /* Root's models may belong to others, and memory.lock may pass LimitMEMLOCK. */
    const uint32_t kept = CAP_TO_MASK(CAP_DAC_READ_SEARCH) | CAP_TO_MASK(CAP_IPC_LOCK);

    *out = (struct sandbox){ 0 };
    if (keep_capabilities(kept, err) < 0)
        return -1;
    return limit_files(out, files, err) < 0 ? -1 : filter_calls(out, SANDBOX_ENGINE, err);
}

/* "on", or why not. */
static const char *word(char *buf, size_t cap, bool on, int error)
{
    if (on)
        return "on";
    snprintf(buf, cap, "none (%s)", error ? strerror(error) : "a build with sanitizers");
    return buf;
}

const char *sandbox_text(char *buf, size_t cap, const struct sandbox *s)
{
    char landlock[64], seccomp[64];

    if (s->landlock > 0)
        snprintf(landlock, sizeof landlock, "%d", s->landlock);
    else
        word(landlock, sizeof landlock, false, s->landlock_error);
    snprintf(buf, cap, "landlock=%s seccomp=%s", landlock,
             word(seccomp, sizeof seccomp, s->seccomp, s->seccomp_error));
    return buf;
}
