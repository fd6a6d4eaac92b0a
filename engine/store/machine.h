/* machine: what this machine, or the control group we live in, really has.
 *
 * Reads /proc and the control groups, v2 and v1; root lets a test put a made-up tree in their
 * place. Whoever asks again and again keeps the files open: asking then opens nothing, so that a
 * sandbox put up in between does not blind it, and takes no memory. One thread at a time. */
#ifndef STORE_MACHINE_H
#define STORE_MACHINE_H

#include <stdint.h>

struct err;
struct machine;

struct machine_memory {
    uint64_t total;      /* of the machine */
    uint64_t limit;      /* of the tightest group above us; UINT64_MAX: none */
    uint64_t available;  /* the smaller of the two below */
    const char *source;  /* "machine", "cgroup v2", "cgroup v1": which of them it is */
    uint64_t free;       /* MemAvailable */
    uint64_t group_room; /* the least that a group above us leaves: its limit less what is used,
                            file cache not counted; UINT64_MAX: none limits us */
    uint64_t own;        /* anonymous and shared memory of this process, and its page tables */
    uint64_t swapped;    /* of this process */
    /* Hundredths of the last ten seconds in which everybody waited for memory (PSI, full): in the
     * whole machine, and in our own group (v2). 0 where the kernel does not say. */
    uint32_t machine_stall, group_stall;
};

/* root: "" for the real one. */
int machine_open(struct machine **out, const char *root, struct err *err);
void machine_close(struct machine *m); /* NULL is fine */
/* ERR_IO when /proc/meminfo says nothing. What else cannot be read is no limit, or 0. */
int machine_read(const struct machine *m, struct machine_memory *out, struct err *err);

/* Once. */
int machine_memory(struct machine_memory *out, const char *root, struct err *err);

#endif
