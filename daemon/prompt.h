/* prompt: what a request says, as token ids that fit the context.
 *
 * Worked out in slices, and paid for out of http.buffer: ids, and what finding them takes.
 * Worker's thread. */
#ifndef DAEMON_PROMPT_H
#define DAEMON_PROMPT_H

#include "daemon/openai_in.h"
#include "text/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct encoding;

/* Zero it; prompt_done frees. */
struct prompt {
    struct ids ids; /* owned; whole once prompt_step gave 0 */
    size_t n;       /* how many, also after they were sent */
    struct quota *quota; /* borrowed */
    uint64_t cost;       /* taken from it */
    const char *param;   /* a literal: the field it comes from */
    uint32_t context;    /* 0: not known, and nothing is too long */
    bool must_fit;
    uint64_t beside; /* what the request holds beside */
    size_t most;     /* ids that are counted */
    struct chat_runs runs;     /* owned */
    struct text_run run;       /* of a prompt that is one text */
    struct encoding *encoding; /* owned; NULL for ids that came as ids */
};

struct prompt_rules {
    const struct tokenizer *tokenizer;
    struct quota *quota;
    uint32_t context;
    bool must_fit; /* 400 context_length_exceeded unless one more token has room */
    uint64_t beside; /* of the quota, held for the same request: JSON, other prompts */
};

/* The rendered chat, or prompt number index. r is borrowed until prompt_step gave 0 or -1. Work
 * is bounded: past four times the context the count is only said to be "at least". */
int prompt_open(struct prompt *p, const struct openai_request *r, uint32_t index,
                const struct prompt_rules *rules, struct api_error *e);
/* Any text, of at most most ids; key names its field. */
int prompt_open_text(struct prompt *p, const struct text_run *run, const char *key, size_t most,
                     const struct prompt_rules *rules, struct api_error *e);
/* A slice of work. 1: go on later; 0: the ids are there; -1. */
int prompt_step(struct prompt *p, struct api_error *e);
/* The ids have left for the engine, and are paid for until it has them. */
void prompt_sent(struct prompt *p);
void prompt_done(struct prompt *p); /* keeps n */

#endif
