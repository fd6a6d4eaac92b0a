/* prompt: a string, strings, token ids or lists of token ids. */
#include "daemon/openai/openai_fields.h"

#include "daemon/openai/json_body.h"
#include "daemon/wire/wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int empty(struct api_error *e, const char *where)
{
    return api_error_field(e, "empty_array", where, "'%s' must not be empty.", where);
}

static int read_ids(struct openai_prompt *out, const json_t *list, const char *where,
                    uint32_t vocab, struct api_error *e)
{
    size_t n = json_array_size(list);
    int64_t id;

    if (n == 0)
        return empty(e, where);
    out->ids = calloc(n, sizeof *out->ids);
    if (!out->ids)
        return api_error_no_memory(e);
    out->n_ids = n;
    for (size_t i = 0; i < n; i++) {
        if (!json_body_integer(&id, json_array_get(list, i)) || id < 0 || id >= vocab)
            return api_error_field(e, "invalid_value", where,
                                   "'%s[%zu]' is not a token id below %" PRIu32 ".", where, i,
                                   vocab);
        out->ids[i] = (uint32_t)id;
    }
    return 0;
}

static int read_one(struct openai_prompt *out, const json_t *v, const char *where, uint32_t vocab,
                    struct api_error *e)
{
    if (json_is_array(v))
        return read_ids(out, v, where, vocab, e);
    if (!json_is_string(v))
        return api_error_field(e, "invalid_type", where,
                               "'%s' must be a string or an array of token ids, not %s.", where,
                               json_body_type(v));
    if (json_string_length(v) == 0)
        return api_error_field(e, "invalid_value", where, "'%s' must not be empty.", where);
    out->text = (struct openai_text){ json_string_value(v), json_string_length(v) };
    return 0;
}

/* An empty one leaves no gap. */
static int read_suffix(struct openai_request *r, struct api_error *e)
{
    const json_t *v = json_body_get(r->root, "suffix");

    if (!v)
        return 0;
    if (!json_is_string(v))
        return json_body_wants(e, "suffix", "a string", v);
    if (json_string_length(v) == 0)
        return 0;
    r->suffix = (struct openai_text){ json_string_value(v), json_string_length(v) };
    r->fills = true;
    return 0;
}

int openai_read_prompts(struct openai_request *r, const struct openai_rules *rules,
                        struct api_error *e)
{
    const json_t *v = json_body_get(r->root, "prompt");
    uint32_t vocab = rules->hello->vocab;
    char where[32];

    if (json_body_bool(&r->echo, r->root, "echo", e) < 0)
        return -1;
    if (r->echo && r->logprobs) /* those who ask for both add up the prompt's */
        return api_error_field(e, "unsupported_parameter", "echo",
                               "log probabilities of a prompt's tokens are not told: leave out "
                               "'echo' or 'logprobs'.");
    if (read_suffix(r, e) < 0)
        return -1;
    if (!v)
        return json_body_missing(e, "prompt");
    if (json_is_array(v) && json_array_size(v) == 0)
        return empty(e, "prompt");
    if (!json_is_array(v) || json_is_number(json_array_get(v, 0))) {
        r->n_prompts = 1;
        return read_one(&r->prompts[0], v, "prompt", vocab, e);
    }
    if (json_array_size(v) > OPENAI_MAX_PROMPTS)
        return api_error_field(e, "array_above_max_length", "prompt",
                               "'prompt' may hold at most %d prompts, not %zu.",
                               OPENAI_MAX_PROMPTS, json_array_size(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        snprintf(where, sizeof where, "prompt[%zu]", i);
        r->n_prompts++; /* first, so that what it holds is freed on failure */
        if (read_one(&r->prompts[i], json_array_get(v, i), where, vocab, e) < 0)
            return -1;
    }
    return 0;
}
