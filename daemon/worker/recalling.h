/* recalling: what the memory knows of the replies that a client sends back.
 *
 * Before a chat is rendered the engine's door is asked for each assistant's message; the answer
 * fills in reasoning that the client left out, and the model's own spelling of arguments. Once the
 * chat is rendered, replies that still follow what they followed give way to the ids that were
 * sampled (text/replay.h). Without an answer in time the chat is what the client sent. Worker's
 * thread. */
#ifndef DAEMON_RECALLING_H
#define DAEMON_RECALLING_H

#include "daemon/worker/remembering.h"
#include "text/replay.h"

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

struct link;
struct openai_request;
struct prompt;
struct recalled_frame;
struct recalled_reply;
struct wire_wanted;
struct worker;

/* Zero it; recalling_done frees. Its owner must not move. */
struct recalling {
    struct worker *worker;          /* borrowed */
    struct openai_request *request; /* borrowed */
    void (*ready)(void *ctx);
    void *ctx;
    struct wire_wanted *wanted; /* owned: [n_wanted] */
    uint32_t n_wanted, asked, n_asked; /* asked: of them, up to the question under way */
    struct recalled_reply *replies;    /* owned: [n_messages] */
    struct recalled_frame *frames;     /* owned: what they point into */
    uint64_t cost;                     /* taken from the quota */
    sd_event_source *timer;            /* owned */
    bool waiting;
    struct sip_sum secret;
    struct replay replay;
    struct replay_turn *turns; /* owned */
};

/* The door answers in microseconds; an engine that was stopped, or hangs, never. A generation would
 * have to wait for it anyway, and a prompt that is read anew costs minutes; a count does not. */
enum { RECALLING_PATIENCE_MS = 60000, RECALLING_PATIENCE_PAGE_MS = 2000 };

/* 1: ready will be called, from the loop, with an answer or after patience_ms; 0: there is nothing
 * to wait for. */
int recalling_start(struct recalling *r, struct worker *w, struct openai_request *request,
                    uint32_t patience_ms, void (*ready)(void *ctx), void *ctx);
/* Between prompt_open and the first prompt_step of a chat. out, which may be NULL: what the replies
 * to it follow. ready or not, what is known is used. r must stay until prompt_step gave 0 or -1. */
void recalling_apply(struct recalling *r, struct worker *w, const struct openai_request *request,
                     struct prompt *p, struct remembered_prompt *out);
void recalling_stop(struct recalling *r); /* ready is not called any more */
void recalling_done(struct recalling *r);

#endif
