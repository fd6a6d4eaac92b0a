/* openai_logprobs: how likely tokens were, in the two shapes of the API, until they are told.
 *
 * Written as JSON while they come, so that they cost their own bytes and little else. A chat has a
 * list of tokens, a completion has four lists and places in the text. What is known of a token
 * waits until the text that it made is told, for that may be held back, or never be. Worker's
 * thread. */
#ifndef DAEMON_OPENAI_LOGPROBS_H
#define DAEMON_OPENAI_LOGPROBS_H

#include "daemon/base/buf.h"

#include <stddef.h>
#include <stdint.h>

/* A token's own text and what the model gave it. */
struct openai_logprob {
    const char *bytes; /* may be a part of a character; borrowed */
    size_t size;
    double value; /* natural logarithm; -inf is fine */
    bool unseen;  /* the text that is returned is without it */
};

enum { OPENAI_LOGPROB_LISTS = 4 };

/* Of text that is told. */
struct openai_logprobs {
    bool legacy; /* of a completion */
    uint32_t n;
    struct buf lists[OPENAI_LOGPROB_LISTS]; /* tokens (of a chat: all), values, tops, offsets */
};

void openai_logprobs_open(struct openai_logprobs *l, bool legacy, struct quota *quota);
void openai_logprobs_done(struct openai_logprobs *l);
/* The object; empty lists when there are none. */
void openai_logprobs_put(struct buf *to, const struct openai_logprobs *l);
void openai_logprobs_clear(struct openai_logprobs *l);
bool openai_logprobs_failed(const struct openai_logprobs *l);

/* Of text that may be told later. */
struct openai_logprobs_held {
    bool legacy;
    struct buf lists[OPENAI_LOGPROB_LISTS]; /* entry behind entry */
    struct buf entries; /* struct entry: how long each is */
    uint64_t offset;    /* characters of the text so far */
    int64_t owed;       /* bytes of told text that no told token stands for; or the reverse */
};

void openai_logprobs_hold(struct openai_logprobs_held *h, bool legacy, struct quota *quota);
void openai_logprobs_let_go(struct openai_logprobs_held *h);
/* The next token, beside the likeliest ones of its place. */
void openai_logprobs_add(struct openai_logprobs_held *h, const struct openai_logprob *token,
                         const struct openai_logprob *top, uint32_t n_top);
/* The text begins with these bytes, which no token stands for: an echoed prompt. */
void openai_logprobs_skip(struct openai_logprobs_held *h, const char *bytes, size_t size);
/* So much more text is told: its tokens go to the end of to. */
void openai_logprobs_tell(struct openai_logprobs *to, struct openai_logprobs_held *h, size_t size);
void openai_logprobs_tell_all(struct openai_logprobs *to, struct openai_logprobs_held *h);
/* What waits is never told; the next text begins. */
void openai_logprobs_drop(struct openai_logprobs_held *h);

#endif
