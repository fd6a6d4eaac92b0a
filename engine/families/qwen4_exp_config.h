/* Bounds that reading a Qwen4-Exp config.json and its shape agree on: no model comes near, and
 * what passes them cannot overflow a product of a few. */
#ifndef FAMILIES_QWEN4_EXP_CONFIG_H
#define FAMILIES_QWEN4_EXP_CONFIG_H

enum {
    QWEN4_MAX_VOCAB = 1 << 24,
    QWEN4_MAX_WIDTH = 1 << 20,
    QWEN4_MAX_HEADS = 4096,
    QWEN4_MAX_HEAD_DIM = 256,    /* of the attention kernels */
    QWEN4_MAX_HEADS_PER_KV = 32, /* likewise */
    QWEN4_MAX_INDEX_HEADS = 64,  /* of the scoring of a page's blocks */
    QWEN4_MAX_STREAMS = 64,
    QWEN4_MAX_TAPS = 64,         /* of a convolution */
    QWEN4_MAX_EXPERTS = 4096,
};

#endif
