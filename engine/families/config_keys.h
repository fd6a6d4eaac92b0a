/* config_keys: config.json held against what a family knows.
 *
 * A key that nobody here has heard of may change the answer, so it is refused by name;
 * when its value is one that cannot (null, false, zero, empty) it is warned about. */
#ifndef FAMILIES_CONFIG_KEYS_H
#define FAMILIES_CONFIG_KEYS_H

#include <stddef.h>

struct config_warnings;
struct err;
struct json;

/* known: n names. whose: "qwen3_moe", for messages. warnings may be NULL. */
int config_keys_check(const struct json *j, const char *const *known, size_t n,
                      const char *whose, struct config_warnings *warnings, struct err *err);

void config_warn(struct config_warnings *warnings, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
