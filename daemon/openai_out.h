/* openai_out: replies, stream chunks and usage in the OpenAI shape.
 *
 * Writes JSON by itself, on one line, so that a chunk is one SSE event. Everything goes
 * into a buf, whose `failed` tells at the end. Worker's thread. */
#ifndef DAEMON_OPENAI_OUT_H
#define DAEMON_OPENAI_OUT_H

#include "daemon/openai_in.h"

#include <stdint.h>

/* What is the same in every chunk of one reply. */
struct openai_reply {
    enum openai_kind kind;
    char id[48];       /* "chatcmpl-..." */
    int64_t created;   /* Unix seconds */
    const char *model; /* borrowed: the served name */
    uint64_t fingerprint;
    bool include_usage, service_tier;
};

struct openai_choice {
    struct buf text;
    const char *finish; /* "stop" or "length" */
};

struct openai_progress {
    uint32_t total, cached, processed;
    uint64_t time_ms;
};

/* n characters of 0-9A-Za-z from the kernel's random numbers, and the end. */
void openai_out_random(char *out, size_t n);

/* Stream. */
void openai_out_role(struct buf *to, const struct openai_reply *r);
void openai_out_delta(struct buf *to, const struct openai_reply *r, uint32_t index,
                      const char *text, size_t size);
void openai_out_noop(struct buf *to, const struct openai_reply *r, uint32_t index,
                     const struct openai_progress *p); /* p may be NULL */
void openai_out_finish(struct buf *to, const struct openai_reply *r, uint32_t index,
                       const char *reason, const struct cz_usage *usage); /* timings; or NULL */
void openai_out_usage(struct buf *to, const struct openai_reply *r, const struct cz_usage *usage);
void openai_out_done(struct buf *to);
void openai_out_error(struct buf *to, const struct api_error *e); /* and [DONE] */

/* All at once. */
void openai_out_reply(struct buf *to, const struct openai_reply *r,
                      const struct openai_choice *choices, uint32_t n,
                      const struct cz_usage *usage);

#endif
