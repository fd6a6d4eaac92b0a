/* expert_store: a kitchen with few plates.
 *
 * A layer places an order for the experts it needs; they come as they are ready,
 * resident ones first; each loan is returned exactly once. An order may be larger
 * than the cache: then it comes in waves, as loans are returned. Engine thread
 * only, so no locks; reads run in io.
 *
 * Slots are equal, aligned, in one huge-page region sized by the plan. A slot is
 * free for another expert only when its loans are returned and its read is
 * reaped. The first time an FP8 expert is read it is scanned for NaN codes
 * (ERR_FORMAT names tensor and byte). A read that fails is tried once more, then
 * the order fails with ERR_IO and the store stays usable. */
#ifndef STORE_EXPERT_STORE_H
#define STORE_EXPERT_STORE_H

#include "colizig.h"
#include "kernels/weights.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct drives;
struct expert_map;
struct expert_store;
struct expert_order;
struct io;

struct expert_id {
    uint16_t layer, expert;
};

enum expert_where { PLACE_HOST, PLACE_DEVICE };

struct expert_loan {
    struct expert_id id;
    enum expert_where place;
    const struct expert_weights *w; /* borrowed until expert_order_return */
    uint32_t slot;                  /* the store's own */
};

struct expert_store_options {
    const struct expert_map *map; /* borrowed, like the rest */
    const struct drives *drives;
    struct io *io;              /* used by nobody else meanwhile */
    const float *scales;        /* resident_expert_scales; NULL unless FP8 */
    uint32_t n_slots;           /* at least expert_store_min_slots */
    uint32_t most_slots;        /* what expert_store_resize may ask for; 0: n_slots */
    uint32_t experts_per_token; /* slots that no layer loses to another, if there are enough */
    uint32_t reads_in_flight;   /* experts being read at once; 2-4 */
    uint32_t stall_timeout_ms;  /* a read without completion for so long is ERR_IO; 0: never */
};

/* Slots below which the store cannot work: experts per token + reads in flight. */
uint32_t expert_store_min_slots(uint32_t experts_per_token, uint32_t reads_in_flight);
/* Bytes of the store's tables, beside the slots themselves. */
uint64_t expert_store_size(uint32_t n_layers, uint32_t n_experts, uint32_t most_slots);
int expert_store_open(struct expert_store **out, const struct expert_store_options *opt,
                      struct err *err);
/* NULL is fine; no order may be open. Waits for reads under way, up to IO_CLOSE_MS; then the slots
 * stay mapped for ever. */
void expert_store_close(struct expert_store *s);

/* More or fewer slots, from expert_store_min_slots to stats.most_slots; no order may be open.
 * Fewer: reads under way into slots that go are waited for; of the experts the coldest leave and
 * the rest stay, and when it returns the memory is the kernel's. ERR_IO when a drive that does not
 * answer holds a slot that should go. After an error nothing has changed. */
int expert_store_resize(struct expert_store *s, uint32_t n_slots, struct err *err);
/* All memory of the process has been wired; see region_lock. */
void expert_store_lock(struct expert_store *s);
/* It will not grow: see region_drop_reserve. */
void expert_store_drop_reserve(struct expert_store *s);

/* Starts the missing reads. experts are distinct; n at most the layer's experts. One
 * order at a time per store. */
int expert_store_order(struct expert_store *s, struct expert_order **out, uint16_t layer,
                       const uint16_t *experts, size_t n, struct err *err);
/* 1 and a loan; 0 none left; 2 every slot is lent: return a loan first (it never waits
 * then); -1. wait false: 3 when nothing is ready yet, so that the caller can compute
 * what it has instead of waiting. */
int expert_order_next(struct expert_order *o, struct expert_loan *out, bool wait,
                      struct err *err);
void expert_order_return(struct expert_order *o, const struct expert_loan *loan); /* once */
void expert_order_close(struct expert_order *o); /* also after an error; NULL is fine */
/* Advice: no loan, never evicts a loan or anything warmer, never delays an order. */
void expert_store_hint(struct expert_store *s, const struct expert_id *ids, size_t n);

struct expert_store_stats {
    uint64_t orders, hits, misses, evictions, reads, retries, hinted;
    uint64_t read_bytes; /* asked from the drives, roundings and retries included */
    uint64_t wait_ns; /* time expert_order_next stood waiting for a read */
    uint32_t n_slots, n_used;
    uint32_t most_slots; /* n_slots where there are no addresses to grow into */
};
void expert_store_stats(const struct expert_store *s, struct expert_store_stats *out);

/* ---- lists for people ---- */

/* Layers with experts, rising; how many were written, at most cap. */
uint32_t expert_store_layers(const struct expert_store *s, struct cz_expert_layer *out,
                             uint32_t cap);

/* Experts with any heat, hottest first; as above. */
uint32_t expert_store_hottest(const struct expert_store *s, struct cz_expert_heat *out,
                              uint32_t cap);

#endif
