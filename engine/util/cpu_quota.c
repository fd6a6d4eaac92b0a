/* /proc/self/cgroup says which group the process is in ("0::/a/b" for v2, "4:cpu,cpuacct:/a/b"
 * for v1), /proc/self/mountinfo where the hierarchies are mounted and which of their folders
 * is the mount's root. In a container the group's path may lie outside the mount; then the
 * mount point itself is the innermost group that can be seen. */
#include "util/cpu_quota.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_SIZE = 2 * PATH_MAX };

enum hierarchy { HIERARCHY_V2, HIERARCHY_V1 };

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == '\0' || at[n] == ',' || at[n] == '\n'))
            return true;
    return false;
}

static FILE *open_under(const char *root, const char *path)
{
    char full[LINE_SIZE];

    if ((size_t)snprintf(full, sizeof full, "%s%s", root, path) >= sizeof full)
        return NULL;
    return fopen(full, "re");
}

static void chomp(char *line)
{
    line[strcspn(line, "\n")] = '\0';
}

/* The group's path as /proc/self/cgroup has it. */
static bool find_group(char *path, size_t cap, const char *root, enum hierarchy h)
{
    FILE *f = open_under(root, "/proc/self/cgroup");
    char line[LINE_SIZE];
    bool found = false;

    if (!f)
        return false;
    while (!found && fgets(line, sizeof line, f)) {
        chomp(line);
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        controllers++;
        if (h == HIERARCHY_V2 ? controllers[0] != '\0' : !has_word(controllers, "cpu"))
            continue;
        found = (size_t)snprintf(path, cap, "%s", group) < cap;
    }
    fclose(f);
    return found;
}

/* A line is "id parent dev root point options... - type source super"; see proc(5). */
static bool find_mount(char *point, char *mount_root, size_t cap, const char *root,
                       enum hierarchy h)
{
    FILE *f = open_under(root, "/proc/self/mountinfo");
    char line[LINE_SIZE], type[32], super[512];
    bool found = false;

    if (!f)
        return false;
    while (!found && fgets(line, sizeof line, f)) {
        char at_root[PATH_MAX], at_point[PATH_MAX];
        const char *tail = strstr(line, " - ");

        if (!tail || sscanf(tail, " - %31s %*s %511s", type, super) != 2)
            continue;
        if (h == HIERARCHY_V2 ? strcmp(type, "cgroup2") != 0
                              : strcmp(type, "cgroup") != 0 || !has_word(super, "cpu"))
            continue;
        if (sscanf(line, "%*s %*s %*s %4095s %4095s", at_root, at_point) != 2)
            continue;
        found = (size_t)snprintf(point, cap, "%s", at_point) < cap &&
                (size_t)snprintf(mount_root, cap, "%s", at_root) < cap;
    }
    fclose(f);
    return found;
}

static bool read_line(char *line, size_t cap, const char *root, const char *dir, const char *name)
{
    char path[LINE_SIZE];

    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
        return false;
    FILE *f = open_under(root, path);
    if (!f)
        return false;
    bool ok = fgets(line, (int)cap, f) != NULL;
    fclose(f);
    return ok;
}

/* Processors that one group's own setting allows. */
static uint32_t group_quota(const char *root, const char *dir, enum hierarchy h)
{
    char text[64], period_text[64];
    long long quota = -1, period = 0;

    if (h == HIERARCHY_V2) {
        if (!read_line(text, sizeof text, root, dir, "cpu.max") ||
            sscanf(text, "%lld %lld", &quota, &period) != 2) /* "max 100000" */
            return UINT32_MAX;
    } else {
        if (!read_line(text, sizeof text, root, dir, "cpu.cfs_quota_us") ||
            !read_line(period_text, sizeof period_text, root, dir, "cpu.cfs_period_us"))
            return UINT32_MAX;
        quota = strtoll(text, NULL, 10); /* -1: no limit */
        period = strtoll(period_text, NULL, 10);
    }
    if (quota <= 0 || period <= 0)
        return UINT32_MAX;
    long long n = quota / period + (quota % period != 0);
    return n < (long long)UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static uint32_t hierarchy_quota(const char *root, enum hierarchy h)
{
    char point[PATH_MAX], mount_root[PATH_MAX], group[PATH_MAX], dir[2 * PATH_MAX];
    uint32_t least = UINT32_MAX;

    if (!find_group(group, sizeof group, root, h) ||
        !find_mount(point, mount_root, sizeof point, root, h))
        return UINT32_MAX;

    /* The part of the group's path below the mount's root. */
    const char *below = group;
    size_t n = strlen(mount_root);
    if (strcmp(mount_root, "/") != 0)
        below = strncmp(group, mount_root, n) == 0 && (group[n] == '/' || group[n] == '\0')
                    ? group + n
                    : "";
    if (strstr(below, "/..")) /* seen from inside a cgroup namespace */
        below = "";
    snprintf(dir, sizeof dir, "%s%s", point, below);

    for (size_t floor = strlen(point);;) {
        uint32_t q = group_quota(root, dir, h);
        if (q < least)
            least = q;
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < floor)
            return least;
        *slash = '\0';
    }
}

uint32_t cpu_quota(const char *root)
{
    uint32_t v2 = hierarchy_quota(root, HIERARCHY_V2), v1 = hierarchy_quota(root, HIERARCHY_V1);

    return v2 < v1 ? v2 : v1;
}
