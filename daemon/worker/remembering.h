/* remembering: a reply on its way into the memory.
 *
 * While a reply is told to the client its sampled ids, its reasoning and its calls are gathered,
 * paid for out of http.buffer; at its end they go to the engine's door (REMEMBER). Where there is
 * no room for that, or the reply is none that could be shown again, nothing is remembered, and the
 * client does not notice. Worker's thread. */
#ifndef DAEMON_REMEMBERING_H
#define DAEMON_REMEMBERING_H

#include "daemon/base/buf.h"
#include "daemon/worker/conversation.h"
#include "text/replay.h"
#include "text/reply.h"

#include <stdbool.h>
#include <stdint.h>

struct link;
struct openai_request;

/* What the replies to one prompt follow. Zero it. */
struct remembered_prompt {
    bool on; /* replies are to be remembered */
    struct sip_sum secret;
    uint32_t most;                    /* bytes of a record */
    struct conversation conversation; /* all its messages */
    struct sip_sum after;             /* text/replay.h */
    char tail[REPLAY_MAX_TAIL];
    uint32_t tail_size;
};

/* Zero it; remembering_done frees. */
struct remembering {
    const struct remembered_prompt *prompt; /* borrowed; NULL: nothing is gathered */
    uint32_t call_end;                      /* the token that ends a call */
    struct buf ids, reasoning, calls, call_text, keys;
    uint64_t content_size;
    struct sip content;
    struct conversation conversation;
    size_t n_ids, n_whole; /* n_whole: of them, up to the last call's end */
    bool ended_here;
};

void remembering_begin(struct remembering *r, const struct remembered_prompt *prompt,
                       uint32_t call_end, struct quota *quota);
/* Each token before the parser has it; then each part that the parser made of it. call_id: of
 * REPLY_CALL, as the client is told it. */
void remembering_token(struct remembering *r, uint32_t id);
void remembering_part(struct remembering *r, const struct reply_part *part, const char *call_id);
/* The parser ends the reply: what the model went on to say behind a call is dropped. */
void remembering_end_here(struct remembering *r);
/* The reply is over: cut by the length limit, or not. The engine is told, if it is to be
 * remembered. */
void remembering_finish(struct remembering *r, const struct reply *parser, bool cut,
                        struct link *link);
void remembering_done(struct remembering *r);

#endif
