/* replay: a rendered chat with the model's own replies in it, token for token.
 *
 * A client sends replies back as text: without their reasoning, with arguments spelled anew. And
 * the text, were it the same, may be cut into other tokens than were sampled. So where a turn of
 * the chat is a reply that is remembered, the turn's text gives way to the ids that were sampled:
 * prompt k + 1 then begins with prompt k and reply k, token for token.
 *
 * That is so only while everything before the turn is what the reply followed. A hash runs along
 * over what is sent (text with its trust, and ids), and a record names the hash of its prompt, so
 * each replay rests on those before it. A turn that fails any condition stays text:
 *   - the hash before it, with the record's tail, is the one that the record followed;
 *   - the turn goes on as the tail does; only a block of thinking without thoughts may be missing,
 *     which some templates print for the turn to come and not for the past;
 *   - it shows the recorded reasoning, if there was any: a template that leaves it out on purpose
 *     has its way; and it shows the message's content;
 *   - it is closed.
 * Whether a message means the record's content and calls is for the caller to say. Pure; any
 * thread. */
#ifndef TEXT_REPLAY_H
#define TEXT_REPLAY_H

#include "text/tokenizer.h"
#include "util/sip.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

/* Past this the beginning of an answer is none that a template opened. */
enum { REPLAY_MAX_TAIL = 1024 };

struct replay_record { /* a reply that is remembered; borrowed */
    struct sip_sum after; /* its prompt, as replay.after said then */
    const char *tail;     /* of that prompt, likewise: trusted text */
    size_t tail_size;
    const char *reasoning;
    size_t reasoning_size;
    const uint32_t *ids; /* as sampled, without the stop token */
    size_t n_ids;        /* 0: the turn stays text */
};

struct replay_turn { /* an assistant's message of the chat */
    const struct replay_record *record; /* NULL: not known, or it means something else */
    const char *content;
    size_t content_size;
};

struct replay { /* replay_done frees, also after a failure */
    struct text_part *parts; /* owned; of text in runs or as given, or the record's ids */
    size_t n_parts;
    struct text_run *runs; /* owned; their bytes are borrowed from the chat and the records */
    size_t n_runs;
    size_t n_replayed; /* turns */
    /* For the reply to come: what it follows, and the beginning of its turn. tail_size 0: its turn
     * is not one that the template opened. */
    struct sip_sum after;
    char *tail; /* owned */
    size_t tail_size;
};

/* runs: the chat as rendered; turns: its assistant messages in order, all of them; prompted: it
 * ends with the beginning of one more. key: a secret that lasts as long as the records. */
int replay_splice(struct replay *out, const struct text_run *runs, size_t n_runs,
                  const struct replay_turn *turns, size_t n_turns, bool prompted,
                  const struct sip_sum *key, struct err *err);
void replay_done(struct replay *r);
/* What replay_splice may allocate at most. */
uint64_t replay_memory(size_t n_runs, size_t n_turns);

#endif
