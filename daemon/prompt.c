#include "daemon/prompt.h"

static size_t most_ids(uint32_t context)
{
    return context ? (size_t)context * 4 + 1024 : (size_t)1 << 22;
}

static const char *param_of(const struct openai_request *r)
{
    return r->kind == OPENAI_CHAT ? "messages" : "prompt";
}

static int encode(struct ids *out, const struct openai_request *r, uint32_t index,
                  const struct tokenizer *t, size_t most, struct err *err)
{
    if (r->kind == OPENAI_CHAT)
        return chat_render(out, &r->chat, t, most, err);
    const struct openai_prompt *p = &r->prompts[index];
    /* A raw prompt may spell control tokens: that is what the endpoint is for. */
    struct text_run run = { p->text.bytes, p->text.size, true };
    if (p->text.bytes)
        return tokenizer_encode(t, &run, 1, most, out, err);
    if (p->n_ids > most)
        return err_set(err, ERR_TOO_LONG, "%zu token ids", p->n_ids);
    for (size_t i = 0; i < p->n_ids; i++)
        if (ids_put(out, p->ids[i], err) < 0)
            return -1;
    return 0;
}

int prompt_tokens(struct ids *out, const struct openai_request *r, uint32_t index,
                  const struct tokenizer *t, uint32_t context, bool must_fit,
                  struct api_error *e)
{
    size_t most = most_ids(context), before = out->n;
    struct err err = { 0 };

    if (encode(out, r, index, t, most, &err) < 0) {
        if (err.kind == ERR_TOO_LONG)
            return api_error_too_long(e, most + 1, true, context ? context : (uint32_t)most,
                                      param_of(r));
        if (err.kind == ERR_INPUT || err.kind == ERR_UNSUPPORTED)
            return api_error_field(e, "chat_template_error", param_of(r), "%s", err.text);
        return api_error_set(e, 500, "internal_error", NULL, "The prompt could not be tokenized.");
    }
    size_t n = out->n - before;
    if (n == 0)
        return api_error_field(e, "invalid_value", param_of(r), "'%s' gives no token at all.",
                               param_of(r));
    if (must_fit && context && n >= context)
        return api_error_too_long(e, n, false, context, param_of(r));
    return 0;
}
