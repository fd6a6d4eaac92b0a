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
    ROLE_NORM, /* vectors, and kernels of convolutions; held as F32 */
    ROLE_ATTENTION,
    ROLE_LINEAR,  /* recurrent layers */
    ROLE_STREAMS, /* mixing of residual streams */
    ROLE_NGRAM,   /* projections of n-gram embeddings */
    ROLE_ROUTER,
    ROLE_SHARED, /* the expert that every token visits, and its gate */
    ROLE_DENSE_MLP,
    ROLE_EXPERT,   /* streamed through slots; only their scales are resident */
    ROLE_TABLE,    /* n-gram tables: read by row, never resident */
    ROLE_CONSTANT, /* I64; computed here as well, and compared */
    ROLE_MTP,      /* this and the next: counted, never read */
    ROLE_VISION,
    N_ROLES,
};

/* Read by row, or not at all. (The token embedding is resident when the head is tied to it.) */
static inline bool role_stays_on_disk(enum tensor_role role)
{
    return role >= ROLE_TABLE;
}

enum expert_part { PART_GATE, PART_UP, PART_DOWN, N_PARTS };

struct tensor_want {
    char name[192];
    enum tensor_role role;
    uint32_t n_dims; /* 1 to 3 */
    uint64_t dims[3];
    bool centred;           /* a norm's weights w that stand for 1 + w; held as that */
    bool may_be_fp8;        /* F8_E4M3 with "<name>_scale_inv" allowed */
    uint32_t layer, expert; /* expert and part only for ROLE_EXPERT; expert is a table's part too */
    enum expert_part part;
    /* Another class of the reference saves the same tensors with another beginning: name starts
     * with prefix, and other_prefix does in its place. Literals; NULL: there is no other. */
    const char *prefix, *other_prefix;
    /* A tensor [experts, rows, columns] that may hold it, and how many rows of an expert come
     * before it there. Borrowed for the visit; NULL: there is none. */
    const char *fused;
    uint64_t fused_rows, rows_before;
    /* ROLE_TABLE: the one scale of all parts when they are FP8. Borrowed for the visit. */
    const char *table_scale;
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
    struct tensor *slices; /* owned; what expert_tensors point at when experts are fused, else NULL */
    uint32_t moe_ordinal[MODEL_MAX_LAYERS];
};

int catalog_open(struct catalog **out, const struct shards *shards,
                 const struct model_shape *shape, want_each *each, struct err *err);
void catalog_close(struct catalog *c); /* NULL is fine */

/* Bytes by role as they lie on disk, scales counted with their tensors (a tensor
 * and its scale belong to the same role). From the headers. */
struct catalog_bytes {
    uint64_t weights[N_ROLES], scales[N_ROLES];
    uint64_t tensors[N_ROLES];
    uint64_t n_tensors, n_params; /* parameters without what is only counted */
};
void catalog_sum(struct catalog_bytes *out, const struct catalog *c);
/* The same from the shape alone, when there are no shards to look at: FP8 where the
 * config says so and the tensor may be, BF16 elsewhere, BF16 scales; experts fused where they
 * may be and are not FP8, as releases have them. */
int catalog_derive(struct catalog_bytes *out, const struct model_shape *shape, want_each *each,
                   struct err *err);

#endif
