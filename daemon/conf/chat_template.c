#include "daemon/conf/chat_template.h"

#include "text/chat.h"
#include "util/err.h"

#include <stdio.h>
#include <string.h>

#define BUILTIN "builtin:"

static const char *builtin_of(const char *choice)
{
    size_t n = strlen(BUILTIN);

    return strncmp(choice, BUILTIN, n) == 0 ? choice + n : NULL;
}

/* Where no template says it. */
static const char *family_format(const char *family)
{
    return strncmp(family, "qwen4", 5) == 0 ? "qwen3.8" : "qwen3";
}

const char *chat_template_file(const char *choice)
{
    return choice[0] && !builtin_of(choice) ? choice : NULL;
}

int chat_template_read(struct template_files *out, const char *dir, const char *choice,
                       struct err *err)
{
    if (builtin_of(choice)) {
        *out = (struct template_files){ 0 };
        return 0;
    }
    return template_files_read(out, dir, chat_template_file(choice), err);
}

static int open_text(struct chat_format **out, const struct template_text *text,
                     const char *choice, const struct tokenizer *t, struct err *err)
{
    const struct chat_source source = { .template = text->template, .size = text->size,
                                        .bos_token = text->bos_token,
                                        .eos_token = text->eos_token };

    if (chat_format_open(out, &source, t, err) == 0) {
        /* A file that came empty or is a page of an error: every answer would be one to nothing. */
        if (chat_format_abilities(*out)->question)
            return 0;
        chat_format_close(*out);
        *out = NULL;
        err_set(err, ERR_FORMAT, "the chat template does not show what the user says");
    }
    return choice[0] ? err_within(err, "%.200s", choice) : -1;
}

int chat_template_open(struct chat_format **out, const struct template_files *files,
                       const char *choice, const struct tokenizer *t,
                       char name[CHAT_TEMPLATE_NAME], struct err *err)
{
    struct template_text text;
    int rc;

    if (builtin_of(choice)) {
        snprintf(name, CHAT_TEMPLATE_NAME, "%s", choice);
        return chat_format_builtin(out, builtin_of(choice), t, err);
    }
    if (template_files_look(&text, files, err) < 0)
        return -1;
    if (text.template) {
        snprintf(name, CHAT_TEMPLATE_NAME, "%s", choice[0] ? choice : "the checkpoint's template");
        rc = open_text(out, &text, choice, t, err);
    } else {
        snprintf(name, CHAT_TEMPLATE_NAME, BUILTIN "%s (the checkpoint has no chat template)",
                 family_format(text.family));
        rc = chat_format_builtin(out, family_format(text.family), t, err);
    }
    template_text_done(&text);
    return rc;
}
