/* json_scan: a cursor over JSON text, for files with a hundred thousand names.
 *
 * Headers of shards and their index are flat and large: building a tree of them costs
 * more memory and time than the rest of opening a checkpoint. This walks the text once,
 * strictly (RFC 8259, whole UTF-8, no extensions), decoding strings in place. It keeps
 * no state but a position, never recurses, and never reads past end. On a fault a
 * function returns false, fault says what is wrong and at says where. One thread. */
#ifndef FORMATS_JSON_SCAN_H
#define FORMATS_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_scan {
    char *begin, *at, *end; /* borrowed; strings are overwritten as they are read */
    const char *fault;
};

void json_scan_init(struct json_scan *s, char *text, uint64_t size);

/* Skips white space; true, and steps over it, when the next character is c. No fault. */
bool json_scan_take(struct json_scan *s, char c);
bool json_scan_expect(struct json_scan *s, char c); /* the same, but anything else is a fault */
/* Between members: true at a comma, false at the closing bracket (stepped over, fault
 * NULL) or at anything else (fault set). */
bool json_scan_more(struct json_scan *s, char closing);
/* A string, decoded, with a NUL behind it; *size without the NUL. It lies where its
 * text lay, so it ends before the next one begins. */
bool json_scan_string(struct json_scan *s, char **out, size_t *size);
/* A whole number from 0 to 2^64-1, without sign, fraction or exponent. */
bool json_scan_u64(struct json_scan *s, uint64_t *out);
bool json_scan_skip(struct json_scan *s); /* any value, nested up to 64 deep */
bool json_scan_null(struct json_scan *s); /* the word null; no fault when it is not there */
bool json_scan_done(struct json_scan *s); /* nothing but white space is left */

#endif
