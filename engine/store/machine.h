/* machine: what this machine, or the cgroup we live in, really has.
 *
 * Reads /proc and /sys/fs/cgroup, v2 and v1; root lets a test put a made-up tree in
 * their place. Any thread. */
#ifndef STORE_MACHINE_H
#define STORE_MACHINE_H

#include <stdint.h>

struct err;

struct machine_memory {
    uint64_t total;       /* of the machine */
    uint64_t limit;       /* of the tightest cgroup above us; UINT64_MAX: none */
    uint64_t available;   /* the smaller of MemAvailable and what the cgroup leaves */
    const char *source;   /* "machine", "cgroup v2", "cgroup v1": what bound it */
};

/* root: "" for the real one. */
int machine_memory(struct machine_memory *out, const char *root, struct err *err);

/* Memory the kernel counts against this process and its children: anonymous and shared,
 * from /proc/PID/smaps_rollup. */
int machine_anonymous(uint64_t *bytes, int pid, struct err *err);

#endif
