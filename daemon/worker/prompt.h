/* prompt: what a request says, as token ids that fit the context.
 *
 * A chat is rendered at once, in memory that comes out of http.buffer; text becomes ids in slices,
 * paid for likewise: ids, and what finding them takes. Worker's thread. */
#ifndef DAEMON_PROMPT_H
#define DAEMON_PROMPT_H

#include "daemon/openai/openai_in.h"
#include "text/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct chat_format;
struct encoding;
struct jinja_mem;

/* Zero it; prompt_done frees. */
struct prompt {
    struct ids ids; /* owned; whole once prompt_step gave 0 */
    size_t n;       /* how many, also after they were sent */
    struct quota *quota; /* borrowed */
    uint64_t cost;       /* taken from it */
    const char *param;   /* a literal: the field it comes from */
    const struct tokenizer *tokenizer; /* borrowed */
    uint32_t context;    /* 0: not known, and nothing is too long */
    bool must_fit;
    uint64_t beside; /* what the request holds beside */
    size_t most;     /* ids that are counted */

    struct jinja_mem *mem;      /* owned: where the chat was rendered */
    struct chat_rendered chat;  /* in mem; start and mended stay */
    struct text_run run;        /* of a prompt that is one text */
    struct text_part whole;     /* that, or the chat */
    struct text_run gap[5];     /* of a prompt with a suffix: marks and texts in turn */
    struct text_part around[2]; /* the same where the prompt came as ids */
    uint32_t opening;           /* the first mark's id */
    const struct text_part *parts; /* [n_parts] what becomes ids, one after the other; borrowed */
    size_t n_parts, part;          /* part: the one under way */
    struct encoding *encoding;     /* owned; of a part that is text */
    size_t n_before;               /* ids of the parts before it */
};

struct prompt_rules {
    const struct tokenizer *tokenizer;
    struct quota *quota;
    uint32_t context;
    bool must_fit; /* 400 context_length_exceeded unless one more token has room */
    uint64_t beside; /* of the quota, held for the same request: JSON, other prompts */
    const struct chat_format *format; /* of chats */
};

/* The rendered chat, or prompt number index. r is borrowed until prompt_step gave 0 or -1. Work
 * is bounded: past four times the context the count is only said to be "at least". */
int prompt_open(struct prompt *p, const struct openai_request *r, uint32_t index,
                const struct prompt_rules *rules, struct api_error *e);
/* Any text, of at most most ids; key names its field. */
int prompt_open_text(struct prompt *p, const struct text_run *run, const char *key, size_t most,
                     const struct prompt_rules *rules, struct api_error *e);
/* Before the first step of a chat: these parts say the same as p->chat. Borrowed until prompt_step
 * gave 0 or -1. */
void prompt_replace(struct prompt *p, const struct text_part *parts, size_t n_parts);
/* The token of a mark around a gap ("<|fim_middle|>"), by its number; false past the last one and
 * where there is none. Any of them ends what is filled in. */
enum { PROMPT_GAP_MARKS = 6 };
bool prompt_gap_mark(uint32_t *id, const struct tokenizer *t, uint32_t number);
/* A slice of work. 1: go on later; 0: the ids are there; -1. */
int prompt_step(struct prompt *p, struct api_error *e);
/* The ids have left for the engine, and are paid for until it has them. */
void prompt_sent(struct prompt *p);
void prompt_done(struct prompt *p); /* keeps n */

#endif
