/* chat_turns: a conversation in the shape that a format takes. For the chat*.c files only. */
#ifndef TEXT_CHAT_TURNS_H
#define TEXT_CHAT_TURNS_H

#include "text/chat.h"
#include "text/jinja_value.h"

struct chat_turn_call {
    const struct jinja_value *id;        /* NULL: none */
    const struct jinja_value *name;      /* text */
    const struct jinja_value *arguments; /* a dict */
};

/* Text and reasoning are strings, name and call_id NULL where there are none. */
struct chat_turn {
    enum chat_role role;
    const struct jinja_value *content, *reasoning, *name, *call_id;
    const struct chat_turn_call *calls;
    size_t n_calls;
};

struct chat_turns {
    struct chat_turn *turn; /* [n] */
    size_t n;
    unsigned mended;
    /* The chat's settings, as the format spells them. */
    const struct chat *chat;
    const char *effort; /* NULL: not said */
};

/* Where an open last message is cut: this stands behind its text, in one piece or copied. */
extern const char chat_cut_mark[];
enum { CHAT_CUT_MARK_SIZE = 6 };

int chat_normalise(struct chat_turns *out, const struct chat_abilities *can,
                   const struct chat *chat, struct jinja_mem *m, struct err *err);

/* The effort that the format takes for the one asked for; NULL: the template's own. */
const char *chat_effort_for(const struct chat_abilities *can, enum chat_effort effort);

/* As the template sees them: a list of dicts. NULL without memory. */
const struct jinja_value *chat_turn_values(const struct chat_turns *turns, struct jinja_mem *m);

/* ---- renderers that are built in ---- */

struct chat_builtin {
    const char *name;
    struct chat_abilities can;
    int (*render)(struct jinja_writer *w, const struct chat_turns *turns, struct err *err);
};
extern const struct chat_builtin chat_qwen3, chat_qwen3_coder, chat_qwen38;

/* What they share. Markup is trusted; m is w->m. */
void chat_put(struct jinja_writer *w, const char *markup);
void chat_put_value(struct jinja_writer *w, const struct jinja_value *text); /* NULL: w is full */
/* str(v) and json.dumps(v). */
int chat_put_text(struct jinja_writer *w, const struct jinja_value *v, struct err *err);
int chat_put_json(struct jinja_writer *w, const struct jinja_value *v, struct err *err);
const struct jinja_value *chat_strip(struct jinja_writer *w, const struct jinja_value *s,
                                     bool left, bool right, const char *chars); /* NULL: blanks */
/* The last message of the user that is a question and not a tool's result; none: n. */
size_t chat_last_query(const struct chat_turns *turns, bool trimmed, struct jinja_writer *w);

#endif
