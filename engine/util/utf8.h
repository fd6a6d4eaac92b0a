/* utf8: whole characters out of a stream of bytes. Any thread. */
#ifndef UTIL_UTF8_H
#define UTIL_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the valid sequence at s (1..4), 0 when it is cut off by size and could still
 * become valid, -1 when it never can. Surrogates, overlong forms and values past U+10FFFF are
 * invalid. *cp may be NULL. */
int utf8_next(const char *s, size_t size, uint32_t *cp);
/* After utf8_next gave 0 (and no more bytes come) or -1: how many bytes one U+FFFD stands for.
 * The longest beginning of a valid sequence counts as one (maximal subpart), as browsers,
 * Python and Rust replace. At least 1 unless size is 0. */
size_t utf8_bad(const char *s, size_t size);
bool utf8_valid(const char *s, size_t size);
/* Writes cp at out (room for 4), returns the length. */
size_t utf8_put(char *out, uint32_t cp);

#endif
