/* shape: what planning may know of a model, whatever its family. */
#ifndef STORE_SHAPE_H
#define STORE_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_MAX_LAYERS = 1024 }; /* refuses an absurd config; twice any known model */

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
};

#endif
