/* json: typed getters over jansson, for files we did not write.
 *
 * A getter rejects a wrong type, a fraction, a negative or a value out of range by
 * naming file and key. Keys may be absent only where a default is given. One
 * thread at a time. */
#ifndef FORMATS_JSON_H
#define FORMATS_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;

/* A parsed file and its name for messages. */
struct json {
    json_t *root;   /* owned; an object */
    char name[256]; /* path as shown in errors */
};

/* Reads at most max_size bytes. Root must be an object; duplicate keys, trailing
 * text and nesting past jansson's limit are ERR_FORMAT with line and column. */
int json_open(struct json *out, const char *path, uint64_t max_size, struct err *err);
int json_open_buffer(struct json *out, const char *name, const void *bytes, uint64_t size,
                     struct err *err);
void json_close(struct json *j);
/* A view of the object under key; shares the name. out->root is borrowed (do not
 * close it), NULL when the key is absent or null. */
int json_child(struct json *out, const struct json *j, const char *key, struct err *err);

/* Present and not null. */
bool json_has(const struct json *j, const char *key);

int json_u32(uint32_t *out, const struct json *j, const char *key, uint32_t min, uint32_t max,
             struct err *err); /* missing or null: ERR_FORMAT */
int json_u32_or(uint32_t *out, const struct json *j, const char *key, uint32_t absent,
                uint32_t min, uint32_t max, struct err *err);
int json_f64(double *out, const struct json *j, const char *key, double min, double max,
             struct err *err);
int json_f64_or(double *out, const struct json *j, const char *key, double absent, double min,
                double max, struct err *err);
int json_bool_or(bool *out, const struct json *j, const char *key, bool absent, struct err *err);
/* Borrowed string; NULL when absent or null (or_null) . */
int json_string_or_null(const char **out, const struct json *j, const char *key,
                        struct err *err);
/* A number or an array of numbers into out[0..cap); *n set. Absent: *n = 0. */
int json_u32_list(uint32_t *out, uint32_t *n, uint32_t cap, const struct json *j,
                  const char *key, struct err *err);

#endif
