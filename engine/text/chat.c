#include "text/chat_format.h"

#include "util/err.h"

#include <stdio.h>
#include <string.h>

/* ---- printing ---- */

static int set_if(struct jinja_mem *m, struct jinja_value *vars, const char *key,
                  const struct jinja_value *v)
{
    return v ? jinja_dict_set(m, vars, key, v) : 0;
}

static const struct jinja_value *literal(struct jinja_mem *m, const char *text)
{
    return text ? jinja_literal(m, text, strlen(text)) : NULL;
}

/* What is not said is left undefined, so that the template's own default holds. */
static const struct jinja_value *variables(const struct chat_format *f,
                                           const struct chat_turns *turns, struct jinja_mem *m)
{
    const struct chat *chat = turns->chat;
    struct jinja_value *vars = jinja_dict(m);

    if (!vars || jinja_dict_update(m, vars, chat->kwargs) < 0 ||
        jinja_dict_set(m, vars, "messages", chat_turn_values(turns, m)) < 0 ||
        set_if(m, vars, "tools", chat->tools) < 0 ||
        jinja_dict_set(m, vars, "add_generation_prompt",
                       jinja_bool(m, chat->add_generation_prompt)) < 0 ||
        set_if(m, vars, "bos_token", literal(m, f->bos_token)) < 0 ||
        set_if(m, vars, "eos_token", literal(m, f->eos_token)) < 0 ||
        set_if(m, vars, "reasoning_effort", literal(m, turns->effort)) < 0)
        return NULL;
    if (chat->thinking != THINKING_DEFAULT &&
        jinja_dict_set(m, vars, "enable_thinking",
                       jinja_bool(m, chat->thinking == THINKING_ON)) < 0)
        return NULL;
    if (chat->preserve_thinking != PRESERVE_DEFAULT &&
        jinja_dict_set(m, vars, "preserve_thinking",
                       jinja_bool(m, chat->preserve_thinking == PRESERVE_ON)) < 0)
        return NULL;
    return vars;
}

struct hook {
    const struct chat_format *f;
    char *caught;
};

/* In place of the complaint about a late system message, its turn. */
static const struct jinja_value *raised(void *ctx, struct jinja_mem *m, const char *text,
                                        const struct jinja_value *message)
{
    const struct hook *hook = ctx;
    const struct chat_format *f = hook->f;
    const struct jinja_value *content = NULL, *role = NULL;

    if (hook->caught && !hook->caught[0])
        snprintf(hook->caught, CHAT_LATE_TEXT, "%s", text);

    if (message && jinja_is_dict(message)) {
        content = jinja_dict_get(message, "content");
        role = jinja_dict_get(message, "role");
    }
    if (!f->late_text[0] || strncmp(text, f->late_text, sizeof f->late_text - 1) != 0 || !role ||
        !jinja_str_is(role, "system") || !content || content->type != JINJA_STR)
        return NULL;
    const struct jinja_value *turn = jinja_str_join(m, literal(m, "<|im_start|>system\n"),
                                                    jinja_str_strip(m, content, true, true, NULL));
    return jinja_str_join(m, turn, literal(m, "<|im_end|>\n"));
}

static int no_memory(const struct jinja_mem *m, struct err *err)
{
    return err_set(err, ERR_BUDGET, "rendering the conversation takes more than %llu bytes of "
                                    "memory",
                   (unsigned long long)jinja_mem_limits(m)->memory);
}

int chat_print(struct jinja_output *out, const struct chat_format *f,
               const struct chat_turns *turns, struct jinja_mem *m, char *caught,
               struct err *err)
{
    if (!f->builtin) {
        struct hook hook = { f, caught };
        const struct jinja_hooks hooks = { .ctx = &hook, .raised = raised };
        const struct jinja_value *vars = variables(f, turns, m);
        return vars ? jinja_render(out, f->template, m, vars, &hooks, err) : no_memory(m, err);
    }
    struct jinja_writer w = { .m = m, .cap = jinja_mem_limits(m)->output };
    if (f->builtin->render(&w, turns, err) < 0)
        return -1;
    const struct jinja_value *text = jinja_written(&w);
    if (!text)
        return no_memory(m, err);
    *out = (struct jinja_output){ .run = w.row ? w.row->seg : NULL, .n = w.row ? w.row->n : 0,
                                  .size = w.size };
    return 0;
}

/* ---- what is looked for in the text ---- */

const char *const chat_control[] = { "<|im_start|>", "<|im_end|>", "<think>", "</think>", NULL };

static bool writes(const struct jinja_output *text, const char *markup)
{
    for (size_t i = 0; i < text->n; i++)
        if (text->run[i].trusted &&
            memmem(text->run[i].bytes, text->run[i].size, markup, strlen(markup)))
            return true;
    return false;
}

static int check_tokens(const struct chat_format *f, const struct jinja_output *text,
                        struct err *err)
{
    for (size_t i = 0; f->lacking && chat_control[i]; i++)
        if (f->lacking & 1u << i && writes(text, chat_control[i]))
            return err_set(err, ERR_UNSUPPORTED,
                           "the tokenizer has no added token '%s', which the chat format needs",
                           chat_control[i]);
    return 0;
}

/* The last place of markup in trusted text, as a run and a byte of it; false when there is none
 * behind *from. */
struct spot {
    size_t run, at;
};

static bool last_of(struct spot *out, const struct jinja_output *text, const char *markup,
                    struct spot from)
{
    size_t size = strlen(markup);

    for (size_t i = text->n; i-- > from.run;) {
        const struct text_run *run = &text->run[i];
        size_t least = i == from.run ? from.at : 0;
        for (size_t at = run->size; run->trusted && at >= least + size; at--)
            if (memcmp(run->bytes + at - size, markup, size) == 0) {
                *out = (struct spot){ i, at };
                return true;
            }
    }
    return false;
}

static bool before(struct spot a, struct spot b)
{
    return a.run != b.run ? a.run < b.run : a.at < b.at;
}

/* Where the last turn leaves the model: inside its reasoning, behind it, or before either. */
static enum reply_start start_of(const struct jinja_output *text, bool has_text)
{
    struct spot turn = { 0 }, open, close;

    last_of(&turn, text, "<|im_start|>", turn);
    bool opened = last_of(&open, text, "<think>", turn);
    bool closed = last_of(&close, text, "</think>", turn);
    if (opened && (!closed || before(close, open)))
        return REPLY_REASONING;
    return closed || has_text ? REPLY_CONTENT : REPLY_SNIFF;
}

/* ---- a last message that is left open ---- */

/* Cuts where the mark begins: it is found by its place, or by its bytes where it was copied. */
static bool cut_at_mark(struct jinja_output *text)
{
    for (size_t i = text->n; i-- > 0;) {
        struct text_run *run = &text->run[i];
        const char *found = run->bytes == chat_cut_mark ? run->bytes : NULL;
        if (!found && !run->trusted)
            found = memmem(run->bytes, run->size, chat_cut_mark, CHAT_CUT_MARK_SIZE);
        if (!found) {
            text->size -= run->size;
            continue;
        }
        size_t left = (size_t)(found - run->bytes);
        text->size -= run->size - left;
        run->size = left;
        text->n = left ? i + 1 : i;
        return true;
    }
    return false;
}

static bool last_has_text(const struct chat *chat)
{
    return chat->continue_final && chat->messages[chat->n_messages - 1].size > 0;
}

int chat_render(struct chat_rendered *out, const struct chat_format *f, const struct chat *chat,
                struct jinja_mem *m, struct err *err)
{
    struct chat_turns turns;
    struct jinja_output text;

    if (chat_normalise(&turns, &f->can, chat, m, err) < 0 ||
        chat_print(&text, f, &turns, m, NULL, err) < 0 || check_tokens(f, &text, err) < 0)
        return -1;
    if (chat->continue_final && !cut_at_mark(&text))
        return err_set(err, ERR_INPUT,
                       "the chat template does not show the last message as it is, so it cannot be "
                       "continued");
    *out = (struct chat_rendered){ .run = text.run, .n = text.n, .size = text.size,
                                   .start = start_of(&text, last_has_text(chat)),
                                   .mended = turns.mended };
    return 0;
}
