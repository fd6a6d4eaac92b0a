/* One safetensors file by itself, as the front door shows it. */
#include "colizig.h"

#include "formats/safetensors.h"
#include "util/err.h"

#include <stdio.h>
#include <string.h>

static uint64_t values_of(const struct tensor *t)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < t->n_dims; i++)
        n *= t->dims[i]; /* cannot wrap: the header was checked against the file's size */
    return n;
}

static void count_dtype(struct cz_file_info *info, const struct tensor *t)
{
    const char *name = dtype_name(t->dtype);
    uint32_t i = 0;

    while (i < info->n_dtypes && strcmp(info->dtypes[i].name, name) != 0)
        i++;
    if (i == sizeof info->dtypes / sizeof info->dtypes[0])
        return; /* there are fewer types than places */
    if (i == info->n_dtypes)
        snprintf(info->dtypes[info->n_dtypes++].name, sizeof info->dtypes[i].name, "%s", name);
    info->dtypes[i].n_tensors++;
    info->dtypes[i].bytes += t->size;
}

int cz_inspect_file(struct cz_file_info *out, const char *path, struct err *err)
{
    struct safetensors s;
    struct cz_file_info info = { 0 };
    const struct tensor *largest = NULL;

    if (safetensors_open(&s, path, err) < 0)
        return -1;
    info.file_size = s.file_size;
    info.n_tensors = s.n_tensors;
    for (uint32_t i = 0; i < s.n_tensors; i++) {
        const struct tensor *t = &s.tensors[i];
        info.data_size += t->size;
        info.n_values += values_of(t);
        count_dtype(&info, t);
        if (!largest || t->size > largest->size)
            largest = t;
    }
    if (largest) {
        snprintf(info.largest, sizeof info.largest, "%.150s", largest->name);
        info.largest_bytes = largest->size;
    }
    safetensors_close(&s);
    *out = info;
    return 0;
}
