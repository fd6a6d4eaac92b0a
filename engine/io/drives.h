/* drives: the checkpoint's files, opened for reading.
 *
 * O_DIRECT where the file system takes it, so that streamed weights never sit in
 * the page cache beside our own slots; elsewhere buffered, and drives_drop gives
 * the pages back after each read. Sizes are compared with those that the headers
 * were checked against. Immutable once open but for what drives_verify remembers; any thread, one
 * at a time for that. */
#ifndef IO_DRIVES_H
#define IO_DRIVES_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct shards;
struct drives;

int drives_open(struct drives **out, const struct shards *shards, bool direct, struct err *err);
void drives_close(struct drives *d); /* NULL is fine */
const char *drives_name(const struct drives *d, uint32_t file); /* for messages */
int drives_fd(const struct drives *d, uint32_t file);
uint64_t drives_size(const struct drives *d, uint32_t file);
bool drives_direct(const struct drives *d, uint32_t file);
/* After a buffered read; does nothing for a direct one. */
void drives_drop(const struct drives *d, uint32_t file, uint64_t offset, uint64_t size);
/* ERR_IO when a file was truncated or written to since it was opened, also when its times were set
 * back. Looks at the descriptors only: cheap enough for every step. */
int drives_unchanged(struct drives *d, struct err *err);
/* The same, and whether the paths still lead to these files: not moved, removed or replaced. */
int drives_verify(struct drives *d, struct err *err);
/* ERR_IO saying why a read that began at offset failed; error is its errno, EIO also for a read
 * that came short. Returns -1. */
int drives_why(const struct drives *d, uint32_t file, uint64_t offset, int error, struct err *err);

#endif
