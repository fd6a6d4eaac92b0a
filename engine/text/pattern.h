/* pattern: a tokenizer's split pattern, rewritten to run on one byte per character.
 *
 * Such a pattern asks of a character only whether it is a letter, numeral, mark or space, or
 * which ASCII character it is. So text is seen through a shadow: ASCII as itself, everything
 * else as one of a few byte values from the frozen Unicode tables. The pattern becomes plain
 * byte classes, the same under every version of PCRE2, and fast without its JIT. Any thread. */
#ifndef TEXT_PATTERN_H
#define TEXT_PATTERN_H

#include <stddef.h>
#include <stdint.h>

struct bytes;
struct err;

enum shadow {
    SHADOW_L = 0x80,
    SHADOW_N,
    SHADOW_M,
    SHADOW_SPACE,
    SHADOW_OTHER,
    SHADOW_LONG_S, /* U+017F, a letter that (?i:s) takes */
    SHADOW_KELVIN, /* U+212A, a letter that (?i:k) takes */
    SHADOW_END,
};
unsigned char pattern_shadow(uint32_t cp);

/* Appends the rewritten pattern, for PCRE2 without UTF. Knows the part of the oniguruma syntax
 * that means the same in PCRE2, and refuses everything else by name. */
int pattern_translate(struct bytes *out, const char *pattern, size_t size, struct err *err);

#endif
