/* json_same: whether two JSON texts mean the same, however they are spelled.
 *
 * White space, the order of keys, escapes and the spelling of numbers (1, 1.0, 10e-1) do not
 * matter. One pass over each, without memory: an object is the sum of its members' keyed hashes,
 * so key must be a secret of whoever compares. Any thread. */
#ifndef TEXT_JSON_SAME_H
#define TEXT_JSON_SAME_H

#include "util/sip.h"

#include <stdbool.h>
#include <stddef.h>

/* Arguments of a call: nothing at all is {}, and what is no JSON is only the same byte for byte. */
bool json_same(const char *a, size_t a_size, const char *b, size_t b_size,
               const struct sip_sum *key);

#endif
