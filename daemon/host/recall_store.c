/* The region holds three arrays: slots (open addressing, linear probing, never more than half
 * full), a head for each block, and the blocks. A record is a chain of blocks; its first one's
 * number names it. */
#include "daemon/host/recall_store.h"

#include "util/err.h"
#include "util/size.h"

#include <string.h>
#include <sys/random.h>

enum { NONE = UINT32_MAX, LEAST_BLOCKS = 64, SHARE = 8 /* of the whole, for one record */ };

struct recall_slot {
    struct sip_sum key;
    uint32_t record; /* NONE: free */
    uint32_t unused;
};

struct recall_block {
    uint32_t next; /* of the chain, or of the free ones */
    /* of a record's first block */
    uint32_t size, n_keys;
    uint32_t newer, older;
};

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* ---- opening ---- */

static uint64_t room_for(uint32_t n_blocks, uint32_t n_slots)
{
    return (uint64_t)n_slots * sizeof(struct recall_slot) +
           (uint64_t)n_blocks * (sizeof(struct recall_block) + RECALL_BLOCK);
}

/* A key for every block is room for two slots. */
static uint32_t slots_for(uint32_t n_blocks)
{
    uint32_t n = 2 * RECALL_MAX_KEYS;

    while (n / 2 < n_blocks)
        n *= 2;
    return n;
}

static uint32_t blocks_in(uint64_t size)
{
    uint64_t most = size / RECALL_BLOCK;
    uint32_t n = most > 1u << 28 ? 1u << 28 : (uint32_t)most;

    while (n >= LEAST_BLOCKS && room_for(n, slots_for(n)) > size)
        n -= n / 64 + 1;
    return n < LEAST_BLOCKS ? 0 : n;
}

uint32_t recall_store_largest(uint64_t size)
{
    if (!blocks_in(size))
        return 0;
    return size / SHARE < RECALL_LARGEST ? (uint32_t)(size / SHARE) : RECALL_LARGEST;
}

int recall_store_open(struct recall_store *out, uint64_t size, struct err *err)
{
    struct recall_store s = { .n_blocks = blocks_in(size), .largest = recall_store_largest(size),
                              .newest = NONE, .oldest = NONE };

    *out = s;
    if (!s.n_blocks)
        return 0;
    if (getrandom(&s.secret, sizeof s.secret, 0) != sizeof s.secret)
        return err_errno(err, "random numbers");
    uint32_t n_slots = slots_for(s.n_blocks);
    if (region_open(&s.region, room_for(s.n_blocks, n_slots), REGION_SMALL, err) < 0)
        return err_within(err, "memory.reasoning");
    s.mask = n_slots - 1;
    s.slots = (struct recall_slot *)(void *)s.region.base;
    s.blocks = (struct recall_block *)(void *)(s.slots + n_slots);
    s.bytes = (char *)(s.blocks + s.n_blocks);
    for (uint32_t i = 0; i < n_slots; i++)
        s.slots[i].record = NONE;
    for (uint32_t i = 0; i < s.n_blocks; i++)
        s.blocks[i].next = i + 1 < s.n_blocks ? i + 1 : NONE;
    s.n_free = s.n_blocks;
    *out = s;
    return 0;
}

void recall_store_close(struct recall_store *s)
{
    region_close(&s->region);
    *s = (struct recall_store){ .newest = NONE, .oldest = NONE };
}

/* ---- slots ---- */

static uint32_t home(const struct recall_store *s, const struct sip_sum *key)
{
    struct sip h;

    sip_init(&h, &s->secret);
    sip_put(&h, key, sizeof *key);
    return (uint32_t)sip_sum(&h).half[0] & s->mask;
}

/* The slot of key, or the free one where it belongs. */
static uint32_t slot_of(const struct recall_store *s, const struct sip_sum *key)
{
    uint32_t at = home(s, key);

    while (s->slots[at].record != NONE && !sip_same(s->slots[at].key, *key))
        at = (at + 1) & s->mask;
    return at;
}

/* Those behind it that would be looked for from before it close up. */
static void free_slot(struct recall_store *s, uint32_t at)
{
    for (uint32_t next = (at + 1) & s->mask; s->slots[next].record != NONE;
         next = (next + 1) & s->mask) {
        uint32_t from = home(s, &s->slots[next].key);
        if (((next - from) & s->mask) < ((next - at) & s->mask))
            continue;
        s->slots[at] = s->slots[next];
        at = next;
    }
    s->slots[at].record = NONE;
    s->n_slots--;
}

/* ---- bytes ---- */

/* Keys lie behind the record, so that they can be found when it goes. */
static void write_at(struct recall_store *s, uint32_t *block, uint32_t *at, const void *from,
                     size_t size)
{
    const char *bytes = from;

    while (size > 0) {
        if (*at == RECALL_BLOCK) {
            *block = s->blocks[*block].next;
            *at = 0;
        }
        size_t n = size < RECALL_BLOCK - *at ? size : RECALL_BLOCK - *at;
        memcpy(s->bytes + (size_t)*block * RECALL_BLOCK + *at, bytes, n);
        *at += (uint32_t)n;
        bytes += n;
        size -= n;
    }
}

static void read_at(const struct recall_store *s, uint32_t *block, uint32_t *at, void *to,
                    size_t size)
{
    char *bytes = to;

    while (size > 0) {
        if (*at == RECALL_BLOCK) {
            *block = s->blocks[*block].next;
            *at = 0;
        }
        size_t n = size < RECALL_BLOCK - *at ? size : RECALL_BLOCK - *at;
        memcpy(bytes, s->bytes + (size_t)*block * RECALL_BLOCK + *at, n);
        *at += (uint32_t)n;
        bytes += n;
        size -= n;
    }
}

static void skip(const struct recall_store *s, uint32_t *block, uint32_t *at, uint32_t size)
{
    for (*at += size; *at > RECALL_BLOCK; *at -= RECALL_BLOCK)
        *block = s->blocks[*block].next;
}

/* ---- who is next to go ---- */

static void unlink_record(struct recall_store *s, uint32_t r)
{
    struct recall_block *b = &s->blocks[r];

    if (b->newer == NONE)
        s->newest = b->older;
    else
        s->blocks[b->newer].older = b->older;
    if (b->older == NONE)
        s->oldest = b->newer;
    else
        s->blocks[b->older].newer = b->newer;
}

static void link_newest(struct recall_store *s, uint32_t r)
{
    struct recall_block *b = &s->blocks[r];

    b->newer = NONE;
    b->older = s->newest;
    if (s->newest == NONE)
        s->oldest = r;
    else
        s->blocks[s->newest].newer = r;
    s->newest = r;
}

static void drop(struct recall_store *s, uint32_t r)
{
    uint32_t block = r, at = 0, last = r, n = 1;
    struct recall_block *b = &s->blocks[r];
    struct sip_sum key;

    skip(s, &block, &at, b->size);
    for (uint32_t i = 0; i < b->n_keys; i++) {
        read_at(s, &block, &at, &key, sizeof key);
        uint32_t slot = slot_of(s, &key);
        if (s->slots[slot].record == r) /* a newer record may have taken it over */
            free_slot(s, slot);
    }
    unlink_record(s, r);
    s->n_records--;
    s->n_bytes -= b->size;
    for (; s->blocks[last].next != NONE; n++)
        last = s->blocks[last].next;
    s->blocks[last].next = s->free;
    s->free = r;
    s->n_free += n;
}

static uint32_t take_blocks(struct recall_store *s, uint32_t n)
{
    uint32_t first = s->free, last = first;

    for (uint32_t i = 1; i < n; i++)
        last = s->blocks[last].next;
    s->free = s->blocks[last].next;
    s->blocks[last].next = NONE;
    s->n_free -= n;
    return first;
}

/* ---- records ---- */

bool recall_store_put(struct recall_store *s, const struct sip_sum *keys, uint32_t n_keys,
                      const void *record, uint32_t size)
{
    n_keys = min_u32(n_keys, RECALL_MAX_KEYS);
    uint64_t whole = (uint64_t)size + n_keys * sizeof *keys;
    uint64_t n = size_div_up(whole, RECALL_BLOCK);

    if (!n_keys || !size || size > s->largest)
        return false;
    for (uint32_t i = 0; i < n_keys; i++) {
        uint32_t slot = slot_of(s, &keys[i]);
        if (s->slots[slot].record != NONE)
            drop(s, s->slots[slot].record);
    }
    while (s->n_free < n || s->n_slots + n_keys > (s->mask + 1) / 2) {
        drop(s, s->oldest);
        s->evicted++;
    }

    uint32_t r = take_blocks(s, (uint32_t)n), block = r, at = 0;
    s->blocks[r].size = size;
    s->blocks[r].n_keys = n_keys;
    write_at(s, &block, &at, record, size);
    write_at(s, &block, &at, keys, n_keys * sizeof *keys);
    for (uint32_t i = 0; i < n_keys; i++) {
        uint32_t slot = slot_of(s, &keys[i]);
        s->n_slots += s->slots[slot].record == NONE; /* a key may come twice */
        s->slots[slot] = (struct recall_slot){ .key = keys[i], .record = r };
    }
    link_newest(s, r);
    s->n_records++;
    s->n_bytes += size;
    return true;
}

uint32_t recall_store_find(struct recall_store *s, const struct sip_sum *key, uint32_t *record)
{
    if (!s->n_blocks)
        return 0;
    uint32_t r = s->slots[slot_of(s, key)].record;
    if (r == NONE)
        return 0;
    unlink_record(s, r);
    link_newest(s, r);
    *record = r;
    return s->blocks[r].size;
}

void recall_store_copy(const struct recall_store *s, uint32_t record, void *to)
{
    uint32_t block = record, at = 0;

    read_at(s, &block, &at, to, s->blocks[record].size);
}
