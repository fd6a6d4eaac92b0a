/* cpu_quota: how many processors' worth of time the control groups leave.
 *
 * Reads cgroup v2 (cpu.max) and v1 (cpu.cfs_quota_us over cpu.cfs_period_us) of the
 * process and of every group above it; the tightest one counts. Any thread. */
#ifndef UTIL_CPU_QUOTA_H
#define UTIL_CPU_QUOTA_H

#include <stdint.h>

/* Whole processors, rounded up, at least 1; UINT32_MAX when nothing limits. root is put
 * before /proc/self/cgroup, /proc/self/mountinfo and the mount points found there: "" for
 * the machine itself. What cannot be read does not limit. */
uint32_t cpu_quota(const char *root);

#endif
