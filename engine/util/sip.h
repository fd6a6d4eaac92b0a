/* sip: SipHash-2-4 with 128 bits, fed piece by piece.
 *
 * A keyed hash (Aumasson and Bernstein 2012): who does not know the key can neither aim at a
 * value nor find two texts of one. A struct sip may be copied in the middle, and both go on. Any
 * thread. */
#ifndef UTIL_SIP_H
#define UTIL_SIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sip_sum {
    uint64_t half[2];
};

struct sip {
    uint64_t v[4];
    uint64_t size;   /* bytes so far */
    uint64_t rest;   /* the last size % 8 of them, the first lowest */
};

static inline bool sip_same(struct sip_sum a, struct sip_sum b)
{
    return a.half[0] == b.half[0] && a.half[1] == b.half[1];
}

static inline uint64_t sip_rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

/* The round of every SipHash. */
static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = sip_rotate(v[1], 13) ^ v[0];
    v[3] = sip_rotate(v[3], 16) ^ v[2];
    v[0] = sip_rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = sip_rotate(v[1], 17) ^ v[2];
    v[3] = sip_rotate(v[3], 21) ^ v[0];
    v[2] = sip_rotate(v[2], 32);
}

void sip_init(struct sip *s, const struct sip_sum *key);
void sip_put(struct sip *s, const void *bytes, size_t size);
/* Of what was put so far; s can go on. */
struct sip_sum sip_sum(const struct sip *s);

/* A text as one element among others: its size goes along, so that no two rows of elements are
 * one row of bytes. */
void sip_put_text(struct sip *s, const char *text, size_t size);
void sip_put_number(struct sip *s, uint64_t n);

#endif
