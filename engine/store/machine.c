/* How the tightest bound is found: every folder from our own control group up to the mount's root
 * may hold a limit, and each leaves limit - (usage - file cache): pages of files are given up by
 * the kernel before anybody is killed. v1 and v2 are both asked, because a hybrid system has the
 * memory controller in one of them and says nothing in the other. */
#include "store/machine.h"

#include "util/cgroup.h"
#include "util/err.h"
#include "util/proc_text.h"
#include "util/size.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LEVELS = 24 }; /* folders of both trees; a group is four or five deep as a rule */

/* v1 spells "no limit" as the largest multiple of a page; nobody has an exbibyte. */
#define ABSURD_LIMIT ((uint64_t)1 << 60)

struct version_files {
    const char *name; /* for machine_memory.source */
    const char *limits[2], *usage;
    const char *file_cache[2]; /* fields of memory.stat; shared memory is not in them */
};

static const struct version_files versions[] = {
    [CGROUP_V2] = { .name = "cgroup v2", .limits = { "memory.max", "memory.high" },
                    .usage = "memory.current", .file_cache = { "active_file", "inactive_file" } },
    [CGROUP_V1] = { .name = "cgroup v1", .limits = { "memory.limit_in_bytes", NULL },
                    .usage = "memory.usage_in_bytes",
                    .file_cache = { "total_active_file", "total_inactive_file" } },
};

/* One folder. Descriptors are -1 where there is no such file. */
struct level {
    enum cgroup_version version;
    int limits[2], usage, stat;
};

struct machine {
    char meminfo_path[PATH_MAX]; /* for messages */
    int meminfo, status, pressure, group_pressure; /* owned, like those of the levels */
    struct level levels[MAX_LEVELS];
    uint32_t n_levels;
};

/* ---- opening ---- */

static int open_under(const char *root, const char *dir, const char *file)
{
    char path[3 * PATH_MAX];

    if (!file || snprintf(path, sizeof path, "%s%s/%s", root, dir, file) >= (int)sizeof path)
        return -1;
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Limits may be set later in any of them, so all that count memory are kept. */
static void open_levels(struct machine *m, const char *root, enum cgroup_version version)
{
    const struct version_files *v = &versions[version];
    struct cgroup g;

    if (!cgroup_find(&g, root, version, "memory"))
        return;
    if (version == CGROUP_V2)
        m->group_pressure = open_under(root, g.dir, "memory.pressure");
    do {
        struct level *l = &m->levels[m->n_levels];

        l->version = version;
        l->limits[0] = open_under(root, g.dir, v->limits[0]);
        l->limits[1] = open_under(root, g.dir, v->limits[1]);
        if (l->limits[0] < 0 && l->limits[1] < 0)
            continue;
        l->usage = open_under(root, g.dir, v->usage);
        l->stat = open_under(root, g.dir, "memory.stat");
        m->n_levels++;
    } while (cgroup_up(&g) && m->n_levels < MAX_LEVELS);
}

int machine_open(struct machine **out, const char *root, struct err *err)
{
    struct machine *m = calloc(1, sizeof *m);

    if (!m)
        return err_set(err, ERR_NOMEM, "the machine's figures");
    m->group_pressure = -1;
    m->meminfo = open_under(root, "/proc", "meminfo");
    int saved = errno;
    m->status = open_under(root, "/proc/self", "status");
    m->pressure = open_under(root, "/proc/pressure", "memory");
    open_levels(m, root, CGROUP_V2);
    if (m->n_levels < MAX_LEVELS)
        open_levels(m, root, CGROUP_V1);
    snprintf(m->meminfo_path, sizeof m->meminfo_path, "%.3000s/proc/meminfo", root);
    if (m->meminfo < 0) {
        errno = saved;
        err_errno(err, "read %s", m->meminfo_path);
        machine_close(m);
        return -1;
    }
    *out = m;
    return 0;
}

static void close_file(int fd)
{
    if (fd >= 0)
        close(fd);
}

void machine_close(struct machine *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->n_levels; i++) {
        close_file(m->levels[i].limits[0]);
        close_file(m->levels[i].limits[1]);
        close_file(m->levels[i].usage);
        close_file(m->levels[i].stat);
    }
    close_file(m->meminfo);
    close_file(m->status);
    close_file(m->pressure);
    close_file(m->group_pressure);
    free(m);
}

/* ---- reading ---- */

static bool read_number(uint64_t *out, int fd)
{
    char text[64];

    /* "max" is no number and no limit. */
    return fd >= 0 && proc_text_read(fd, text, sizeof text) && proc_text_number(out, text);
}

/* Narrows *limit and *room by what one folder says. */
static void ask_level(uint64_t *limit, uint64_t *room, const struct level *l)
{
    uint64_t here = UINT64_MAX, usage = 0, cache = 0, value;
    char text[PROC_TEXT_SIZE];

    for (size_t i = 0; i < 2; i++)
        if (read_number(&value, l->limits[i]) && value < ABSURD_LIMIT && value < here)
            here = value;
    if (here == UINT64_MAX)
        return;
    if (here < *limit)
        *limit = here;
    read_number(&usage, l->usage);
    if (l->stat >= 0 && proc_text_read(l->stat, text, sizeof text))
        for (size_t i = 0; i < 2; i++)
            if (proc_text_field(&value, text, versions[l->version].file_cache[i]))
                cache += value;
    uint64_t held = usage > cache ? usage - cache : 0;
    uint64_t left = here > held ? here - held : 0;
    if (left < *room)
        *room = left;
}

static void ask_groups(const struct machine *m, struct machine_memory *out)
{
    out->limit = out->group_room = UINT64_MAX;
    for (uint32_t i = 0; i < m->n_levels; i++) {
        uint64_t before = out->group_room;

        ask_level(&out->limit, &out->group_room, &m->levels[i]);
        if (out->group_room < before && out->group_room < out->free)
            out->source = versions[m->levels[i].version].name;
    }
    out->available = out->group_room < out->free ? out->group_room : out->free;
}

static void ask_process(const struct machine *m, struct machine_memory *out)
{
    static const char *const parts[] = { "RssAnon", "RssShmem", "VmPTE" };
    char text[PROC_TEXT_SIZE];
    uint64_t kib;

    if (m->status < 0 || !proc_text_read(m->status, text, sizeof text))
        return;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (proc_text_field(&kib, text, parts[i]))
            out->own += kib * KIB;
    if (proc_text_field(&kib, text, "VmSwap"))
        out->swapped = kib * KIB;
}

/* "full avg10=1.25 avg60=..." is 125. */
static uint32_t ask_pressure(int fd)
{
    char text[512];
    unsigned whole, part;

    if (fd < 0 || !proc_text_read(fd, text, sizeof text))
        return 0;
    const char *line = strstr(text, "full avg10=");
    return line && sscanf(line, "full avg10=%3u.%2u", &whole, &part) == 2 ? whole * 100 + part : 0;
}

int machine_read(const struct machine *m, struct machine_memory *out, struct err *err)
{
    struct machine_memory now = { .source = "machine" };
    char text[PROC_TEXT_SIZE];

    if (!proc_text_read(m->meminfo, text, sizeof text))
        return err_errno(err, "read %s", m->meminfo_path);
    if (!proc_text_field(&now.total, text, "MemTotal") ||
        !proc_text_field(&now.free, text, "MemAvailable"))
        return err_set(err, ERR_IO, "%s has no MemTotal or no MemAvailable; set memory.ram",
                       m->meminfo_path);
    now.total *= KIB;
    now.free *= KIB;
    ask_groups(m, &now);
    ask_process(m, &now);
    now.machine_stall = ask_pressure(m->pressure);
    now.group_stall = ask_pressure(m->group_pressure);
    *out = now;
    return 0;
}

int machine_memory(struct machine_memory *out, const char *root, struct err *err)
{
    struct machine *m;

    if (machine_open(&m, root, err) < 0)
        return -1;
    int rc = machine_read(m, out, err);
    machine_close(m);
    return rc;
}
