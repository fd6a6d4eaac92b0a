#include "io/drives.h"

#include "formats/shards.h"
#include "io/io.h"
#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct drive_file {
    int fd; /* owned; -1 when not open */
    bool direct;
    uint64_t size;
    char *path, *name; /* owned */
    dev_t dev;
    ino_t ino;
    struct timespec written; /* st_mtim */
};

struct drives {
    struct drive_file *files; /* owned */
    uint32_t n_files;
};

/* Some file systems accept the flag and then fail every read, so one is tried. 1: the
 * descriptor reads directly; 0: it does not. */
static int reads_direct(int fd, struct err *err)
{
    void *block = aligned_alloc(IO_ALIGN, IO_ALIGN);
    ssize_t got;

    if (!block)
        return err_set(err, ERR_NOMEM, "a block to try a drive with");
    do
        got = pread(fd, block, IO_ALIGN, 0);
    while (got < 0 && errno == EINTR);
    int failed = errno;
    free(block);
    if (got >= 0)
        return 1;
    if (failed == EINVAL || failed == EOPNOTSUPP)
        return 0;
    errno = failed;
    return err_errno(err, "first read");
}

static int open_buffered(struct drive_file *f, struct err *err)
{
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0)
        return err_errno(err, "open%s", errno == EMFILE ? " (raise LimitNOFILE)" : "");
    /* Read-ahead would fill the page cache with what nobody asked for. */
    posix_fadvise(f->fd, 0, 0, POSIX_FADV_RANDOM);
    return 0;
}

static int open_file(struct drive_file *f, bool direct, struct err *err)
{
    int works = 0;

    if (direct) {
        f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
        if (f->fd < 0 && errno != EINVAL && errno != EOPNOTSUPP)
            return err_errno(err, "open%s", errno == EMFILE ? " (raise LimitNOFILE)" : "");
        if (f->fd >= 0) {
            works = reads_direct(f->fd, err);
            if (works < 0)
                return -1;
            if (!works) {
                close(f->fd);
                f->fd = -1;
            }
        }
    }
    f->direct = works > 0;
    return f->direct ? 0 : open_buffered(f, err);
}

static int check_file(struct drive_file *f, struct err *err)
{
    struct stat st;

    if (fstat(f->fd, &st) < 0)
        return err_errno(err, "stat");
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_FORMAT, "not a regular file");
    if ((uint64_t)st.st_size != f->size)
        return err_set(err, ERR_IO,
                       "%" PRIu64 " bytes now, %" PRIu64 " when its header was read: is it still "
                       "being copied?", (uint64_t)st.st_size, f->size);
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    f->written = st.st_mtim;
    return 0;
}

int drives_open(struct drives **out, const struct shards *shards, bool direct, struct err *err)
{
    struct drives *d = calloc(1, sizeof *d);

    if (!d)
        return err_set(err, ERR_NOMEM, "drives");
    d->files = calloc(shards->n_files ? shards->n_files : 1, sizeof *d->files);
    if (!d->files) {
        err_set(err, ERR_NOMEM, "drives of %u files", shards->n_files);
        goto fail;
    }
    for (uint32_t i = 0; i < shards->n_files; i++) {
        struct drive_file *f = &d->files[i];

        *f = (struct drive_file){ .fd = -1, .size = shards->files[i].size };
        d->n_files++;
        f->path = strdup(shards->files[i].path);
        f->name = strdup(shards->files[i].name);
        if (!f->path || !f->name) {
            err_set(err, ERR_NOMEM, "names of %u files", shards->n_files);
            goto fail;
        }
        if (open_file(f, direct, err) < 0 || check_file(f, err) < 0) {
            err_within(err, "%s", f->name);
            goto fail;
        }
    }
    *out = d;
    return 0;

fail:
    drives_close(d);
    return -1;
}

void drives_close(struct drives *d)
{
    if (!d)
        return;
    for (uint32_t i = 0; i < d->n_files; i++) {
        if (d->files[i].fd >= 0)
            close(d->files[i].fd);
        free(d->files[i].path);
        free(d->files[i].name);
    }
    free(d->files);
    free(d);
}

const char *drives_name(const struct drives *d, uint32_t file)
{
    return d->files[file].name;
}

int drives_fd(const struct drives *d, uint32_t file)
{
    return d->files[file].fd;
}

uint64_t drives_size(const struct drives *d, uint32_t file)
{
    return d->files[file].size;
}

bool drives_direct(const struct drives *d, uint32_t file)
{
    return d->files[file].direct;
}

void drives_drop(const struct drives *d, uint32_t file, uint64_t offset, uint64_t size)
{
    if (!d->files[file].direct)
        posix_fadvise(d->files[file].fd, (off_t)offset, (off_t)size, POSIX_FADV_DONTNEED);
}

/* The descriptor shows truncation and writing, the path whether another file took
 * its place (a download renamed over it). */
static int verify_file(const struct drive_file *f, struct err *err)
{
    struct stat held, named;

    if (fstat(f->fd, &held) < 0)
        return err_errno(err, "stat");
    if ((uint64_t)held.st_size != f->size)
        return err_set(err, ERR_IO, "%" PRIu64 " bytes now, %" PRIu64 " when it was opened",
                       (uint64_t)held.st_size, f->size);
    if (held.st_mtim.tv_sec != f->written.tv_sec || held.st_mtim.tv_nsec != f->written.tv_nsec)
        return err_set(err, ERR_IO, "written to since it was opened");
    if (stat(f->path, &named) < 0)
        return err_errno(err, "gone since it was opened");
    if (named.st_dev != f->dev || named.st_ino != f->ino)
        return err_set(err, ERR_IO, "replaced since it was opened");
    return 0;
}

int drives_verify(const struct drives *d, struct err *err)
{
    for (uint32_t i = 0; i < d->n_files; i++)
        if (verify_file(&d->files[i], err) < 0)
            return err_within(err, "%s", d->files[i].name);
    return 0;
}
