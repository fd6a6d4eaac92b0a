/* Fields that chat and completions share. */
#include "daemon/openai/openai_fields.h"

#include "daemon/conf/conf.h"
#include "daemon/openai/json_body.h"
#include "daemon/wire/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static bool served_name(const struct conf *c, const json_t *name)
{
    if (json_body_is(name, c->model_name))
        return true;
    for (uint32_t i = 0; i < c->n_aliases; i++)
        if (json_body_is(name, c->aliases[i]))
            return true;
    return false;
}

static int read_model(const struct openai_request *r, const struct conf *c, struct api_error *e)
{
    const json_t *v = json_body_get(r->root, "model");

    if (!v)
        return 0; /* there is only one */
    if (!json_is_string(v))
        return json_body_wants(e, "model", "a string", v);
    if (json_string_length(v) == 0)
        return api_error_field(e, "invalid_value", "model", "'model' must not be empty.");
    if (c->strict_names && !served_name(c, v))
        return api_error_set(e, 404, "model_not_found", "model",
                             "The model '%.100s' does not exist; this server has '%.100s'.",
                             json_string_value(v), c->model_name);
    return 0;
}

static int read_stream(struct openai_request *r, struct api_error *e)
{
    const json_t *o = json_body_get(r->root, "stream_options");

    if (json_body_bool(&r->stream, r->root, "stream", e) < 0)
        return -1;
    r->reasoning_memory = r->cache_prompt = true;
    if (json_body_bool(&r->reasoning_memory, r->root, "reasoning_memory", e) < 0 ||
        json_body_bool(&r->cache_prompt, r->root, "cache_prompt", e) < 0 ||
        json_body_bool(&r->return_progress, r->root, "return_progress", e) < 0 ||
        json_body_bool(&r->timings_per_token, r->root, "timings_per_token", e) < 0)
        return -1;
    if (!o)
        return 0;
    if (!json_is_object(o))
        return json_body_wants(e, "stream_options", "an object", o);
    return json_body_bool(&r->include_usage, o, "include_usage", e);
}

/* -1 is how LM Studio and llama.cpp spell "no limit". */
static int read_limit(uint32_t *out, bool *given, const json_t *root, const char *key,
                      struct api_error *e)
{
    int64_t n = 0;

    if (!json_body_get(root, key))
        return 0;
    if (json_body_int(&n, root, key, -1, INT64_MAX, e) < 0)
        return -1;
    if (n == 0)
        return api_error_field(e, "integer_below_min_value", key, "'%s' must be at least 1.",
                               key);
    *out = n < 0 ? 0 : n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
    *given = true;
    return 0;
}

/* Later names win: max_completion_tokens is the newer one. */
static int read_limits(struct openai_request *r, struct api_error *e)
{
    static const char *const names[] = { "n_predict", "max_tokens", "max_completion_tokens" };
    int64_t min = 0;
    bool given = false;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (read_limit(&r->max_tokens, &given, r->root, names[i], e) < 0)
            return -1;
    if (!given && r->kind == OPENAI_COMPLETION)
        r->max_tokens = 16;
    if (json_body_int(&min, r->root, "min_tokens", 0, UINT32_MAX, e) < 0)
        return -1;
    r->min_tokens = (uint32_t)min;
    return 0;
}

static int read_float(float *out, const json_t *root, const char *key, double min, double max,
                      struct api_error *e)
{
    double value = (double)*out;

    if (json_body_number(&value, root, key, min, max, e) < 0)
        return -1;
    *out = (float)value;
    return 0;
}

static int read_penalty(struct cz_sampling *s, const json_t *root, struct api_error *e)
{
    static const char *const names[] = { "repeat_penalty", "repetition_penalty" };

    for (size_t i = 0; i < 2; i++) {
        if (read_float(&s->repetition_penalty, root, names[i], 0, 2, e) < 0)
            return -1;
        if (!(s->repetition_penalty > 0))
            return api_error_field(e, "decimal_below_min_value", names[i],
                                   "'%s' must be above 0.", names[i]);
    }
    return 0;
}

static int read_seed(struct cz_sampling *s, const json_t *root, struct api_error *e)
{
    int64_t seed = -1;

    if (json_body_int(&seed, root, "seed", INT64_MIN, INT64_MAX, e) < 0)
        return -1;
    s->seed = (uint64_t)seed;
    if (seed != -1)
        return 0;
    /* Up to 256 bytes getrandom neither fails nor is cut short, once the pool is ready. */
    while (getrandom(&s->seed, sizeof s->seed, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

static int read_sampling(struct openai_request *r, struct api_error *e)
{
    struct cz_sampling *s = &r->sampling;
    int64_t top_k = s->top_k;

    if (read_float(&s->temperature, r->root, "temperature", 0, 2, e) < 0 ||
        read_float(&s->top_p, r->root, "top_p", 0, 1, e) < 0 ||
        read_float(&s->min_p, r->root, "min_p", 0, 1, e) < 0 ||
        read_float(&s->presence_penalty, r->root, "presence_penalty", -2, 2, e) < 0 ||
        read_float(&s->frequency_penalty, r->root, "frequency_penalty", -2, 2, e) < 0 ||
        json_body_int(&top_k, r->root, "top_k", -1, INT32_MAX, e) < 0)
        return -1;
    s->top_k = top_k < 0 ? 0 : (uint32_t)top_k;
    if (s->top_p <= 0) { /* nothing but the likeliest token fits */
        s->top_p = 1;
        s->top_k = 1;
    }
    return read_penalty(s, r->root, e) < 0 ? -1 : read_seed(s, r->root, e);
}

static int add_stop(struct openai_request *r, const json_t *v, struct api_error *e)
{
    if (!json_is_string(v))
        return json_body_wants(e, "stop", "a string or an array of strings", v);
    size_t size = json_string_length(v);
    if (size == 0)
        return api_error_field(e, "invalid_value", "stop", "'stop' must not be an empty string.");
    if (size > OPENAI_MAX_STOP_SIZE)
        return api_error_field(e, "string_above_max_length", "stop",
                               "A stop string may have at most %d bytes, not %zu.",
                               OPENAI_MAX_STOP_SIZE, size);
    r->stops[r->n_stops++] = (struct openai_text){ json_string_value(v), size };
    return 0;
}

static int read_stop(struct openai_request *r, struct api_error *e)
{
    const json_t *v = json_body_get(r->root, "stop"), *one;
    size_t i;

    if (!v)
        return 0;
    if (!json_is_array(v))
        return add_stop(r, v, e);
    if (json_array_size(v) > OPENAI_MAX_STOPS)
        return api_error_field(e, "array_above_max_length", "stop",
                               "'stop' may hold at most %d strings, not %zu.", OPENAI_MAX_STOPS,
                               json_array_size(v));
    json_array_foreach (v, i, one)
        if (add_stop(r, one, e) < 0)
            return -1;
    return 0;
}

/* The checkpoint's end tokens unless ignore_eos, and the request's own. */
static int read_stop_ids(struct openai_request *r, const struct wire_hello *hello,
                         struct api_error *e)
{
    const json_t *list = json_body_get(r->root, "stop_token_ids"), *v;
    bool ignore_eos = false;
    int64_t id;
    size_t i;

    if (json_body_bool(&ignore_eos, r->root, "ignore_eos", e) < 0)
        return -1;
    if (!ignore_eos) {
        memcpy(r->stop_ids, hello->stop_ids, sizeof hello->stop_ids);
        r->n_stop_ids = hello->n_stop_ids;
    }
    if (list && !json_is_array(list))
        return json_body_wants(e, "stop_token_ids", "an array of token ids", list);
    json_array_foreach (list, i, v) {
        if (!json_body_integer(&id, v) || id < 0 || id >= hello->vocab)
            return api_error_field(e, "invalid_value", "stop_token_ids",
                                   "'stop_token_ids[%zu]' is not a token id below %" PRIu32 ".",
                                   i, hello->vocab);
        if (r->n_stop_ids == CZ_MAX_STOP_IDS)
            return api_error_field(e, "array_above_max_length", "stop_token_ids",
                                   "'stop_token_ids' holds too many ids; with the model's own "
                                   "there may be %d.", CZ_MAX_STOP_IDS);
        r->stop_ids[r->n_stop_ids++] = (uint32_t)id;
    }
    return 0;
}

static bool token_of_key(uint32_t *out, const char *key, uint32_t vocab)
{
    char *end;

    if (*key < '0' || *key > '9')
        return false;
    errno = 0;
    unsigned long id = strtoul(key, &end, 10);
    if (errno || *end || id >= vocab)
        return false;
    *out = (uint32_t)id;
    return true;
}

/* A small vocabulary can be banned as a whole, for the first token at least: then there is no answer,
 * which is better said before a stream has begun. */
static int check_bans(const struct openai_request *r, uint32_t vocab, struct api_error *e)
{
    bool banned[CZ_MAX_BIAS + CZ_MAX_STOP_IDS] = { false };
    uint32_t n = 0, n_stops = r->min_tokens > 0 ? r->n_stop_ids : 0;

    if (vocab > r->n_bias + n_stops)
        return 0;
    for (uint32_t i = 0; i < r->n_bias; i++)
        banned[r->bias[i].token] |= r->bias[i].value <= -100;
    for (uint32_t i = 0; i < n_stops; i++)
        if (r->stop_ids[i] < vocab)
            banned[r->stop_ids[i]] = true;
    for (uint32_t i = 0; i < vocab; i++)
        n += banned[i];
    return n < vocab ? 0
                     : api_error_field(e, "invalid_value", "logit_bias",
                                       "'logit_bias' and 'min_tokens' ban every token of this "
                                       "model.");
}

static int read_bias(struct openai_request *r, uint32_t vocab, struct api_error *e)
{
    json_t *map = json_body_get(r->root, "logit_bias");
    const char *key;
    json_t *v;

    if (map && !json_is_object(map))
        return json_body_wants(e, "logit_bias", "an object of token ids", map);
    if (json_object_size(map) > OPENAI_MAX_BIAS)
        return api_error_field(e, "invalid_value", "logit_bias",
                               "'logit_bias' may name at most %d tokens, not %zu.", OPENAI_MAX_BIAS,
                               json_object_size(map));
    r->bias = calloc(json_object_size(map) + OPENAI_MAX_BANS, sizeof *r->bias);
    if (!r->bias)
        return api_error_no_memory(e);
    json_object_foreach (map, key, v) {
        struct cz_bias *b = &r->bias[r->n_bias++];
        if (!token_of_key(&b->token, key, vocab))
            return api_error_field(e, "invalid_value", "logit_bias",
                                   "'logit_bias' has the key '%.40s', which is no token id below "
                                   "%" PRIu32 ".", key, vocab);
        double value = json_number_value(v);
        if (!json_is_number(v) || !(value >= -100 && value <= 100))
            return api_error_field(e, "invalid_value", "logit_bias",
                                   "'logit_bias' of token %" PRIu32 " must be a number from "
                                   "-100 to 100.", b->token);
        b->value = (float)value;
    }
    return check_bans(r, vocab, e);
}

int openai_read_common(struct openai_request *r, const struct openai_rules *rules,
                       struct api_error *e)
{
    r->sampling = rules->hello->defaults;
    if (read_model(r, rules->conf, e) < 0 || read_stream(r, e) < 0 || read_limits(r, e) < 0 ||
        read_sampling(r, e) < 0 || read_stop(r, e) < 0)
        return -1;
    if (read_stop_ids(r, rules->hello, e) < 0)
        return -1;
    return read_bias(r, rules->hello->vocab, e);
}
