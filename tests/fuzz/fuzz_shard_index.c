/* model.safetensors.index.json: names that are accepted stay in the model's directory.
 * Seeds: tests/data/fuzz/shard-index */
#include "tests/fuzz/fuzz.h"

#include "formats/shard_index.h"
#include "util/err.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shard_index x;
    struct err err = { 0 };
    char path[64];
    int fd = fuzz_file(path, data, size);

    if (shard_index_open(&x, path, &err) < 0) {
        MUST(err.kind != ERR_NONE && err.text[0]);
    } else {
        MUST(x.n_entries > 0 && x.n_files > 0);
        for (uint32_t i = 0; i < x.n_entries; i++)
            MUST(x.entries[i].file < x.n_files && strlen(x.entries[i].tensor) <= size);
        for (uint32_t i = 0; i < x.n_files; i++)
            MUST(x.files[i][0] && x.files[i][0] != '.' && !strchr(x.files[i], '/'));
        shard_index_close(&x);
    }
    close(fd);
    return 0;
}
