#include "daemon/sandbox/sandbox_files.h"

#include "util/err.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/landlock.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Headers may be older than the kernel: what later versions brought is spelled out here, from
 * include/uapi/linux/landlock.h. */
struct ruleset {
    uint64_t files, tcp, scoped;
};
enum { VERSION_REFER = 2, VERSION_TRUNCATE = 3, VERSION_TCP = 4, VERSION_IOCTL = 5,
       VERSION_SCOPED = 6 };
enum { BIND_TCP = 1 << 0, CONNECT_TCP = 1 << 1 };
enum { SCOPE_ABSTRACT_SOCKETS = 1 << 0, SCOPE_SIGNALS = 1 << 1 };
#define REFER ((uint64_t)1 << 13)
#define TRUNCATE ((uint64_t)1 << 14)
#define IOCTL_DEV ((uint64_t)1 << 15)

/* Rights that a single file can have; the others are of folders. */
#define FILE_RIGHTS                                                                               \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |  \
     TRUNCATE | IOCTL_DEV)

static uint64_t all_file_rights(int version)
{
    uint64_t rights = ((uint64_t)1 << 13) - 1; /* EXECUTE to MAKE_SYM, version 1 */

    if (version >= VERSION_REFER)
        rights |= REFER;
    if (version >= VERSION_TRUNCATE)
        rights |= TRUNCATE;
    if (version >= VERSION_IOCTL)
        rights |= IOCTL_DEV;
    return rights;
}

static struct ruleset ruleset_for(enum sandbox_covers covers, int version)
{
    if (covers == SANDBOX_COVERS_EXECUTING)
        return (struct ruleset){ .files = LANDLOCK_ACCESS_FS_EXECUTE };
    return (struct ruleset){
        .files = all_file_rights(version),
        .tcp = version >= VERSION_TCP ? BIND_TCP | CONNECT_TCP : 0,
        .scoped = version >= VERSION_SCOPED ? SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS : 0,
    };
}

static size_t ruleset_size(int version)
{
    return version >= VERSION_SCOPED ? sizeof(struct ruleset)
           : version >= VERSION_TCP  ? offsetof(struct ruleset, scoped)
                                     : offsetof(struct ruleset, tcp);
}

int sandbox_rules_begin(struct sandbox_rules *out, enum sandbox_covers covers, int *why,
                        struct err *err)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    int fd = -1;

    if (version <= 0) {
        *why = version < 0 ? errno : ENOSYS;
        return 0;
    }
    /* Some kernels of distributions name a version of which they have not all. */
    for (; version > 0; version--) {
        struct ruleset rules = ruleset_for(covers, (int)version);
        fd = (int)syscall(SYS_landlock_create_ruleset, &rules, ruleset_size((int)version), 0);
        if (fd >= 0 || (errno != EINVAL && errno != E2BIG))
            break;
    }
    if (fd < 0)
        return err_errno(err, "Landlock ruleset");
    *out = (struct sandbox_rules){ .fd = fd, .version = (int)version,
                                   .covered = ruleset_for(covers, (int)version).files };
    return 1;
}

void sandbox_rules_drop(struct sandbox_rules *r)
{
    close(r->fd);
    r->fd = -1;
}

static uint64_t rights_of(enum sandbox_grant grant)
{
    const uint64_t read = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;

    switch (grant) {
    case SANDBOX_EXECUTE:
        return LANDLOCK_ACCESS_FS_EXECUTE;
    case SANDBOX_READ:
        return read;
    case SANDBOX_READ_WRITE:
        break;
    }
    return read | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
           LANDLOCK_ACCESS_FS_REMOVE_FILE | TRUNCATE;
}

static int allow_at(struct sandbox_rules *r, int dir, const char *path, enum sandbox_grant grant,
                    struct err *err)
{
    struct landlock_path_beneath_attr rule = { .allowed_access = rights_of(grant) & r->covered };
    struct stat st;
    int fd = openat(dir, path, O_PATH | O_CLOEXEC), rc = 1;

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == ELOOP))
        return 0; /* whoever opens it for good will say so */
    if (fd < 0)
        return err_errno(err, "%s", path);
    if (fstat(fd, &st) < 0) {
        rc = err_errno(err, "%s", path);
    } else {
        if (!S_ISDIR(st.st_mode))
            rule.allowed_access &= FILE_RIGHTS;
        rule.parent_fd = fd;
        if (syscall(SYS_landlock_add_rule, r->fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
            rc = err_errno(err, "Landlock rule for %s", path);
    }
    close(fd);
    return rc;
}

int sandbox_rules_allow(struct sandbox_rules *r, const char *path, enum sandbox_grant grant,
                        struct err *err)
{
    return allow_at(r, AT_FDCWD, path, grant, err);
}

/* Hugging Face keeps a checkpoint as a folder of symlinks into blobs. */
static int allow_symlinks(struct sandbox_rules *r, DIR *list, enum sandbox_grant grant,
                          struct err *err)
{
    struct dirent *entry;
    struct stat st;

    while ((entry = readdir(list))) {
        if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN)
            continue;
        if (fstatat(dirfd(list), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISLNK(st.st_mode) && allow_at(r, dirfd(list), entry->d_name, grant, err) < 0)
            return -1;
    }
    return 0;
}

int sandbox_rules_allow_tree(struct sandbox_rules *r, const char *dir, enum sandbox_grant grant,
                             struct err *err)
{
    int rc = sandbox_rules_allow(r, dir, grant, err);
    DIR *list = rc > 0 ? opendir(dir) : NULL;

    if (!list)
        return rc;
    if (allow_symlinks(r, list, grant, err) < 0)
        rc = -1;
    closedir(list);
    return rc;
}

/* What the kernel was told to load beside us; it also lies in our memory. */
static const char *loader_path(void)
{
    const ElfW(Phdr) *head = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    size_t n = getauxval(AT_PHNUM);
    uintptr_t base = 0;

    for (size_t i = 0; head && i < n; i++)
        if (head[i].p_type == PT_PHDR)
            base = (uintptr_t)head - head[i].p_vaddr;
    for (size_t i = 0; head && i < n; i++)
        if (head[i].p_type == PT_INTERP)
            return (const char *)(base + head[i].p_vaddr);
    return NULL;
}

int sandbox_rules_allow_loader(struct sandbox_rules *r, struct err *err)
{
    const char *named = loader_path();
    char path[PATH_MAX];

    if (!named || !realpath(named, path))
        return 0;
    /* Its folder, because a new C library puts another file in its place while we run. */
    *strrchr(path, '/') = '\0';
    return sandbox_rules_allow(r, path[0] ? path : "/", SANDBOX_EXECUTE, err);
}

int sandbox_rules_enforce(struct sandbox_rules *r, struct err *err)
{
    long rc = syscall(SYS_landlock_restrict_self, r->fd, 0);

    if (rc < 0)
        err_errno(err, "Landlock");
    sandbox_rules_drop(r);
    return rc < 0 ? -1 : 0;
}
