/* seq: a sequence is its tokens and how many of them the model has seen.
 *
 * Prefill, decode, forced tokens and starting over after preemption are one thing: rows not yet
 * seen. The choices of a request are one sequence, cut back to its prompt after each. Lives from
 * cz_submit to its last event. Engine thread. */
#ifndef RUN_SEQ_H
#define RUN_SEQ_H

#include "colizig.h"
#include "run/thinking.h"
#include "run/waiting.h"

#include <stdbool.h>
#include <stdint.h>

struct seq_state;
struct tray;

struct seq {
    uint64_t id, client;
    struct turn turn; /* waiting's own, while it waits */

    uint32_t *tokens; /* owned; prompt, then what was generated; [max_tokens] */
    uint32_t n_tokens, n_prompt, max_tokens;
    uint32_t n_seen;     /* tokens whose keys and values are in the cache */
    uint32_t n_counted;  /* prompt tokens in the statistics: each once, however often it starts over */
    uint32_t n_cached;   /* prompt tokens that it found in the prefix cache when it began */
    uint32_t n_told;     /* tokens that the caller knows, the prompt among them */
    uint32_t min_generated;
    struct cz_sampling sampling;
    uint32_t stop_ids[CZ_MAX_STOP_IDS], n_stop_ids;
    struct cz_bias *bias; /* owned */
    uint32_t n_bias;
    void (*take_logits)(void *ctx, uint32_t position, const float *logits);
    void *logits_ctx;
    uint32_t logits_from;
    bool logprobs;
    uint32_t n_top;

    uint32_t n_choices, choice;
    uint64_t seed; /* of the request; sampling has that of the choice */
    struct thinking thinking;
    bool next;     /* the caller has enough of this choice */
    bool ended;    /* nothing is added to this choice any more; it is to be told */
    enum cz_finish finish;
    uint32_t n_unsent;   /* generated, but not said: a stop token */
    uint32_t sampled_at; /* where the last sampled token stands; forced ones follow, if any */

    struct seq_state *state; /* borrowed from the scheduler's set while running */
    bool uncached;           /* nothing is looked for in the prefix cache, nothing left there */
    bool kept;               /* its prompt is in the prefix cache */
    uint32_t parts_at;       /* tokens after which it goes another way than an earlier one did, of
                                which a state is to be kept; 0: nowhere */
    uint64_t admitted;       /* counts admissions: the highest came last */
    struct tray *tray;       /* the step it has rows in, or NULL */
    uint32_t tray_index;
    bool cancelled; /* while it has rows in a step, which must end first */

    /* What the step in progress made of it. */
    bool picked;
    uint32_t token;
    struct cz_logprobs picked_logprobs; /* of the token at sampled_at */
    struct err fault; /* kind ERR_NONE: none */

    uint64_t submitted_ns, admitted_ns, first_token_ns; /* the last one of this choice */
    uint64_t choice_ns; /* when the choice before this one ended */
};

/* Checks r against vocabulary and context, and copies it. */
int seq_open(struct seq **out, const struct cz_request *r, uint32_t vocab, uint32_t context,
             struct err *err);
void seq_close(struct seq *s); /* NULL is fine */

static inline uint32_t seq_unseen(const struct seq *s)
{
    return s->n_tokens - s->n_seen;
}

static inline uint32_t seq_generated(const struct seq *s)
{
    return s->n_tokens - s->n_prompt;
}

/* What the step picked becomes part of the choice, with what is forced behind it, or ends it. */
void seq_take(struct seq *s);
void seq_end_choice(struct seq *s); /* as a stop token would, where the caller has heard of it */
/* Its next token that the caller may hear of; false: there is none now. Those that are forced
 * before anything was sampled wait until the prompt was seen. */
bool seq_tell(struct seq *s, struct cz_event *token);
/* All of a choice that ended was told. */
static inline bool seq_is_told(const struct seq *s)
{
    return s->ended && s->n_told == s->n_tokens;
}
/* Cuts it back to its prompt for the next choice. False: that was the last one. */
bool seq_next_choice(struct seq *s);

void seq_usage(struct cz_usage *out, const struct seq *s, uint64_t now_ns);

#endif
