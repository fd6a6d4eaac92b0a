/* json_read: a client's bytes as jansson's values, in one pass, each paid for before it is made.
 *
 * jansson's own reader goes byte by byte through a callback, holds a long string twice and refuses
 * numbers beyond its types also where nobody looks at them. This one takes strings as runs, mends
 * them in place (which is why the bytes change), keeps a stack of its own and so no recursion, and
 * is as strict as RFC 8259, but for half a surrogate pair, which becomes U+FFFD: JavaScript clients
 * cut emoji in half. Integers beyond 64 bits keep their digits beside the value, for those who print
 * them again. Any thread. */
#ifndef DAEMON_JSON_READ_H
#define DAEMON_JSON_READ_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct quota;

enum { JSON_READ_DEPTH = 512, JSON_READ_NUMBER = 1024 };

/* What jansson 2.14 takes on top of the strings' own bytes, measured on documents of 200,000
 * values with glibc's malloc (235 bytes per object, 139 per array, 133 per member, 91 per
 * string in an array) and rounded up. */
enum {
    JSON_COST_OBJECT = 240,
    JSON_COST_ARRAY = 144,
    JSON_COST_MEMBER = 160,
    JSON_COST_ELEMENT = 96,
};

struct json_read {
    char *bytes; /* borrowed; changed */
    size_t size, at;
    struct quota *quota; /* borrowed */
    uint64_t cost;       /* taken from it */
    /* What was read and is needed no more may go; called now and then. NULL: nothing is. */
    void (*passed)(void *ctx, size_t at);
    void *ctx;

    const char *problem; /* what is wrong at `at`; a literal */
    uint64_t lacking;    /* instead: so much more than the quota had */
};

/* The value, or NULL. An integer beyond 64 bits becomes the nearest double, a number beyond doubles
 * the largest one. Objects keep the last of doubled keys. What was taken stays taken. */
json_t *json_read(struct json_read *r);
/* The digits of such an integer anywhere in root, which json_read gave, as long as root lives; NULL
 * for every other value. They are held by root, when it is an object, under a key that no client
 * can send. */
const char *json_read_digits(const json_t *root, const json_t *v);

#endif
