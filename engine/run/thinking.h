/* thinking: what is appended to a reply instead of being sampled.
 *
 * The rules of struct cz_thinking and of the forced lists, as a machine over the reply's own
 * tokens: it is told when a choice begins and of every token that was sampled, and says what
 * follows. It sees nothing else, so chunks, neighbours and preemption cannot change what it says.
 * One thread at a time. */
#ifndef RUN_THINKING_H
#define RUN_THINKING_H

#include "colizig.h"

#include <stdbool.h>
#include <stdint.h>

struct err;

enum thinking_phase {
    THINKING_UNDECIDED, /* nothing was sampled yet, and it may be `open` */
    THINKING_INSIDE,
    THINKING_BEHIND, /* and nothing is forced any more */
};

struct thinking { /* zeroed: nothing is ever forced */
    struct cz_thinking rules;
    const uint32_t *forced, *forced_behind;
    uint32_t n_forced, n_forced_behind;
    uint32_t *ids; /* owned; all three lists */
    enum thinking_phase phase;
    uint32_t n_inside;
};

struct thinking_words { /* one after the other; borrowed */
    const uint32_t *ids[2];
    uint32_t n[2];
    bool instead; /* of the token that was sampled, which has no place in the reply */
};

/* ERR_INPUT, naming the field, when the rules of a request cannot be followed. */
int thinking_check(const struct cz_request *r, uint32_t vocab, struct err *err);
/* Copies them; they were checked. */
int thinking_open(struct thinking *out, const struct cz_request *r, struct err *err);
void thinking_close(struct thinking *t); /* also on a zeroed struct */
uint64_t thinking_most(void);            /* bytes it may hold */

/* A choice begins: what stands in it before anything is sampled. */
void thinking_begin(struct thinking *t, struct thinking_words *out);
/* This token was sampled; stop: it is one that ends replies. What follows, or stands instead. */
void thinking_take(struct thinking *t, uint32_t token, bool stop, struct thinking_words *out);

#endif
