#include "tests/fakes/fake_seq.h"

#include "util/err.h"

#include <stdlib.h>
#include <string.h>

/* ---- coming and going ---- */

static void *copy(const void *from, size_t size)
{
    void *to = malloc(size ? size : 1);

    if (to && size)
        memcpy(to, from, size);
    return to;
}

int seq_open(struct seq **out, const struct cz_request *r, uint32_t vocab, struct err *err)
{
    struct seq *s;

    if (r->n_choices > CZ_MAX_CHOICES || r->n_top > CZ_MAX_TOP)
        return err_set(err, ERR_INPUT, "%u choices and %u logprobs", r->n_choices, r->n_top);
    if (thinking_check(r, vocab, err) < 0)
        return -1;
    s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "fake sequence");
    s->request = *r;
    s->request.prompt = copy(r->prompt, r->n_prompt * sizeof *r->prompt);
    s->request.stop_ids = copy(r->stop_ids, r->n_stop_ids * sizeof *r->stop_ids);
    s->request.bias = copy(r->bias, r->n_bias * sizeof *r->bias);
    if (!s->request.prompt || !s->request.stop_ids || !s->request.bias ||
        thinking_open(&s->thinking, r, err) < 0) {
        seq_free(s);
        return err_set(err, ERR_NOMEM, "fake sequence");
    }
    s->prompt_hash = 14695981039346656037u;
    for (uint32_t i = 0; i < r->n_prompt; i++)
        s->prompt_hash = (s->prompt_hash ^ r->prompt[i]) * 1099511628211u;
    *out = s;
    return 0;
}

void seq_free(struct seq *s)
{
    free((void *)(uintptr_t)s->request.prompt);
    free((void *)(uintptr_t)s->request.stop_ids);
    free((void *)(uintptr_t)s->request.bias);
    thinking_close(&s->thinking);
    ids_done(&s->text);
    ids_done(&s->pending);
    free(s);
}

/* ---- a choice ---- */

/* NULL: nothing was written down. */
static const struct ids *written(const struct seq *s, const struct script *script)
{
    const struct ids *list = s->reply ? &s->text : &script->ids;
    bool old = script->reply == REPLY_TEXT || script->reply == REPLY_IDS;

    return list->n > 0 && (s->reply || old) ? list : NULL;
}

/* Behind a closing that was forced, a model would not go on with its thoughts. */
static void skip_thoughts(struct seq *s, const struct script *script)
{
    const struct ids *list = written(s, script);

    for (size_t i = s->at; list && i < list->n; i++) {
        if (list->id[i] == s->request.thinking.close) {
            s->at = i + 1;
            return;
        }
    }
}

static bool add_text(struct seq *s, const struct tokenizer *t, const char *text)
{
    struct text_run run = { text, strlen(text), true };

    return tokenizer_encode(t, &run, 1, 0, &s->text, NULL) == 0;
}

/* Thoughts are said where the prompt lets it think, with the marks that are missing there. */
static bool write_text(struct seq *s, const struct tokenizer *t)
{
    const struct fake_reply *r = s->reply;
    uint32_t last = r->n_texts - 1;
    bool thinks = r->thinking && (s->request.thinking.inside || s->request.thinking.may_open);

    s->text.n = 0;
    if (thinks && ((!s->request.thinking.inside && !add_text(s, t, "<think>\n")) ||
                   !add_text(s, t, r->thinking) || !add_text(s, t, "\n</think>\n\n")))
        return false;
    return add_text(s, t, r->texts[s->choice < last ? s->choice : last]);
}

bool seq_begin_choice(struct seq *s, const struct script *script, const struct tokenizer *t,
                      uint32_t choice)
{
    const struct cz_sampling *how = &s->request.sampling;

    s->choice = choice;
    s->enough = false;
    s->n_generated = s->n_sampled = s->n_words = 0;
    s->at = s->pending.n = s->pending_at = 0;
    s->hash = s->prompt_hash;
    if (how->temperature > 0)
        s->hash ^= (cz_choice_seed(how->seed, choice) + 1) * 0x9e3779b97f4a7c15u;
    s->word = s->n_said = 0;
    thinking_begin(&s->thinking, &s->words);
    if (s->reply && !write_text(s, t))
        return false;
    if (s->request.thinking.inside && s->thinking.phase == THINKING_BEHIND)
        skip_thoughts(s, script);
    return true;
}

/* ---- what a model would sample ---- */

/* Short, so that a character that spans tokens comes early whatever the tokenizer. */
static const char *const words[] = {
    " a",  " I",  " we", " to", " of", " in", " at",  " on",  " it", " is", " so", " or",
    " no", " up", " he", " me", "x",   "y",   "b",    "k",    "-",   ",",   ".",   ";",
    " tree", " stone", " light", "1", "7", "!",
    "\xc3\xa9",         " \xf0\x9f\xa6\xa4", "\xe6\xa3\xae", "\xf0\x9f\x8c\xb2",
    "\xf0\xa0\xae\xb7", "\xe9\xbe\x98",
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static bool banned(const struct seq *s, uint32_t token)
{
    for (uint32_t i = 0; i < s->request.n_bias; i++)
        if (s->request.bias[i].token == token && s->request.bias[i].value <= -100)
            return true;
    return false;
}

static bool is_stop(const struct seq *s, uint32_t token)
{
    for (uint32_t i = 0; i < s->request.n_stop_ids; i++)
        if (s->request.stop_ids[i] == token)
            return true;
    return false;
}

static uint32_t varied_token(struct seq *s, const struct script *script,
                             const struct tokenizer *t)
{
    if (!t)
        return (uint32_t)(mix(s->hash + s->n_sampled) % script->vocab);
    while (s->pending_at >= s->pending.n) {
        const char *w = words[mix(s->hash + s->n_words) % (sizeof words / sizeof *words)];
        if (s->n_words++ == 0 && *w == ' ')
            w++;
        s->pending.n = s->pending_at = 0;
        struct text_run run = { w, strlen(w), false };
        if (tokenizer_encode(t, &run, 1, 0, &s->pending, NULL) < 0)
            return 0;
    }
    return s->pending.id[s->pending_at++];
}

/* The prompt's next token. Those that end its turns would end the echo at the first. */
static uint32_t echoed_token(struct seq *s)
{
    uint32_t n = s->request.n_prompt, token = s->request.prompt[s->at++ % n];

    for (uint32_t tries = 0; tries < n && is_stop(s, token); tries++)
        token = s->request.prompt[s->at++ % n];
    return token;
}

static uint32_t scripted_token(struct seq *s, const struct script *script,
                               const struct tokenizer *t)
{
    const struct ids *list = written(s, script);

    if (list)
        return list->id[s->at++ % list->n];
    if (!s->reply && script->reply == REPLY_ECHO)
        return echoed_token(s);
    return varied_token(s, script, t);
}

static uint32_t next_token(struct seq *s, const struct script *script, const struct tokenizer *t)
{
    for (uint32_t i = 0; i < s->request.n_bias; i++)
        if (s->request.bias[i].value >= 50)
            return s->request.bias[i].token;
    for (int tries = 0; tries < 64; tries++) {
        uint32_t token = scripted_token(s, script, t);
        if (!banned(s, token))
            return token;
    }
    return 0;
}

/* Whether all is said, so that a stop id would come. */
static bool is_through(const struct seq *s, const struct script *script)
{
    if (s->request.n_stop_ids == 0 || s->n_generated < s->request.min_tokens)
        return false;
    if (s->reply)
        return s->at >= s->text.n;
    if (script->n_tokens)
        return s->n_sampled >= script->n_tokens;
    if (script->reply == REPLY_ECHO)
        return s->at >= s->request.n_prompt;
    return written(s, script) && s->at >= script->ids.n;
}

/* ---- what is said ---- */

/* Numbers that look like some: a function of the reply's own tokens, likeliest first. */
static void make_logprobs(const struct seq *s, const struct script *script,
                          struct cz_event *out)
{
    struct cz_logprobs *l = &out->logprobs;

    out->has_logprobs = true;
    l->own.token = out->token;
    l->own.logprob = -(float)(mix(s->hash + out->token + s->n_generated) % 1000) / 1024.0f;
    l->n_top = s->request.n_top < script->vocab ? s->request.n_top : script->vocab;
    for (uint32_t i = 0; i < l->n_top; i++) {
        l->top[i].token = (out->token + i) % script->vocab;
        l->top[i].logprob = l->own.logprob - (float)i;
    }
}

static bool say_forced(struct seq *s, struct cz_event *out)
{
    while (s->word < 2 && s->n_said == s->words.n[s->word]) {
        s->word++;
        s->n_said = 0;
    }
    if (s->word == 2)
        return false;
    out->token = s->words.ids[s->word][s->n_said++];
    out->forced = true;
    s->n_generated++;
    return true;
}

/* The next of the script goes through the rules; a token that has no place leaves only words. */
static enum said sample(struct seq *s, const struct script *script, const struct tokenizer *t,
                        struct cz_event *out)
{
    enum thinking_phase before = s->thinking.phase;
    bool end = is_through(s, script);
    size_t at = s->at;

    if (end && s->reply && s->reply->cut)
        return SAID_LENGTH;
    out->token = end ? s->request.stop_ids[0] : next_token(s, script, t);
    bool stop = is_stop(s, out->token);
    thinking_take(&s->thinking, out->token, stop, &s->words);
    s->word = s->n_said = 0;
    if (s->words.instead && !stop)
        s->at = at; /* the script goes on where it was */
    if (before == THINKING_INSIDE && s->thinking.phase == THINKING_BEHIND && s->words.n[0] > 0 &&
        out->token != s->request.thinking.close)
        skip_thoughts(s, script);
    if (s->words.instead)
        return SAID_TOKEN;
    s->n_generated++;
    if (stop)
        return SAID_STOP;
    s->n_sampled++;
    if (s->request.logprobs)
        make_logprobs(s, script, out);
    return SAID_TOKEN;
}

enum said seq_say(struct seq *s, const struct script *script, const struct tokenizer *t,
                  uint32_t most, struct cz_event *out)
{
    *out = (struct cz_event){ .id = s->request.id, .type = CZ_EVENT_TOKEN, .choice = s->choice };
    if (s->enough)
        return SAID_STOP;
    if (s->n_generated >= most)
        return SAID_LENGTH;
    if (say_forced(s, out))
        return SAID_TOKEN;
    enum said said = sample(s, script, t, out);
    if (said == SAID_TOKEN && s->words.instead && !say_forced(s, out))
        return SAID_STOP; /* nothing stands instead: it cannot be */
    return said;
}
