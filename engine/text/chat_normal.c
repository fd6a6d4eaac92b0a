/* Clients send what templates do not take: several system messages or late ones, reasoning inside
 * the text, arguments that are no JSON. Here it becomes what they were written for. */
#include "text/chat_turns.h"

#include "util/err.h"

#include <string.h>

#define THINK_BEGIN "<think>"
#define THINK_END "</think>"

/* Not a byte that a template strips, and not a text that anybody sends. */
const char chat_cut_mark[] = "\x01<cut\x02";

struct work {
    struct jinja_mem *m;
    const struct chat_abilities *can;
    const struct chat *chat;
    struct chat_turns *out;
    struct err *err;
};

static int no_memory(const struct work *w)
{
    return err_set(w->err, ERR_BUDGET, "a conversation of %zu messages takes more than the %llu "
                                       "bytes that rendering may take",
                   w->chat->n_messages, (unsigned long long)jinja_mem_limits(w->m)->memory);
}

static const struct jinja_value *text_or_none(struct jinja_mem *m, const char *text, size_t size)
{
    return text ? jinja_text(m, text, size) : NULL;
}

/* ---- one message ---- */

/* Arguments as an object. What is none is kept as text: a conversation must not become unusable
 * because a model once wrote bad JSON. */
static const struct jinja_value *arguments_of(struct work *w, const struct chat_call *c)
{
    struct err why;

    if (c->object)
        return c->object;
    const struct jinja_value *v = NULL;
    bool blank = true;
    for (size_t i = 0; blank && i < c->arguments_size; i++)
        blank = strchr(" \t\r\n", c->arguments[i]) != NULL && c->arguments[i];
    if (!blank)
        v = jinja_json(w->m, c->arguments, c->arguments_size, &why);
    if (v && v->type == JINJA_DICT)
        return v;
    struct jinja_value *dict = jinja_dict(w->m);
    if (!dict || blank || (v && v->type == JINJA_NONE))
        return dict;
    w->out->mended |= CHAT_MENDED_ARGUMENTS;
    const struct jinja_value *raw = jinja_text(w->m, c->arguments, c->arguments_size);
    return jinja_dict_set(w->m, dict, "_raw", raw) < 0 ? NULL : dict;
}

static int take_calls(struct work *w, struct chat_turn *t, const struct chat_message *m)
{
    struct chat_turn_call *calls = NULL;

    if (m->n_calls && !(calls = jinja_take(w->m, m->n_calls * sizeof *calls)))
        return no_memory(w);
    for (size_t i = 0; i < m->n_calls; i++) {
        const struct chat_call *c = &m->calls[i];
        calls[i] = (struct chat_turn_call){ .id = text_or_none(w->m, c->id, c->id_size),
                                            .name = jinja_text(w->m, c->name, c->name_size),
                                            .arguments = arguments_of(w, c) };
        if (!calls[i].name || !calls[i].arguments || (c->id && !calls[i].id))
            return no_memory(w);
    }
    t->calls = calls;
    t->n_calls = m->n_calls;
    return 0;
}

/* Reasoning that a client left in the text, for a format that looks for it only beside. */
static int split_reasoning(struct work *w, struct chat_turn *t, const struct chat_message *m)
{
    const char *text = m->text, *end = text + m->size;

    while (text < end && strchr(" \t\r\n", *text) && *text)
        text++;
    if ((size_t)(end - text) < strlen(THINK_BEGIN) ||
        memcmp(text, THINK_BEGIN, strlen(THINK_BEGIN)) != 0)
        return 0;
    text += strlen(THINK_BEGIN);
    const char *close = memmem(text, (size_t)(end - text), THINK_END, strlen(THINK_END));
    if (!close)
        return 0;
    const char *behind = close + strlen(THINK_END);
    while (text < close && *text == '\n')
        text++;
    while (close > text && close[-1] == '\n')
        close--;
    while (behind < end && *behind == '\n')
        behind++;
    t->reasoning = jinja_text(w->m, text, (size_t)(close - text));
    t->content = jinja_text(w->m, behind, (size_t)(end - behind));
    return t->reasoning && t->content ? 0 : no_memory(w);
}

static int take_message(struct work *w, struct chat_turn *t, const struct chat_message *m)
{
    *t = (struct chat_turn){ .role = m->role,
                             .content = jinja_text(w->m, m->text, m->size),
                             .reasoning = text_or_none(w->m, m->reasoning, m->reasoning_size),
                             .name = text_or_none(w->m, m->name, m->name_size),
                             .call_id = text_or_none(w->m, m->call_id, m->call_id_size) };
    if (!t->content || (m->reasoning && !t->reasoning) || (m->name && !t->name) ||
        (m->call_id && !t->call_id))
        return no_memory(w);
    if (m->role != CHAT_ASSISTANT)
        return 0;
    if (!m->reasoning && w->can->reasoning && !w->can->splits_reasoning &&
        split_reasoning(w, t, m) < 0)
        return -1;
    return take_calls(w, t, m);
}

/* ---- system messages ---- */

static const struct jinja_value *joined(struct jinja_mem *m, const struct jinja_value *a,
                                        const struct jinja_value *b)
{
    if (a->s.size == 0 || b->s.size == 0)
        return a->s.size == 0 ? b : a;
    return jinja_str_join(m, jinja_str_join(m, a, jinja_text(m, "\n\n", 2)), b);
}

/* Adds to the system message at the top, which is made where there is none. *top: whether turn 0
 * is one. */
static int add_to_top(struct work *w, const struct jinja_value *content, bool *top)
{
    struct chat_turns *out = w->out;

    if (!*top) {
        memmove(out->turn + 1, out->turn, out->n * sizeof *out->turn);
        out->turn[0] = (struct chat_turn){ .role = CHAT_SYSTEM, .content = content };
        out->n++;
        *top = true;
        return 0;
    }
    out->turn[0].content = joined(w->m, out->turn[0].content, content);
    return out->turn[0].content ? 0 : no_memory(w);
}

/* Turn i is a system message behind others. 1: it stays; 0: it went elsewhere. */
static int place_late(struct work *w, size_t i, const struct chat_turn *t, bool *top)
{
    if (w->chat->late_system == LATE_SYSTEM_REJECT)
        return err_set(w->err, ERR_INPUT,
                       "messages[%zu]: a system message behind others is not taken here", i);
    if (w->chat->late_system == LATE_SYSTEM_INLINE && w->can->late_system != LATE_LOST)
        return 1;
    if (w->chat->late_system == LATE_SYSTEM_INLINE)
        w->out->mended |= CHAT_MENDED_LATE_SYSTEM;
    return add_to_top(w, t->content, top);
}

static bool is_question(const struct chat *chat)
{
    for (size_t i = 0; i < chat->n_messages; i++)
        if (chat->messages[i].role == CHAT_USER)
            return true;
    return false;
}

static int take_messages(struct work *w)
{
    const struct chat *chat = w->chat;
    struct chat_turns *out = w->out;
    size_t last = chat->n_messages - 1;
    bool top = false, leading = true, lonely = w->can->needs_user && !is_question(chat);

    for (size_t i = 0; i < chat->n_messages; i++) {
        struct chat_turn t;
        int stays = 1;
        if (take_message(w, &t, &chat->messages[i]) < 0)
            return -1;
        if (t.role == CHAT_SYSTEM && lonely && i == last) {
            t.role = CHAT_USER;
            out->mended |= CHAT_MENDED_SYSTEM_TURN;
        }
        if (t.role != CHAT_SYSTEM)
            leading = false;
        else if (!leading)
            stays = place_late(w, i, &t, &top);
        else if (top && w->can->one_system)
            stays = add_to_top(w, t.content, &top);
        else
            top = true;
        if (stays < 0)
            return -1;
        if (stays)
            out->turn[out->n++] = t;
    }
    return 0;
}

/* ---- the whole ---- */

const char *chat_effort_name(enum chat_effort effort)
{
    static const char *const names[N_CHAT_EFFORTS] = {
        [EFFORT_MINIMAL] = "minimal", [EFFORT_LOW] = "low",     [EFFORT_MEDIUM] = "medium",
        [EFFORT_HIGH] = "high",       [EFFORT_XHIGH] = "xhigh", [EFFORT_MAX] = "max",
    };

    return names[effort];
}

/* The nearest of the words that the template takes, as the vendors' own services map them. */
const char *chat_effort_for(const struct chat_abilities *can, enum chat_effort effort)
{
    static const enum chat_effort instead[N_CHAT_EFFORTS][4] = {
        [EFFORT_MINIMAL] = { EFFORT_MINIMAL, EFFORT_LOW },
        [EFFORT_LOW] = { EFFORT_LOW, EFFORT_MINIMAL },
        [EFFORT_MEDIUM] = { EFFORT_MEDIUM },
        [EFFORT_HIGH] = { EFFORT_HIGH, EFFORT_XHIGH, EFFORT_MAX },
        [EFFORT_XHIGH] = { EFFORT_XHIGH, EFFORT_MAX, EFFORT_HIGH },
        [EFFORT_MAX] = { EFFORT_MAX, EFFORT_XHIGH, EFFORT_HIGH },
    };

    for (size_t i = 0; i < 4 && instead[effort][i] != EFFORT_DEFAULT; i++)
        if (can->efforts & 1u << instead[effort][i])
            return chat_effort_name(instead[effort][i]);
    return NULL;
}

static int leave_open(struct work *w)
{
    struct chat_turn *last = &w->out->turn[w->out->n - 1];

    if (last->role != CHAT_ASSISTANT)
        return err_set(w->err, ERR_INPUT, "only an assistant's message can be continued");
    last->content = jinja_str_join(w->m, last->content,
                                   jinja_str(w->m, chat_cut_mark, CHAT_CUT_MARK_SIZE, false));
    return last->content ? 0 : no_memory(w);
}

int chat_normalise(struct chat_turns *out, const struct chat_abilities *can,
                   const struct chat *chat, struct jinja_mem *m, struct err *err)
{
    struct work w = { .m = m, .can = can, .chat = chat, .out = out, .err = err };

    if (chat->n_messages == 0)
        return err_set(err, ERR_INPUT, "messages: there are none");
    if (chat->continue_final && chat->add_generation_prompt)
        return err_set(err, ERR_INPUT, "a generation prompt and continuing the last message "
                                       "exclude each other");
    if (chat->n_messages >= SIZE_MAX / sizeof *out->turn)
        return no_memory(&w);
    /* And one for a system message that is made. */
    *out = (struct chat_turns){ .turn = jinja_take(m, (chat->n_messages + 1) * sizeof *out->turn),
                                .chat = chat, .effort = chat_effort_for(can, chat->effort) };
    if (!out->turn)
        return no_memory(&w);
    if (take_messages(&w) < 0)
        return -1;
    return chat->continue_final ? leave_open(&w) : 0;
}
