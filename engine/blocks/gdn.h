/* gdn: gated delta network, attention with a state of fixed size (Yang et al. 2024, "Gated Delta
 * Networks"; the layer as in Qwen4-Exp).
 *
 * q, k and v go through a short causal convolution; each value head then keeps a matrix S of
 * [key_dim, value_dim], and a token changes it and reads it:
 *   S = exp(g) S      d = b (v - S'k)      S = S + k d'      o = S'q
 * The one recurrent form serves prefill and decode alike, a row after the other, so how a prompt
 * was cut cannot change a bit. A step reads a sequence's state from one place and writes it to
 * another: the old one stays good until the step is settled. */
#ifndef BLOCKS_GDN_H
#define BLOCKS_GDN_H

#include "kernels/weights.h"

#include <stdbool.h>
#include <stdint.h>

struct err;
struct step;

struct gdn_shape {
    uint32_t hidden;
    uint32_t n_key_heads, n_value_heads; /* "linear_num_key_heads", "linear_num_value_heads" */
    uint32_t key_dim, value_dim;         /* "linear_key_head_dim", "linear_value_head_dim" */
    uint32_t conv;                       /* "linear_conv_kernel_dim": taps, the token's own last */
    float eps;                           /* "rms_norm_eps" */
    bool silu_gate;                      /* "output_gate_type": silu; else sigmoid */
};

struct gdn_weights { /* linear_attn. */
    struct matrix qkv;  /* [channels, hidden] in_proj_qkv.weight: q, k, v, each head by head */
    struct matrix z;    /* [n_value_heads * value_dim, hidden] in_proj_z.weight */
    struct matrix b, a; /* [n_value_heads, hidden] in_proj_b.weight, in_proj_a.weight */
    struct matrix out;  /* [hidden, n_value_heads * value_dim] out_proj.weight */
    const float *taps;  /* [channels, conv] conv1d.weight */
    const float *dt_bias, *a_log; /* [n_value_heads] dt_bias, A_log */
    const float *norm;            /* [value_dim] norm.weight, as it stands */
};

/* One sequence's state of one layer, before and after the step. Zero where a sequence begins. */
struct gdn_state {
    const float *from; /* [gdn_state_size / sizeof(float)] */
    float *to;
};

static inline uint32_t gdn_channels(const struct gdn_shape *s)
{
    return 2 * s->n_key_heads * s->key_dim + s->n_value_heads * s->value_dim;
}

/* Bytes of one state: matrices [n_value_heads, key_dim, value_dim], then the convolution's
 * history [conv - 1, channels], oldest first. F32 always. */
uint64_t gdn_state_size(const struct gdn_shape *s);
uint64_t gdn_scratch_size(const struct gdn_shape *s, uint32_t n_rows, uint32_t n_states);

/* out [n_rows, hidden] = gdn(in); states[i] belongs to step.states[i]. Where a sequence has no
 * row left in the step its state is not touched. */
int gdn_forward(float *out, const float *in, const struct gdn_shape *shape,
                const struct gdn_weights *w, const struct gdn_state *states, struct step *step,
                struct err *err);

#endif
