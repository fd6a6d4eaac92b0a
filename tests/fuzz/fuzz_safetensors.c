/* A shard's header: what is accepted covers its data exactly, whatever the bytes.
 * Seeds: tests/data/bad-safetensors */
#include "tests/fuzz/fuzz.h"

#include "formats/safetensors.h"
#include "util/err.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors s;
    struct err err = { 0 };
    char path[64];
    int fd = fuzz_file(path, data, size);

    if (safetensors_open(&s, path, &err) < 0) {
        MUST(err.kind != ERR_NONE && err.text[0]);
    } else {
        uint64_t at = s.n_tensors ? s.tensors[0].offset : s.file_size;
        MUST(s.file_size == size);
        for (uint32_t i = 0; i < s.n_tensors; i++) {
            const struct tensor *t = &s.tensors[i];
            MUST(t->offset == at && t->offset >= 10 && t->n_dims <= TENSOR_MAX_DIMS);
            MUST(strlen(t->name) <= size && dtype_name(t->dtype));
            at += t->size;
        }
        MUST(at == size);
        safetensors_close(&s);
    }
    close(fd);
    return 0;
}
