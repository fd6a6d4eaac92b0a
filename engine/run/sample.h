/* sample: one token from one row of logits.
 *
 * Order, which is part of what a seed means: bias and bans, penalties, temperature, top-k,
 * top-p, min-p, one draw. Logprobs are of the row as it came, before any of that. The draw is a counter function of (seed, token index), so parking,
 * batching or restarting a request cannot shift it. Ties go to the lower token id. Engine
 * thread; allocates only when opened. */
#ifndef RUN_SAMPLE_H
#define RUN_SAMPLE_H

#include "colizig.h"

#include <stdint.h>

struct err;
struct sampler;

uint64_t sampler_size(uint32_t vocab); /* bytes it holds */
int sampler_open(struct sampler **out, uint32_t vocab, struct err *err);
void sampler_close(struct sampler *s); /* NULL is fine */

struct sample_request {
    const struct cz_sampling *how;
    const struct cz_bias *bias;
    uint32_t n_bias;
    const uint32_t *banned; /* stop ids, while the reply is shorter than min_tokens */
    uint32_t n_banned;
    const uint32_t *tokens; /* prompt, then what was generated */
    uint32_t n_tokens, n_prompt;
    uint32_t index; /* of the token to draw: 0 for the first generated */
    struct cz_logprobs *logprobs; /* to be filled in; NULL: nobody asks */
    uint32_t n_top;               /* of them, at most CZ_MAX_TOP */
};

/* logits [vocab] are used up. ERR_NUMERIC when one of them is not a number. */
int sampler_pick(struct sampler *s, uint32_t *token, float *logits,
                 const struct sample_request *r, struct err *err);

#endif
