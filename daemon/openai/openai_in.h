/* openai_in: a request body to what the engine and the chat template need, or a precise 400.
 *
 * Knows the fields of /v1/chat/completions and /v1/completions: which are served, which are
 * taken and ignored (they are listed for x-ignored-params) and which are refused because
 * ignoring them would change the meaning of the answer. Sampling starts from the checkpoint's
 * own defaults. Worker's thread. */
#ifndef DAEMON_OPENAI_IN_H
#define DAEMON_OPENAI_IN_H

#include "colizig.h"
#include "daemon/base/buf.h"
#include "daemon/openai/api_error.h"
#include "daemon/openai/openai_tools.h"
#include "text/chat.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conf;
struct wire_hello;

enum {
    OPENAI_MAX_STOPS = 16,
    OPENAI_MAX_STOP_SIZE = 1024,
    OPENAI_MAX_PROMPTS = 16,
    OPENAI_MAX_CHOICES = 4,
    OPENAI_MAX_TOP = 20,
    OPENAI_MAX_BIAS = 1024,
    OPENAI_MAX_BANS = CZ_MAX_BIAS - OPENAI_MAX_BIAS,
};

enum openai_kind { OPENAI_CHAT, OPENAI_COMPLETION };

struct openai_text {
    const char *bytes; /* borrowed from the body's JSON; may hold NUL */
    size_t size;
};

/* One prompt of /v1/completions: text or ids. */
struct openai_prompt {
    struct openai_text text; /* bytes NULL when ids were sent */
    uint32_t *ids;           /* owned */
    size_t n_ids;
};

struct openai_request {
    enum openai_kind kind;
    struct quota *quota; /* borrowed; what the JSON and the ids took from it is `cost` */
    uint64_t cost;
    json_t *root; /* owned */

    bool stream, include_usage, return_progress, service_tier, timings_per_token;
    uint32_t n_choices;  /* of each prompt; at least 1 */
    bool logprobs;
    uint32_t n_top;      /* likeliest tokens beside each one */
    uint32_t max_tokens; /* 0: what the context leaves */
    uint32_t min_tokens;
    struct cz_sampling sampling;
    uint32_t stop_ids[CZ_MAX_STOP_IDS], n_stop_ids;
    struct cz_bias *bias; /* owned; with room for OPENAI_MAX_BANS more */
    uint32_t n_bias;
    struct openai_text stops[OPENAI_MAX_STOPS];
    uint32_t n_stops;
    char *stop_bytes; /* owned; NULL while the stops are borrowed from root */

    json_t *tools; /* owned; OPENAI_CHAT: [{"type": "function", "function": {...}}] as received; NULL:
                      none are offered */
    struct openai_tools offer; /* of these, what a reply is parsed by */
    uint32_t thinking_budget;  /* tokens; UINT32_MAX: no bound */
    bool keep_tags;            /* reasoning and its tags stay in the content */
    bool hide_reasoning;       /* it is not told at all; wins */
    bool reasoning_memory;     /* replies are remembered, and recalled */
    bool cache_prompt;         /* what was computed before is used, and this kept for others */
    struct chat chat;              /* OPENAI_CHAT; messages owned here */
    struct chat_message *messages; /* owned */
    char **joined;                 /* owned: texts put together from parts */
    size_t n_joined;
    struct chat_call *calls; /* owned: of all messages */
    const json_t **call_objects; /* owned: [n_calls] arguments that came as objects, in root */
    size_t n_calls;
    json_t *kwargs;  /* borrowed: chat_template_kwargs; NULL */
    unsigned mended; /* bits of enum openai_mended */

    struct openai_prompt prompts[OPENAI_MAX_PROMPTS]; /* OPENAI_COMPLETION */
    uint32_t n_prompts;
    bool echo;
    struct openai_text suffix; /* what follows the text that is wanted; bytes NULL: nothing does */
    bool fills;                /* there is one: the answer fills a gap */

    char ignored[512]; /* "user,metadata" */
};

/* What was not as it should be in the messages, beside what chat_render mends. */
enum openai_mended {
    OPENAI_MENDED_RESULTS = 1 << 16, /* a result names no call of the turn before it */
};
/* "tool_call_arguments,tool_call_id" for the header x-mended, of bits of both. */
enum { OPENAI_MENDED_TEXT = 96 };
const char *openai_mended_text(char buf[OPENAI_MENDED_TEXT], unsigned mended);

struct openai_rules {
    const struct conf *conf;        /* model names */
    const struct wire_hello *hello; /* vocabulary, context, defaults, stop ids */
    struct quota *quota;
};

/* Parses body and empties it. On failure *e is filled and *out needs no openai_in_done. */
int openai_in_read(struct openai_request *out, enum openai_kind kind, struct buf *body,
                   const struct openai_rules *rules, struct api_error *e);
/* The same of a body that was parsed: takes root and cost, also on failure. */
int openai_in_take(struct openai_request *out, enum openai_kind kind, json_t *root, uint64_t cost,
                   const struct openai_rules *rules, struct api_error *e);
/* The chat as a format prints it; what out points to lives as long as m and r. One rendering at a
 * time. */
int openai_render(struct chat_rendered *out, const struct openai_request *r,
                  const struct chat_format *f, struct jinja_mem *m, struct err *err);
/* Once the prompts are tokens: gives back the JSON and the messages, which may be megabytes,
 * for the time that the answer takes. Prompts stay where they are echoed. */
int openai_in_settle(struct openai_request *r, struct api_error *e);
void openai_in_done(struct openai_request *r); /* safe on a zeroed one */
/* This token may not be sampled, whatever logit_bias says. Of at most OPENAI_MAX_BANS. */
void openai_in_ban(struct openai_request *r, uint32_t token);

#endif
