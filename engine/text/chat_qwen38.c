/* builtin:qwen3.8, as the template of Qwen3.8 writes it: an effort sentence, tools as JSON, calls as
 * XML, reasoning of every turn. */
#include "text/chat_xml.h"

#include "util/err.h"

#include <string.h>

static const char xhigh[] =
    "Reasoning effort is set to xhigh. Please think carefully through the task, validate key "
    "assumptions, consider plausible alternatives, and prioritize correctness, consistency, and "
    "clarity in the final answer.";
static const char low[] =
    "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the "
    "conclusion without unnecessary elaboration.";

static const char *effort_sentence(const struct chat_turns *turns)
{
    if (turns->chat->thinking == THINKING_OFF)
        return "";
    if (!turns->effort || strcmp(turns->effort, "xhigh") == 0)
        return xhigh;
    return strcmp(turns->effort, "low") == 0 ? low : "";
}

static int put_tools(struct jinja_writer *w, const struct jinja_value *tools, struct err *err)
{
    chat_put(w, "# Tools\n\nYou have access to the following functions:\n\n<tools>");
    for (size_t i = 0; i < tools->items->n; i++) {
        chat_put(w, "\n");
        if (chat_put_json(w, tools->items->item[i], err) < 0)
            return -1;
    }
    chat_put(w, "\n</tools>");
    chat_put(w, chat_xml_how);
    return 0;
}

/* Effort, tools, and last the client's own system text. */
static int put_head(struct jinja_writer *w, const struct chat_turns *turns, struct err *err)
{
    const struct jinja_value *tools = turns->chat->tools;
    const struct jinja_value *content = NULL;
    const char *effort = effort_sentence(turns);

    if (turns->turn[0].role == CHAT_SYSTEM)
        content = chat_strip(w, turns->turn[0].content, true, true, NULL);
    if (content && content->s.size == 0)
        content = NULL;
    if (!tools && !content && !*effort)
        return 0;
    chat_put(w, "<|im_start|>system\n");
    chat_put(w, effort);
    if (*effort && (tools || content))
        chat_put(w, "\n\n");
    if (tools && put_tools(w, tools, err) < 0)
        return -1;
    if (tools && content)
        chat_put(w, "\n\n");
    if (content)
        chat_put_value(w, content);
    chat_put(w, "<|im_end|>\n");
    return 0;
}

static int put_assistant(struct jinja_writer *w, const struct chat_turns *turns, size_t i,
                         size_t query, struct err *err)
{
    const struct chat_turn *t = &turns->turn[i];
    const struct jinja_value *content = chat_strip(w, t->content, true, true, NULL);

    chat_put(w, "<|im_start|>assistant\n");
    if (turns->chat->preserve_thinking != PRESERVE_OFF || i > query) {
        chat_put(w, "<think>\n");
        if (t->reasoning)
            chat_put_value(w, chat_strip(w, t->reasoning, true, true, NULL));
        chat_put(w, "\n</think>\n\n");
    }
    chat_put_value(w, content);
    for (size_t k = 0; k < t->n_calls; k++) {
        if (k > 0 || (content && content->s.size))
            chat_put(w, k > 0 ? "\n" : "\n\n");
        if (chat_put_xml_call(w, &t->calls[k], CHAT_XML_JSON, err) < 0)
            return -1;
    }
    chat_put(w, "<|im_end|>\n");
    return 0;
}

static void put_result(struct jinja_writer *w, const struct chat_turns *turns, size_t i)
{
    if (i > 0 && turns->turn[i - 1].role != CHAT_TOOL)
        chat_put(w, "<|im_start|>user");
    chat_put(w, "\n<tool_response>\n");
    chat_put_value(w, chat_strip(w, turns->turn[i].content, true, true, NULL));
    chat_put(w, "\n</tool_response>");
    if (i + 1 == turns->n || turns->turn[i + 1].role != CHAT_TOOL)
        chat_put(w, "<|im_end|>\n");
}

static int put_turn(struct jinja_writer *w, const struct chat_turns *turns, size_t i,
                    size_t query, struct err *err)
{
    const struct chat_turn *t = &turns->turn[i];

    switch (t->role) {
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
    chat_put_value(w, chat_strip(w, t->content, true, true, NULL));
    chat_put(w, "<|im_end|>\n");
    return 0;
}

static int render(struct jinja_writer *w, const struct chat_turns *turns, struct err *err)
{
    size_t query = chat_last_query(turns, true, w);

    if (query == turns->n)
        return err_set(err, ERR_INPUT, "No user query found in messages.");
    if (put_head(w, turns, err) < 0)
        return -1;
    for (size_t i = 0; i < turns->n && !w->full; i++)
        if (put_turn(w, turns, i, query, err) < 0)
            return -1;
    if (!turns->chat->add_generation_prompt)
        return 0;
    chat_put(w, "<|im_start|>assistant\n");
    chat_put(w, turns->chat->thinking == THINKING_OFF ? "<think>\n\n</think>\n\n" : "<think>\n");
    return 0;
}

const struct chat_builtin chat_qwen38 = {
    .name = "qwen3.8",
    .can = { .style = REPLY_XML, .question = true, .tools = true, .one_system = true,
             .late_system = LATE_SHOWN, .needs_user = true, .reasoning = true, .keeps_reasoning = true,
             .switches_thinking = true, .knows_effort = true,
             .efforts = 1u << EFFORT_LOW | 1u << EFFORT_MEDIUM | 1u << EFFORT_XHIGH },
    .render = render,
};
