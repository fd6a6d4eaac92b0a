/* fnv: FNV-1a (Fowler, Noll, Vo), 64 bits: a fingerprint of bytes that nobody wants to forge. Where
 * keys come from strangers, hash.h or sip.h. Any thread. */
#ifndef UTIL_FNV_H
#define UTIL_FNV_H

#include <stddef.h>
#include <stdint.h>

#define FNV_BEGIN 0xcbf29ce484222325u

/* hash: FNV_BEGIN, or what came of the bytes before these. */
static inline uint64_t fnv(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *p = bytes;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

#endif
