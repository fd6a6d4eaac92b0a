#include "daemon/supervisor/model_mark.h"

#include "daemon/conf/chat_template.h"
#include "util/fnv.h"

#include <dirent.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int is_part(const char *name)
{
    size_t size = strlen(name);
    static const char *const ends[] = { ".json", ".safetensors" };

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t n = strlen(ends[i]);
        if (size > n && strcmp(name + size - n, ends[i]) == 0)
            return 1;
    }
    return 0;
}

static uint64_t mark_of(const char *name, const struct stat *about)
{
    const uint64_t facts[] = { (uint64_t)about->st_dev, (uint64_t)about->st_ino,
                               (uint64_t)about->st_size, (uint64_t)about->st_mtim.tv_sec,
                               (uint64_t)about->st_mtim.tv_nsec };

    return fnv(fnv(FNV_BEGIN, name, strlen(name)), facts, sizeof facts);
}

uint64_t model_mark(const char *dir)
{
    DIR *d = opendir(dir);
    uint64_t sum = 1;

    if (!d)
        return 0;
    for (const struct dirent *entry; (entry = readdir(d));) {
        struct stat about;
        /* A link's target counts: caches are directories of links. */
        if (!is_part(entry->d_name) || fstatat(dirfd(d), entry->d_name, &about, 0) < 0)
            continue;
        sum += mark_of(entry->d_name, &about); /* whatever the order in which they are listed */
    }
    closedir(d);
    return sum ? sum : 1;
}

uint64_t template_mark(const char *dir, const char *choice)
{
    char path[PATH_MAX];
    struct stat about;
    const char *file = chat_template_file(choice);
    int n = file ? snprintf(path, sizeof path, "%s", file)
                 : snprintf(path, sizeof path, "%s/chat_template.jinja", dir);

    return n < 0 || (size_t)n >= sizeof path || stat(path, &about) < 0 ? 0 : mark_of("", &about);
}
