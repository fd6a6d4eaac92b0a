/* qwen4_exp: Qwen4-Exp models (Qwen3.8-Flash-Next), their text part.
 *
 * Gated DeltaNet layers and sparse attention, residual streams side by side, hashed n-gram
 * embeddings, routed experts beside a shared one. What config.json may say and which tensors
 * follow from it. Reference: Qwen4ExpTextConfig and Qwen4ExpForCausalLM of Hugging Face
 * transformers. Config functions: any thread; the family: engine thread. */
#ifndef FAMILIES_QWEN4_EXP_H
#define FAMILIES_QWEN4_EXP_H

#include "families/family.h"

#include <stdbool.h>
#include <stdint.h>

struct err;
struct json;
struct ngram;

/* What the forward pass must know beside the shape. */
struct qwen4_exp_config {
    bool norm_topk_prob;
    bool gate_is_silu; /* of Gated DeltaNet's output; else sigmoid */
    float rms_eps;
    double rope_theta;
    uint32_t rotary_dim; /* of head_dim, and of the indexer's: the rest is not rotated */
    uint32_t max_positions;
    /* of the n-gram tables; zero without */
    uint32_t ngram_size, heads_per_ngram, ngram_base, ngram_divisor;
    uint32_t ngram_eos;
    uint64_t ngram_seed;
};

/* The object that holds the text model's keys: 'text_config', or the root itself. */
int qwen4_exp_text_config(struct json *out, const struct json *config, struct err *err);
/* Checks every key that is not of the shape: ERR_UNSUPPORTED or ERR_FORMAT names the key. */
int qwen4_exp_read_config(struct qwen4_exp_config *out, const struct json *config,
                          struct config_warnings *warnings, struct err *err);
/* Checks and reads all of it. */
int qwen4_exp_read_shape(struct model_shape *out, struct config_warnings *warnings,
                         const struct json *config, struct err *err);
/* How the table-th n-gram table of a model is looked up. */
int qwen4_exp_ngram(struct ngram *out, const struct qwen4_exp_config *c, uint32_t vocab,
                    uint32_t table, struct err *err);
want_each qwen4_exp_each_tensor;

extern const struct family qwen4_exp_family;

#endif
