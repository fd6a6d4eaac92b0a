/* shape: what planning may know of a model, whatever its family. */
#ifndef STORE_SHAPE_H
#define STORE_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_MAX_LAYERS = 1024 }; /* refuses an absurd config; twice any known model */

/* Gated DeltaNet layers: a recurrent state [key_dim, value_dim] a value head, behind a causal
 * convolution of `kernel` taps over queries, keys and values. */
struct linear_shape {
    uint32_t n_key_heads, n_value_heads, key_dim, value_dim, kernel;
};

/* Sparse attention: an indexer scores blocks of `ratio` tokens, and a query sees the best
 * `budget` tokens of whole blocks and the unfinished block. */
struct index_shape {
    uint32_t n_heads, head_dim, budget, ratio; /* all 0: attention is dense */
};

/* Residual streams side by side, mixed through a matrix of low rank. */
struct stream_shape {
    uint32_t n, rank; /* 0: one plain residual */
};

/* Hashed n-gram embeddings: each token asks a table for n_heads rows. */
enum { SHAPE_MAX_TABLES = 16 };
struct table_shape {
    uint32_t n_tables;                  /* 0: none */
    uint32_t layers[SHAPE_MAX_TABLES];  /* that have one; rising */
    uint64_t rows[SHAPE_MAX_TABLES];
    uint32_t n_heads, head_dim, n_parts; /* rows a token, values a row, tensors a table */
    uint32_t order;                      /* longest n-gram, and the convolution's dilation */
    uint32_t kernel;
    bool fp8;                            /* of one scale */
};

/* What is in the files and not in the text model: counted, never read. */
struct unused_shape {
    bool may_be_there;
    uint32_t n_mtp_layers; /* layers that guess tokens ahead, under "mtp." */
    struct vision_shape {  /* under "model.visual."; depth 0: none */
        uint32_t depth, hidden, width, channels, patch_pixels, frames, merge, positions, out;
    } vision;
};

struct model_shape {
    char model_type[32];
    uint32_t vocab, hidden, n_layers;
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t n_experts, experts_per_token; /* 0: no routed layer at all */
    uint32_t expert_width;                 /* moe_intermediate_size */
    uint32_t dense_width;                  /* intermediate_size of dense layers */
    uint32_t n_moe_layers;
    bool layer_is_moe[MODEL_MAX_LAYERS];
    bool tied_embeddings;
    uint32_t max_positions;
    bool fp8;                     /* quantization_config says block FP8 */
    uint64_t kv_values_per_token; /* K and V elements of one token, all layers */

    /* Zero where a family has no such thing. */
    uint32_t shared_width; /* of the expert that every token visits */
    uint32_t n_linear_layers;
    bool layer_is_linear[MODEL_MAX_LAYERS]; /* recurrent; the others attend */
    struct linear_shape linear;
    struct index_shape index;
    struct stream_shape streams;
    struct table_shape ngram;
    struct unused_shape unused;
    bool may_be_fused;         /* experts of a layer in one tensor */
    bool text_only;            /* saved by the text class: tensor names begin otherwise */
    uint64_t recurrent_floats; /* F32 values a sequence keeps, however long it is */
};

/* Layers that keep keys and values. */
static inline uint32_t shape_kv_layers(const struct model_shape *s)
{
    return s->n_layers - s->n_linear_layers;
}

#endif
