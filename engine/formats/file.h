/* file: the guards that every reader of a checkpoint's file wants.
 *
 * Regular files only (a FIFO would hang, a directory reads as nothing), sizes from the
 * kernel before anything is allocated, and Git LFS pointers recognised: a clone made
 * without git-lfs leaves 130 bytes of text where a file of gigabytes should be. Any
 * thread. */
#ifndef FORMATS_FILE_H
#define FORMATS_FILE_H

#include <stdbool.h>
#include <stdint.h>

struct err;

/* Whether an errno of open or stat means that the name is at fault: a loop of symbolic links, a
 * name longer than names are, a file where a directory should be. No drive failed then. */
bool file_leads_nowhere(int error);
/* Opens a regular file read-only; the caller closes *fd. ERR_IO, or ERR_FORMAT when it
 * is something else than a file, or its name leads nowhere. */
int file_open(int *fd, uint64_t *size, const char *path, struct err *err);
/* All size bytes or an error. */
int file_read_at(int fd, const char *path, void *to, uint64_t size, uint64_t offset,
                 struct err *err);
/* The whole of a file of at most max bytes, with a NUL behind it; the caller frees
 * *out. A Git LFS pointer is ERR_FORMAT. */
int file_read_all(char **out, uint64_t *size, const char *path, uint64_t max, struct err *err);

bool file_is_lfs_pointer(const void *bytes, uint64_t size); /* the first bytes of a file */
int file_lfs_error(const char *path, struct err *err);      /* returns -1 */

#endif
