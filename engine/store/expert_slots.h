/* expert_slots: equal places for experts in one region, and who lies where.
 *
 * A slot goes FREE -> READING -> ORDERED -> LENT -> IDLE and round again. Only idle slots are
 * candidates of evict. The number of slots can change: tables are as large as they may ever get,
 * addresses do not move, and what is given back is cut off from the region's top in whole huge
 * pages, the experts up there having moved down or left before.
 *
 * Knows nothing of orders and reads. For expert_store; engine thread. */
#ifndef STORE_EXPERT_SLOTS_H
#define STORE_EXPERT_SLOTS_H

#include "colizig.h"
#include "kernels/weights.h"
#include "util/region.h"

#include <stdbool.h>
#include <stdint.h>

struct err;
struct evict;
struct expert_map;

enum { NO_SLOT = UINT32_MAX };

enum slot_state {
    SLOT_FREE,
    SLOT_READING,
    SLOT_ORDERED, /* in the order's ready queue */
    SLOT_LENT,
    SLOT_IDLE,    /* holds an expert that nobody asks for: a candidate of evict */
    SLOT_STALLED, /* given up, but a read may still write into it */
};

struct slot {
    enum slot_state state;
    bool wanted;             /* READING: the open order waits for it */
    uint32_t index;          /* ordinal * n_experts + expert */
    struct expert_weights w; /* views into its memory, for the expert it holds */
};

struct expert_slots { /* to be read by the store, changed here only */
    const struct expert_map *map;   /* borrowed */
    const float *scales;            /* borrowed; NULL unless FP8 */
    uint32_t n, most;               /* slots now, and ever */
    uint32_t n_free;
    uint32_t n_experts, scales_per_expert, experts_per_token;
    struct region region;
    struct evict *evict;            /* owned */
    struct slot *list;              /* owned; [most] */
    uint32_t *free;                 /* owned; stack of n_free */
    uint32_t *slot_of;              /* owned; [ordinal, expert] */
    struct cz_expert_layer *layers; /* owned; [ordinal]; evictions are counted here */
    uint64_t n_evictions;
};

/* most is reduced to n where there are no addresses to grow into. */
int expert_slots_open(struct expert_slots *out, const struct expert_map *map, const float *scales,
                      uint32_t n, uint32_t most, uint32_t experts_per_token, struct err *err);
void expert_slots_close(struct expert_slots *s); /* also on a zeroed struct */
uint64_t expert_slots_size(uint32_t n_layers, uint32_t n_experts, uint32_t most); /* of tables */

/* A free slot. False: none. */
bool expert_slots_take_free(struct expert_slots *s, uint32_t *slot);
/* The slot of the expert that leaves for a need of the layer with this ordinal. False: all are
 * held. */
bool expert_slots_evict(struct expert_slots *s, uint32_t ordinal, uint32_t *slot);
/* A taken slot is READING for this expert, and wanted. */
void expert_slots_bind(struct expert_slots *s, uint32_t slot, uint32_t index);
/* The expert has no slot any more; the slot is not yet free. */
void expert_slots_unbind(struct expert_slots *s, uint32_t slot);
void expert_slots_free(struct expert_slots *s, uint32_t slot);
/* Nobody asks for it; somebody does again. */
void expert_slots_release(struct expert_slots *s, uint32_t slot);
void expert_slots_hold(struct expert_slots *s, uint32_t slot, enum slot_state state);

/* From 1 to most. Those cut off are FREE or IDLE. The coldest leave where not all find room. */
int expert_slots_resize(struct expert_slots *s, uint32_t n, struct err *err);

#endif
