/* memory_group: this process in a memory group of its own, to see what the kernel charges.
 *
 * Needs root and the v1 memory controller; elsewhere a test skips. Pages charged before stay with
 * the group they were charged to, so the group counts only what the test takes. */
#ifndef TESTS_MEMORY_GROUP_H
#define TESTS_MEMORY_GROUP_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMORY_GROUPS "/sys/fs/cgroup/memory"

struct memory_group {
    char dir[96], before[512]; /* ours; the one we came from */
};

static inline bool group_write(const char *dir, const char *file, const char *text)
{
    char path[640];

    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "we");
    if (!f)
        return false;
    bool wrote = fputs(text, f) >= 0;
    return fclose(f) == 0 && wrote;
}

static inline uint64_t group_number(const char *path, const char *key)
{
    char line[256];
    uint64_t value = UINT64_MAX;
    FILE *f = fopen(path, "re");

    if (!f)
        return value;
    while (value == UINT64_MAX && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), " %" SCNu64, &value);
    fclose(f);
    return value;
}

static inline uint64_t group_usage(const struct memory_group *g)
{
    char path[160];

    snprintf(path, sizeof path, "%s/memory.usage_in_bytes", g->dir);
    return group_number(path, "");
}

/* RssAnon of this process, bytes. */
static inline uint64_t own_anonymous(void)
{
    return group_number("/proc/self/status", "RssAnon:") * 1024;
}

static inline void group_leave(struct memory_group *g)
{
    group_write(g->before, "cgroup.procs", "0");
    rmdir(g->dir);
}

/* limit 0: none. */
static inline bool group_enter(struct memory_group *g, uint64_t limit)
{
    char line[512], text[32];
    FILE *f = fopen("/proc/self/cgroup", "re");

    snprintf(g->before, sizeof g->before, MEMORY_GROUPS);
    while (f && fgets(line, sizeof line, f)) {
        char *group = strstr(line, ":memory:");

        if (!group)
            continue;
        group[strcspn(group, "\n")] = '\0';
        snprintf(g->before, sizeof g->before, MEMORY_GROUPS "%.400s", group + 8);
    }
    if (f)
        fclose(f);
    snprintf(g->dir, sizeof g->dir, MEMORY_GROUPS "/colizig-test-%d", (int)getpid());
    if (access(MEMORY_GROUPS "/memory.limit_in_bytes", F_OK) < 0 || mkdir(g->dir, 0755) < 0)
        return false;
    snprintf(text, sizeof text, "%" PRIu64, limit);
    if ((!limit || group_write(g->dir, "memory.limit_in_bytes", text)) &&
        group_write(g->dir, "cgroup.procs", "0"))
        return true;
    group_leave(g);
    return false;
}

#endif
