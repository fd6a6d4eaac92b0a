/* builtin:qwen3, as the template of Qwen3's hybrid models writes it: calls as JSON, reasoning only
 * behind the last question. */
#include "text/chat_turns.h"

#include "util/err.h"

#include <string.h>

#define THINK_BEGIN "<think>"
#define THINK_END "</think>"

static const char tools_before[] =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
static const char tools_behind[] =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n";

static int put_head(struct jinja_writer *w, const struct chat_turns *turns, struct err *err)
{
    const struct jinja_value *tools = turns->chat->tools;
    bool system = turns->turn[0].role == CHAT_SYSTEM;

    if (!tools) {
        if (system) {
            chat_put(w, "<|im_start|>system\n");
            chat_put_value(w, turns->turn[0].content);
            chat_put(w, "<|im_end|>\n");
        }
        return 0;
    }
    chat_put(w, "<|im_start|>system\n");
    if (system) {
        chat_put_value(w, turns->turn[0].content);
        chat_put(w, "\n\n");
    }
    chat_put(w, tools_before);
    for (size_t i = 0; i < tools->items->n; i++) {
        chat_put(w, "\n");
        if (chat_put_json(w, tools->items->item[i], err) < 0)
            return -1;
    }
    chat_put(w, tools_behind);
    return 0;
}

/* What lies before the first "</think>" and behind the last one; false without any. */
static bool split(struct jinja_writer *w, const struct jinja_value *s,
                  const struct jinja_value **reasoning, const struct jinja_value **content)
{
    const char *flat = jinja_str_flat(w->m, s), *found, *last = NULL, *begin;
    size_t mark = strlen(THINK_END);

    if (!flat) {
        w->full = true;
        return false;
    }
    const char *end = flat + s->s.size, *first = memmem(flat, s->s.size, THINK_END, mark);
    if (!first)
        return false;
    for (found = first; found; found = memmem(last, (size_t)(end - last), THINK_END, mark))
        last = found + mark;
    const struct jinja_value *before = jinja_str_part(w->m, s, 0, (size_t)(first - flat));
    before = chat_strip(w, before, false, true, "\n");
    size_t size = before ? before->s.size : 0, from = 0;
    while ((begin = memmem(flat + from, size - from, THINK_BEGIN, strlen(THINK_BEGIN))))
        from = (size_t)(begin - flat) + strlen(THINK_BEGIN);
    *reasoning = chat_strip(w, jinja_str_part(w->m, before, from, size), true, false, "\n");
    *content = chat_strip(w, jinja_str_part(w->m, s, (size_t)(last - flat), s->s.size), true,
                          false, "\n");
    return true;
}

static int put_calls(struct jinja_writer *w, const struct chat_turn *t, bool after_text,
                     struct err *err)
{
    for (size_t i = 0; i < t->n_calls; i++) {
        if (i > 0 || after_text)
            chat_put(w, "\n");
        chat_put(w, "<tool_call>\n{\"name\": \"");
        chat_put_value(w, t->calls[i].name);
        chat_put(w, "\", \"arguments\": ");
        if (chat_put_json(w, t->calls[i].arguments, err) < 0)
            return -1;
        chat_put(w, "}\n</tool_call>");
    }
    return 0;
}

static int put_assistant(struct jinja_writer *w, const struct chat_turns *turns, size_t index,
                         size_t query, struct err *err)
{
    const struct chat_turn *t = &turns->turn[index];
    const struct jinja_value *content = t->content, *reasoning = t->reasoning;

    if (!reasoning)
        split(w, t->content, &reasoning, &content);
    chat_put(w, "<|im_start|>assistant\n");
    if (index > query && (index + 1 == turns->n || (reasoning && reasoning->s.size))) {
        chat_put(w, THINK_BEGIN "\n");
        if (reasoning)
            chat_put_value(w, chat_strip(w, reasoning, true, true, "\n"));
        chat_put(w, "\n" THINK_END "\n\n");
        chat_put_value(w, chat_strip(w, content, true, false, "\n"));
    } else {
        chat_put_value(w, content);
    }
    if (w->full)
        return 0;
    if (put_calls(w, t, content->s.size > 0, err) < 0)
        return -1;
    chat_put(w, "<|im_end|>\n");
    return 0;
}

/* Results that follow each other share one turn of the user. */
static void put_result(struct jinja_writer *w, const struct chat_turns *turns, size_t i)
{
    if (i == 0 || turns->turn[i - 1].role != CHAT_TOOL)
        chat_put(w, "<|im_start|>user");
    chat_put(w, "\n<tool_response>\n");
    chat_put_value(w, turns->turn[i].content);
    chat_put(w, "\n</tool_response>");
    if (i + 1 == turns->n || turns->turn[i + 1].role != CHAT_TOOL)
        chat_put(w, "<|im_end|>\n");
}

static int put_turn(struct jinja_writer *w, const struct chat_turns *turns, size_t i,
                    size_t query, struct err *err)
{
    switch (turns->turn[i].role) {
    case CHAT_ASSISTANT:
        return put_assistant(w, turns, i, query, err);
    case CHAT_TOOL:
        put_result(w, turns, i);
        return 0;
    case CHAT_SYSTEM:
        if (i == 0)
            return 0;
        chat_put(w, "<|im_start|>system\n");
        break;
    case CHAT_USER:
        chat_put(w, "<|im_start|>user\n");
        break;
    }
    chat_put_value(w, turns->turn[i].content);
    chat_put(w, "<|im_end|>\n");
    return 0;
}

static int render(struct jinja_writer *w, const struct chat_turns *turns, struct err *err)
{
    size_t query = chat_last_query(turns, false, w);

    if (query == turns->n)
        query--;
    if (put_head(w, turns, err) < 0)
        return -1;
    for (size_t i = 0; i < turns->n && !w->full; i++)
        if (put_turn(w, turns, i, query, err) < 0)
            return -1;
    if (!turns->chat->add_generation_prompt)
        return 0;
    chat_put(w, "<|im_start|>assistant\n");
    if (turns->chat->thinking == THINKING_OFF)
        chat_put(w, THINK_BEGIN "\n\n" THINK_END "\n\n");
    return 0;
}

const struct chat_builtin chat_qwen3 = {
    .name = "qwen3",
    .can = { .style = REPLY_JSON, .question = true, .tools = true, .late_system = LATE_SHOWN,
             .reasoning = true, .splits_reasoning = true, .switches_thinking = true,
             .efforts = (1u << N_CHAT_EFFORTS) - 2 },
    .render = render,
};
