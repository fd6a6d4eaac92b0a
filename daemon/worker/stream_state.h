/* stream_state: what the stream*.c files share. Private to them and to counting. */
#ifndef DAEMON_STREAM_STATE_H
#define DAEMON_STREAM_STATE_H

#include "daemon/openai/openai_in.h"
#include "daemon/openai/openai_out.h"
#include "daemon/wire/wire.h"
#include "daemon/worker/exchange.h"
#include "daemon/worker/prompt.h"
#include "daemon/worker/recalling.h"
#include "daemon/worker/remembering.h"
#include "daemon/worker/slices.h"
#include "text/reply.h"
#include "text/stop.h"

/* What a generation was, until the door has been told. */
struct stream_tally {
    uint32_t tokens[N_TOKEN_KINDS]; /* by enum wire_token_kind */
    uint32_t n_calls;
    uint32_t repairs[N_REPLY_REPAIRS];
};

struct stream {
    struct exchange_job job;
    struct exchange *x; /* borrowed; owns us */
    struct openai_request request;
    struct openai_reply reply;
    struct prompt prompts[OPENAI_MAX_PROMPTS];
    uint32_t n_prompts, n_read; /* n_read: of them, are token ids */
    struct slices reading;
    struct recalling recalling; /* of a chat: earlier replies */
    struct remembered_prompt remembered; /* what its replies follow */
    char mended[OPENAI_MENDED_TEXT]; /* x-mended */

    /* how a chat's replies are written */
    enum reply_start start;
    enum reply_style style;
    struct reply_marks marks;

    /* the prompt under way */
    uint32_t index;
    uint64_t link_id;
    bool live; /* the engine has it */
    uint64_t asked_ns, accepted_ns, first_ns, told_ns;
    struct cz_usage prompt_usage; /* of its choices that are over */
    bool counting; /* asked for, and its end is not counted yet */
    bool waits;    /* for a place */

    /* the choice under way */
    uint32_t choice;
    struct text_out *text; /* owned: of a completion */
    struct reply *parser;  /* owned: of a chat; reads r->offer */
    uint64_t parser_cost;  /* taken from the quota for it */
    uint32_t n_tokens;    /* came so far */
    uint64_t choice_ns;   /* when its first token came */
    const char *over;     /* its text is complete, for this reason; tokens are ignored */
    bool said;            /* some content of it was told */
    bool in_call;         /* a call was begun and not ended */
    char call_id[OPENAI_CALL_ID];
    struct remembering remembering;
    struct openai_logprobs_held held; /* of content that was not told yet, */
    struct openai_logprobs logprobs;  /* and of what is being told */
    struct stream_tally tally;
    uint64_t counted_ns; /* when tokens were last counted */

    struct openai_choice *choices; /* owned: [n_choices] of a reply sent at once */
    uint32_t n_choices;
    uint64_t choices_cost;
    struct openai_usage usage; /* summed over prompts and choices */
    struct openai_usage running; /* of the choice under way, for timings_per_token */
    bool answered; /* the status line is out of our hands */
    bool ended;    /* everything is written */
    bool broken;   /* an error event is written; the connection ends after it */
    bool failed;   /* error is the answer */
    struct api_error error;
    sd_event_source *keepalive; /* owned; streams only */
    uint64_t put_ns;            /* when something was last written */
};

/* Which of the reply's choices is under way. */
static inline uint32_t stream_index(const struct stream *s)
{
    return s->index * s->request.n_choices + s->choice;
}

/* ---- stream.c: its course ---- */

void stream_fail(struct stream *s, const struct api_error *e);
void stream_fail_full(struct stream *s); /* the buffers are */
/* An answer whose buffers are full is given up: true. */
bool stream_is_full(struct stream *s);
/* Something was written: the client is to get it, and no keepalive is due. */
void stream_note_put(struct stream *s);
void stream_start_keepalive(struct stream *s);
void stream_cancel(struct stream *s);
/* The choice under way is done, and more of them may follow. own: the figures are ours, not the
 * engine's. */
void stream_end_choice(struct stream *s, const char *finish, const struct cz_usage *usage,
                       bool own, bool more);

/* ---- stream_read.c: the body ---- */

/* Reads it, and sends the first prompt to the engine, at once or in a while. */
int stream_prepare(struct stream *s, enum openai_kind kind, struct api_error *e);

/* ---- stream_ask.c: what the engine is asked for ---- */

/* Sends the prompt under way to the engine. */
int stream_submit(struct stream *s, struct api_error *e);

/* ---- stream_say.c: tokens to what the client is told ---- */

int stream_open_choice(struct stream *s, struct api_error *e);
void stream_close_choice(struct stream *s);
/* 1 when the choice ends with this token; 0; -1 when the request is over for another reason. */
int stream_take_token(struct stream *s, uint32_t token, const struct cz_logprobs *logprobs);
/* The choice's figures as the worker knows them: a cancelled request gets none from the engine. */
struct cz_usage stream_own_usage(const struct stream *s);
/* Tokens that the engine generated of it and did not send: the stop token, and what came too late. */
void stream_count_unsent(struct stream *s, const struct cz_usage *usage);
/* The engine sends no more of it: why it ended, or NULL when the request is over. */
const char *stream_finish_text(struct stream *s, bool cut);
/* The prompt's own text, where it is asked for. */
void stream_put_echo(struct stream *s);

#endif
