#include "util/sip.h"

#include <string.h>

static void take_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

/* Words are little-endian, as the machines we run on are. */
static uint64_t word_at(const unsigned char *bytes)
{
    uint64_t word;

    memcpy(&word, bytes, sizeof word);
    return word;
}

void sip_init(struct sip *s, const struct sip_sum *key)
{
    *s = (struct sip){ .v = { key->half[0] ^ 0x736f6d6570736575, key->half[1] ^ 0x646f72616e646f6d,
                              key->half[0] ^ 0x6c7967656e657261,
                              key->half[1] ^ 0x7465646279746573 } };
    s->v[1] ^= 0xee; /* the variant of 128 bits */
}

void sip_put(struct sip *s, const void *bytes, size_t size)
{
    const unsigned char *at = bytes, *end = at + size;

    while (at < end && s->size % 8) {
        s->rest |= (uint64_t)*at++ << s->size % 8 * 8;
        if (++s->size % 8 == 0) {
            take_word(s->v, s->rest);
            s->rest = 0;
        }
    }
    for (; end - at >= 8; at += 8, s->size += 8)
        take_word(s->v, word_at(at));
    for (; at < end; s->size++)
        s->rest |= (uint64_t)*at++ << s->size % 8 * 8;
}

struct sip_sum sip_sum(const struct sip *s)
{
    struct sip_sum sum;
    uint64_t v[4];

    memcpy(v, s->v, sizeof v);
    take_word(v, s->rest | s->size << 56);
    v[2] ^= 0xee;
    for (int i = 0; i < 4; i++)
        sip_round(v);
    sum.half[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    for (int i = 0; i < 4; i++)
        sip_round(v);
    sum.half[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
    return sum;
}

void sip_put_number(struct sip *s, uint64_t n)
{
    sip_put(s, &n, sizeof n);
}

void sip_put_text(struct sip *s, const char *text, size_t size)
{
    sip_put_number(s, size);
    sip_put(s, text, size);
}
