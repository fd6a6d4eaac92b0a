/* What the answer is to hold: choices, log probabilities, and how reasoning is told. */
#include "daemon/openai/openai_fields.h"

#include "daemon/openai/json_body.h"

#include <stdio.h>

static int read_choices(struct openai_request *r, struct api_error *e)
{
    int64_t n = 1, best_of = 1;

    if (json_body_int(&n, r->root, "n", 1, OPENAI_MAX_CHOICES, e) < 0 ||
        json_body_int(&best_of, r->root, "best_of", 1, INT64_MAX, e) < 0)
        return -1;
    if (best_of != 1)
        return api_error_field(e, "unsupported_value", "best_of",
                               "'best_of' above 1 is not supported; 'n' may be up to %d.",
                               OPENAI_MAX_CHOICES);
    r->n_choices = (uint32_t)n;
    return 0;
}

/* A number of completions, which says both. */
static int read_legacy_logprobs(struct openai_request *r, struct api_error *e)
{
    int64_t n = 0;

    if (!json_body_get(r->root, "logprobs"))
        return 0;
    if (json_body_int(&n, r->root, "logprobs", 0, OPENAI_MAX_TOP, e) < 0)
        return -1;
    r->logprobs = true;
    r->n_top = (uint32_t)n;
    return 0;
}

static int read_logprobs(struct openai_request *r, struct api_error *e)
{
    int64_t n = 0;

    if (r->kind == OPENAI_COMPLETION)
        return read_legacy_logprobs(r, e);
    if (json_body_bool(&r->logprobs, r->root, "logprobs", e) < 0 ||
        json_body_int(&n, r->root, "top_logprobs", 0, OPENAI_MAX_TOP, e) < 0)
        return -1;
    if (n > 0 && !r->logprobs)
        return api_error_field(e, "invalid_value", "top_logprobs",
                               "'top_logprobs' is only allowed with 'logprobs'.");
    r->n_top = (uint32_t)n;
    return 0;
}

/* ---- reasoning ---- */

static int read_format(struct openai_request *r, struct api_error *e)
{
    static const char *const formats[] = { "auto", "deepseek", "none" };
    const json_t *v = json_body_get(r->root, "reasoning_format");
    bool include = true, separate = true;

    if (json_body_bool(&include, r->root, "include_reasoning", e) < 0 ||
        json_body_bool(&separate, r->root, "separate_reasoning", e) < 0)
        return -1;
    r->hide_reasoning = !include;
    r->keep_tags = !separate;
    if (!v)
        return 0;
    if (!json_is_string(v))
        return json_body_wants(e, "reasoning_format", "a string", v);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (json_body_is(v, formats[i])) {
            r->keep_tags |= i == 2;
            return 0;
        }
    return api_error_field(e, "invalid_value", "reasoning_format",
                           "'reasoning_format' must be auto, deepseek or none.");
}

static int read_budget_of(struct openai_request *r, const char *object, const char *key,
                          struct api_error *e)
{
    const json_t *from = object ? json_body_get(r->root, object) : r->root;
    int64_t n = r->thinking_budget;

    if (!json_is_object(from)) /* whoever reads the object says so */
        return 0;
    if (json_body_int(&n, from, key, 0, INT64_MAX, e) < 0) {
        if (object)
            snprintf(e->param, sizeof e->param, "%s.%s", object, key);
        return -1;
    }
    r->thinking_budget = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    return 0;
}

/* Weakest first: what is said more explicitly wins. */
static int read_budget(struct openai_request *r, struct api_error *e)
{
    static const char *const names[][2] = { { "reasoning", "max_tokens" },
                                            { "thinking", "budget_tokens" },
                                            { NULL, "thinking_budget" },
                                            { NULL, "max_reasoning_tokens" },
                                            { "chat_template_kwargs", "thinking_budget" } };

    r->thinking_budget = UINT32_MAX;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (read_budget_of(r, names[i][0], names[i][1], e) < 0)
            return -1;
    return 0;
}

int openai_read_answer(struct openai_request *r, struct api_error *e)
{
    if (read_choices(r, e) < 0 || read_logprobs(r, e) < 0)
        return -1;
    if (r->kind == OPENAI_COMPLETION) {
        r->thinking_budget = UINT32_MAX;
        return 0;
    }
    return read_format(r, e) < 0 ? -1 : read_budget(r, e);
}
