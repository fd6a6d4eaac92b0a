#include "text/chat_format.h"

#include "util/err.h"
#include "util/fnv.h"

#include <stdlib.h>
#include <string.h>

static void find_lacking(struct chat_format *f, const struct tokenizer *t)
{
    uint32_t id;

    for (size_t i = 0; t && chat_control[i]; i++)
        if (!tokenizer_find(t, chat_control[i], &id))
            f->lacking |= 1u << i;
}

static char *copy_of(const char *text, bool *failed)
{
    char *copy = text ? strdup(text) : NULL;

    *failed |= text && !copy;
    return copy;
}

int chat_format_open(struct chat_format **out, const struct chat_source *source,
                     const struct tokenizer *t, struct err *err)
{
    struct chat_format *f = calloc(1, sizeof *f);
    bool failed = false;

    if (!f)
        return err_set(err, ERR_NOMEM, "chat template");
    f->bos_token = copy_of(source->bos_token, &failed);
    f->eos_token = copy_of(source->eos_token, &failed);
    if (failed) {
        err_set(err, ERR_NOMEM, "chat template");
        goto fail;
    }
    if (jinja_open(&f->template, source->template, source->size, err) < 0)
        goto fail;
    f->fingerprint = fnv(FNV_BEGIN, source->template, source->size) | 1;
    find_lacking(f, t);
    if (chat_probe(f, err) < 0)
        goto fail;
    *out = f;
    return 0;

fail:
    chat_format_close(f);
    return -1;
}

int chat_format_builtin(struct chat_format **out, const char *name, const struct tokenizer *t,
                        struct err *err)
{
    static const struct chat_builtin *const all[] = { &chat_qwen3, &chat_qwen3_coder,
                                                      &chat_qwen38 };
    struct chat_format *f;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i]->name, name) != 0)
            continue;
        if (!(f = calloc(1, sizeof *f)))
            return err_set(err, ERR_NOMEM, "chat format");
        f->builtin = all[i];
        f->can = all[i]->can;
        f->fingerprint = fnv(FNV_BEGIN, name, strlen(name)) | 1;
        find_lacking(f, t);
        *out = f;
        return 0;
    }
    return err_set(err, ERR_INPUT,
                   "'builtin:%.60s' is none of builtin:qwen3, builtin:qwen3-coder, "
                   "builtin:qwen3.8", name);
}

void chat_format_close(struct chat_format *f)
{
    if (!f)
        return;
    jinja_close(f->template);
    free(f->bos_token);
    free(f->eos_token);
    free(f);
}

uint64_t chat_format_memory(const struct chat_format *f)
{
    return sizeof *f + (f->template ? jinja_memory(f->template) : 0);
}

uint64_t chat_format_fingerprint(const struct chat_format *f)
{
    return f->fingerprint;
}

const struct chat_abilities *chat_format_abilities(const struct chat_format *f)
{
    return &f->can;
}

enum reply_style chat_format_style(const struct chat_format *f)
{
    return f->can.style;
}
