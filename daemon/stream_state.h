/* stream_state: what stream.c and stream_text.c share. Private to them. */
#ifndef DAEMON_STREAM_STATE_H
#define DAEMON_STREAM_STATE_H

#include "daemon/exchange.h"
#include "daemon/openai_in.h"
#include "daemon/openai_out.h"
#include "daemon/prompt.h"
#include "daemon/slices.h"
#include "text/stop.h"

struct stream {
    struct exchange_job job;
    struct exchange *x; /* borrowed; owns us */
    struct openai_request request;
    struct openai_reply reply;
    struct prompt prompts[OPENAI_MAX_PROMPTS];
    uint32_t n_prompts, n_read; /* n_read: of them, are token ids */
    struct slices reading;

    /* the prompt under way */
    uint32_t index;
    uint64_t link_id;
    bool live;              /* the engine has it */
    struct text_out *text;  /* owned */
    uint32_t n_tokens;      /* came so far */
    uint64_t asked_ns, accepted_ns, first_ns, told_ns;
    bool counting; /* asked for, and its end is not counted yet */
    bool waits;    /* for a place */

    struct openai_choice choices[OPENAI_MAX_PROMPTS]; /* texts of a reply sent at once */
    struct openai_usage usage;                        /* summed over prompts */
    bool answered; /* the status line is out of our hands */
    bool ended;    /* everything is written */
    bool broken;   /* an error event is written; the connection ends after it */
    bool failed;   /* error is the answer */
    struct api_error error;
    sd_event_source *keepalive; /* owned; streams only */
    uint64_t put_ns;            /* when something was last written */
};

/* ---- stream.c ---- */

void stream_fail(struct stream *s, const struct api_error *e);
/* An answer whose buffers are full is given up: true. */
bool stream_is_full(struct stream *s);
/* Something was written: the client is to get it, and no keepalive is due. */
void stream_note_put(struct stream *s);
void stream_start_keepalive(struct stream *s);
void stream_cancel(struct stream *s);
/* The prompt under way is done. own: the figures are ours, not the engine's. */
void stream_end_prompt(struct stream *s, const char *finish, const struct cz_usage *usage,
                       bool own);

#endif
