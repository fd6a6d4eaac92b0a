/* safetensors: one shard's header, read and verified before any weight is touched.
 *
 * The format: u64 little-endian length N, N bytes of JSON, then data. Every number
 * in it came from a file we did not write: a header is accepted only when the
 * tensors, in order of their offsets, cover the data section exactly, without
 * overlap, hole or trailing bytes, each as long as its shape and dtype say.
 * Source: the safetensors format text (huggingface/safetensors README). */
#ifndef FORMATS_SAFETENSORS_H
#define FORMATS_SAFETENSORS_H

#include "formats/dtype.h"

#include <stdint.h>

struct err;

enum { TENSOR_MAX_DIMS = 8 };

struct tensor {
    const char *name; /* owned by the shard or index that made it */
    enum dtype dtype;
    uint32_t n_dims;
    uint64_t dims[TENSOR_MAX_DIMS];
    uint32_t file;   /* index into shards.files; 0 for a lone shard */
    uint64_t offset; /* from the start of the file; any byte */
    uint64_t size;
};

struct safetensors {
    struct tensor *tensors; /* owned; in order of offset */
    uint32_t n_tensors;
    uint64_t file_size;
    char *names; /* owned storage of all names */
};

/* Reads and verifies the header of the file at path. ERR_FORMAT names the file and
 * the tensor and says what is wrong with it; a Git LFS pointer is recognised. */
int safetensors_open(struct safetensors *out, const char *path, struct err *err);
void safetensors_close(struct safetensors *s);

#endif
