/* hash: strings to numbers in constant time, for keys that come from files.
 *
 * Open addressing over SipHash-1-3 with a random key of its own, so nobody who writes
 * a file can aim at one bucket. Keys are borrowed and must outlive the table; the
 * order of slots is random and is shown to nobody. One thread while adding; any
 * thread once complete. */
#ifndef UTIL_HASH_H
#define UTIL_HASH_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct hash_slot;

struct hash {
    struct hash_slot *slots; /* owned; NULL when closed */
    uint32_t n, mask;
    uint64_t key[2];
};

/* Room for n_expected keys without growing; it grows beyond that. */
int hash_open(struct hash *out, uint32_t n_expected, struct err *err);
void hash_close(struct hash *h); /* also on a zeroed struct */

/* 1 added; 0 the key is there already, and *there (may be NULL) is its value; -1. */
int hash_add(struct hash *h, const char *key, uint32_t value, uint32_t *there, struct err *err);
bool hash_find(const struct hash *h, const char *key, uint32_t *value);

#endif
