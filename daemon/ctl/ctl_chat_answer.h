/* ctl_chat_answer: one question to the server and the answer as it comes.
 *
 * Builds the request, reads the stream, splits thoughts off and keeps everything for the
 * conversation. What the server refuses comes back with its code and its words. One thread. */
#ifndef DAEMON_CTL_CHAT_ANSWER_H
#define DAEMON_CTL_CHAT_ANSWER_H

#include "daemon/base/buf.h"
#include "daemon/ctl/ctl_chat_http.h"
#include "daemon/ctl/ctl_chat_text.h"
#include "util/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum chat_thinking { CHAT_THINK_DEFAULT, CHAT_THINK_ON, CHAT_THINK_OFF };

struct chat_question {
    const json_t *messages; /* borrowed */
    const char *model;
    enum chat_thinking thinking;
    /* The server knows no switch: " /think" or " /no_think" goes behind the question, which the
     * hybrid Qwen3 models were trained to obey. */
    bool soft_switch;
    uint32_t max_tokens; /* 0: what the context leaves */
    bool has_temperature, has_top_p, has_seed;
    float temperature, top_p;
    uint64_t seed;
};

enum chat_outcome {
    CHAT_ANSWERED,
    CHAT_STOPPED,   /* by the person */
    CHAT_REFUSED,   /* before the first word: status, code, message */
    CHAT_BROKEN,    /* an error came in the middle: code, message */
    CHAT_LOST,      /* the connection broke in the middle: message */
    CHAT_NO_SERVER, /* message */
};

struct chat_answer {
    enum chat_outcome outcome;
    struct buf content, thought; /* owned; UTF-8 */
    char finish[16];             /* "stop", "length"; empty while there is none */

    bool has_usage;
    uint32_t n_prompt, n_cached, n_generated;
    double first_s;              /* to the first word; 0: none came */
    double tokens_per_s;         /* 0: not known */

    long status;
    char code[64];
    char message[512];
    uint64_t n_prompt_tokens, n_ctx; /* of context_length_exceeded; 0: not said */
};

struct chat_progress {
    uint64_t total, done, left_ms;
};

struct chat_view {
    void *ctx;
    void (*part)(void *ctx, enum chat_part part, const char *text, size_t size);
    void (*progress)(void *ctx, const struct chat_progress *p); /* of reading the prompt */
    bool (*go_on)(void *ctx); /* about every 200 ms; false stops the answer */
};

/* Fills *out, which chat_answer_done frees; what went wrong stands there. */
void chat_answer_ask(struct chat_answer *out, struct chat_http *http,
                     const struct chat_question *q, const struct chat_view *view);
void chat_answer_done(struct chat_answer *a);
/* True when the server did not take chat_template_kwargs. */
bool chat_answer_no_switch(const struct chat_answer *a);
/* Fills status, code and message from an error body; any text will do. */
void chat_answer_read_error(struct chat_answer *a, const char *body, size_t size);

#endif
