/* rope: the angles of rotary position embeddings (Su et al. 2021), with YaRN (Peng et al.
 * 2023, as Hugging Face transformers computes it). */
#ifndef BLOCKS_ROPE_H
#define BLOCKS_ROPE_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct step;

struct rope {
    float *inv_freq;  /* owned; [dim / 2] */
    uint32_t dim;
    float attention_factor; /* cos and sin are multiplied by it */
};

struct rope_yarn {
    double factor, original_positions; /* "original_max_position_embeddings" */
    double beta_fast, beta_slow;
    double attention_factor; /* <= 0: not given */
    double mscale, mscale_all_dim; /* <= 0: not given */
    bool truncate;
};

/* yarn NULL: plain. */
int rope_open(struct rope *out, uint32_t dim, double theta, const struct rope_yarn *yarn,
              struct err *err);
void rope_close(struct rope *r);

/* cos, sin [dim / 2] of one position. */
void rope_angles(const struct rope *r, uint32_t pos, float *cos, float *sin);
/* Fills step.rope_cos and rope_sin [n_rows, dim / 2] for the rows' positions. */
void rope_fill(const struct rope *r, struct step *step);

#endif
