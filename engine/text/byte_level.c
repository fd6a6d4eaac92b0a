#include "text/byte_level.h"

#include "util/utf8.h"

#include <stdint.h>

/* The byte that cp spells, -1 for none. */
static int spelled_byte(uint32_t cp)
{
    bool itself = (cp >= 0x21 && cp <= 0x7e) || (cp >= 0xa1 && cp <= 0xac) ||
                  (cp >= 0xae && cp <= 0xff);

    if (itself)
        return (int)cp;
    if (cp < 0x100 || cp > 0x143)
        return -1;

    /* The rest in rising order: 00..20, 7f..a0, ad. */
    uint32_t n = cp - 0x100;
    if (n <= 0x20)
        return (int)n;
    n -= 0x21;
    return n <= 0xa0 - 0x7f ? (int)(0x7f + n) : 0xad;
}

bool byte_level_decode(char *text, size_t *size)
{
    size_t to = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (size_t at = 0; at < *size;) {
            uint32_t cp = 0;
            int length = utf8_next(text + at, *size - at, &cp);
            int byte = length > 0 ? spelled_byte(cp) : -1;
            if (byte < 0)
                return false;
            at += (size_t)length;
            if (pass == 1)
                text[to++] = (char)byte;
        }
    }
    *size = to;
    return true;
}
