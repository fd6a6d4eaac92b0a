#include "util/utf8.h"

/* The bounds on the second byte are what keeps out overlong forms, surrogates and values past
 * U+10FFFF (The Unicode Standard, table 3-7). */
static int lead_byte(unsigned char lead, unsigned char *second_min, unsigned char *second_max)
{
    *second_min = 0x80;
    *second_max = 0xbf;
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2)
        return -1;
    if (lead < 0xe0)
        return 2;
    if (lead < 0xf0) {
        if (lead == 0xe0)
            *second_min = 0xa0;
        if (lead == 0xed)
            *second_max = 0x9f;
        return 3;
    }
    if (lead < 0xf5) {
        if (lead == 0xf0)
            *second_min = 0x90;
        if (lead == 0xf4)
            *second_max = 0x8f;
        return 4;
    }
    return -1;
}

/* How many bytes at s, of at most size, are the beginning of a valid sequence; *length is
 * what the whole sequence would have, -1 when its first byte is none. */
static size_t good_prefix(const unsigned char *s, size_t size, int *length)
{
    unsigned char min, max;
    size_t good = 1;

    *length = lead_byte(s[0], &min, &max);
    if (*length < 0)
        return 0;
    while (good < size && good < (size_t)*length && s[good] >= min && s[good] <= max) {
        min = 0x80;
        max = 0xbf;
        good++;
    }
    return good;
}

int utf8_next(const char *s, size_t size, uint32_t *cp)
{
    const unsigned char *at = (const unsigned char *)s;
    int length;

    if (size == 0)
        return 0;

    size_t good = good_prefix(at, size, &length);
    if (length < 0)
        return -1;
    if (good < (size_t)length)
        return good == size ? 0 : -1;
    if (cp) {
        static const unsigned char first_bits[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
        uint32_t value = at[0] & first_bits[length];
        for (int i = 1; i < length; i++)
            value = value << 6 | (at[i] & 0x3f);
        *cp = value;
    }
    return length;
}

size_t utf8_bad(const char *s, size_t size)
{
    int length;
    size_t good = size ? good_prefix((const unsigned char *)s, size, &length) : 0;

    return good ? good : size > 0;
}

bool utf8_valid(const char *s, size_t size)
{
    size_t i = 0;

    while (i < size) {
        if ((unsigned char)s[i] < 0x80) {
            i++;
            continue;
        }
        int length = utf8_next(s + i, size - i, NULL);
        if (length <= 0)
            return false;
        i += (size_t)length;
    }
    return true;
}

size_t utf8_put(char *out, uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}
