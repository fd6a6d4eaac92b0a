/* chat_format: an opened format from inside. For the chat*.c files only. */
#ifndef TEXT_CHAT_FORMAT_H
#define TEXT_CHAT_FORMAT_H

#include "text/chat_turns.h"

enum { CHAT_LATE_TEXT = 160 };

struct chat_format {
    const struct chat_builtin *builtin; /* or NULL, and then: */
    struct jinja_template *template;    /* owned */
    char *bos_token, *eos_token;        /* owned; NULL where there are none */
    struct chat_abilities can;
    /* What the template raises about a late system message; "" when it does not. */
    char late_text[CHAT_LATE_TEXT];
    uint64_t fingerprint;
    unsigned lacking; /* control tokens that the tokenizer does not have: bits of chat_control */
};

extern const char *const chat_control[]; /* up to NULL */

/* Turns to text, as they are. caught: [CHAT_LATE_TEXT] what the template raised first, or NULL. */
int chat_print(struct jinja_output *out, const struct chat_format *f,
               const struct chat_turns *turns, struct jinja_mem *m, char *caught,
               struct err *err);

/* Fills in f->can and late_text. */
int chat_probe(struct chat_format *f, struct err *err);

#endif
