/* json_body: a client's bytes to a JSON object, and its fields with their types.
 *
 * Hostile input first: nesting is bounded, the memory of each value is taken from the quota before
 * it is made (json_read.h), a byte order mark is skipped. A getter treats null as absent and
 * answers a wrong type with a 400 that names the field. Worker's thread. */
#ifndef DAEMON_JSON_BODY_H
#define DAEMON_JSON_BODY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api_error;
struct buf;
struct quota;

/* Parses an object and empties body, whose memory goes as the object grows: both together never
 * take more than the body's and *cost, which was taken from quota for as long as *root lives. 400
 * for what is no JSON object, 413 when it could never fit the quota, 503 when it does not fit
 * now. */
int json_body_parse(json_t **root, uint64_t *cost, struct buf *body, struct quota *quota,
                    struct api_error *e);
void json_body_drop(json_t *root, uint64_t cost, struct quota *quota); /* NULL and 0 are fine */
/* The first byte that is neither blank nor byte order mark, 0 when there is none. */
char json_body_first(const char *body, size_t size);

/* NULL when absent or null. */
json_t *json_body_get(const json_t *o, const char *key);
/* These leave *out alone when the field is absent; the integral float 3.0 is an integer. */
int json_body_bool(bool *out, const json_t *o, const char *key, struct api_error *e);
int json_body_int(int64_t *out, const json_t *o, const char *key, int64_t min, int64_t max,
                  struct api_error *e);
int json_body_number(double *out, const json_t *o, const char *key, double min, double max,
                     struct api_error *e);
/* An integer, or an integral float, of any JSON value. */
bool json_body_integer(int64_t *out, const json_t *v);
/* Whether v is this very text: a JSON string may hold NUL, at which C's would end. */
bool json_body_is(const json_t *v, const char *text);
const char *json_body_type(const json_t *v); /* "a string", "an array", ... */
/* 400s, -1. want: what key must be, as in "a string". */
int json_body_missing(struct api_error *e, const char *key);
int json_body_wants(struct api_error *e, const char *key, const char *want, const json_t *v);

#endif
