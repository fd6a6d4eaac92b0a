/* expert_map: where each expert lies in the files and in a slot.
 *
 * An expert is three matrices. Ranges of a file that touch or nearly touch become
 * one extent, so a plain Hugging Face layout costs one to three reads, whatever
 * the order of its tensors. Extents are rounded outwards to IO_ALIGN; parts keep
 * their odd start inside the slot. Immutable once open; any thread. */
#ifndef STORE_EXPERT_MAP_H
#define STORE_EXPERT_MAP_H

#include "kernels/weights.h"
#include "store/catalog.h"

#include <stdint.h>

struct err;

struct expert_extent {
    uint32_t file;
    uint32_t size;    /* multiple of IO_ALIGN (the last may pass the file's end) */
    uint64_t offset;  /* multiple of IO_ALIGN */
    uint32_t in_slot; /* where its first byte goes; multiple of IO_ALIGN */
};

struct expert_place {
    struct expert_extent extents[N_PARTS];
    uint32_t n_extents;
    uint32_t part_at[N_PARTS]; /* byte in the slot where each part's data starts */
};

struct expert_map {
    uint32_t n_experts, n_moe_layers;
    const struct catalog *catalog;        /* borrowed; names for messages */
    const uint32_t *moe_ordinal;          /* [n_layers], borrowed from the catalog */
    struct expert_place *places;          /* owned; [n_moe_layers, n_experts] */
    struct expert_weights form;           /* dtype and dims of the parts; data and scales NULL */
    uint32_t scale_floats[N_PARTS];       /* 0 unless FP8 */
    uint64_t slot_size;                   /* bytes a slot needs, multiple of IO_ALIGN */
    uint64_t weight_bytes;                /* of one expert, without scales or rounding */
};

int expert_map_open(struct expert_map **out, const struct catalog *c, struct err *err);
void expert_map_close(struct expert_map *m); /* NULL is fine */
const struct expert_place *expert_map_at(const struct expert_map *m, uint32_t layer,
                                         uint32_t expert);

#endif
