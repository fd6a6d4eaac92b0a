#include "daemon/state_dir.h"

#include "daemon/conf.h"
#include "util/err.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* Others have no business in what the daemon remembers. */
enum { STATE_MODE = 0750 };

int state_dir_open(const struct conf *conf, struct err *err)
{
    const char *path = conf->state_dir;
    struct stat st;

    /* Whoever tries the daemon by hand gets nothing made that he did not name. */
    if (!conf->state_default && mkdir(path, STATE_MODE) < 0 && errno != EEXIST) {
        err_errno(err, "state.dir %s cannot be made", path);
    } else if (stat(path, &st) < 0) {
        err_errno(err, "state.dir %s", path);
    } else if (!S_ISDIR(st.st_mode)) {
        err_set(err, ERR_INPUT, "state.dir %s is no folder", path);
    } else if (access(path, R_OK | W_OK | X_OK) < 0) {
        err_errno(err, "state.dir %s cannot be written", path);
    } else {
        return 1;
    }
    err->kind = ERR_INPUT; /* a setting to change, whatever the system said */
    return conf->state_default ? 0 : -1;
}
