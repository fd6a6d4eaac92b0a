/* cgroup: the control groups of this process as folders, from its own one upwards.
 *
 * v2 has one tree; v1 has one for each controller ("cpu", "memory"). root is put before
 * /proc/self/cgroup, /proc/self/mountinfo and the mount points found there: "" for the machine
 * itself, another folder for a test. Any thread. */
#ifndef UTIL_CGROUP_H
#define UTIL_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum cgroup_version { CGROUP_V2, CGROUP_V1 };

struct cgroup {
    const char *root;       /* borrowed */
    char dir[2 * PATH_MAX]; /* without root */
    size_t top;             /* length of the mount point, which dir never leaves */
};

/* The innermost group of the process that can be seen. */
bool cgroup_find(struct cgroup *out, const char *root, enum cgroup_version version,
                 const char *controller);
bool cgroup_up(struct cgroup *g); /* false at the mount point */
/* The first line of one of the group's files, or all of it as far as cap goes. */
bool cgroup_line(const struct cgroup *g, const char *file, char *line, size_t cap);
bool cgroup_text(const struct cgroup *g, const char *file, char *text, size_t cap);

#endif
