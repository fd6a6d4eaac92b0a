#include "formats/file.h"

#include "util/err.h"
#include "util/shown.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool file_leads_nowhere(int error)
{
    return error == ELOOP || error == ENAMETOOLONG || error == ENOTDIR;
}

int file_open(int *fd, uint64_t *size, const char *path, struct err *err)
{
    struct stat st;
    int got = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (got < 0 && file_leads_nowhere(errno))
        return err_set(err, ERR_FORMAT, "open %s: %s", shown_path(path).text, strerror(errno));
    if (got < 0)
        return err_errno(err, "open %s", shown_path(path).text);
    if (fstat(got, &st) < 0) {
        err_errno(err, "stat %s", shown_path(path).text);
        close(got);
        return -1;
    }
    if (!S_ISREG(st.st_mode)) {
        close(got);
        return err_set(err, ERR_FORMAT, "%s: not a regular file", shown_path(path).text);
    }
    *fd = got;
    *size = (uint64_t)st.st_size;
    return 0;
}

int file_read_at(int fd, const char *path, void *to, uint64_t size, uint64_t offset,
                 struct err *err)
{
    char *at = to;

    while (size > 0) {
        ssize_t got = pread(fd, at, size, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_errno(err, "read %s", shown_path(path).text);
        if (got == 0)
            return err_set(err, ERR_IO, "%s: ends at byte %" PRIu64 " while it is read",
                           shown_path(path).text, offset);
        at += got;
        offset += (uint64_t)got;
        size -= (uint64_t)got;
    }
    return 0;
}

int file_read_all(char **out, uint64_t *size, const char *path, uint64_t max, struct err *err)
{
    char *text = NULL;
    uint64_t n;
    int fd;

    if (file_open(&fd, &n, path, err) < 0)
        return -1;
    if (n > max) {
        err_set(err, ERR_FORMAT, "%s: %" PRIu64 " bytes; at most %" PRIu64 " are read",
                shown_path(path).text, n, max);
        goto fail;
    }
    text = malloc(n + 1);
    if (!text) {
        err_set(err, ERR_NOMEM, "%" PRIu64 " bytes of %s", n, shown_path(path).text);
        goto fail;
    }
    if (file_read_at(fd, path, text, n, 0, err) < 0)
        goto fail;
    if (file_is_lfs_pointer(text, n)) {
        file_lfs_error(path, err);
        goto fail;
    }
    text[n] = '\0';
    close(fd);
    *out = text;
    *size = n;
    return 0;

fail:
    free(text);
    close(fd);
    return -1;
}

bool file_is_lfs_pointer(const void *bytes, uint64_t size)
{
    /* The first line of a pointer file, git-lfs docs/spec.md. */
    static const char first_line[] = "version https://git-lfs.github.com/spec/";

    return size >= sizeof first_line - 1 && memcmp(bytes, first_line, sizeof first_line - 1) == 0;
}

int file_lfs_error(const char *path, struct err *err)
{
    return err_set(err, ERR_FORMAT,
                   "%s: looks like a Git LFS pointer, not the file itself: run git lfs pull",
                   shown_path(path).text);
}
