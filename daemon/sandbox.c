#include "daemon/sandbox.h"

#include "util/err.h"

#include <errno.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int sandbox_enter(uint32_t n_fds, struct err *err)
{
    struct rlimit none = { 0, 0 }, files;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_errno(err, "no_new_privs");
    if (setrlimit(RLIMIT_CORE, &none) < 0)
        return err_errno(err, "limit of core dumps");
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

/* Rights by the version of Landlock that brought them; headers may be older than the kernel. */
static uint64_t file_rights(long version)
{
    uint64_t rights = ((uint64_t)1 << 13) - 1; /* EXECUTE to MAKE_SYM, version 1 */

    if (version >= 2)
        rights |= (uint64_t)1 << 13; /* REFER */
    if (version >= 3)
        rights |= (uint64_t)1 << 14; /* TRUNCATE */
    if (version >= 5)
        rights |= (uint64_t)1 << 15; /* IOCTL_DEV */
    return rights;
}

/* LeakSanitizer reads /proc when the process ends; a build that has it keeps its files. */
#ifdef __SANITIZE_ADDRESS__
enum { KEEP_FILES = 1 };
#else
enum { KEEP_FILES = 0 };
#endif

int sandbox_no_files(struct err *err)
{
    if (KEEP_FILES)
        return 0;

    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

    if (version < 0 && (errno == ENOSYS || errno == EOPNOTSUPP))
        return 0;
    if (version < 0)
        return err_errno(err, "Landlock");

    /* Every right is handled and no rule grants one. */
    uint64_t handled = file_rights(version);
    int fd = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    if (fd < 0)
        return err_errno(err, "Landlock ruleset");
    long rc = syscall(SYS_landlock_restrict_self, fd, 0);
    if (rc < 0)
        err_errno(err, "Landlock");
    close(fd);
    return rc < 0 ? -1 : 1;
}
