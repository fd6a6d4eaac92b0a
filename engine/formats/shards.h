/* shards: all tensors of a checkpoint directory, found by name.
 *
 * With or without model.safetensors.index.json. The index is checked against the
 * headers (and the headers against it): a shard that is missing, stray, listed
 * twice or truncated is ERR_FORMAT naming it and the cure. Paths are resolved once
 * (Hugging Face caches are symlinks into blobs). Immutable once open; any thread. */
#ifndef FORMATS_SHARDS_H
#define FORMATS_SHARDS_H

#include "formats/safetensors.h"

struct err;
struct hash;

struct shard_file {
    char *path; /* owned; as opened, with symlinks resolved */
    char *name; /* owned; as in the directory, for messages */
    uint64_t size;
};

struct shards {
    struct shard_file *files; /* owned */
    uint32_t n_files;
    struct tensor *tensors; /* owned; all shards, file by file in order of offset */
    uint32_t n_tensors;
    char **names;       /* owned; the tensors' names, a block for each file */
    struct hash *hash;  /* owned; name -> index into tensors, O(1) */
};

/* 1 when model_dir holds an index or any shard, so that shards_open has something to
 * say about it; 0 when there is only a config. */
int shards_present(const char *model_dir, struct err *err);

int shards_open(struct shards **out, const char *model_dir, struct err *err);
void shards_close(struct shards *s); /* NULL is fine */
const struct tensor *shards_find(const struct shards *s, const char *name); /* NULL: none */

#endif
