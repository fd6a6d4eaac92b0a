/* size: arithmetic on sizes that came from outside, and their spelling.
 *
 * Sizes are uint64_t and in bytes. Sums and products return false instead of
 * wrapping. Any thread. */
#ifndef UTIL_SIZE_H
#define UTIL_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static inline bool size_mul(uint64_t *out, uint64_t a, uint64_t b)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool size_add(uint64_t *out, uint64_t a, uint64_t b)
{
    return !__builtin_add_overflow(a, b, out);
}

/* align is a power of two; the caller knows that the sum cannot wrap. */
static inline uint64_t size_up(uint64_t n, uint64_t align)
{
    return (n + align - 1) & ~(align - 1);
}

static inline uint64_t size_down(uint64_t n, uint64_t align)
{
    return n & ~(align - 1);
}

static inline uint64_t size_div_up(uint64_t n, uint64_t by)
{
    return n / by + (n % by != 0);
}

/* "8GiB", "8G", "8GB" (all binary), "512M", "64KiB", "1.5G", "1048576". False for
 * anything else: a sign, another unit, trailing text, zero digits, overflow. */
bool size_parse(uint64_t *out, const char *text);

/* "7.50 GiB"; 16 bytes are enough. Returns buf. */
const char *size_text(char *buf, size_t cap, uint64_t bytes);

#endif
