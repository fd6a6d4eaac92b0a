/* fake_script: what <model_dir>/fake.json says; fake_engine.c explains its keys. */
#ifndef TESTS_FAKES_FAKE_SCRIPT_H
#define TESTS_FAKES_FAKE_SCRIPT_H

#include "colizig.h"
#include "text/tokenizer.h"

enum reply { REPLY_VARIED, REPLY_ECHO, REPLY_TEXT, REPLY_IDS };

struct fake_reply { /* its strings owned */
    char *on; /* NULL: whatever was asked */
    char *thinking;
    char *texts[CZ_MAX_CHOICES]; /* of each choice; the last one stands for those that follow */
    uint32_t n_texts;
    bool cut, once, used;
    int64_t fail_after; /* -1: never */
};

struct script {
    uint32_t load_ms, layer_ms;
    double token_ms, prefill_ms;
    uint32_t context, sequences, queue, vocab;
    uint32_t stop_ids[16], n_stop_ids;
    bool stops_given;
    struct cz_sampling defaults;
    enum reply reply;
    uint32_t n_tokens, cached;
    int64_t fail_after, crash_after; /* -1: never */
    char *open_error, *adjust_error, *text;                             /* owned */
    char *fail_on_text, *crash_on_text, *hang_on_text, *socket_on_text; /* owned */
    struct ids ids;                                                     /* owned */
    struct fake_reply *replies;                                         /* owned; [n_replies] */
    size_t n_replies;
};

int script_read(struct script *s, const char *dir, struct err *err);
void script_done(struct script *s);
/* Options stand where the script is silent. */
void script_settle_limits(struct script *s, const struct cz_options *o);
/* The first of its replies for this prompt; NULL: none. One that is said once is used up. */
struct fake_reply *script_reply(struct script *s, const struct tokenizer *t,
                                const uint32_t *prompt, uint32_t n_prompt);
/* All of a prompt as text; malloc'd; NULL without memory. */
char *script_text(const struct tokenizer *t, const uint32_t *ids, uint32_t n, size_t *size);

#endif
