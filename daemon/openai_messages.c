/* messages, and how the chat template is to treat them. */
#include "daemon/openai_fields.h"

#include "daemon/json_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct api_error *e)
{
    return api_error_set(e, 500, "internal_error", NULL, "Out of memory.");
}

/* ---- content ---- */

/* Text of a part of type text or refusal; anything else cannot be read by this model. */
static int read_part(struct openai_text *out, const json_t *part, const char *where, size_t i,
                     struct api_error *e)
{
    const json_t *type = json_object_get(part, "type");
    char param[128];

    snprintf(param, sizeof param, "%s[%zu]", where, i);
    if (!json_is_object(part))
        return api_error_field(e, "invalid_type", param, "'%s' must be an object, not %s.", param,
                               json_body_type(part));
    snprintf(param, sizeof param, "%s[%zu].type", where, i);
    if (!type)
        return api_error_field(e, "missing_required_parameter", param, "'%s' is missing.", param);
    if (!json_is_string(type))
        return api_error_field(e, "invalid_type", param, "'%s' must be a string, not %s.", param,
                               json_body_type(type));
    const char *name = json_string_value(type);
    const char *key = strcmp(name, "refusal") == 0 ? "refusal" : "text";
    if (strcmp(name, key) != 0)
        return api_error_field(e, "unsupported_content_type", param,
                               "%s[%zu]: content type '%.60s' is not supported; this model "
                               "accepts text only.", where, i, name);
    const json_t *text = json_object_get(part, key);
    snprintf(param, sizeof param, "%s[%zu].%s", where, i, key);
    if (!text)
        return api_error_field(e, "missing_required_parameter", param, "'%s' is missing.", param);
    if (!json_is_string(text))
        return api_error_field(e, "invalid_type", param, "'%s' must be a string, not %s.", param,
                               json_body_type(text));
    *out = (struct openai_text){ json_string_value(text), json_string_length(text) };
    return 0;
}

/* Parts are joined with nothing between. One part is lent as it is. */
static int read_parts(struct openai_request *r, struct openai_text *out, const json_t *parts,
                      const char *where, struct api_error *e)
{
    struct openai_text text = { "", 0 };
    size_t n = json_array_size(parts), total = 0;

    for (size_t i = 0; i < n; i++) {
        if (read_part(&text, json_array_get(parts, i), where, i, e) < 0)
            return -1;
        total += text.size;
    }
    *out = text;
    if (n <= 1)
        return 0;
    if (!quota_take(r->quota, total + 1)) {
        api_error_set(e, 503, "server_overloaded", NULL,
                      "The server's buffers are full. Please try again later.");
        e->retry_after_s = 1;
        return -1;
    }
    r->cost += total + 1;
    char *joined = malloc(total + 1);
    if (!joined)
        return no_memory(e);
    r->joined[r->n_joined++] = joined;
    *out = (struct openai_text){ joined, total };
    for (size_t i = 0; i < n; i++) {
        if (read_part(&text, json_array_get(parts, i), where, i, e) < 0)
            return -1;
        memcpy(joined, text.bytes, text.size);
        joined += text.size;
    }
    return 0;
}

static int read_content(struct openai_request *r, struct chat_message *m, const json_t *message,
                        size_t i, struct api_error *e)
{
    const json_t *v = json_body_get(message, "content");
    struct openai_text text = { "", 0 };
    char where[64];

    snprintf(where, sizeof where, "messages[%zu].content", i);
    bool may_be_empty = m->role == CHAT_ASSISTANT;
    if (!v && !may_be_empty)
        return api_error_field(e, "missing_required_parameter", where, "'%s' is missing.", where);
    if (v && !json_is_string(v) && !json_is_array(v))
        return api_error_field(e, "invalid_type", where,
                               "'%s' must be a string or an array of parts, not %s.", where,
                               json_body_type(v));
    if (json_is_array(v) && json_array_size(v) == 0 && !may_be_empty)
        return api_error_field(e, "empty_array", where, "'%s' must not be empty.", where);
    if (json_is_string(v))
        text = (struct openai_text){ json_string_value(v), json_string_length(v) };
    else if (v && read_parts(r, &text, v, where, e) < 0)
        return -1;
    m->text = text.bytes;
    m->size = text.size;
    return 0;
}

/* ---- messages ---- */

static int read_role(enum chat_role *out, const json_t *message, size_t i, struct api_error *e)
{
    static const struct {
        const char *name;
        enum chat_role role;
    } roles[] = { { "system", CHAT_SYSTEM }, { "developer", CHAT_SYSTEM },
                  { "user", CHAT_USER }, { "assistant", CHAT_ASSISTANT } };
    const json_t *v = json_body_get(message, "role");
    char param[64];

    snprintf(param, sizeof param, "messages[%zu].role", i);
    if (!v)
        return api_error_field(e, "missing_required_parameter", param, "'%s' is missing.", param);
    if (!json_is_string(v))
        return api_error_field(e, "invalid_type", param, "'%s' must be a string, not %s.", param,
                               json_body_type(v));
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
        if (strcmp(json_string_value(v), roles[k].name) == 0) {
            *out = roles[k].role;
            return 0;
        }
    if (strcmp(json_string_value(v), "tool") == 0 || strcmp(json_string_value(v), "function") == 0)
        return api_error_field(e, "unsupported_value", param,
                               "'%s': tool results are not supported yet.", param);
    return api_error_field(e, "invalid_value", param,
                           "'%s' must be system, developer, user or assistant, not '%.60s'.",
                           param, json_string_value(v));
}

static int refuse_calls(const json_t *message, size_t i, struct api_error *e)
{
    static const char *const keys[] = { "tool_calls", "function_call", "audio" };
    char param[64];

    for (size_t k = 0; k < 3; k++) {
        const json_t *v = json_body_get(message, keys[k]);
        if (!v || (json_is_array(v) && json_array_size(v) == 0))
            continue;
        snprintf(param, sizeof param, "messages[%zu].%s", i, keys[k]);
        return api_error_field(e, "unsupported_parameter", param, "'%s' is not supported yet.",
                               param);
    }
    return 0;
}

static int read_message(struct openai_request *r, const json_t *message, size_t i,
                        struct api_error *e)
{
    struct chat_message *m = &r->messages[i];
    char param[64];

    snprintf(param, sizeof param, "messages[%zu]", i);
    if (!json_is_object(message))
        return api_error_field(e, "invalid_type", param, "'%s' must be an object, not %s.", param,
                               json_body_type(message));
    if (read_role(&m->role, message, i, e) < 0 || refuse_calls(message, i, e) < 0)
        return -1;
    return read_content(r, m, message, i, e);
}

/* ---- how to render ---- */

static int not_an_object(struct api_error *e, const char *key, const json_t *v)
{
    return api_error_field(e, "invalid_type", key, "'%s' must be an object, not %s.", key,
                           json_body_type(v));
}

static int set_thinking(struct chat *c, const json_t *o, const char *key, struct api_error *e)
{
    bool on;

    if (!json_body_get(o, key))
        return 0;
    if (json_body_bool(&on, o, key, e) < 0)
        return -1;
    c->thinking = on ? THINKING_ON : THINKING_OFF;
    return 0;
}

static int read_effort(struct chat *c, const json_t *o, const char *key, struct api_error *e)
{
    static const char *const efforts[] = { "none",   "minimal", "low", "medium",
                                           "high", "xhigh",   "max" };
    const json_t *v = json_body_get(o, key);

    if (!v)
        return 0;
    for (size_t i = 0; json_is_string(v) && i < sizeof efforts / sizeof *efforts; i++)
        if (strcmp(json_string_value(v), efforts[i]) == 0) {
            if (i == 0)
                c->thinking = THINKING_OFF; /* the others have no effect on this family */
            return 0;
        }
    return api_error_field(e, "invalid_value", key,
                           "'%s' must be none, minimal, low, medium, high, xhigh or max.", key);
}

static int read_reasoning(struct chat *c, const json_t *root, struct api_error *e)
{
    const json_t *v = json_body_get(root, "reasoning");

    if (!v)
        return 0;
    if (!json_is_object(v))
        return not_an_object(e, "reasoning", v);
    if (read_effort(c, v, "effort", e) < 0)
        return -1;
    return set_thinking(c, v, "enabled", e);
}

/* {"type": "enabled"} or {"type": "disabled"} */
static int read_thinking_object(struct chat *c, const json_t *root, struct api_error *e)
{
    const json_t *v = json_body_get(root, "thinking");
    const char *type = json_string_value(json_object_get(v, "type"));

    if (!v)
        return 0;
    if (!json_is_object(v))
        return not_an_object(e, "thinking", v);
    if (type && strcmp(type, "enabled") == 0)
        c->thinking = THINKING_ON;
    else if (type && strcmp(type, "disabled") == 0)
        c->thinking = THINKING_OFF;
    else
        return api_error_field(e, "invalid_value", "thinking.type",
                               "'thinking.type' must be enabled or disabled.");
    return 0;
}

static int read_template_kwargs(struct chat *c, const json_t *root, struct api_error *e)
{
    static const char *const reserved[] = { "messages", "tools", "add_generation_prompt",
                                            "bos_token", "eos_token" };
    const json_t *v = json_body_get(root, "chat_template_kwargs");
    char param[64];

    if (!v)
        return 0;
    if (!json_is_object(v))
        return not_an_object(e, "chat_template_kwargs", v);
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        if (!json_object_get(v, reserved[i]))
            continue;
        snprintf(param, sizeof param, "chat_template_kwargs.%s", reserved[i]);
        return api_error_field(e, "invalid_value", param, "'%s' cannot be set.", param);
    }
    if (read_effort(c, v, "reasoning_effort", e) < 0)
        return -1;
    return set_thinking(c, v, "enable_thinking", e);
}

/* Weakest first: what is said more explicitly wins. */
static int read_thinking(struct chat *c, const json_t *root, struct api_error *e)
{
    if (read_effort(c, root, "reasoning_effort", e) < 0 || read_reasoning(c, root, e) < 0 ||
        read_thinking_object(c, root, e) < 0)
        return -1;
    if (set_thinking(c, root, "enable_thinking", e) < 0)
        return -1;
    return read_template_kwargs(c, root, e);
}

static int read_turn(struct openai_request *r, struct api_error *e)
{
    struct chat *c = &r->chat;
    bool given = json_body_get(r->root, "add_generation_prompt") != NULL;

    c->add_generation_prompt = true;
    if (json_body_bool(&c->add_generation_prompt, r->root, "add_generation_prompt", e) < 0 ||
        json_body_bool(&c->continue_final, r->root, "continue_final_message", e) < 0)
        return -1;
    if (!c->continue_final)
        return 0;
    if (given && c->add_generation_prompt)
        return api_error_field(e, "invalid_value", "continue_final_message",
                               "'continue_final_message' and 'add_generation_prompt' exclude each "
                               "other.");
    if (r->messages[c->n_messages - 1].role != CHAT_ASSISTANT)
        return api_error_field(e, "invalid_value", "continue_final_message",
                               "'continue_final_message' needs an assistant message at the end.");
    c->add_generation_prompt = false;
    return 0;
}

int openai_read_messages(struct openai_request *r, struct api_error *e)
{
    const json_t *list = json_body_get(r->root, "messages");
    size_t n = json_array_size(list);

    if (!list)
        return api_error_field(e, "missing_required_parameter", "messages",
                               "'messages' is missing.");
    if (!json_is_array(list))
        return api_error_field(e, "invalid_type", "messages",
                               "'messages' must be an array, not %s.", json_body_type(list));
    if (n == 0)
        return api_error_field(e, "empty_array", "messages", "'messages' must not be empty.");
    r->messages = calloc(n, sizeof *r->messages);
    r->joined = calloc(n, sizeof *r->joined);
    if (!r->messages || !r->joined)
        return no_memory(e);
    for (size_t i = 0; i < n; i++)
        if (read_message(r, json_array_get(list, i), i, e) < 0)
            return -1;
    r->chat.messages = r->messages;
    r->chat.n_messages = n;
    if (read_turn(r, e) < 0)
        return -1;
    return read_thinking(&r->chat, r->root, e);
}
