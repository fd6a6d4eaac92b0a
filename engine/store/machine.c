/* How the tightest bound is found: every directory from our own cgroup up to the mount's
 * root may hold a limit, and each leaves limit - (usage - file cache): pages of files are
 * given up by the kernel before anybody is killed. v1 and v2 are both asked, because a
 * hybrid system has the memory controller in one of them and says nothing in the other. */
#include "store/machine.h"

#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Files of /proc and /sys that are read here are a few KiB. */
enum { TEXT_SIZE = 16384 };

/* Bytes read, text terminated; -1 with errno when the file cannot be read. */
static ssize_t read_text(char *text, size_t cap, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;

    if (fd < 0)
        return -1;
    while (used < cap - 1) {
        ssize_t got = read(fd, text + used, cap - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int saved = errno;
            close(fd);
            errno = saved;
            return -1;
        }
        if (got == 0)
            break;
        used += (size_t)got;
    }
    close(fd);
    text[used] = '\0';
    return (ssize_t)used;
}

static bool parse_u64(uint64_t *out, const char *text)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text)
        return false;
    *out = value;
    return true;
}

/* The number after "key" at the start of a line, whatever blanks or colon stand between. */
static bool find_field(uint64_t *out, const char *text, const char *key)
{
    size_t length = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (strncmp(line, key, length) != 0)
            continue;
        const char *at = line + length;
        if (*at != ':' && *at != ' ' && *at != '\t')
            continue;
        at += strspn(at, ": \t");
        return parse_u64(out, at);
    }
    return false;
}

/* ---- cgroups ---- */

struct cgroup_version {
    const char *name;      /* for machine_memory.source */
    const char *mounts[2]; /* where it may be mounted */
    const char *limits[2];
    const char *usage;
    const char *file_cache[2]; /* fields of memory.stat; shared memory is not in them */
};

static const struct cgroup_version version_2 = {
    .name = "cgroup v2",
    .mounts = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" },
    .limits = { "memory.max", "memory.high" },
    .usage = "memory.current",
    .file_cache = { "active_file", "inactive_file" },
};

static const struct cgroup_version version_1 = {
    .name = "cgroup v1",
    .mounts = { "/sys/fs/cgroup/memory", NULL },
    .limits = { "memory.limit_in_bytes", NULL },
    .usage = "memory.usage_in_bytes",
    .file_cache = { "total_active_file", "total_inactive_file" },
};

/* v1 spells "no limit" as the largest multiple of a page; nobody has an exbibyte. */
#define ABSURD_LIMIT ((uint64_t)1 << 60)

static bool read_number(uint64_t *out, const char *dir, const char *file)
{
    char path[PATH_MAX], text[64];

    if (snprintf(path, sizeof path, "%s/%s", dir, file) >= (int)sizeof path ||
        read_text(text, sizeof text, path) < 0)
        return false;
    return parse_u64(out, text); /* "max" is no number and no limit */
}

/* Narrows *limit and *left by what one directory says. */
static void ask_directory(uint64_t *limit, uint64_t *left, const struct cgroup_version *v,
                          const char *dir)
{
    uint64_t here = UINT64_MAX, usage = 0, cache = 0;
    char path[PATH_MAX], text[TEXT_SIZE];

    for (size_t i = 0; i < 2 && v->limits[i]; i++) {
        uint64_t value;
        if (read_number(&value, dir, v->limits[i]) && value < ABSURD_LIMIT && value < here)
            here = value;
    }
    if (here == UINT64_MAX)
        return;
    if (here < *limit)
        *limit = here;

    read_number(&usage, dir, v->usage);
    if (snprintf(path, sizeof path, "%s/memory.stat", dir) < (int)sizeof path &&
        read_text(text, sizeof text, path) >= 0) {
        for (size_t i = 0; i < 2; i++) {
            uint64_t value;
            if (find_field(&value, text, v->file_cache[i]))
                cache += value;
        }
    }
    uint64_t held = usage > cache ? usage - cache : 0;
    uint64_t room = here > held ? here - held : 0;
    if (room < *left)
        *left = room;
}

/* Walks from our group to the mount's root. A container often sees its own group mounted
 * as the root while /proc names the path outside: then only the root is asked. */
static void ask_tree(uint64_t *limit, uint64_t *left, const struct cgroup_version *v,
                     const char *root, const char *group)
{
    for (size_t i = 0; i < 2 && v->mounts[i]; i++) {
        char dir[PATH_MAX];
        int base = snprintf(dir, sizeof dir, "%s%s", root, v->mounts[i]);

        if (base < 0 || base >= (int)sizeof dir || access(dir, F_OK) < 0)
            continue;
        if (!strstr(group, "/..") &&
            snprintf(dir + base, sizeof dir - (size_t)base, "%s", group) <
                (int)(sizeof dir - (size_t)base) &&
            access(dir, F_OK) == 0) {
            for (char *cut; (cut = strrchr(dir, '/')) >= dir + base; *cut = '\0')
                if (cut[1])
                    ask_directory(limit, left, v, dir);
        }
        dir[base] = '\0';
        ask_directory(limit, left, v, dir);
    }
}

/* "memory" among "cpu,memory". */
static bool names_memory(const char *controllers, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t n = 0;
        while (at + n < length && controllers[at + n] != ',')
            n++;
        if (n == 6 && strncmp(controllers + at, "memory", 6) == 0)
            return true;
        at += n + 1;
    }
    return false;
}

/* Lines of /proc/self/cgroup: "hierarchy:controllers:/path", v2 being "0::/path". */
static void ask_cgroups(struct machine_memory *m, const char *root, const char **source)
{
    char path[PATH_MAX], text[TEXT_SIZE];

    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= (int)sizeof path ||
        read_text(text, sizeof text, path) < 0)
        return; /* a kernel without cgroups */

    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;

        if (!group)
            continue;
        controllers++;
        size_t length = (size_t)(group - controllers);
        group++;
        const struct cgroup_version *v = length == 0 ? &version_2
                                         : names_memory(controllers, length) ? &version_1
                                                                             : NULL;
        if (!v)
            continue;
        uint64_t left = UINT64_MAX;
        ask_tree(&m->limit, &left, v, root, group);
        if (left < m->available) {
            m->available = left;
            *source = v->name;
        }
    }
}

int machine_memory(struct machine_memory *out, const char *root, struct err *err)
{
    struct machine_memory m = { .limit = UINT64_MAX };
    const char *source = "machine";
    char path[PATH_MAX], text[TEXT_SIZE];
    uint64_t total_kib, available_kib;

    if (snprintf(path, sizeof path, "%s/proc/meminfo", root) >= (int)sizeof path)
        return err_set(err, ERR_INPUT, "the path of /proc is too long");
    if (read_text(text, sizeof text, path) < 0)
        return err_errno(err, "read %s", path);
    if (!find_field(&total_kib, text, "MemTotal") ||
        !find_field(&available_kib, text, "MemAvailable"))
        return err_set(err, ERR_IO, "%s has no MemTotal or no MemAvailable; set memory.ram",
                       path);
    m.total = total_kib * 1024;
    m.available = available_kib * 1024;
    ask_cgroups(&m, root, &source);
    m.source = source;
    *out = m;
    return 0;
}

/* ---- processes ---- */

static int add_process(uint64_t *bytes, int pid, struct err *err)
{
    char path[64], text[TEXT_SIZE];
    uint64_t anonymous = 0, shared = 0;

    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    if (read_text(text, sizeof text, path) < 0)
        return err_errno(err, "read %s", path);
    /* Proportional figures, so that pages shared by two of our processes count once. */
    if (!find_field(&anonymous, text, "Pss_Anon") && !find_field(&anonymous, text, "Anonymous"))
        return err_set(err, ERR_IO, "%s has no Pss_Anon", path);
    find_field(&shared, text, "Pss_Shmem");
    *bytes += (anonymous + shared) * 1024;
    return 0;
}

/* A family of ours is three deep; the bound only keeps a strange /proc from looping. */
static int add_tree(uint64_t *bytes, int pid, int depth, struct err *err)
{
    char path[64], text[TEXT_SIZE];

    if (add_process(bytes, pid, err) < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    if (depth >= 8 || read_text(text, sizeof text, path) < 0)
        return 0; /* kernels without CONFIG_PROC_CHILDREN have no such file */

    char *rest = text;
    for (char *word; (word = strsep(&rest, " \n"));) {
        uint64_t child;
        /* A child that ended since holds nothing. */
        if (parse_u64(&child, word) && child <= INT_MAX)
            add_tree(bytes, (int)child, depth + 1, NULL);
    }
    return 0;
}

int machine_anonymous(uint64_t *bytes, int pid, struct err *err)
{
    uint64_t sum = 0;

    if (add_tree(&sum, pid, 0, err) < 0)
        return -1;
    *bytes = sum;
    return 0;
}
