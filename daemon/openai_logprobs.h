/* openai_logprobs: how likely tokens were, in the two shapes of the API, until they are sent.
 *
 * Written as JSON while they come, so that they cost their own bytes and nothing else. Chat has a
 * list of tokens, completions have four lists and places in the text. Worker's thread. */
#ifndef DAEMON_OPENAI_LOGPROBS_H
#define DAEMON_OPENAI_LOGPROBS_H

#include "daemon/buf.h"

#include <stddef.h>
#include <stdint.h>

/* A token's own text and what the model gave it. */
struct openai_logprob {
    const char *bytes; /* may be a part of a character; borrowed */
    size_t size;
    double value; /* natural logarithm; -inf is fine */
    bool unseen;  /* the text that is returned is without it */
};

struct openai_logprobs {
    bool legacy;
    uint32_t n;
    struct buf tokens; /* of a chat: the entries */
    struct buf values, tops, offsets; /* of a completion */
    uint64_t offset; /* characters of the text so far */
};

void openai_logprobs_open(struct openai_logprobs *l, bool legacy, struct quota *quota);
void openai_logprobs_done(struct openai_logprobs *l);
/* The next token, beside the likeliest ones of its place. */
void openai_logprobs_add(struct openai_logprobs *l, const struct openai_logprob *token,
                         const struct openai_logprob *top, uint32_t n_top);
/* The text has these bytes beside those of tokens, before them: an echoed prompt. */
void openai_logprobs_skip(struct openai_logprobs *l, const char *bytes, size_t size);
/* The object; empty lists when nothing was added. */
void openai_logprobs_put(struct buf *to, const struct openai_logprobs *l);
/* Behind those of to, of the same kind; from is cleared. */
void openai_logprobs_move(struct openai_logprobs *to, struct openai_logprobs *from);
void openai_logprobs_clear(struct openai_logprobs *l); /* goes on behind them */
bool openai_logprobs_failed(const struct openai_logprobs *l);

#endif
