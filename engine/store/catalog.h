/* catalog: every tensor a model needs, matched with the checkpoint.
 *
 * The family names what it needs (struct tensor_want); the catalog finds each in
 * the shards and checks its shape, its dtype and its scale sibling before any
 * weight is touched: what is missing, misshapen or left over is ERR_FORMAT by
 * name. Plan, loading and the expert map all read from here, so they cannot
 * disagree. Immutable once open; any thread. */
#ifndef STORE_CATALOG_H
#define STORE_CATALOG_H

#include "formats/safetensors.h"
#include "store/shape.h"

#include <stdbool.h>
#include <stdint.h>

struct err;
struct shards;

enum tensor_role {
    ROLE_EMBEDDING, /* read by row, not resident (unless the head is tied to it) */
    ROLE_HEAD,
    ROLE_NORM, /* vectors; held as F32 */
    ROLE_ATTENTION,
    ROLE_ROUTER,
    ROLE_DENSE_MLP,
    ROLE_EXPERT, /* streamed through slots; only their scales are resident */
    N_ROLES,
};

enum expert_part { PART_GATE, PART_UP, PART_DOWN, N_PARTS };

struct tensor_want {
    char name[192];
    enum tensor_role role;
    uint32_t n_dims; /* 1 or 2 */
    uint64_t dims[2];
    bool may_be_fp8;        /* F8_E4M3 with "<name>_scale_inv" allowed */
    uint32_t layer, expert; /* expert and part only for ROLE_EXPERT */
    enum expert_part part;
};

typedef int want_visit(void *ctx, const struct tensor_want *want, struct err *err);
/* A family's list, in a fixed order; returns what visit returned when that is not 0. */
typedef int want_each(const struct model_shape *shape, want_visit *visit, void *ctx,
                      struct err *err);

struct catalog_item {
    struct tensor_want want;
    const struct tensor *tensor; /* borrowed from shards */
    const struct tensor *scale;  /* NULL unless FP8 */
};

struct catalog {
    const struct shards *shards;
    const struct model_shape *shape;
    struct catalog_item *items; /* owned; everything but experts */
    uint32_t n_items;
    /* [moe layer ordinal][expert][part]; owned. Which ordinal: moe_ordinal. */
    const struct tensor **expert_tensors;
    const struct tensor **expert_scales; /* NULL entries unless FP8 */
    uint32_t moe_ordinal[MODEL_MAX_LAYERS];
};

int catalog_open(struct catalog **out, const struct shards *shards,
                 const struct model_shape *shape, want_each *each, struct err *err);
void catalog_close(struct catalog *c); /* NULL is fine */

/* Bytes by role as they lie on disk, scales counted with their tensors (a tensor
 * and its scale belong to the same role). From the headers. */
struct catalog_bytes {
    uint64_t weights[N_ROLES], scales[N_ROLES];
    uint64_t n_tensors, n_params;
};
void catalog_sum(struct catalog_bytes *out, const struct catalog *c);
/* The same from the shape alone, when there are no shards to look at: FP8 where the
 * config says so and the tensor may be, BF16 elsewhere, BF16 scales. */
int catalog_derive(struct catalog_bytes *out, const struct model_shape *shape, want_each *each,
                   struct err *err);

#endif
