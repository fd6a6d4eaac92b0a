/* ascii: characters of formats, whatever the locale. Any thread. */
#ifndef UTIL_ASCII_H
#define UTIL_ASCII_H

#include <stdbool.h>
#include <stdint.h>

/* White space of JSON. */
static inline bool ascii_json_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static inline int ascii_hex_digit(char c) /* -1: it is none */
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The four hex digits behind "\u" at s; -1: they are none. */
static inline int32_t ascii_hex4(const char *s)
{
    int32_t value = 0;

    for (int i = 0; i < 4; i++) {
        int digit = ascii_hex_digit(s[i]);
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

#endif
