/* qwen3_moe: Qwen3 mixture-of-experts models (Qwen3-30B-A3B, 235B-A22B, Coder, 2507).
 *
 * What config.json may say, which tensors follow from it, and the walk through the
 * layers. Reference: Qwen3MoeConfig and Qwen3MoeForCausalLM of Hugging Face
 * transformers. Config functions: any thread; the family: engine thread. */
#ifndef FAMILIES_QWEN3_MOE_H
#define FAMILIES_QWEN3_MOE_H

#include "blocks/rope.h"
#include "families/family.h"

#include <stdbool.h>

struct err;
struct json;

/* What the forward pass must know beside the shape. */
struct qwen3_moe_config {
    bool norm_topk_prob;
    float rms_eps;
    double rope_theta;
    bool yarn;
    struct rope_yarn rope_yarn; /* when yarn */
};

/* Checks every key of config.json: ERR_UNSUPPORTED or ERR_FORMAT names the key. */
int qwen3_moe_read_config(struct qwen3_moe_config *out, const struct json *config,
                          struct err *err);
/* The same, and the shape. */
int qwen3_moe_read_shape(struct model_shape *out, struct config_warnings *warnings,
                         const struct json *config, struct err *err);
want_each qwen3_moe_each_tensor;

extern const struct family qwen3_moe_family;

#endif
