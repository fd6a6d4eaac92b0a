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

/* The same for the object that describes a model: keys that every config of transformers may
 * carry and that no forward pass reads are known as well. */
int config_keys_check_model(const struct json *j, const char *const *known, size_t n,
                            const char *whose, struct config_warnings *warnings, struct err *err);

/* "'key' is value: only this is built": ERR_UNSUPPORTED. */
int config_unsupported(const struct json *j, const char *key, const char *value,
                       const char *only, struct err *err);
/* A switch that is absent, null or false. */
int config_must_be_off(const struct json *j, const char *key, struct err *err);
/* A word that is absent, null or this one. */
int config_must_be(const struct json *j, const char *key, const char *only, struct err *err);
/* One of 'architectures', where there are any. */
int config_must_be_class(const struct json *j, const char *const *names, size_t n,
                         struct err *err);

void config_warn(struct config_warnings *warnings, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
