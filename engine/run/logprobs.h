/* logprobs: how likely the model held a token, and which it held most likely.
 *
 * Any thread. */
#ifndef RUN_LOGPROBS_H
#define RUN_LOGPROBS_H

#include "colizig.h"

#include <stdint.h>

/* Log-softmax of one row, logits [vocab], all of them finite: of token, and of the n_top largest
 * (at most CZ_MAX_TOP, and vocab), ties to the lower id. Sums in double, left to right. */
void logprobs_of(struct cz_logprobs *out, const float *logits, uint32_t vocab, uint32_t token,
                 uint32_t n_top);

#endif
