#include "daemon/supervisor/measure.h"

#include "util/cgroup.h"
#include "util/size.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a process ---- */

static bool count_descriptors(uint32_t *out, pid_t pid)
{
    char path[64];
    uint32_t n = 0;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    if (!dir)
        return false;
    for (const struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    *out = pid == getpid() ? n - 1 : n; /* the one we counted with */
    return true;
}

bool measure_process(struct measured_process *out, pid_t pid)
{
    static const char *const names[] = { "RssAnon:", "VmLck:", "VmSwap:" };
    uint64_t kib[3] = { 0 };
    char path[64], line[256];
    bool found = false;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = pid > 0 ? fopen(path, "re") : NULL;
    if (!f)
        return false;
    while (fgets(line, sizeof line, f))
        for (size_t i = 0; i < 3; i++)
            if (strncmp(line, names[i], strlen(names[i])) == 0)
                found |= sscanf(line + strlen(names[i]), "%" SCNu64, &kib[i]) == 1;
    fclose(f);
    if (!found) /* a zombie has none of these lines */
        return false;
    *out = (struct measured_process){ .anonymous = kib[0] * KIB, .locked = kib[1] * KIB,
                                      .swapped = kib[2] * KIB };
    out->descriptors_known = count_descriptors(&out->descriptors, pid);
    return true;
}

/* ---- the control group ---- */

struct files { /* what each version calls them */
    const char *usage, *limits[2], *cache[2];
};

static const struct files of_version[] = {
    [CGROUP_V2] = { "memory.current", { "memory.max", "memory.high" },
                    { "active_file ", "inactive_file " } },
    [CGROUP_V1] = { "memory.usage_in_bytes", { "memory.limit_in_bytes", NULL },
                    { "total_active_file ", "total_inactive_file " } },
};

static bool read_number(uint64_t *out, const struct cgroup *g, const char *file)
{
    char text[64], *end;

    if (!cgroup_line(g, file, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return false; /* "max" is no limit */
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

/* The number after key at the start of a line. */
static uint64_t field(const char *text, const char *key)
{
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, strlen(key)) == 0)
            return strtoull(line + strlen(key), NULL, 10);
    }
    return 0;
}

static bool measure_version(struct measured_cgroup *out, const char *root,
                            enum cgroup_version version)
{
    const struct files *names = &of_version[version];
    struct cgroup g;
    char stat[16384];
    uint64_t value;

    if (!cgroup_find(&g, root, version, "memory") || !read_number(&out->usage, &g, names->usage))
        return false;
    out->version = version == CGROUP_V2 ? 2 : 1;
    out->file = 0;
    out->limit = UINT64_MAX;
    snprintf(out->dir, sizeof out->dir, "%.*s", (int)sizeof out->dir - 1, g.dir);
    if (cgroup_text(&g, "memory.stat", stat, sizeof stat))
        out->file = field(stat, names->cache[0]) + field(stat, names->cache[1]);
    do {
        for (size_t i = 0; i < 2 && names->limits[i]; i++)
            if (read_number(&value, &g, names->limits[i]) && value < out->limit)
                out->limit = value;
    } while (cgroup_up(&g));
    if (out->limit > UINT64_MAX / 16) /* v1 spells "none" as the largest multiple of a page */
        out->limit = UINT64_MAX;
    return true;
}

bool measure_cgroup(struct measured_cgroup *out, const char *root)
{
    return measure_version(out, root, CGROUP_V2) || measure_version(out, root, CGROUP_V1);
}
