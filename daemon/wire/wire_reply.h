/* wire_reply: a reply that is remembered, as it crosses between worker and engine.
 *
 * A worker makes it at a reply's end (REMEMBER); the engine's door keeps the bytes as they are and
 * gives them to any worker that names one of its keys (RECALL, RECALLED). The one that reads it is
 * not the one that wrote it, so it is checked on both ways like every frame. Any thread. */
#ifndef DAEMON_WIRE_REPLY_H
#define DAEMON_WIRE_REPLY_H

#include "util/sip.h"

#include <stddef.h>
#include <stdint.h>

struct err;

enum {
    WIRE_MAX_REPLY_KEYS = 128,
    WIRE_MAX_REPLY_CALLS = 1024,
    WIRE_MAX_WANTED = 4096, /* keys in one question */
};

struct wire_reply_call {
    uint32_t name_size, arguments_size;
};

/* REMEMBER: then struct sip_sum keys[]; struct wire_reply_call calls[]; uint32_t ids[]; char
 * text[]: tail, reasoning, then name and arguments of each call; valid UTF-8 each. */
struct wire_remember {
    struct sip_sum after;   /* of the prompt; text/replay.h */
    struct sip_sum content; /* what the client was given as content */
    uint32_t n_keys, n_calls, n_ids;
    uint32_t tail_size, reasoning_size, text_size; /* text_size: all of it */
};

struct wire_wanted {
    struct sip_sum key;
    uint32_t message; /* once one key of a message is found, its others are passed over */
    uint32_t unused;  /* 0 */
};

struct wire_recall { /* RECALL: then struct wire_wanted [n] */
    uint32_t n;
    uint32_t room; /* the largest answer, in bytes */
};

struct wire_recalled { /* RECALLED: then n times a reply */
    uint32_t n_looked; /* of those wanted; for the rest there was no room: ask again */
    uint32_t n;
};

struct wire_recalled_reply { /* then a wire_remember with all of its own, filled up to 8 bytes */
    uint32_t message;
    uint32_t size; /* without what fills it up */
};

/* Where the parts of a checked wire_remember lie. */
struct wire_reply_view {
    const struct wire_remember *head;
    const struct sip_sum *keys;
    const struct wire_reply_call *calls;
    const uint32_t *ids;
    const char *tail, *reasoning;
    const char *call_text; /* names and arguments */
};
void wire_reply_view(struct wire_reply_view *out, const struct wire_remember *m);
static inline size_t wire_reply_padded(size_t size)
{
    return (size + 7) & ~(size_t)7;
}
/* The next reply of a checked RECALLED; at is NULL for the first. There are n. */
const struct wire_recalled_reply *wire_recalled_next(const struct wire_recalled *m,
                                                     const struct wire_recalled_reply *at);

int wire_check_remember(const void *body, size_t size, struct err *err);
int wire_check_recall(const void *body, size_t size, struct err *err);
int wire_check_recalled(const void *body, size_t size, struct err *err);

#endif
