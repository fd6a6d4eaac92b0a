#include "daemon/json_body.h"

#include "daemon/api_error.h"
#include "daemon/buf.h"

#include <ctype.h>
#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What jansson 2.14 takes on top of the strings' own bytes, measured on documents of 200,000
 * values with glibc's malloc (235 bytes per object, 139 per array, 133 per member, 91 per
 * string in an array) and rounded up. */
enum { COST_OBJECT = 240, COST_ARRAY = 144, COST_MEMBER = 160, COST_ELEMENT = 96 };

enum {
    DROP_SIZE = 256 << 10, /* of a body, at a time */
    TRIM_SIZE = 1 << 20,   /* what is worth a look through the heap */
};

struct scan {
    uint64_t cost;
    bool too_deep;
};

static int hex4(const char *s)
{
    int value = 0;

    for (int i = 0; i < 4; i++) {
        int c = tolower((unsigned char)s[i]);
        if (!isxdigit(c))
            return -1;
        value = value * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return value;
}

static bool is_high(int unit)
{
    return unit >= 0xd800 && unit <= 0xdbff;
}

static bool is_low(int unit)
{
    return unit >= 0xdc00 && unit <= 0xdfff;
}

/* at is the backslash of an escape. Returns how many bytes it takes; "\ud800" without its
 * other half becomes "\ufffd", which has the same length. */
static size_t mend_escape(char *at, size_t left)
{
    if (left < 6 || at[1] != 'u')
        return left < 2 ? left : 2;
    int unit = hex4(at + 2);
    if (is_high(unit) && left >= 12 && at[6] == '\\' && at[7] == 'u' && is_low(hex4(at + 8)))
        return 12;
    if (is_high(unit) || is_low(unit))
        memcpy(at + 2, "fffd", 4);
    return unit < 0 ? 2 : 6;
}

/* at is just past the opening quote; returns the place past the closing one. */
static size_t scan_string(char *body, size_t at, size_t size)
{
    while (at < size && body[at] != '"')
        at += body[at] == '\\' ? mend_escape(body + at, size - at) : 1;
    return at < size ? at + 1 : size;
}

/* Depth and cost, whether or not the rest is valid JSON. */
static struct scan scan_body(char *body, size_t size)
{
    struct scan s = { .cost = size + COST_ELEMENT };
    size_t depth = 0;

    for (size_t at = 0; at < size;) {
        char c = body[at++];
        if (c == '"') {
            at = scan_string(body, at, size);
        } else if (c == '[' || c == '{') {
            s.cost += c == '[' ? COST_ARRAY : COST_OBJECT;
            s.too_deep |= ++depth > JSON_BODY_DEPTH;
        } else if (c == ']' || c == '}') {
            depth -= depth > 0;
        } else if (c == ',') {
            s.cost += COST_ELEMENT;
        } else if (c == ':') {
            s.cost += COST_MEMBER;
        }
    }
    return s;
}

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

/* The body on its way into jansson, which keeps a long string twice for a moment: as it is
 * written, and as it is. Together with the body that would be three times. */
struct source {
    struct buf *body; /* borrowed */
    size_t at, dropped;
};

/* Gives whole pages back to the kernel, of what was read. */
static void drop_read(struct source *s)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)s->body->data + s->dropped, to = (uintptr_t)s->body->data + s->at;

    if (s->at - s->dropped < DROP_SIZE)
        return;
    from = (from + page - 1) / page * page;
    to = to / page * page;
    if (madvise(s->body->data + (from - (uintptr_t)s->body->data), to - from, MADV_DONTNEED) == 0)
        s->dropped = s->at;
}

static size_t read_source(void *to, size_t cap, void *ctx)
{
    struct source *s = ctx;
    size_t left = s->body->size - s->at, n = left < cap ? left : cap;

    memcpy(to, s->body->data + s->at, n);
    s->at += n;
    drop_read(s);
    return n;
}

/* Memory to hold the values is not there. */
static int refuse_cost(struct api_error *e, uint64_t bytes, const struct buf *body,
                       const struct quota *quota)
{
    if (bytes > quota->cap || body->size > quota->cap - bytes)
        return api_error_set(e, 413, "request_too_large", NULL,
                             "Reading this body would take %" PRIu64 " bytes of the server's "
                             "%" PRIu64 " (http.buffer).", bytes + body->size, quota->cap);
    api_error_set(e, 503, "server_overloaded", NULL,
                  "The server's buffers are full. Please try again later.");
    e->retry_after_s = 1;
    return -1;
}

static int parse(json_t **root, struct buf *body, size_t from, struct api_error *e)
{
    struct source source = { .body = body, .at = from, .dropped = from };
    json_error_t why;
    json_t *parsed = json_load_callback(read_source, &source, JSON_ALLOW_NUL | JSON_DECODE_ANY,
                                        &why);

    if (!parsed)
        return api_error_field(e, "invalid_json", NULL,
                               "The request body is not valid JSON: %s (line %d, column %d).",
                               why.text, why.line, why.column);
    if (!json_is_object(parsed)) {
        api_error_field(e, "invalid_json", NULL,
                        "The request body must be a JSON object, not %s.", json_body_type(parsed));
        json_decref(parsed);
        return -1;
    }
    *root = parsed;
    return 0;
}

int json_body_parse(json_t **root, uint64_t *cost, struct buf *body, struct quota *quota,
                    struct api_error *e)
{
    size_t mark = skip_mark(body->data, body->size);
    json_t *parsed = NULL;
    int rc;

    if (json_body_first(body->data, body->size) == 0)
        return api_error_field(e, "invalid_json", NULL,
                               "The request body is empty; a JSON object is expected.");
    struct scan s = scan_body(body->data + mark, body->size - mark);
    if (s.too_deep)
        return api_error_field(e, "invalid_json", NULL,
                               "The request body nests deeper than %d levels.", JSON_BODY_DEPTH);
    if (!quota_take(quota, s.cost))
        return refuse_cost(e, s.cost, body, quota);
    rc = parse(&parsed, body, mark, e);
    buf_done(body);
    if (rc < 0) {
        json_body_drop(NULL, s.cost, quota);
        return -1;
    }
    *root = parsed;
    *cost = s.cost;
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

static int wrong_type(struct api_error *e, const char *key, const char *want, const json_t *v)
{
    if (json_is_real(v))
        return api_error_field(e, "invalid_type", key, "'%s' must be %s, not a fraction.", key,
                               want);
    return api_error_field(e, "invalid_type", key, "'%s' must be %s, not %s.", key, want,
                           json_body_type(v));
}

int json_body_bool(bool *out, const json_t *o, const char *key, struct api_error *e)
{
    const json_t *v = json_body_get(o, key);

    if (!v)
        return 0;
    if (!json_is_boolean(v))
        return wrong_type(e, key, "a boolean", v);
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
        return wrong_type(e, key, "an integer", v);
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
