#include "daemon/openai/json_body.h"

#include "daemon/base/buf.h"
#include "daemon/openai/api_error.h"
#include "daemon/openai/json_read.h"

#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TRIM_SIZE = 1 << 20 /* what is worth a look through the heap */ };

static size_t skip_mark(const char *body, size_t size)
{
    return size >= 3 && memcmp(body, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

char json_body_first(const char *body, size_t size)
{
    for (size_t i = skip_mark(body, size); i < size; i++)
        if (!strchr(" \t\r\n", body[i]))
            return body[i];
    return 0;
}

/* ---- parsing ---- */

/* Gives whole pages of the body back to the kernel once they are read: its values need them. */
struct passed {
    char *body;
    size_t dropped;
};

static void drop_read(void *ctx, size_t at)
{
    struct passed *p = ctx;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)p->body + p->dropped, to = (uintptr_t)p->body + at;

    from = (from + page - 1) / page * page;
    to = to / page * page;
    if (to > from &&
        madvise(p->body + (from - (uintptr_t)p->body), to - from, MADV_DONTNEED) == 0)
        p->dropped = at;
}

/* Memory to hold the values is not there. What others hold besides may be so little that it would be
 * the same the next time. */
static int refuse_cost(struct api_error *e, uint64_t bytes, const struct buf *body,
                       const struct quota *quota)
{
    uint64_t alone = quota->cap - quota->cap / 64;

    if (bytes > alone || body->cap > alone - bytes)
        return api_error_set(e, 413, "request_too_large", NULL,
                             "Reading this body of %zu bytes takes more memory than the server has "
                             "for all requests (http.buffer).", body->size);
    return api_error_full(e);
}

static int explain(const struct json_read *r, struct api_error *e)
{
    return api_error_field(e, "invalid_json", NULL,
                           "The request body is not valid JSON: %s (byte %zu).", r->problem, r->at);
}

int json_body_parse(json_t **root, uint64_t *cost, struct buf *body, struct quota *quota,
                    struct api_error *e)
{
    buf_trim(body); /* it grew by doubling */
    size_t mark = skip_mark(body->data, body->size);
    struct passed passed = { .body = body->data };
    struct json_read r = { .bytes = body->data, .size = body->size, .at = mark, .quota = quota,
                           .passed = drop_read, .ctx = &passed };
    int rc = -1;

    if (json_body_first(body->data, body->size) == 0)
        return api_error_field(e, "invalid_json", NULL,
                               "The request body is empty; a JSON object is expected.");
    json_t *parsed = json_read(&r);
    if (!parsed && r.lacking)
        refuse_cost(e, r.cost + r.lacking, body, quota);
    else if (!parsed)
        explain(&r, e);
    else if (!json_is_object(parsed))
        api_error_field(e, "invalid_json", NULL, "The request body must be a JSON object, not %s.",
                        json_body_type(parsed));
    else
        rc = 0;
    buf_done(body);
    if (rc < 0) {
        json_body_drop(parsed, r.cost, quota);
        return -1;
    }
    *root = parsed;
    *cost = r.cost;
    return 0;
}

void json_body_drop(json_t *root, uint64_t cost, struct quota *quota)
{
    json_decref(root);
    quota_give(quota, cost);
    /* Small values leave free memory in the middle of the heap, which malloc keeps. */
    if (cost > TRIM_SIZE)
        malloc_trim(0);
}

/* ---- fields ---- */

json_t *json_body_get(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);

    return json_is_null(v) ? NULL : v;
}

bool json_body_is(const json_t *v, const char *text)
{
    size_t size = strlen(text);

    return json_is_string(v) && json_string_length(v) == size &&
           memcmp(json_string_value(v), text, size) == 0;
}

const char *json_body_type(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

int json_body_missing(struct api_error *e, const char *key)
{
    return api_error_field(e, "missing_required_parameter", key, "'%s' is missing.", key);
}

int json_body_wants(struct api_error *e, const char *key, const char *want, const json_t *v)
{
    return api_error_field(e, "invalid_type", key, "'%s' must be %s, not %s.", key, want,
                           json_body_type(v));
}

/* A number can fail to be an integer in two ways of its own. */
static int no_integer(struct api_error *e, const char *key, const json_t *v)
{
    if (json_is_real(v) && json_real_value(v) != floor(json_real_value(v)))
        return api_error_field(e, "invalid_type", key, "'%s' must be an integer, not a fraction.",
                               key);
    if (json_is_real(v))
        return api_error_field(e, "invalid_type", key,
                               "'%s' must be an integer that 64 bits hold, not %g.", key,
                               json_real_value(v));
    return json_body_wants(e, key, "an integer", v);
}

int json_body_bool(bool *out, const json_t *o, const char *key, struct api_error *e)
{
    const json_t *v = json_body_get(o, key);

    if (!v)
        return 0;
    if (!json_is_boolean(v))
        return json_body_wants(e, key, "a boolean", v);
    *out = json_is_true(v);
    return 0;
}

bool json_body_integer(int64_t *out, const json_t *v)
{
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return true;
    }
    if (!json_is_real(v))
        return false;
    double real = json_real_value(v);
    /* 2^63 is the first double that does not fit. */
    if (real != floor(real) || real < -0x1p63 || real >= 0x1p63)
        return false;
    *out = (int64_t)real;
    return true;
}

int json_body_int(int64_t *out, const json_t *o, const char *key, int64_t min, int64_t max,
                  struct api_error *e)
{
    const json_t *v = json_body_get(o, key);
    int64_t value;

    if (!v)
        return 0;
    if (!json_body_integer(&value, v))
        return no_integer(e, key, v);
    if (value < min)
        return api_error_field(e, "integer_below_min_value", key,
                               "'%s' must be at least %" PRId64 ", not %" PRId64 ".", key, min,
                               value);
    if (value > max)
        return api_error_field(e, "integer_above_max_value", key,
                               "'%s' must be at most %" PRId64 ", not %" PRId64 ".", key, max,
                               value);
    *out = value;
    return 0;
}

int json_body_number(double *out, const json_t *o, const char *key, double min, double max,
                     struct api_error *e)
{
    const json_t *v = json_body_get(o, key);

    if (!v)
        return 0;
    if (!json_is_number(v))
        return api_error_field(e, "invalid_type", key, "'%s' must be a number, not %s.", key,
                               json_body_type(v));
    double value = json_number_value(v);
    if (value < min)
        return api_error_field(e, "decimal_below_min_value", key,
                               "'%s' must be at least %g, not %g.", key, min, value);
    if (value > max)
        return api_error_field(e, "decimal_above_max_value", key,
                               "'%s' must be at most %g, not %g.", key, max, value);
    *out = value;
    return 0;
}
