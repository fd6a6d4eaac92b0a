/* prompt: what a request says, as token ids that fit the context. Worker's thread. */
#ifndef DAEMON_PROMPT_H
#define DAEMON_PROMPT_H

#include "daemon/openai_in.h"
#include "text/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

/* Appends to out: the rendered chat, or prompt number index. Work is bounded: past four
 * times the context the count is only said to be "at least". With must_fit, 400 context_length_exceeded unless one more token
 * has room; context 0 is not known yet, and nothing is too long. */
int prompt_tokens(struct ids *out, const struct openai_request *r, uint32_t index,
                  const struct tokenizer *t, uint32_t context, bool must_fit,
                  struct api_error *e);

#endif
