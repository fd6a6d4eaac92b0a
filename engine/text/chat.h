/* chat: messages to token ids.
 *
 * ChatML as the Qwen3 templates write it: markup becomes special tokens, text from the
 * request never does, whatever it spells. Any thread. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct ids;
struct text_run;
struct tokenizer;

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL };

/* A call that an assistant made in an earlier turn. */
struct chat_call {
    const char *name; /* valid UTF-8; borrowed, as are the arguments */
    size_t name_size;
    const char *arguments; /* JSON as the client sent it */
    size_t arguments_size;
};

struct chat_message {
    enum chat_role role;
    const char *text; /* valid UTF-8, may hold NUL; borrowed */
    size_t size;
    /* Of an assistant, when the client sent it apart. NULL: the text is searched for
     * "</think>" instead. Reasoning before the last question is left out of the prompt. */
    const char *reasoning;
    size_t reasoning_size;
    const struct chat_call *calls; /* of an assistant; borrowed */
    size_t n_calls;
};

struct chat {
    const struct chat_message *messages;
    size_t n_messages;
    enum { THINKING_DEFAULT, THINKING_ON, THINKING_OFF } thinking;
    bool add_generation_prompt;
    bool continue_final; /* the last message is left open */
};

/* The chat as text: markup, which is trusted, and text of the request, which is not. Borrows both
 * from the chat and literals. */
struct chat_runs {
    struct text_run *run; /* owned: [n] */
    size_t n, cap;
};
/* A tokenizer without the control tokens that the chat needs is ERR_UNSUPPORTED by their name.
 * chat_runs_done frees, also after a failure. */
int chat_runs(struct chat_runs *out, const struct chat *chat, const struct tokenizer *t,
              struct err *err);
void chat_runs_done(struct chat_runs *r);

/* The ids of that text. Appends to out; ERR_TOO_LONG once out->n would pass max_ids (0: no
 * bound). */
int chat_render(struct ids *out, const struct chat *chat, const struct tokenizer *t,
                size_t max_ids, struct err *err);

#endif
