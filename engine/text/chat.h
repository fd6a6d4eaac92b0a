/* chat: messages to the text of a prompt, in the form that a checkpoint's template gives them.
 *
 * A format is the template that came with the checkpoint, or one of a few renderers built in for
 * checkpoints that bring none. What it can do is found out once, when it is opened, by rendering
 * small conversations, never by its name. Messages are brought into the shape that it can take;
 * then it prints them. Markup of the format is trusted, text of the request never is, whatever it
 * spells: the tokenizer finds control tokens in trusted bytes only.
 *
 * A format is immutable: any thread may render, each with memory of its own. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include "text/reply.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct jinja_mem;
struct jinja_value;
struct text_run;
struct tokenizer;

/* ---- conversations ---- */

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL };

/* A call that an assistant made in an earlier turn. Texts are borrowed and valid UTF-8. */
struct chat_call {
    const char *name;
    size_t name_size;
    const char *arguments; /* JSON as the client sent it; no object: shown as {"_raw": ...} */
    size_t arguments_size;
    const struct jinja_value *object; /* the arguments, when they came as an object; else NULL */
    const char *id;                   /* NULL: none was sent */
    size_t id_size;
};

struct chat_message {
    enum chat_role role;
    const char *text; /* valid UTF-8, may hold NUL; borrowed */
    size_t size;
    /* Of an assistant, when the client sent it apart; NULL: it did not. */
    const char *reasoning;
    size_t reasoning_size;
    const struct chat_call *calls; /* of an assistant; borrowed */
    size_t n_calls;
    const char *call_id; /* of CHAT_TOOL, what it answers; NULL: none was sent */
    size_t call_id_size;
    const char *name; /* who speaks; NULL: nobody said */
    size_t name_size;
};

/* How hard to think; "none" is THINKING_OFF. */
enum chat_effort {
    EFFORT_DEFAULT, /* the template's own */
    EFFORT_MINIMAL,
    EFFORT_LOW,
    EFFORT_MEDIUM,
    EFFORT_HIGH,
    EFFORT_XHIGH,
    EFFORT_MAX,
    N_CHAT_EFFORTS,
};
const char *chat_effort_name(enum chat_effort effort); /* NULL for EFFORT_DEFAULT */

/* What becomes of a system message behind others. */
enum chat_late_system {
    LATE_SYSTEM_INLINE, /* a turn in its place */
    LATE_SYSTEM_MERGE,  /* goes to the one at the top */
    LATE_SYSTEM_REJECT,
};

struct chat {
    const struct chat_message *messages;
    size_t n_messages;
    const struct jinja_value *tools;  /* a list, in the memory of the rendering; NULL: none */
    const struct jinja_value *kwargs; /* a dict of further variables, likewise; NULL: none */
    enum { THINKING_DEFAULT, THINKING_ON, THINKING_OFF } thinking;
    enum { PRESERVE_DEFAULT, PRESERVE_ON, PRESERVE_OFF } preserve_thinking;
    enum chat_effort effort;
    enum chat_late_system late_system;
    bool add_generation_prompt;
    bool continue_final; /* the last message, an assistant's, is left open */
};

/* ---- formats ---- */

struct chat_format;

/* A template's text, borrowed during the call, and the texts of its tokens, NULL where there are
 * none. t: who is to read the markup; NULL: that is not checked. ERR_FORMAT or ERR_UNSUPPORTED with the line when it is no template that we run. */
struct chat_source {
    const char *template;
    size_t size;
    const char *bos_token, *eos_token;
};
int chat_format_open(struct chat_format **out, const struct chat_source *source,
                     const struct tokenizer *t, struct err *err);
/* One that is built in, by its name: "qwen3", "qwen3-coder", "qwen3.8". */
int chat_format_builtin(struct chat_format **out, const char *name, const struct tokenizer *t,
                        struct err *err);
void chat_format_close(struct chat_format *f); /* NULL is fine */
uint64_t chat_format_memory(const struct chat_format *f);
/* Of its text, never 0: two formats of one fingerprint print the same. */
uint64_t chat_format_fingerprint(const struct chat_format *f);

/* What rendering small conversations showed. */
struct chat_abilities {
    enum reply_style style; /* how it writes calls; REPLY_NO_TOOLS: it shows none */
    bool question;          /* shows what the user says */
    bool tools;             /* shows those that are offered */
    bool one_system;        /* cannot take two system messages at the top */
    enum { LATE_SHOWN, LATE_RAISED, LATE_LOST } late_system;
    bool needs_user;         /* raises when there is no question */
    bool reasoning;          /* shows reasoning that came apart, behind the last question at least */
    bool keeps_reasoning;    /* and before it */
    bool splits_reasoning;   /* finds "<think>...</think>" in the text by itself */
    bool switches_thinking;  /* enable_thinking makes a difference */
    bool knows_effort;       /* so does reasoning_effort */
    unsigned efforts;        /* which it takes: bits 1 << enum chat_effort */
};
const struct chat_abilities *chat_format_abilities(const struct chat_format *f);
enum reply_style chat_format_style(const struct chat_format *f);

/* ---- rendering ---- */

/* What was not as it should be, and was mended so that the conversation can go on. */
enum chat_mended {
    CHAT_MENDED_ARGUMENTS = 1,   /* arguments of a call that are no JSON object */
    CHAT_MENDED_SYSTEM_TURN = 2, /* a system message at the end became the question */
    CHAT_MENDED_LATE_SYSTEM = 4, /* one behind others was moved to the top */
};

struct chat_rendered {
    const struct text_run *run; /* [n], in the rendering's memory; bytes are the format's, the
                                   chat's or that memory's */
    size_t n;
    uint64_t size;         /* bytes in all */
    enum reply_start start; /* where it leaves the model */
    unsigned mended;       /* bits of enum chat_mended */
};

/* ERR_INPUT when the template refuses the conversation, with its own words; ERR_BUDGET at a limit
 * of m; ERR_UNSUPPORTED when the tokenizer lacks a control token that the format writes. */
int chat_render(struct chat_rendered *out, const struct chat_format *f, const struct chat *chat,
                struct jinja_mem *m, struct err *err);

#endif
