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
    struct stat seen; /* when it was opened, or its name, mode or owner last changed */
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
    f->seen = st;
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

/* ---- changes underneath ---- */

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* chmod, chown and hard links (of a backup, say) move the inode's time and leave the bytes. */
static bool only_attributes(const struct stat *a, const struct stat *b)
{
    return a->st_mode != b->st_mode || a->st_uid != b->st_uid || a->st_gid != b->st_gid ||
           a->st_nlink != b->st_nlink;
}

/* The descriptor shows truncation and writing. A time of writing can be set back to what it was;
 * that of the inode cannot. */
static int check_held(struct drive_file *f, struct err *err)
{
    struct stat st;

    if (fstat(f->fd, &st) < 0)
        return err_errno(err, "stat");
    if ((uint64_t)st.st_size != f->size)
        return err_set(err, ERR_IO, "%" PRIu64 " bytes now, %" PRIu64 " when it was opened",
                       (uint64_t)st.st_size, f->size);
    if (!same_time(st.st_mtim, f->seen.st_mtim))
        return err_set(err, ERR_IO, "written to since it was opened");
    if (same_time(st.st_ctim, f->seen.st_ctim))
        return 0;
    if (!only_attributes(&st, &f->seen))
        return err_set(err, ERR_IO, "touched since it was opened, and its time of writing kept or "
                                    "set back");
    f->seen = st;
    return 0;
}

/* The path shows whether another file took its place (a download renamed over it). */
static int check_path(const struct drive_file *f, struct err *err)
{
    struct stat st;

    if (stat(f->path, &st) < 0)
        return err_errno(err, "gone since it was opened");
    if (st.st_dev != f->seen.st_dev || st.st_ino != f->seen.st_ino)
        return err_set(err, ERR_IO, "replaced since it was opened");
    return 0;
}

int drives_unchanged(struct drives *d, struct err *err)
{
    for (uint32_t i = 0; i < d->n_files; i++)
        if (check_held(&d->files[i], err) < 0)
            return err_within(err, "%s", d->files[i].name);
    return 0;
}

int drives_verify(struct drives *d, struct err *err)
{
    for (uint32_t i = 0; i < d->n_files; i++)
        if (check_path(&d->files[i], err) < 0)
            return err_within(err, "%s", d->files[i].name);
    return drives_unchanged(d, err);
}

int drives_why(const struct drives *d, uint32_t file, uint64_t offset, int error, struct err *err)
{
    const struct drive_file *f = &d->files[file];
    struct stat st;

    if (fstat(f->fd, &st) == 0 && (uint64_t)st.st_size < f->size)
        return err_set(err, ERR_IO,
                       "reading '%s' at byte %" PRIu64 " failed: the file was cut short, it has "
                       "%" PRIu64 " bytes and had %" PRIu64, f->name, offset,
                       (uint64_t)st.st_size, f->size);
    return err_set(err, ERR_IO, "reading '%s' at byte %" PRIu64 " failed twice: %s", f->name,
                   offset, error == EIO ? "the drive failed" : strerror(error));
}
