/* shard_index: model.safetensors.index.json, which says what lies in which shard.
 *
 * Only read here, and checked as text; shards.c holds it against the headers. File
 * names in it are plain names: it cannot point outside the model's directory. */
#ifndef FORMATS_SHARD_INDEX_H
#define FORMATS_SHARD_INDEX_H

#include <stdbool.h>
#include <stdint.h>

struct err;

struct shard_index_entry {
    const char *tensor;
    uint32_t file; /* index into files */
};

struct shard_index {
    char *text; /* owned; the strings below lie in it */
    struct shard_index_entry *entries; /* owned */
    const char **files;                /* owned array; each name once, in order of first mention */
    uint32_t n_entries, n_files;
    bool has_total; /* metadata.total_size, when it is a whole number */
    uint64_t total_size;
};

int shard_index_open(struct shard_index *out, const char *path, struct err *err);
void shard_index_close(struct shard_index *x); /* also on a zeroed struct */

#endif
