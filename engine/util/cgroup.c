/* /proc/self/cgroup says which group the process is in ("0::/a/b" for v2, "4:cpu,cpuacct:/a/b"
 * for v1), /proc/self/mountinfo where the hierarchies are mounted and which of their folders
 * is the mount's root. In a container the group's path may lie outside the mount; then the
 * mount point itself is the innermost group that can be seen. */
#include "util/cgroup.h"

#include <stdio.h>
#include <string.h>

enum { LINE_SIZE = 2 * PATH_MAX };

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
static bool find_group(char *path, size_t cap, const char *root, enum cgroup_version version,
                       const char *controller)
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
        if (version == CGROUP_V2 ? controllers[0] != '\0' : !has_word(controllers, controller))
            continue;
        found = (size_t)snprintf(path, cap, "%s", group) < cap;
    }
    fclose(f);
    return found;
}

/* A line is "id parent dev root point options... - type source super"; see proc(5). */
static bool find_mount(char *point, char *mount_root, size_t cap, const char *root,
                       enum cgroup_version version, const char *controller)
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
        if (version == CGROUP_V2
                ? strcmp(type, "cgroup2") != 0
                : strcmp(type, "cgroup") != 0 || !has_word(super, controller))
            continue;
        if (sscanf(line, "%*s %*s %*s %4095s %4095s", at_root, at_point) != 2)
            continue;
        found = (size_t)snprintf(point, cap, "%s", at_point) < cap &&
                (size_t)snprintf(mount_root, cap, "%s", at_root) < cap;
    }
    fclose(f);
    return found;
}

bool cgroup_find(struct cgroup *out, const char *root, enum cgroup_version version,
                 const char *controller)
{
    char point[PATH_MAX], mount_root[PATH_MAX], group[PATH_MAX];

    if (!find_group(group, sizeof group, root, version, controller) ||
        !find_mount(point, mount_root, sizeof point, root, version, controller))
        return false;

    /* The part of the group's path below the mount's root. */
    const char *below = group;
    size_t n = strlen(mount_root);
    if (strcmp(mount_root, "/") != 0)
        below = strncmp(group, mount_root, n) == 0 && (group[n] == '/' || group[n] == '\0')
                    ? group + n
                    : "";
    if (strstr(below, "/..") || strcmp(below, "/") == 0) /* inside a cgroup namespace */
        below = "";
    *out = (struct cgroup){ .root = root, .top = strlen(point) };
    snprintf(out->dir, sizeof out->dir, "%s%s", point, below);
    return true;
}

bool cgroup_up(struct cgroup *g)
{
    char *slash = strrchr(g->dir, '/');

    if (!slash || (size_t)(slash - g->dir) < g->top)
        return false;
    *slash = '\0';
    return true;
}

bool cgroup_text(const struct cgroup *g, const char *file, char *text, size_t cap)
{
    char path[LINE_SIZE];

    if ((size_t)snprintf(path, sizeof path, "%s/%s", g->dir, file) >= sizeof path)
        return false;
    FILE *f = open_under(g->root, path);
    if (!f)
        return false;
    size_t n = fread(text, 1, cap - 1, f);
    bool ok = n > 0 && !ferror(f);
    text[n] = '\0';
    fclose(f);
    return ok;
}

bool cgroup_line(const struct cgroup *g, const char *file, char *line, size_t cap)
{
    if (!cgroup_text(g, file, line, cap))
        return false;
    chomp(line);
    return true;
}
