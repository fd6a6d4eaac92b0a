#include "families/config_keys.h"

#include "families/family.h"
#include "formats/json.h"
#include "util/err.h"
#include "util/shown.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WARNINGS = sizeof((struct config_warnings *)0)->text /
                      sizeof((struct config_warnings *)0)->text[0] };

void config_warn(struct config_warnings *warnings, const char *fmt, ...)
{
    va_list args;

    if (!warnings || warnings->n == MAX_WARNINGS)
        return;
    va_start(args, fmt);
    vsnprintf(warnings->text[warnings->n++], sizeof warnings->text[0], fmt, args);
    va_end(args);
}

static bool is_known(const char *key, const char *const *known, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(known[i], key) == 0)
            return true;
    return false;
}

/* A switch that is off, a count of none. */
static bool says_nothing(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_FALSE:
        return true;
    case JSON_INTEGER:
    case JSON_REAL:
        return !(json_number_value(v) < 0.0 || json_number_value(v) > 0.0);
    case JSON_STRING:
        return json_string_length(v) == 0;
    case JSON_ARRAY:
        return json_array_size(v) == 0;
    case JSON_OBJECT:
        return json_object_size(v) == 0;
    default:
        return false;
    }
}

/* Training, bookkeeping, and what generation_config.json says instead. */
static const char *const bookkeeping[] = {
    "_name_or_path", "add_cross_attention", "bad_words_ids", "begin_suppress_tokens",
    "bos_token_id", "chunk_size_feed_forward", "cross_attention_hidden_size",
    "decoder_start_token_id", "diversity_penalty", "do_sample", "dtype", "early_stopping",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task",
    "forced_bos_token_id", "forced_eos_token_id", "id2label", "initializer_range", "is_decoder",
    "is_encoder_decoder", "label2id", "length_penalty", "max_length", "min_length",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences",
    "output_attentions", "output_hidden_states", "output_scores", "pad_token_id", "prefix",
    "problem_type", "pruned_heads", "remove_invalid_values", "repetition_penalty", "return_dict",
    "return_dict_in_generate", "sep_token_id", "suppress_tokens", "task_specific_params",
    "temperature", "tf_legacy_loss", "tie_encoder_decoder", "tokenizer_class", "top_k", "top_p",
    "torch_dtype", "torchscript", "transformers_version", "typical_p", "unsloth_fixed",
    "unsloth_version", "use_bfloat16", "use_cache",
};

static int check_keys(const struct json *j, const char *const *known, size_t n,
                      size_t n_bookkeeping, const char *whose,
                      struct config_warnings *warnings, struct err *err)
{
    const char *key;
    json_t *v;

    json_object_foreach(j->root, key, v) {
        if (json_is_null(v) || is_known(key, known, n) ||
            is_known(key, bookkeeping, n_bookkeeping))
            continue;
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
        struct shown value = shown_name(text ? text : "unreadable");
        free(text);
        if (!says_nothing(v))
            return err_set(err, ERR_UNSUPPORTED, "%s: '%s' is %.80s: not known to %s, so it may "
                           "change the answers; there is no support for it", j->name,
                           shown_name(key).text, value.text, whose);
        config_warn(warnings, "'%.80s' is %.40s: not known to %s, ignored", shown_name(key).text,
                    value.text, whose);
    }
    return 0;
}

int config_keys_check(const struct json *j, const char *const *known, size_t n,
                      const char *whose, struct config_warnings *warnings, struct err *err)
{
    return check_keys(j, known, n, 0, whose, warnings, err);
}

int config_keys_check_model(const struct json *j, const char *const *known, size_t n,
                            const char *whose, struct config_warnings *warnings, struct err *err)
{
    return check_keys(j, known, n, sizeof bookkeeping / sizeof bookkeeping[0], whose, warnings,
                      err);
}

int config_unsupported(const struct json *j, const char *key, const char *value,
                       const char *only, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED, "%s: '%s' is %s: only %s is built", j->name, key,
                   shown_name(value).text, only);
}

int config_must_be_off(const struct json *j, const char *key, struct err *err)
{
    bool on;

    if (json_bool_or(&on, j, key, false, err) < 0)
        return -1;
    return on ? config_unsupported(j, key, "true", "false", err) : 0;
}

int config_must_be(const struct json *j, const char *key, const char *only, struct err *err)
{
    const char *value;

    if (json_string_or_null(&value, j, key, err) < 0)
        return -1;
    return value && strcmp(value, only) != 0 ? config_unsupported(j, key, value, only, err) : 0;
}

int config_must_be_class(const struct json *j, const char *const *names, size_t n,
                         struct err *err)
{
    const json_t *classes = json_object_get(j->root, "architectures"), *name;
    size_t i;

    if (!classes || json_is_null(classes) || json_array_size(classes) == 0)
        return 0;
    json_array_foreach(classes, i, name)
        if (json_is_string(name) && is_known(json_string_value(name), names, n))
            return 0;
    name = json_array_get(classes, 0);
    return config_unsupported(j, "architectures",
                              json_is_string(name) ? json_string_value(name) : "?", names[0],
                              err);
}
