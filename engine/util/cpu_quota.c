#include "util/cpu_quota.h"

#include "util/cgroup.h"

#include <stdio.h>
#include <stdlib.h>

/* Processors that one group's own setting allows. */
static uint32_t group_quota(const struct cgroup *g, enum cgroup_version version)
{
    char text[64], period_text[64];
    long long quota = -1, period = 0;

    if (version == CGROUP_V2) {
        if (!cgroup_line(g, "cpu.max", text, sizeof text) ||
            sscanf(text, "%lld %lld", &quota, &period) != 2) /* "max 100000" */
            return UINT32_MAX;
    } else {
        if (!cgroup_line(g, "cpu.cfs_quota_us", text, sizeof text) ||
            !cgroup_line(g, "cpu.cfs_period_us", period_text, sizeof period_text))
            return UINT32_MAX;
        quota = strtoll(text, NULL, 10); /* -1: no limit */
        period = strtoll(period_text, NULL, 10);
    }
    if (quota <= 0 || period <= 0)
        return UINT32_MAX;
    long long n = quota / period + (quota % period != 0);
    return n < (long long)UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static uint32_t hierarchy_quota(const char *root, enum cgroup_version version)
{
    struct cgroup g;
    uint32_t least = UINT32_MAX;

    if (!cgroup_find(&g, root, version, "cpu"))
        return UINT32_MAX;
    do {
        uint32_t q = group_quota(&g, version);
        if (q < least)
            least = q;
    } while (cgroup_up(&g));
    return least;
}

uint32_t cpu_quota(const char *root)
{
    uint32_t v2 = hierarchy_quota(root, CGROUP_V2), v1 = hierarchy_quota(root, CGROUP_V1);

    return v2 < v1 ? v2 : v1;
}
