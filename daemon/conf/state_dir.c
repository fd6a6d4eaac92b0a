#include "daemon/conf/state_dir.h"

#include "daemon/conf/conf.h"
#include "util/err.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Others have no business in what the daemon remembers. */
enum { STATE_MODE = 0750 };

/* A folder of this path, judged by the one it would lie in: 0, or -1 with errno. */
static int can_be_made(const char *path)
{
    char above[PATH_MAX];
    size_t size = strlen(path);

    if (size >= sizeof above) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(above, path, size + 1);
    while (size > 1 && above[size - 1] == '/')
        size--;
    while (size > 1 && above[size - 1] != '/')
        size--;
    above[size] = '\0';
    return access(above, W_OK | X_OK);
}

/* 1: it is there, 0: it could be made, -1 with errno. */
static int make_or_look(const char *path, bool make)
{
    struct stat st;

    if (make)
        return mkdir(path, STATE_MODE) < 0 && errno != EEXIST ? -1 : 1;
    return lstat(path, &st) == 0 ? 1 : can_be_made(path);
}

static int find(const struct conf *conf, bool make, struct err *err)
{
    const char *path = conf->state_dir;
    struct stat st;
    int there = 1;

    if (path[0] != '/')
        return err_set(err, ERR_INPUT, "state.dir: '%.200s' is no absolute path", path);
    /* Whoever tries the daemon by hand gets nothing made that he did not name. */
    if (!conf->state_default)
        there = make_or_look(path, make);
    if (there < 0)
        err_errno(err, "state.dir %s cannot be made", path);
    else if (there == 0)
        return 1;
    else if (stat(path, &st) < 0)
        err_errno(err, "state.dir %s", path);
    else if (!S_ISDIR(st.st_mode))
        err_set(err, ERR_INPUT, "state.dir %s is no folder", path);
    else if (access(path, R_OK | W_OK | X_OK) < 0)
        err_errno(err, "state.dir %s cannot be written", path);
    else
        return 1;
    err->kind = ERR_INPUT; /* a setting to change, whatever the system said */
    return conf->state_default ? 0 : -1;
}

int state_dir_open(const struct conf *conf, struct err *err)
{
    return find(conf, true, err);
}

int state_dir_check(const struct conf *conf, struct err *err)
{
    return find(conf, false, err);
}
