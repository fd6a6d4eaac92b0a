/* messages: roles, text and its parts, earlier calls and their results. */
#include "daemon/openai_fields.h"

#include "daemon/json_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct api_error *e)
{
    return api_error_set(e, 500, "internal_error", NULL, "Out of memory.");
}

/* Memory beside the JSON. */
static int pay(struct openai_request *r, uint64_t bytes, struct api_error *e)
{
    if (quota_take(r->quota, bytes)) {
        r->cost += bytes;
        return 0;
    }
    if (bytes > r->quota->cap || r->cost > r->quota->cap - bytes)
        return api_error_set(e, 413, "request_too_large", NULL,
                             "These messages take more memory than the server has for all requests "
                             "(http.buffer).");
    api_error_set(e, 503, "server_overloaded", NULL,
                  "The server's buffers are full. Please try again later.");
    e->retry_after_s = 1;
    return -1;
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
    const char *key = json_body_is(type, "refusal") ? "refusal" : "text";
    if (!json_body_is(type, key))
        return api_error_field(e, "unsupported_content_type", param,
                               "%s[%zu]: content type '%.60s' is not supported; this model "
                               "accepts text only.", where, i, json_string_value(type));
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
    if (pay(r, total + 1, e) < 0)
        return -1;
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
                  { "user", CHAT_USER }, { "assistant", CHAT_ASSISTANT },
                  { "tool", CHAT_TOOL } };
    const json_t *v = json_body_get(message, "role");
    char param[64];

    snprintf(param, sizeof param, "messages[%zu].role", i);
    if (!v)
        return api_error_field(e, "missing_required_parameter", param, "'%s' is missing.", param);
    if (!json_is_string(v))
        return api_error_field(e, "invalid_type", param, "'%s' must be a string, not %s.", param,
                               json_body_type(v));
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
        if (json_body_is(v, roles[k].name)) {
            *out = roles[k].role;
            return 0;
        }
    if (json_body_is(v, "function"))
        return api_error_field(e, "unsupported_value", param,
                               "'%s': 'function' is not supported; use 'tool'.", param);
    return api_error_field(e, "invalid_value", param,
                           "'%s' must be system, developer, user, assistant or tool, not "
                           "'%.60s'.", param, json_string_value(v));
}

/* What an earlier turn may not hold here. */
static int refuse_extras(const json_t *message, size_t i, struct api_error *e)
{
    static const char *const keys[] = { "function_call", "audio" };
    char param[64];

    for (size_t k = 0; k < 2; k++) {
        if (!json_body_get(message, keys[k]))
            continue;
        snprintf(param, sizeof param, "messages[%zu].%s", i, keys[k]);
        return api_error_field(e, "unsupported_parameter", param, "'%s' is not supported.",
                               param);
    }
    return 0;
}

static int read_call_text(struct openai_text *out, const json_t *function, const char *key,
                          const char *where, struct api_error *e)
{
    const json_t *v = json_body_get(function, key);
    char param[128];

    snprintf(param, sizeof param, "%s.function.%s", where, key);
    if (!v)
        return api_error_field(e, "missing_required_parameter", param, "'%s' is missing.", param);
    if (!json_is_string(v))
        return api_error_field(e, "invalid_type", param, "'%s' must be a string, not %s.", param,
                               json_body_type(v));
    *out = (struct openai_text){ json_string_value(v), json_string_length(v) };
    return 0;
}

static int read_call(struct chat_call *out, const json_t *call, const char *where,
                     struct api_error *e)
{
    const json_t *function = json_object_get(call, "function");
    struct openai_text name, arguments = { "{}", 2 };

    if (!json_is_object(function))
        return api_error_field(e, "invalid_type", where,
                               "'%s' must be an object with a 'function'.", where);
    if (read_call_text(&name, function, "name", where, e) < 0)
        return -1;
    if (json_body_get(function, "arguments") &&
        read_call_text(&arguments, function, "arguments", where, e) < 0)
        return -1;
    if (arguments.size == 0)
        arguments = (struct openai_text){ "{}", 2 };
    *out = (struct chat_call){ name.bytes, name.size, arguments.bytes, arguments.size };
    return 0;
}

/* r->calls has room for all calls of all messages. */
static int read_calls(struct openai_request *r, struct chat_message *m, const json_t *message,
                      size_t i, struct api_error *e)
{
    const json_t *list = json_body_get(message, "tool_calls"), *call;
    char where[64];
    size_t k;

    if (!list || m->role != CHAT_ASSISTANT)
        return 0;
    snprintf(where, sizeof where, "messages[%zu].tool_calls", i);
    if (!json_is_array(list))
        return api_error_field(e, "invalid_type", where, "'%s' must be an array, not %s.", where,
                               json_body_type(list));
    m->calls = r->calls + r->n_calls;
    m->n_calls = json_array_size(list);
    json_array_foreach (list, k, call) {
        snprintf(where, sizeof where, "messages[%zu].tool_calls[%zu]", i, k);
        if (read_call(&r->calls[r->n_calls++], call, where, e) < 0)
            return -1;
    }
    return 0;
}

/* A result says which call it answers; the template goes by the order alone. */
static int check_call_id(const json_t *message, size_t i, struct api_error *e)
{
    char param[64];

    if (json_is_string(json_body_get(message, "tool_call_id")))
        return 0;
    snprintf(param, sizeof param, "messages[%zu].tool_call_id", i);
    return api_error_field(e, "missing_required_parameter", param,
                           "'%s' must be the id of a call.", param);
}

/* Kept by the template only behind the last question. */
static int read_reasoning_of(struct chat_message *m, const json_t *message, size_t i,
                             struct api_error *e)
{
    static const char *const keys[] = { "reasoning", "reasoning_content" };
    char param[64];

    for (size_t k = 0; k < 2 && m->role == CHAT_ASSISTANT; k++) {
        const json_t *v = json_body_get(message, keys[k]);
        if (!v)
            continue;
        snprintf(param, sizeof param, "messages[%zu].%s", i, keys[k]);
        if (!json_is_string(v))
            return api_error_field(e, "invalid_type", param, "'%s' must be a string, not %s.",
                                   param, json_body_type(v));
        m->reasoning = json_string_value(v);
        m->reasoning_size = json_string_length(v);
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
    if (read_role(&m->role, message, i, e) < 0 || refuse_extras(message, i, e) < 0)
        return -1;
    if (m->role == CHAT_TOOL && check_call_id(message, i, e) < 0)
        return -1;
    if (read_content(r, m, message, i, e) < 0 || read_calls(r, m, message, i, e) < 0)
        return -1;
    return read_reasoning_of(m, message, i, e);
}

static size_t count_calls(const json_t *list)
{
    const json_t *message;
    size_t i, n = 0;

    json_array_foreach (list, i, message)
        n += json_array_size(json_object_get(message, "tool_calls"));
    return n;
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
    size_t n_calls = count_calls(list) + 1;
    if (pay(r, n * (sizeof *r->messages + sizeof *r->joined) + n_calls * sizeof *r->calls, e) < 0)
        return -1;
    r->messages = calloc(n, sizeof *r->messages);
    r->joined = calloc(n, sizeof *r->joined);
    r->calls = calloc(n_calls, sizeof *r->calls);
    if (!r->messages || !r->joined || !r->calls)
        return no_memory(e);
    for (size_t i = 0; i < n; i++)
        if (read_message(r, json_array_get(list, i), i, e) < 0)
            return -1;
    r->chat.messages = r->messages;
    r->chat.n_messages = n;
    return 0;
}
