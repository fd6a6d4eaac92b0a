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
    if (r->n_choices > CZ_MAX_CHOICES || r->n_top > CZ_MAX_TOP)
        return err_set(err, ERR_INPUT, "%" PRIu32 " choices and %" PRIu32 " logprobs: at most %d and "
                       "%d", r->n_choices, r->n_top, CZ_MAX_CHOICES, CZ_MAX_TOP);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] >= vocab)
            return err_set(err, ERR_INPUT, "token %" PRIu32 " is outside the vocabulary of %" PRIu32,
                           r->prompt[i], vocab);
    for (uint32_t i = 0; i < r->n_bias; i++)
        if (r->bias[i].token >= vocab || isnan(r->bias[i].value))
            return err_set(err, ERR_INPUT, "logit_bias: token %" PRIu32 " of a vocabulary of %" PRIu32,
                           r->bias[i].token, vocab);
    if (thinking_check(r, vocab, err) < 0)
        return -1;
    return check_sampling(&r->sampling, err);
}

/* ---- what a choice becomes ---- */

static void end(struct seq *s, enum cz_finish why)
{
    s->ended = true;
    s->finish = why;
}

static void append(struct seq *s, const uint32_t *ids, uint32_t n)
{
    uint32_t room = s->max_tokens - s->n_tokens;

    if (n > room)
        n = room;
    if (n > 0)
        memcpy(s->tokens + s->n_tokens, ids, n * sizeof *ids);
    s->n_tokens += n;
    if (s->n_tokens == s->max_tokens)
        end(s, CZ_FINISH_LENGTH);
}

static void append_words(struct seq *s, const struct thinking_words *words)
{
    append(s, words->ids[0], words->n[0]);
    append(s, words->ids[1], words->n[1]);
}

static void begin_choice(struct seq *s)
{
    struct thinking_words words;

    s->next = s->ended = false;
    s->n_unsent = 0;
    s->sampled_at = UINT32_MAX;
    s->n_tokens = s->n_told = s->n_prompt;
    s->sampling.seed = cz_choice_seed(s->seed, s->choice);
    thinking_begin(&s->thinking, &words);
    append_words(s, &words);
}

static bool is_stop(const struct seq *s, uint32_t token)
{
    for (uint32_t i = 0; i < s->n_stop_ids; i++)
        if (s->stop_ids[i] == token)
            return true;
    return false;
}

void seq_take(struct seq *s)
{
    struct thinking_words words;
    bool stop = is_stop(s, s->token);

    thinking_take(&s->thinking, s->token, stop, &words);
    if (!words.instead && stop) {
        s->n_unsent = 1;
        end(s, CZ_FINISH_STOP);
        return;
    }
    if (!words.instead) {
        s->sampled_at = s->n_tokens;
        append(s, &s->token, 1);
    }
    append_words(s, &words);
}

void seq_end_choice(struct seq *s)
{
    s->n_tokens = s->n_told;
    end(s, CZ_FINISH_STOP);
}

bool seq_tell(struct seq *s, struct cz_event *token)
{
    bool begun = s->n_seen >= s->n_prompt || s->sampled_at != UINT32_MAX || s->ended;

    if (s->n_told == s->n_tokens || !begun)
        return false;
    bool sampled = s->n_told == s->sampled_at;
    *token = (struct cz_event){ .id = s->id, .type = CZ_EVENT_TOKEN, .choice = s->choice,
                                .token = s->tokens[s->n_told], .forced = !sampled,
                                .has_logprobs = sampled && s->logprobs };
    if (token->has_logprobs)
        token->logprobs = s->picked_logprobs;
    if (!s->first_token_ns)
        s->first_token_ns = clock_ns();
    s->n_told++;
    return true;
}

bool seq_next_choice(struct seq *s)
{
    if (s->choice + 1 == s->n_choices)
        return false;
    s->choice++;
    s->choice_ns = clock_ns();
    s->first_token_ns = 0;
    begin_choice(s);
    return true;
}

/* ---- the whole of it ---- */

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
    s->n_prompt = r->n_prompt;
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
    s->logprobs = r->logprobs;
    s->n_top = r->n_top;
    s->n_choices = r->n_choices ? r->n_choices : 1;
    s->uncached = r->uncached;
    s->seed = r->sampling.seed;
    s->submitted_ns = clock_ns();

    s->tokens = malloc(s->max_tokens * sizeof *s->tokens);
    s->bias = r->n_bias ? malloc(r->n_bias * sizeof *s->bias) : NULL;
    if (!s->tokens || (r->n_bias && !s->bias)) {
        seq_close(s);
        return err_set(err, ERR_NOMEM, "a request of %" PRIu32 " tokens", r->n_prompt);
    }
    if (thinking_open(&s->thinking, r, err) < 0) {
        seq_close(s);
        return -1;
    }
    memcpy(s->tokens, r->prompt, r->n_prompt * sizeof *s->tokens);
    if (r->n_bias)
        memcpy(s->bias, r->bias, r->n_bias * sizeof *s->bias);
    begin_choice(s);
    *out = s;
    return 0;
}

void seq_close(struct seq *s)
{
    if (!s)
        return;
    thinking_close(&s->thinking);
    free(s->bias);
    free(s->tokens);
    free(s);
}

void seq_usage(struct cz_usage *out, const struct seq *s, uint64_t now)
{
    uint64_t admitted = s->admitted_ns ? s->admitted_ns : now;
    uint64_t first = s->first_token_ns ? s->first_token_ns : now;

    *out = (struct cz_usage){ .n_generated = s->n_told - s->n_prompt + s->n_unsent };
    if (s->choice > 0) { /* what came before is the first one's */
        out->decode_ns = now - s->choice_ns;
        return;
    }
    out->n_prompt = s->n_prompt;
    out->n_cached = s->n_cached;
    out->queue_ns = admitted - s->submitted_ns;
    out->prefill_ns = first - admitted;
    out->decode_ns = now - first;
}
