/* openai_out: replies, stream chunks and usage in the OpenAI shape.
 *
 * Writes JSON by itself, on one line, so that a chunk is one SSE event. Everything goes
 * into a buf, whose `failed` tells at the end. Worker's thread. */
#ifndef DAEMON_OPENAI_OUT_H
#define DAEMON_OPENAI_OUT_H

#include "daemon/openai/openai_in.h"
#include "daemon/openai/openai_logprobs.h"

#include <stdint.h>

struct openai_usage {
    struct cz_usage engine; /* all choices */
    uint64_t n_reasoning;   /* of the generated tokens */
};

/* What is the same in every chunk of one reply. */
struct openai_reply {
    enum openai_kind kind;
    char id[48];       /* "chatcmpl-..." */
    int64_t created;   /* Unix seconds */
    const char *model; /* borrowed: the served name */
    uint64_t fingerprint;
    bool include_usage, service_tier;
    bool legacy_call; /* function_call in place of tool_calls */
    bool logprobs;    /* were asked for: a list, if an empty one */
    const struct openai_usage *running; /* borrowed: timings of every delta; NULL: none */
};

/* One choice of a reply that is sent at once. Zero it and open it; its bytes are paid for. */
struct openai_choice {
    struct buf text, reasoning;
    struct buf calls;  /* JSON: the entries of tool_calls, or function_call */
    uint32_t n_calls;
    struct openai_logprobs logprobs;
    const char *finish; /* "stop", "length", "tool_calls", "function_call" */
};

struct openai_progress {
    uint32_t total, cached, processed;
    uint64_t time_ms;
};

enum { OPENAI_CALL_ID = 5 + 24 + 1 };

/* n characters of 0-9A-Za-z from the kernel's random numbers, and the end. */
void openai_out_random(char *out, size_t n);
void openai_out_call_id(char out[OPENAI_CALL_ID]); /* "call_..." */

/* ---- stream: openai_chunks.c ---- */

void openai_out_role(struct buf *to, const struct openai_reply *r, uint32_t index);
/* Text of a completion, content of a chat. Takes what logprobs holds; NULL: none. */
void openai_out_delta(struct buf *to, const struct openai_reply *r, uint32_t index,
                      const char *text, size_t size, struct openai_logprobs *logprobs);
void openai_out_reasoning(struct buf *to, const struct openai_reply *r, uint32_t index,
                          const char *text, size_t size);
/* A call begins, with its name; then pieces of its arguments. */
void openai_out_call(struct buf *to, const struct openai_reply *r, uint32_t index, uint32_t call,
                     const char *id, const char *name, size_t size);
void openai_out_arguments(struct buf *to, const struct openai_reply *r, uint32_t index,
                          uint32_t call, const char *text, size_t size);
void openai_out_noop(struct buf *to, const struct openai_reply *r, uint32_t index,
                     const struct openai_progress *p); /* p may be NULL */
void openai_out_finish(struct buf *to, const struct openai_reply *r, uint32_t index,
                       const char *reason, struct openai_logprobs *logprobs,
                       const struct openai_usage *usage); /* timings; or NULL */
void openai_out_usage(struct buf *to, const struct openai_reply *r, const struct openai_usage *u);
void openai_out_done(struct buf *to);
void openai_out_error(struct buf *to, const struct api_error *e); /* and [DONE] */

/* ---- all at once: openai_out.c ---- */

void openai_choice_open(struct openai_choice *c, enum openai_kind kind, struct quota *quota);
void openai_choice_done(struct openai_choice *c);
/* As openai_out_call and openai_out_arguments, and the call's end. */
void openai_choice_call(struct openai_choice *c, const struct openai_reply *r, const char *id,
                        const char *name, size_t size);
void openai_choice_arguments(struct openai_choice *c, const char *text, size_t size);
void openai_choice_call_end(struct openai_choice *c, const struct openai_reply *r);
bool openai_choice_failed(const struct openai_choice *c); /* its bytes were not paid for */
void openai_out_reply(struct buf *to, const struct openai_reply *r,
                      const struct openai_choice *choices, uint32_t n,
                      const struct openai_usage *usage);

#endif
