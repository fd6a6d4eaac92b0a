/* drives: the checkpoint's files, opened for reading.
 *
 * O_DIRECT where the file system takes it, so that streamed weights never sit in
 * the page cache beside our own slots; elsewhere buffered, and drives_drop gives
 * the pages back after each read. Sizes are compared with those that the headers
 * were checked against. Immutable once open; any thread. */
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
/* ERR_IO when a file was replaced or truncated since it was opened. */
int drives_verify(const struct drives *d, struct err *err);

#endif
