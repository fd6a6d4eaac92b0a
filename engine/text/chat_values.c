/* Turns as a template sees them. */
#include "text/chat_turns.h"

static int set_if(struct jinja_mem *m, struct jinja_value *dict, const char *key,
                  const struct jinja_value *v)
{
    return v ? jinja_dict_set(m, dict, key, v) : 0;
}

static const struct jinja_value *literal(struct jinja_mem *m, const char *text)
{
    size_t size = 0;

    while (text[size])
        size++;
    return jinja_literal(m, text, size);
}

static const struct jinja_value *call_value(struct jinja_mem *m, const struct chat_turn_call *c)
{
    struct jinja_value *function = jinja_dict(m), *call = jinja_dict(m);

    if (!function || !call || jinja_dict_set(m, function, "name", c->name) < 0 ||
        jinja_dict_set(m, function, "arguments", c->arguments) < 0 ||
        set_if(m, call, "id", c->id) < 0 ||
        jinja_dict_set(m, call, "type", literal(m, "function")) < 0 ||
        jinja_dict_set(m, call, "function", function) < 0)
        return NULL;
    return call;
}

static const struct jinja_value *calls_value(struct jinja_mem *m, const struct chat_turn *t)
{
    struct jinja_value *list = jinja_list(m);

    for (size_t i = 0; list && i < t->n_calls; i++)
        if (jinja_list_add(m, list, call_value(m, &t->calls[i])) < 0)
            return NULL;
    return list;
}

static const struct jinja_value *turn_value(struct jinja_mem *m, const struct chat_turn *t)
{
    static const char *const roles[] = { "system", "user", "assistant", "tool" };
    struct jinja_value *dict = jinja_dict(m);

    if (!dict || jinja_dict_set(m, dict, "role", literal(m, roles[t->role])) < 0 ||
        jinja_dict_set(m, dict, "content", t->content) < 0 ||
        set_if(m, dict, "reasoning_content", t->reasoning) < 0 ||
        set_if(m, dict, "name", t->name) < 0 || set_if(m, dict, "tool_call_id", t->call_id) < 0)
        return NULL;
    if (t->n_calls && jinja_dict_set(m, dict, "tool_calls", calls_value(m, t)) < 0)
        return NULL;
    return dict;
}

const struct jinja_value *chat_turn_values(const struct chat_turns *turns, struct jinja_mem *m)
{
    struct jinja_value *list = jinja_list(m);

    for (size_t i = 0; list && i < turns->n; i++)
        if (jinja_list_add(m, list, turn_value(m, &turns->turn[i])) < 0)
            return NULL;
    return list;
}
