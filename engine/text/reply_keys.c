/* The keys of a call so far, to know one that comes again: a table of places in one text. */
#include "text/reply_state.h"

#include "util/err.h"
#include "util/fnv.h"

#include <stdlib.h>
#include <string.h>

struct reply_key {
    uint64_t hash;
    size_t begin, size; /* in keys->text */
    bool used;
};

static struct reply_key *slot_of(const struct reply_keys *keys, const char *key, size_t size,
                                 uint64_t hash)
{
    for (uint32_t at = (uint32_t)hash;; at++) {
        struct reply_key *slot = &keys->slots[at & (keys->n_slots - 1)];
        if (!slot->used || (slot->hash == hash && slot->size == size &&
                            memcmp(keys->text.at + slot->begin, key, size) == 0))
            return slot;
    }
}

static int grow(struct reply_keys *keys, struct err *err)
{
    struct reply_keys more = { .n_slots = keys->n_slots ? keys->n_slots * 2 : 8 };

    more.slots = calloc(more.n_slots, sizeof *more.slots);
    if (!more.slots)
        return err_set(err, ERR_NOMEM, "%u keys of a call", more.n_slots);
    more.text = keys->text;
    for (uint32_t i = 0; i < keys->n_slots; i++) {
        const struct reply_key *k = &keys->slots[i];
        if (k->used)
            *slot_of(&more, keys->text.at + k->begin, k->size, k->hash) = *k;
    }
    free(keys->slots);
    keys->slots = more.slots;
    keys->n_slots = more.n_slots;
    return 0;
}

int reply_keys_add(struct reply_keys *keys, const char *key, size_t size, struct err *err)
{
    uint64_t hash = fnv(FNV_BEGIN, key, size);

    if (2 * (keys->n + 1) > keys->n_slots && grow(keys, err) < 0)
        return -1;
    struct reply_key *slot = slot_of(keys, key, size, hash);
    if (slot->used)
        return 0;
    if (bytes_put(&keys->text, key, size, err) < 0)
        return -1;
    *slot = (struct reply_key){ hash, keys->text.size - size, size, true };
    keys->n++;
    return 1;
}

uint64_t reply_keys_memory(const struct reply_keys *keys)
{
    return keys->text.cap + keys->n_slots * sizeof *keys->slots;
}

void reply_keys_done(struct reply_keys *keys)
{
    free(keys->slots);
    bytes_done(&keys->text);
    *keys = (struct reply_keys){ 0 };
}
