#include "run/seq.h"

#include "util/clock.h"
#include "util/err.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int check_sampling(const struct cz_sampling *s, struct err *err)
{
    if (!(s->temperature >= 0.0f) || !isfinite(s->temperature))
        return err_set(err, ERR_INPUT, "temperature must be 0 or more");
    if (!(s->top_p >= 0.0f && s->top_p <= 1.0f))
        return err_set(err, ERR_INPUT, "top_p must lie in 0..1");
    if (!(s->min_p >= 0.0f && s->min_p <= 1.0f))
        return err_set(err, ERR_INPUT, "min_p must lie in 0..1");
    if (!(s->repetition_penalty > 0.0f) || !isfinite(s->repetition_penalty))
        return err_set(err, ERR_INPUT, "repetition_penalty must be above 0");
    if (!isfinite(s->presence_penalty) || !isfinite(s->frequency_penalty))
        return err_set(err, ERR_INPUT, "penalties must be finite");
    return 0;
}

static int check(const struct cz_request *r, uint32_t vocab, uint32_t context, struct err *err)
{
    if (r->n_prompt == 0)
        return err_set(err, ERR_INPUT, "the prompt is empty");
    if (r->n_prompt >= context)
        return err_set(err, ERR_TOO_LONG,
                       "a prompt of %" PRIu32 " tokens leaves no room in a context of %" PRIu32,
                       r->n_prompt, context);
    if (r->n_stop_ids > CZ_MAX_STOP_IDS || r->n_bias > CZ_MAX_BIAS)
        return err_set(err, ERR_INPUT, "more than %d stop ids or %d biases", CZ_MAX_STOP_IDS,
                       CZ_MAX_BIAS);
    if (r->n_choices > 1 || r->logprobs || r->thinking.inside || r->thinking.may_open || r->n_forced)
        return err_set(err, ERR_UNSUPPORTED, "several choices, logprobs, and rules for thinking");
    for (uint32_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] >= vocab)
            return err_set(err, ERR_INPUT, "token %" PRIu32 " is outside the vocabulary of %" PRIu32,
                           r->prompt[i], vocab);
    for (uint32_t i = 0; i < r->n_bias; i++)
        if (r->bias[i].token >= vocab || isnan(r->bias[i].value))
            return err_set(err, ERR_INPUT, "logit_bias: token %" PRIu32 " of a vocabulary of %" PRIu32,
                           r->bias[i].token, vocab);
    return check_sampling(&r->sampling, err);
}

int seq_open(struct seq **out, const struct cz_request *r, uint32_t vocab, uint32_t context,
             struct err *err)
{
    struct seq *s;

    if (check(r, vocab, context, err) < 0)
        return -1;
    s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "a request");
    s->id = r->id;
    s->client = r->client;
    s->n_prompt = s->n_tokens = r->n_prompt;
    s->max_tokens = context;
    if (r->max_tokens > 0 && r->max_tokens < context - r->n_prompt)
        s->max_tokens = r->n_prompt + r->max_tokens;
    s->min_generated = r->min_tokens;
    s->sampling = r->sampling;
    s->n_stop_ids = r->n_stop_ids;
    if (r->n_stop_ids)
        memcpy(s->stop_ids, r->stop_ids, r->n_stop_ids * sizeof *s->stop_ids);
    s->n_bias = r->n_bias;
    s->take_logits = r->take_logits;
    s->logits_ctx = r->logits_ctx;
    s->logits_from = r->logits_from;
    s->submitted_ns = clock_ns();

    s->tokens = malloc(s->max_tokens * sizeof *s->tokens);
    s->bias = r->n_bias ? malloc(r->n_bias * sizeof *s->bias) : NULL;
    if (!s->tokens || (r->n_bias && !s->bias)) {
        seq_close(s);
        return err_set(err, ERR_NOMEM, "a request of %" PRIu32 " tokens", r->n_prompt);
    }
    memcpy(s->tokens, r->prompt, r->n_prompt * sizeof *s->tokens);
    if (r->n_bias)
        memcpy(s->bias, r->bias, r->n_bias * sizeof *s->bias);
    *out = s;
    return 0;
}

void seq_close(struct seq *s)
{
    if (!s)
        return;
    free(s->bias);
    free(s->tokens);
    free(s);
}

void seq_usage(struct cz_usage *out, const struct seq *s, uint64_t now)
{
    uint64_t admitted = s->admitted_ns ? s->admitted_ns : now;
    uint64_t first = s->first_token_ns ? s->first_token_ns : now;

    *out = (struct cz_usage){
        .n_prompt = s->n_prompt,
        .n_generated = seq_generated(s),
        .queue_ns = admitted - s->submitted_ns,
        .prefill_ns = first - admitted,
        .decode_ns = now - first,
    };
}
