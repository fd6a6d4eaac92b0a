#include "daemon/openai/openai_in.h"

#include "daemon/openai/json_body.h"
#include "daemon/openai/openai_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Known, and without effect here whatever they hold. */
static const char *const ignored_always[] = {
    "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prompt_cache_options", "metadata", "store", "moderation", "prediction", "verbosity",
    "id_slot", "cache_slot", "n_keep", "n_cache_reuse",
    "keep_alive", "ttl", "options", "num_ctx", "lora", "priority",
    "typical_p", "top_n_sigma", "mirostat", "mirostat_tau", "mirostat_eta", "dry_multiplier",
    "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers",
    "xtc_probability", "xtc_threshold", "dynatemp_range", "dynatemp_exponent", "samplers",
    "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens",
    "return_token_ids", "length_penalty", "repeat_last_n",
};

/* Ignoring these would change what the answer means. */
static const char *const refused_always[] = {
    "grammar", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
    "structured_outputs", "json_schema", "audio", "web_search_options", "chat_template",
};

static int refuse(struct api_error *e, const char *key, const char *what)
{
    return api_error_field(e, "unsupported_parameter", key, "'%s' is not supported: %s.", key,
                           what);
}

static int refuse_formats(const json_t *root, struct api_error *e)
{
    const json_t *v = json_body_get(root, "response_format");
    const json_t *part;
    size_t i;

    if (v && !json_is_object(v))
        return json_body_wants(e, "response_format", "an object", v);
    if (v && !json_body_is(json_object_get(v, "type"), "text"))
        return api_error_field(e, "unsupported_parameter", "response_format",
                               "'response_format' is only supported with the type 'text'.");
    v = json_body_get(root, "modalities");
    if (v && !json_is_array(v))
        return json_body_wants(e, "modalities", "an array", v);
    json_array_foreach (v, i, part)
        if (!json_body_is(part, "text"))
            return api_error_field(e, "unsupported_value", "modalities",
                                   "'modalities' may only hold 'text'.");
    return 0;
}

static void note_given(struct openai_request *r, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (json_body_get(r->root, keys[i]))
            openai_note_ignored(r, keys[i]);
}

/* A raw prompt has no turns: what is said of them has no effect, and tools have no place. */
static int sort_out_of_completion(struct openai_request *r, struct api_error *e)
{
    static const char *const ignored[] = { "messages", "add_generation_prompt",
                                           "continue_final_message", "chat_template_kwargs",
                                           "enable_thinking", "preserve_thinking", "thinking",
                                           "reasoning", "reasoning_effort", "reasoning_format",
                                           "reasoning_memory", "include_reasoning",
                                           "separate_reasoning", "max_reasoning_tokens",
                                           "thinking_budget", "tool_choice", "function_call",
                                           "parallel_tool_calls", "top_logprobs" };
    static const char *const refused[] = { "tools", "functions" };

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (json_array_size(json_body_get(r->root, refused[i])))
            return refuse(e, refused[i], "only chats have them");
    note_given(r, ignored, sizeof ignored / sizeof *ignored);
    return 0;
}

/* What would be served wrongly is refused by name; the rest of what is known is noted. */
static int sort_out(struct openai_request *r, struct api_error *e)
{
    static const char *const of_streams[] = { "stream_options", "return_progress",
                                              "timings_per_token" };
    static const char *const of_completions[] = { "prompt", "suffix", "echo" };
    bool beam = false;

    for (size_t i = 0; i < sizeof refused_always / sizeof *refused_always; i++)
        if (json_body_get(r->root, refused_always[i]))
            return refuse(e, refused_always[i], "this server cannot do it");
    if (json_body_bool(&beam, r->root, "use_beam_search", e) < 0)
        return -1;
    if (beam)
        return refuse(e, "use_beam_search", "there is no beam search");
    if (refuse_formats(r->root, e) < 0)
        return -1;
    r->service_tier = json_body_get(r->root, "service_tier") != NULL;
    note_given(r, ignored_always, sizeof ignored_always / sizeof *ignored_always);
    if (!r->stream)
        note_given(r, of_streams, sizeof of_streams / sizeof *of_streams);
    if (r->kind == OPENAI_COMPLETION)
        return sort_out_of_completion(r, e);
    note_given(r, of_completions, sizeof of_completions / sizeof *of_completions);
    return 0;
}

int openai_in_take(struct openai_request *out, enum openai_kind kind, json_t *root, uint64_t cost,
                   const struct openai_rules *rules, struct api_error *e)
{
    struct openai_request *r = out;

    *r = (struct openai_request){ .kind = kind, .quota = rules->quota, .root = root,
                                  .cost = cost };
    if (openai_read_common(r, rules, e) < 0 || sort_out(r, e) < 0 || openai_read_answer(r, e) < 0)
        goto fail;
    if (kind == OPENAI_COMPLETION && openai_read_prompts(r, rules, e) < 0)
        goto fail;
    if (kind == OPENAI_CHAT && (openai_read_tools(r, e) < 0 || openai_read_messages(r, e) < 0 ||
                                openai_read_template(r, rules, e) < 0))
        goto fail;
    return 0;

fail:
    openai_in_done(r);
    return -1;
}

int openai_in_read(struct openai_request *out, enum openai_kind kind, struct buf *body,
                   const struct openai_rules *rules, struct api_error *e)
{
    json_t *root;
    uint64_t cost;

    if (json_body_parse(&root, &cost, body, rules->quota, e) < 0)
        return -1;
    return openai_in_take(out, kind, root, cost, rules, e);
}

static void drop_messages(struct openai_request *r)
{
    for (size_t i = 0; i < r->n_joined; i++)
        free(r->joined[i]);
    free(r->joined);
    free(r->messages);
    free(r->calls);
    free(r->call_objects);
    r->call_objects = NULL;
    r->joined = NULL;
    r->messages = NULL;
    r->calls = NULL;
    r->n_joined = r->n_calls = 0;
    r->chat = (struct chat){ 0 };
}

static void drop_prompts(struct openai_request *r)
{
    for (uint32_t i = 0; i < r->n_prompts; i++) {
        free(r->prompts[i].ids);
        r->prompts[i] = (struct openai_prompt){ 0 };
    }
}

static void drop_json(struct openai_request *r)
{
    json_decref(r->tools);
    r->tools = NULL;
    json_body_drop(r->root, r->cost, r->quota);
    r->root = NULL;
    r->cost = 0;
}

int openai_in_settle(struct openai_request *r, struct api_error *e)
{
    size_t size = 1;

    drop_messages(r);
    if (r->echo)
        return 0;
    r->suffix = (struct openai_text){ 0 };
    for (uint32_t i = 0; i < r->n_stops; i++)
        size += r->stops[i].size;
    r->stop_bytes = malloc(size);
    if (!r->stop_bytes)
        return api_error_no_memory(e);
    char *to = r->stop_bytes;
    for (uint32_t i = 0; i < r->n_stops; i++) {
        memcpy(to, r->stops[i].bytes, r->stops[i].size);
        r->stops[i].bytes = to;
        to += r->stops[i].size;
    }
    drop_prompts(r);
    drop_json(r);
    return 0;
}

void openai_in_done(struct openai_request *r)
{
    drop_messages(r);
    drop_prompts(r);
    openai_tools_done(&r->offer);
    drop_json(r);
    free(r->stop_bytes);
    free(r->bias);
    *r = (struct openai_request){ 0 };
}

void openai_in_ban(struct openai_request *r, uint32_t token)
{
    uint32_t i = 0;

    while (i < r->n_bias && r->bias[i].token != token)
        i++;
    if (i == r->n_bias)
        r->n_bias++;
    r->bias[i] = (struct cz_bias){ token, -100 };
}
