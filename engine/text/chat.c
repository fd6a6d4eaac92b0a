/* The text is put together from runs: literals of the template are trusted, what came with the
 * request is not, and the tokenizer finds control tokens in trusted bytes only. */
#include "text/chat.h"

#include "text/tokenizer.h"
#include "util/err.h"

#include <stdlib.h>
#include <string.h>

#define THINK_BEGIN "<think>"
#define THINK_END "</think>"

struct slice {
    const char *at;
    size_t size;
};

struct rendering {
    const struct tokenizer *t;
    struct text_run *runs; /* owned: [cap] */
    size_t n, cap;
};

static int put(struct rendering *r, struct slice text, bool trusted, struct err *err)
{
    if (text.size == 0)
        return 0;
    if (r->n == r->cap) {
        size_t cap = r->cap * 2 + 32;
        struct text_run *more = realloc(r->runs, cap * sizeof *more);
        if (!more)
            return err_set(err, ERR_NOMEM, "%zu stretches of a chat", cap);
        r->runs = more;
        r->cap = cap;
    }
    r->runs[r->n++] = (struct text_run){ .bytes = text.at, .size = text.size,
                                         .trusted = trusted };
    return 0;
}

static int put_markup(struct rendering *r, const char *text, struct err *err)
{
    return put(r, (struct slice){ text, strlen(text) }, true, err);
}

static int need_token(const struct rendering *r, const char *text, struct err *err)
{
    uint32_t id;

    if (tokenizer_find(r->t, text, &id))
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "the tokenizer has no added token '%s', which the chat "
                                         "format needs",
                   text);
}

static int need_think_tokens(const struct rendering *r, struct err *err)
{
    return need_token(r, THINK_BEGIN, err) < 0 ? -1 : need_token(r, THINK_END, err);
}

/* ---- cutting text, as the template's string methods do ---- */

static struct slice without_first_newlines(struct slice s)
{
    while (s.size && s.at[0] == '\n') {
        s.at++;
        s.size--;
    }
    return s;
}

static struct slice without_last_newlines(struct slice s)
{
    while (s.size && s.at[s.size - 1] == '\n')
        s.size--;
    return s;
}

/* What lies before the first mark, or all when there is none. */
static struct slice before_first(struct slice s, const char *mark)
{
    const char *found = s.size ? memmem(s.at, s.size, mark, strlen(mark)) : NULL;

    if (found)
        s.size = (size_t)(found - s.at);
    return s;
}

/* What lies behind the last mark, or all when there is none. */
static struct slice after_last(struct slice s, const char *mark)
{
    size_t size = strlen(mark);
    const char *found;

    while (s.size && (found = memmem(s.at, s.size, mark, size))) {
        s.size -= (size_t)(found + size - s.at);
        s.at = found + size;
    }
    return s;
}

static bool starts_with(struct slice s, const char *text)
{
    size_t size = strlen(text);

    return s.size >= size && memcmp(s.at, text, size) == 0;
}

static bool ends_with(struct slice s, const char *text)
{
    size_t size = strlen(text);

    return s.size >= size && memcmp(s.at + s.size - size, text, size) == 0;
}

static struct slice text_of(const struct chat_message *m)
{
    return (struct slice){ m->text, m->size };
}

/* ---- the template ---- */

/* The last user message that is a question and not the answer of a tool; the last message when
 * there is none. Reasoning is kept only behind it. */
static size_t last_query(const struct chat *chat)
{
    for (size_t i = chat->n_messages; i-- > 0;) {
        struct slice text = text_of(&chat->messages[i]);
        if (chat->messages[i].role == CHAT_USER &&
            !(starts_with(text, "<tool_response>") && ends_with(text, "</tool_response>")))
            return i;
    }
    return chat->n_messages - 1;
}

static int put_calls(struct rendering *r, const struct chat_message *m, bool after_text,
                     struct err *err)
{
    for (size_t i = 0; i < m->n_calls; i++) {
        const struct chat_call *c = &m->calls[i];
        const char *begin = "\n<tool_call>\n{\"name\": \"";
        if (put_markup(r, i > 0 || after_text ? begin : begin + 1, err) < 0 ||
            put(r, (struct slice){ c->name, c->name_size }, false, err) < 0 ||
            put_markup(r, "\", \"arguments\": ", err) < 0 ||
            put(r, (struct slice){ c->arguments, c->arguments_size }, false, err) < 0 ||
            put_markup(r, "}\n</tool_call>", err) < 0)
            return -1;
    }
    return 0;
}

/* Results that follow each other share one turn of the user. */
static int put_result(struct rendering *r, const struct chat *chat, size_t index, struct err *err)
{
    bool first = index == 0 || chat->messages[index - 1].role != CHAT_TOOL;

    if ((first && put_markup(r, "<|im_start|>user", err) < 0) ||
        put_markup(r, "\n<tool_response>\n", err) < 0 ||
        put(r, text_of(&chat->messages[index]), false, err) < 0)
        return -1;
    return put_markup(r, "\n</tool_response>", err);
}

static bool turn_goes_on(const struct chat *chat, size_t index)
{
    if (index + 1 == chat->n_messages)
        return chat->continue_final;
    return chat->messages[index].role == CHAT_TOOL &&
           chat->messages[index + 1].role == CHAT_TOOL;
}

static int put_assistant(struct rendering *r, const struct chat *chat, size_t index,
                         size_t query, struct err *err)
{
    const struct chat_message *m = &chat->messages[index];
    struct slice content = text_of(m), reasoning = { m->reasoning, m->reasoning_size };

    if (!m->reasoning) {
        struct slice before = before_first(content, THINK_END);
        reasoning = (struct slice){ 0 };
        if (before.size < content.size) {
            reasoning = without_first_newlines(
                after_last(without_last_newlines(before), THINK_BEGIN));
            content = without_first_newlines(after_last(content, THINK_END));
        }
    }

    bool last = index + 1 == chat->n_messages;
    if (index <= query || (!last && reasoning.size == 0)) {
        if (put_markup(r, "<|im_start|>assistant\n", err) < 0 || put(r, content, false, err) < 0)
            return -1;
        return put_calls(r, m, content.size > 0, err);
    }

    reasoning = without_first_newlines(without_last_newlines(reasoning));
    if (need_think_tokens(r, err) < 0 ||
        put_markup(r, "<|im_start|>assistant\n" THINK_BEGIN "\n", err) < 0 ||
        put(r, reasoning, false, err) < 0 ||
        put_markup(r, "\n" THINK_END "\n\n", err) < 0)
        return -1;
    if (put(r, without_first_newlines(content), false, err) < 0)
        return -1;
    return put_calls(r, m, content.size > 0, err);
}

static int put_message(struct rendering *r, const struct chat *chat, size_t index, size_t query,
                       struct err *err)
{
    const struct chat_message *m = &chat->messages[index];

    switch (m->role) {
    case CHAT_ASSISTANT:
        return put_assistant(r, chat, index, query, err);
    case CHAT_TOOL:
        return put_result(r, chat, index, err);
    case CHAT_SYSTEM:
        return put_markup(r, "<|im_start|>system\n", err) < 0 ? -1
                                                              : put(r, text_of(m), false, err);
    case CHAT_USER:
        return put_markup(r, "<|im_start|>user\n", err) < 0 ? -1
                                                            : put(r, text_of(m), false, err);
    }
    return err_set(err, ERR_INPUT, "messages[%zu]: role %d", index, (int)m->role);
}

static int put_chat(struct rendering *r, const struct chat *chat, struct err *err)
{
    if (chat->n_messages == 0)
        return err_set(err, ERR_INPUT, "messages: there are none");
    if (chat->continue_final && chat->add_generation_prompt)
        return err_set(err, ERR_INPUT, "a generation prompt and continuing the last message "
                                       "exclude each other");
    if (need_token(r, "<|im_start|>", err) < 0 || need_token(r, "<|im_end|>", err) < 0)
        return -1;

    size_t query = last_query(chat);
    for (size_t i = 0; i < chat->n_messages; i++) {
        if (put_message(r, chat, i, query, err) < 0 ||
            (!turn_goes_on(chat, i) && put_markup(r, "<|im_end|>\n", err) < 0))
            return -1;
    }
    if (!chat->add_generation_prompt)
        return 0;
    if (put_markup(r, "<|im_start|>assistant\n", err) < 0)
        return -1;
    if (chat->thinking != THINKING_OFF)
        return 0;
    if (need_think_tokens(r, err) < 0)
        return -1;
    return put_markup(r, THINK_BEGIN "\n\n" THINK_END "\n\n", err);
}

int chat_runs(struct chat_runs *out, const struct chat *chat, const struct tokenizer *t,
              struct err *err)
{
    struct rendering r = { .t = t };
    int rc = put_chat(&r, chat, err);

    *out = (struct chat_runs){ .run = r.runs, .n = r.n, .cap = r.cap };
    return rc;
}

void chat_runs_done(struct chat_runs *r)
{
    free(r->run);
    *r = (struct chat_runs){ 0 };
}

int chat_render(struct ids *out, const struct chat *chat, const struct tokenizer *t,
                size_t max_ids, struct err *err)
{
    struct chat_runs runs = { 0 };
    int rc = chat_runs(&runs, chat, t, err);

    if (rc == 0)
        rc = tokenizer_encode(t, runs.run, runs.n, max_ids, out, err);
    chat_runs_done(&runs);
    return rc;
}
