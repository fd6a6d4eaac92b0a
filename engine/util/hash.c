#include "util/hash.h"

#include "util/err.h"
#include "util/sip.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { MIN_SLOTS = 16, MAX_KEYS = 1 << 28 };

struct hash_slot {
    const char *key; /* borrowed; NULL: free */
    uint32_t value;
    uint32_t tag; /* high half of the hash: spares most comparisons */
};

/* SipHash-1-3 (Aumasson and Bernstein 2012, with one compression and three
 * finalisation rounds). */
static uint64_t sip(const uint64_t key[2], const char *text, size_t size)
{
    uint64_t v[4] = { key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                      key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573 };
    uint64_t word = 0;
    size_t i;

    for (i = 0; i + 8 <= size; i += 8) {
        memcpy(&word, text + i, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = 0;
    memcpy(&word, text + i, size - i);
    word |= (uint64_t)size << 56;
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static uint64_t hash_of(const struct hash *h, const char *key)
{
    return sip(h->key, key, strlen(key));
}

/* The slot that holds key, or the free one where it belongs. */
static struct hash_slot *slot_for(const struct hash *h, const char *key, uint64_t sum)
{
    uint32_t at = (uint32_t)sum & h->mask, tag = (uint32_t)(sum >> 32);

    for (;; at = (at + 1) & h->mask) {
        struct hash_slot *s = &h->slots[at];
        if (!s->key || (s->tag == tag && strcmp(s->key, key) == 0))
            return s;
    }
}

static int resize(struct hash *h, uint32_t n_slots, struct err *err)
{
    struct hash_slot *old = h->slots, *now = calloc(n_slots, sizeof *now);
    uint32_t n_old = old ? h->mask + 1 : 0;

    if (!now)
        return err_set(err, ERR_NOMEM, "a table of %u names", n_slots);
    h->slots = now;
    h->mask = n_slots - 1;
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i].key)
            *slot_for(h, old[i].key, hash_of(h, old[i].key)) = old[i];
    free(old);
    return 0;
}

int hash_open(struct hash *out, uint32_t n_expected, struct err *err)
{
    struct hash h = { 0 };
    uint32_t n_slots = MIN_SLOTS;

    if (n_expected > MAX_KEYS)
        return err_set(err, ERR_NOMEM, "a table of %u names", n_expected);
    while (n_slots / 2 < n_expected)
        n_slots *= 2;
    /* Early in a boot there may be no entropy yet; waiting for it is not worth it. */
    if (getrandom(h.key, sizeof h.key, GRND_NONBLOCK) != sizeof h.key) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        h.key[0] = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec;
        h.key[1] = (uint64_t)(uintptr_t)&h;
    }
    if (resize(&h, n_slots, err) < 0)
        return -1;
    *out = h;
    return 0;
}

void hash_close(struct hash *h)
{
    free(h->slots);
    *h = (struct hash){ 0 };
}

int hash_add(struct hash *h, const char *key, uint32_t value, uint32_t *there, struct err *err)
{
    if (h->n >= (h->mask + 1) / 2) {
        if (h->n >= MAX_KEYS)
            return err_set(err, ERR_NOMEM, "a table of %u names", h->n);
        if (resize(h, (h->mask + 1) * 2, err) < 0)
            return -1;
    }
    uint64_t sum = hash_of(h, key);
    struct hash_slot *s = slot_for(h, key, sum);

    if (s->key) {
        if (there)
            *there = s->value;
        return 0;
    }
    *s = (struct hash_slot){ .key = key, .value = value, .tag = (uint32_t)(sum >> 32) };
    h->n++;
    return 1;
}

bool hash_find(const struct hash *h, const char *key, uint32_t *value)
{
    const struct hash_slot *s;

    if (!h->slots)
        return false;
    s = slot_for(h, key, hash_of(h, key));
    if (!s->key)
        return false;
    *value = s->value;
    return true;
}
