/* A chat as token ids, in a format and memory made for it. */
#ifndef TESTS_CHAT_FIXTURE_H
#define TESTS_CHAT_FIXTURE_H

#include "text_data.h"

#include "text/chat.h"
#include "text/jinja.h"

/* 0, or -1 with *err; out is appended to. */
static inline int chat_ids(struct ids *out, const struct chat_format *f, const struct chat *chat,
                           const struct tokenizer *t, size_t max_ids, struct err *err)
{
    struct jinja_mem *m = jinja_mem_open(NULL);
    struct chat_rendered text;

    assert_non_null(m);
    int rc = chat_render(&text, f, chat, m, err);
    if (rc == 0)
        rc = tokenizer_encode(t, text.run, text.n, max_ids, out, err);
    jinja_mem_close(m);
    return rc;
}

static inline struct chat_format *open_builtin(const char *name, const struct tokenizer *t)
{
    struct chat_format *f = NULL;
    struct err err;

    if (chat_format_builtin(&f, name, t, &err) < 0)
        fail_msg("%s", err.text);
    return f;
}

/* NAME.jinja of tests/data/chat. */
static inline struct chat_format *open_template(const char *name, const struct tokenizer *t)
{
    struct chat_format *f = NULL;
    struct err err;
    char path[128];
    size_t size;

    snprintf(path, sizeof path, "tests/data/chat/%s.jinja", name);
    char *text = read_file(path, &size);
    const struct chat_source source = { .template = text, .size = size };
    if (chat_format_open(&f, &source, t, &err) < 0)
        fail_msg("%s: %s", name, err.text);
    free(text);
    return f;
}

#endif
