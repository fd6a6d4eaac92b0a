/* qwen4_exp_model: what the files of the running family share. Private to them. */
#ifndef FAMILIES_QWEN4_EXP_MODEL_H
#define FAMILIES_QWEN4_EXP_MODEL_H

#include "blocks/gdn.h"
#include "blocks/head.h"
#include "blocks/hyper.h"
#include "blocks/kv_seq.h"
#include "blocks/moe.h"
#include "blocks/ngram.h"
#include "blocks/ple.h"
#include "blocks/qsa.h"
#include "blocks/rope.h"
#include "families/family.h"
#include "util/region.h"

#include <stdbool.h>
#include <stdint.h>

struct step;

struct qwen4_layer {
    struct hyper_weights before_mixer, before_experts;
    uint32_t nth; /* of the layers of its kind: recurrent, or attending */
    struct gdn_weights gdn;
    struct qsa_weights qsa;
    uint32_t table; /* of the n-gram embedding in front of it; NO_TABLE */
    struct ple_weights ple;
    struct matrix router;
    struct expert_weights shared;
    struct matrix shared_gate; /* [1, hidden] */
};
enum { QWEN4_NO_TABLE = UINT32_MAX };

/* Sizes of the blocks, as they follow from the model's shape and config. */
struct qwen4_shapes {
    struct hyper_shape hyper;
    struct gdn_shape gdn;
    struct qsa_shape qsa;
    struct ple_shape ple;
    struct moe_shape moe;
};

struct model {
    struct model_shape shape;
    struct qwen4_shapes of;
    struct rope rope;
    struct head head;
    struct hyper_weights before_head;
    struct qwen4_layer *layers;         /* owned; [n_layers] */
    struct ngram ngrams[SHAPE_MAX_TABLES]; /* [shape.ngram.n_tables] */
    struct row_store *const *tables;    /* borrowed */
    struct kv_pool *kv;                 /* borrowed */
    uint32_t context;
    /* scratch of forward; owned, [cap_seqs] */
    struct gdn_state *gdn_states;
    struct conv_past *ple_pasts;
    char *const **pages;
    uint32_t cap_seqs;
};

struct seq_state {
    struct kv_seq kv;
    struct model *model; /* borrowed */
    /* Two states of shape.recurrent_floats: of before the step, at `now`, and the one it makes. */
    struct region states;
    uint32_t now;
    /* The last tokens, oldest first: as many as an n-gram reaches back, before the step and with
     * it. */
    uint32_t past[NGRAM_MAX_SIZE], n_past;
    uint32_t next_past[NGRAM_MAX_SIZE], n_next;
    uint32_t n_rows; /* in the step under way */
    bool lent;       /* `states` holds what is not its own */
};

/* What a saved point begins with; the state as it was follows. */
struct qwen4_saved {
    uint32_t n_tokens, n_past;
    uint32_t past[NGRAM_MAX_SIZE];
};

/* Weights by name, and what was computed against what the files hold. */
int qwen4_find_weights(struct model *m, const struct model_parts *parts, struct err *err);

/* Bytes before a layer's part of a state. */
uint64_t qwen4_gdn_offset(const struct model *m, uint32_t nth);
uint64_t qwen4_ple_offset(const struct model *m, uint32_t table);

void qwen4_shapes(struct qwen4_shapes *out, const struct model_shape *s,
                  const struct qwen4_exp_config *c);
uint64_t qwen4_scratch_size(const struct model_shape *shape, uint32_t context, uint32_t n_rows,
                            uint32_t logit_rows, uint64_t *choices);
int qwen4_forward(struct model *m, struct step *step, struct err *err);

#endif
