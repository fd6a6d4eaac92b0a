/* fake_seq: a request of the scripted engine, and what it says next.
 *
 * What is forced when a reply thinks follows the engine's own rules (run/thinking.h); only the
 * tokens that a model would sample come from the script. */
#ifndef TESTS_FAKES_FAKE_SEQ_H
#define TESTS_FAKES_FAKE_SEQ_H

#include "colizig.h"
#include "run/thinking.h"
#include "tests/fakes/fake_script.h"
#include "text/tokenizer.h"

struct seq {
    struct seq *next;
    struct cz_request request; /* prompt, stop_ids and bias owned; forced lists are thinking's */
    uint64_t turn; /* among those that wait: lower ones first, then older ones */
    bool running, will_fail, will_crash, will_hang, will_connect;
    int64_t fail_after;
    uint64_t prompt_hash, hash;
    uint64_t submitted_ns, started_ns, prefilled_ns, due_ns, told_ns, choice_ns;
    bool prefilled;

    const struct fake_reply *reply; /* borrowed from the script; NULL: its old keys decide */
    struct ids text;                /* owned; what reply says in this choice */
    uint32_t choice;
    bool enough; /* cz_next */
    uint32_t n_generated, n_sampled, n_words;
    size_t at; /* in what is said */
    struct thinking thinking;
    struct thinking_words words; /* being said */
    uint32_t word, n_said;
    struct ids pending; /* ids of the varied word under way */
    size_t pending_at;
};

int seq_open(struct seq **out, const struct cz_request *r, uint32_t vocab, struct err *err);
void seq_free(struct seq *s);
/* The first of them, or the next. False: without memory. */
bool seq_begin_choice(struct seq *s, const struct script *script, const struct tokenizer *t,
                      uint32_t choice);

enum said { SAID_TOKEN, SAID_STOP, SAID_LENGTH };
/* Its next token into *out, or how the choice ends. most: tokens that it may have. */
enum said seq_say(struct seq *s, const struct script *script, const struct tokenizer *t,
                  uint32_t most, struct cz_event *out);

#endif
