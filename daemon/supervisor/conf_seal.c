#include "daemon/supervisor/conf_seal.h"

#include "daemon/conf/conf.h"
#include "daemon/supervisor/child.h"
#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int conf_seal(int *out, const struct conf *conf, struct err *err)
{
    char *text;
    size_t size, done = 0;

    if (conf_write(conf, &text, &size, err) < 0)
        return -1;
    int fd = memfd_create("colizig-config", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        err_errno(err, "memfd for the config");
        goto fail;
    }
    while (done < size) {
        ssize_t n = write(fd, text + done, size - done);
        if (n < 0 && errno != EINTR) {
            err_errno(err, "memfd for the config");
            goto fail;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        err_errno(err, "sealing the config");
        goto fail;
    }
    if (child_park_fd(&fd, err) < 0)
        goto fail;
    free(text);
    *out = fd;
    return 0;

fail:
    free(text);
    if (fd >= 0)
        close(fd);
    return -1;
}
