#include "formats/json.h"

#include "formats/file.h"
#include "util/err.h"
#include "util/shown.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse(struct json *out, const char *path, const char *bytes, uint64_t size,
                 struct err *err)
{
    struct shown shown = shown_path(path);
    json_error_t fault;
    json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &fault);

    if (!root)
        return err_set(err, ERR_FORMAT, "%s: line %d, column %d: %s", shown.text, fault.line,
                       fault.column, fault.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(err, ERR_FORMAT, "%s: must hold a JSON object", shown.text);
    }
    out->root = root;
    snprintf(out->name, sizeof out->name, "%s", shown.text);
    return 0;
}

int json_open(struct json *out, const char *path, uint64_t max_size, struct err *err)
{
    uint64_t size;
    char *text;

    if (file_read_all(&text, &size, path, max_size, err) < 0)
        return -1;
    int rc = parse(out, path, text, size, err);
    free(text);
    return rc;
}

int json_open_buffer(struct json *out, const char *name, const void *bytes, uint64_t size,
                     struct err *err)
{
    return parse(out, name, bytes, size, err);
}

void json_close(struct json *j)
{
    json_decref(j->root);
    j->root = NULL;
}

static json_t *value_of(const struct json *j, const char *key)
{
    json_t *v = j->root ? json_object_get(j->root, key) : NULL;

    return json_is_null(v) ? NULL : v;
}

/* "config.json: 'head_dim' is 1.5: must be <what>". */
static int wrong(const struct json *j, const char *key, const json_t *v, const char *what,
                 struct err *err)
{
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

    err_set(err, ERR_FORMAT, "%s: '%s' is %.60s%s: must be %s", j->name, shown_name(key).text,
            text ? shown_name(text).text : "unreadable", text && strlen(text) > 60 ? "..." : "",
            what);
    free(text);
    return -1;
}

static int missing(const struct json *j, const char *key, struct err *err)
{
    return err_set(err, ERR_FORMAT, "%s: '%s' is missing", j->name, shown_name(key).text);
}

int json_child(struct json *out, const struct json *j, const char *key, struct err *err)
{
    json_t *v = value_of(j, key);

    if (v && !json_is_object(v))
        return wrong(j, key, v, "an object", err);
    out->root = v;
    size_t n = strnlen(j->name, sizeof out->name - 1);
    memcpy(out->name, j->name, n);
    snprintf(out->name + n, sizeof out->name - n, ": %s", key);
    return 0;
}

bool json_has(const struct json *j, const char *key)
{
    return value_of(j, key) != NULL;
}

static int read_u32(uint32_t *out, const struct json *j, const char *key, const json_t *v,
                    uint32_t min, uint32_t max, struct err *err)
{
    char what[64];

    if (json_is_integer(v) && json_integer_value(v) >= min && json_integer_value(v) <= max) {
        *out = (uint32_t)json_integer_value(v);
        return 0;
    }
    snprintf(what, sizeof what, "a whole number from %u to %u", min, max);
    return wrong(j, key, v, what, err);
}

int json_u32(uint32_t *out, const struct json *j, const char *key, uint32_t min, uint32_t max,
             struct err *err)
{
    const json_t *v = value_of(j, key);

    if (!v)
        return missing(j, key, err);
    return read_u32(out, j, key, v, min, max, err);
}

int json_u32_or(uint32_t *out, const struct json *j, const char *key, uint32_t absent,
                uint32_t min, uint32_t max, struct err *err)
{
    const json_t *v = value_of(j, key);

    if (!v) {
        *out = absent;
        return 0;
    }
    return read_u32(out, j, key, v, min, max, err);
}

static int read_f64(double *out, const struct json *j, const char *key, const json_t *v,
                    double min, double max, struct err *err)
{
    char what[96];

    if (json_is_number(v)) {
        double x = json_number_value(v);
        if (isfinite(x) && x >= min && x <= max) {
            *out = x;
            return 0;
        }
    }
    snprintf(what, sizeof what, "a number from %g to %g", min, max);
    return wrong(j, key, v, what, err);
}

int json_f64(double *out, const struct json *j, const char *key, double min, double max,
             struct err *err)
{
    const json_t *v = value_of(j, key);

    if (!v)
        return missing(j, key, err);
    return read_f64(out, j, key, v, min, max, err);
}

int json_f64_or(double *out, const struct json *j, const char *key, double absent, double min,
                double max, struct err *err)
{
    const json_t *v = value_of(j, key);

    if (!v) {
        *out = absent;
        return 0;
    }
    return read_f64(out, j, key, v, min, max, err);
}

int json_bool_or(bool *out, const struct json *j, const char *key, bool absent, struct err *err)
{
    const json_t *v = value_of(j, key);

    if (v && !json_is_boolean(v))
        return wrong(j, key, v, "true or false", err);
    *out = v ? json_is_true(v) : absent;
    return 0;
}

int json_string_or_null(const char **out, const struct json *j, const char *key,
                        struct err *err)
{
    const json_t *v = value_of(j, key);

    if (v && !json_is_string(v))
        return wrong(j, key, v, "a string", err);
    *out = v ? json_string_value(v) : NULL;
    return 0;
}

int json_u32_list(uint32_t *out, uint32_t *n, uint32_t cap, const struct json *j,
                  const char *key, struct err *err)
{
    const json_t *v = value_of(j, key);
    size_t count = json_is_array(v) ? json_array_size(v) : v != NULL;

    if (count > cap)
        return err_set(err, ERR_FORMAT, "%s: '%s' has %zu entries; at most %u are read",
                       j->name, shown_name(key).text, count, cap);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_is_array(v) ? json_array_get(v, i) : v;
        if (read_u32(&out[i], j, key, item, 0, UINT32_MAX, err) < 0)
            return -1;
    }
    *n = (uint32_t)count;
    return 0;
}
