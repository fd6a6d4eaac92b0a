#include "util/size.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool unit_shift(unsigned *shift, const char *unit)
{
    static const char letters[] = "KMGT";

    if (unit[0] == '\0' || strcmp(unit, "B") == 0) {
        *shift = 0;
        return true;
    }
    const char *at = strchr(letters, toupper((unsigned char)unit[0]));
    if (!at)
        return false;
    *shift = 10 * (unsigned)(at - letters + 1);
    return unit[1] == '\0' || strcmp(unit + 1, "iB") == 0 || strcmp(unit + 1, "B") == 0;
}

bool size_parse(uint64_t *out, const char *text)
{
    uint64_t whole = 0, fraction = 0, scale = 1;
    const char *p = text;
    unsigned shift;

    if (!isdigit((unsigned char)*p))
        return false;
    for (; isdigit((unsigned char)*p); p++)
        if (!size_mul(&whole, whole, 10) || !size_add(&whole, whole, (uint64_t)(*p - '0')))
            return false;
    if (*p == '.') {
        p++;
        if (!isdigit((unsigned char)*p))
            return false;
        for (; isdigit((unsigned char)*p); p++) {
            if (scale >= 1000000)
                continue; /* a millionth of a unit is below what anybody means */
            scale *= 10;
            fraction = fraction * 10 + (uint64_t)(*p - '0');
        }
    }
    while (*p == ' ')
        p++;
    if (!unit_shift(&shift, p))
        return false;

    uint64_t unit = (uint64_t)1 << shift, bytes;
    if (!size_mul(&bytes, whole, unit))
        return false;
    return size_add(out, bytes, (uint64_t)((unsigned __int128)fraction * unit / scale));
}

const char *size_text(char *buf, size_t cap, uint64_t bytes)
{
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB" };
    double value = (double)bytes;
    size_t unit = 0;

    if (bytes < KIB) {
        snprintf(buf, cap, "%" PRIu64 " B", bytes);
        return buf;
    }
    for (value /= 1024.0; value >= 1024.0 && unit < 4; unit++)
        value /= 1024.0;
    snprintf(buf, cap, "%.2f %s", value, units[unit]);
    return buf;
}
