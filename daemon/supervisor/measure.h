/* measure: what the kernel says our processes hold.
 *
 * Read from /proc and the control group at the moment of asking; a figure that cannot be read
 * (a process just gone, a hidden /proc) is not there rather than 0. Any thread. */
#ifndef DAEMON_MEASURE_H
#define DAEMON_MEASURE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct measured_process {
    uint64_t anonymous, locked, swapped; /* RssAnon, VmLck, VmSwap; bytes */
    uint32_t descriptors;
    bool descriptors_known; /* only the process's own user may count them */
};

bool measure_process(struct measured_process *out, pid_t pid);

struct measured_cgroup {
    char dir[PATH_MAX];
    int version;            /* 1 or 2 */
    uint64_t usage, file;   /* of the group; file: page cache, which the kernel gives up first */
    uint64_t limit;         /* the tightest of this group and those above; UINT64_MAX: none */
};

/* root as in util/cgroup.h. False where no group accounts for memory. */
bool measure_cgroup(struct measured_cgroup *out, const char *root);

#endif
