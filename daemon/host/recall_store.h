/* recall_store: replies that are remembered, by key, in bounded memory.
 *
 * A record is bytes that workers understand (struct wire_remember and what follows it). Records
 * lie in blocks of one region of fixed size, so memory is what was planned and never
 * fragments; the one that was not asked for longest gives way. Finding one takes the same time
 * however full it is, whatever keys a worker sends. Nothing of it is ever written anywhere; it
 * goes with the process. Door's thread. */
#ifndef DAEMON_RECALL_STORE_H
#define DAEMON_RECALL_STORE_H

#include "util/region.h"
#include "util/sip.h"

#include <stdbool.h>
#include <stdint.h>

struct err;
struct recall_block;
struct recall_slot;

enum {
    RECALL_BLOCK = 2048,       /* a reply of a hundred tokens */
    RECALL_MAX_KEYS = 128,     /* of a record; the calls of one reply beyond that are not keys */
    RECALL_LARGEST = 1 << 20,  /* a record, and an answer: what waits for a worker is bounded */
};

struct recall_store {
    struct region region;        /* owned; closed: nothing is kept */
    struct recall_slot *slots;   /* in region: [mask + 1], key to record */
    struct recall_block *blocks; /* in region: [n_blocks] */
    char *bytes;                 /* in region: [n_blocks, RECALL_BLOCK] */
    uint32_t mask, n_blocks;
    uint32_t free;               /* the first free block */
    uint32_t n_free;
    uint32_t newest, oldest;     /* records, by their first block */
    uint32_t largest;            /* record; 0: nothing is kept */
    uint32_t n_slots;            /* taken */
    uint32_t n_records;
    uint64_t n_bytes;            /* of records */
    struct sip_sum secret;       /* places keys; a worker does not know it */
    uint64_t hits, misses, evicted;
};

/* size: bytes in all; 0, or too few for one record: closed, and fine. */
int recall_store_open(struct recall_store *out, uint64_t size, struct err *err);
void recall_store_close(struct recall_store *s); /* also on a zeroed one */
/* The most a record may have; 0: nothing is kept. */
uint32_t recall_store_largest(uint64_t size);

/* Copies the record. An older one of the same key gives way. False: it is too large, or nothing is
 * kept. */
bool recall_store_put(struct recall_store *s, const struct sip_sum *keys, uint32_t n_keys,
                      const void *record, uint32_t size);
/* Its size, or 0; then it is the newest, and recall_store_copy (before the next put) gives it. */
uint32_t recall_store_find(struct recall_store *s, const struct sip_sum *key, uint32_t *record);
void recall_store_copy(const struct recall_store *s, uint32_t record, void *to);

#endif
