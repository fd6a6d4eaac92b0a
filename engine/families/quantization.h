/* quantization: what config.json says of how weights are stored.
 *
 * Plain, or FP8 with a scale for each block of 128 x 128; anything else is refused by name.
 * Which tensors are FP8 their own dtypes say. Any thread. */
#ifndef FAMILIES_QUANTIZATION_H
#define FAMILIES_QUANTIZATION_H

#include <stdbool.h>

struct config_warnings;
struct err;
struct json;

/* *fp8_table: whether 'modules_to_convert' lists a table of n-gram embeddings, and nothing but
 * that; NULL: a family without one, where the key is unknown. */
int quantization_read(bool *fp8, const struct json *j, bool *fp8_table,
                      struct config_warnings *warnings, struct err *err);

#endif
