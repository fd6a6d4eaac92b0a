/* builtin:qwen3-coder, as the template of Qwen3-Coder writes it: tools and calls as XML, values in
 * Python's spelling, no reasoning. */
#include "text/chat_xml.h"

#include "util/err.h"

#include <string.h>

static const struct jinja_value *member(const struct jinja_value *v, const char *key)
{
    return v && v->type == JINJA_DICT ? jinja_dict_get(v, key) : NULL;
}

static int put_tag(struct jinja_writer *w, const char *tag, const struct jinja_value *v,
                   bool trimmed, struct err *err)
{
    const char *why = NULL;
    const struct jinja_value *text = jinja_to_str(w->m, v, &why);

    if (!text && why)
        return err_set(err, ERR_INPUT, "the conversation holds %s", why);
    chat_put(w, "\n<");
    chat_put(w, tag);
    chat_put(w, ">");
    chat_put_value(w, trimmed && text ? chat_strip(w, text, true, true, NULL) : text);
    chat_put(w, "</");
    chat_put(w, tag);
    chat_put(w, ">");
    return 0;
}

static bool among(const struct jinja_value *key, const char *const *names)
{
    for (; *names; names++)
        if (key->type == JINJA_STR && jinja_str_is(key, *names))
            return true;
    return false;
}

/* Whatever else a schema says, a tag each. */
static int put_others(struct jinja_writer *w, const struct jinja_value *dict,
                      const char *const *done, struct err *err)
{
    for (size_t i = 0; dict && dict->type == JINJA_DICT && i < dict->map->n; i++) {
        const struct jinja_value *key = dict->map->entry[i].key, *v = dict->map->entry[i].value;
        if (among(key, done))
            continue;
        chat_put(w, "\n<");
        chat_put_value(w, key);
        chat_put(w, ">");
        bool json = v->type == JINJA_DICT || v->type == JINJA_LIST;
        if ((json ? chat_put_json(w, v, err) : chat_put_text(w, v, err)) < 0)
            return -1;
        chat_put(w, "</");
        chat_put_value(w, key);
        chat_put(w, ">");
    }
    return 0;
}

static int put_parameter(struct jinja_writer *w, const struct jinja_entry *e, struct err *err)
{
    static const char *const done[] = { "name", "type", "description", NULL };
    const struct jinja_value *type = member(e->value, "type");
    const struct jinja_value *description = member(e->value, "description");

    chat_put(w, "\n<parameter>\n<name>");
    chat_put_value(w, e->key);
    chat_put(w, "</name>");
    if ((type && put_tag(w, "type", type, false, err) < 0) ||
        (description && put_tag(w, "description", description, true, err) < 0) ||
        put_others(w, e->value, done, err) < 0)
        return -1;
    chat_put(w, "\n</parameter>");
    return 0;
}

static int put_tool(struct jinja_writer *w, const struct jinja_value *tool, struct err *err)
{
    static const char *const done[] = { "type", "name", "description", "parameters", NULL };
    static const char *const done_parameters[] = { "type", "properties", NULL };

    if (member(tool, "function"))
        tool = member(tool, "function");
    const struct jinja_value *name = member(tool, "name");
    const struct jinja_value *description = member(tool, "description");
    const struct jinja_value *parameters = member(tool, "parameters");
    const struct jinja_value *properties = member(parameters, "properties");
    chat_put(w, "\n<function>\n<name>");
    if (name && chat_put_text(w, name, err) < 0)
        return -1;
    chat_put(w, "</name>");
    if (description && put_tag(w, "description", description, true, err) < 0)
        return -1;
    chat_put(w, "\n<parameters>");
    for (size_t i = 0; properties && properties->type == JINJA_DICT && i < properties->map->n; i++)
        if (put_parameter(w, &properties->map->entry[i], err) < 0)
            return -1;
    if (put_others(w, parameters, done_parameters, err) < 0)
        return -1;
    chat_put(w, "\n</parameters>");
    if (put_others(w, tool, done, err) < 0)
        return -1;
    chat_put(w, "\n</function>");
    return 0;
}

static int put_head(struct jinja_writer *w, const struct chat_turns *turns, struct err *err)
{
    const struct jinja_value *tools = turns->chat->tools;
    bool system = turns->turn[0].role == CHAT_SYSTEM;

    if (!system && !tools)
        return 0;
    chat_put(w, "<|im_start|>system\n");
    if (system)
        chat_put_value(w, turns->turn[0].content);
    else
        chat_put(w, "You are Qwen, a helpful AI assistant that can interact with a computer to "
                    "solve tasks.");
    if (tools)
        chat_put(w, "\n\n# Tools\n\nYou have access to the following functions:\n\n<tools>");
    for (size_t i = 0; tools && i < tools->items->n; i++)
        if (put_tool(w, tools->items->item[i], err) < 0)
            return -1;
    if (tools) {
        chat_put(w, "\n</tools>");
        chat_put(w, chat_xml_how);
    }
    chat_put(w, "<|im_end|>\n");
    return 0;
}

static int put_caller(struct jinja_writer *w, const struct chat_turn *t, struct err *err)
{
    const struct jinja_value *content = chat_strip(w, t->content, true, true, NULL);

    chat_put(w, "<|im_start|>assistant");
    if (content && content->s.size) {
        chat_put(w, "\n");
        chat_put_value(w, content);
        chat_put(w, "\n");
    }
    for (size_t i = 0; i < t->n_calls; i++) {
        chat_put(w, "\n");
        if (chat_put_xml_call(w, &t->calls[i], CHAT_XML_PYTHON, err) < 0)
            return -1;
    }
    chat_put(w, "<|im_end|>\n");
    return 0;
}

/* Results that follow each other share a turn; `first` is the first turn behind the system's. */
static void put_result(struct jinja_writer *w, const struct chat_turns *turns, size_t i,
                       size_t first)
{
    if (i > first && turns->turn[i - 1].role != CHAT_TOOL)
        chat_put(w, "<|im_start|>user\n");
    chat_put(w, "<tool_response>\n");
    chat_put_value(w, turns->turn[i].content);
    chat_put(w, "\n</tool_response>\n");
    if (i + 1 == turns->n || turns->turn[i + 1].role != CHAT_TOOL)
        chat_put(w, "<|im_end|>\n");
}

static int put_turn(struct jinja_writer *w, const struct chat_turns *turns, size_t i, size_t first,
                    struct err *err)
{
    static const char *const begin[] = { "<|im_start|>system\n", "<|im_start|>user\n",
                                         "<|im_start|>assistant\n", NULL };
    const struct chat_turn *t = &turns->turn[i];

    if (t->role == CHAT_TOOL) {
        put_result(w, turns, i, first);
        return 0;
    }
    if (t->role == CHAT_ASSISTANT && t->n_calls)
        return put_caller(w, t, err);
    chat_put(w, begin[t->role]);
    chat_put_value(w, t->content);
    chat_put(w, "<|im_end|>\n");
    return 0;
}

static int render(struct jinja_writer *w, const struct chat_turns *turns, struct err *err)
{
    size_t first = turns->turn[0].role == CHAT_SYSTEM;

    if (put_head(w, turns, err) < 0)
        return -1;
    for (size_t i = first; i < turns->n && !w->full; i++)
        if (put_turn(w, turns, i, first, err) < 0)
            return -1;
    if (turns->chat->add_generation_prompt)
        chat_put(w, "<|im_start|>assistant\n");
    return 0;
}

const struct chat_builtin chat_qwen3_coder = {
    .name = "qwen3-coder",
    .can = { .style = REPLY_XML, .question = true, .tools = true, .late_system = LATE_SHOWN,
             .efforts = (1u << N_CHAT_EFFORTS) - 2 },
    .render = render,
};
