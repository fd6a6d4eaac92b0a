/* messages: who says what. */
#include "daemon/openai/openai_fields.h"

#include "daemon/openai/json_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_role(enum chat_role *out, const json_t *message, size_t i, struct api_error *e)
{
    static const struct {
        const char *name;
        enum chat_role role;
    } roles[] = { { "system", CHAT_SYSTEM }, { "developer", CHAT_SYSTEM },
                  { "user", CHAT_USER }, { "assistant", CHAT_ASSISTANT },
                  { "tool", CHAT_TOOL },
                  { "function", CHAT_TOOL } };
    const json_t *v = json_body_get(message, "role");
    char param[64];

    snprintf(param, sizeof param, "messages[%zu].role", i);
    if (!v)
        return json_body_missing(e, param);
    if (!json_is_string(v))
        return json_body_wants(e, param, "a string", v);
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
        if (json_body_is(v, roles[k].name)) {
            *out = roles[k].role;
            return 0;
        }
    return api_error_field(e, "invalid_value", param,
                           "'%s' must be system, developer, user, assistant or tool, not "
                           "'%.60s'.", param, json_string_value(v));
}

static int refuse_audio(const json_t *message, size_t i, struct api_error *e)
{
    char param[64];

    if (!json_body_get(message, "audio"))
        return 0;
    snprintf(param, sizeof param, "messages[%zu].audio", i);
    return api_error_field(e, "unsupported_parameter", param, "'%s' is not supported.", param);
}

/* Sent apart it wins over what the content holds. */
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
            return json_body_wants(e, param, "a string", v);
        m->reasoning = json_string_value(v);
        m->reasoning_size = json_string_length(v);
    }
    return 0;
}

/* Of use to templates that show results by the function's name. */
static int read_name(struct chat_message *m, const json_t *message, size_t i,
                     struct api_error *e)
{
    const json_t *v = json_body_get(message, "name");
    char param[64];

    if (!v || m->role != CHAT_TOOL)
        return 0;
    snprintf(param, sizeof param, "messages[%zu].name", i);
    if (!json_is_string(v))
        return json_body_wants(e, param, "a string", v);
    m->name = json_string_value(v);
    m->name_size = json_string_length(v);
    return 0;
}

static int read_message(struct openai_request *r, const json_t *message, size_t i,
                        struct api_error *e)
{
    struct chat_message *m = &r->messages[i];
    char param[64];

    snprintf(param, sizeof param, "messages[%zu]", i);
    if (!json_is_object(message))
        return json_body_wants(e, param, "an object", message);
    if (read_role(&m->role, message, i, e) < 0 || refuse_audio(message, i, e) < 0)
        return -1;
    if (openai_read_calls(r, m, message, i, e) < 0 ||
        openai_read_content(r, m, message, i, e) < 0 || read_name(m, message, i, e) < 0)
        return -1;
    return read_reasoning_of(m, message, i, e);
}

int openai_read_messages(struct openai_request *r, struct api_error *e)
{
    const json_t *list = json_body_get(r->root, "messages");
    size_t n = json_array_size(list);

    if (!list)
        return json_body_missing(e, "messages");
    if (!json_is_array(list))
        return json_body_wants(e, "messages", "an array", list);
    if (n == 0)
        return api_error_field(e, "empty_array", "messages", "'messages' must not be empty.");
    size_t n_calls = openai_count_calls(list) + 1;
    uint64_t bytes = n * (sizeof *r->messages + 2 * sizeof *r->joined) +
                     n_calls * (sizeof *r->calls + sizeof *r->call_objects);
    if (openai_pay(r, &r->cost, bytes, "messages", e) < 0)
        return -1;
    r->messages = calloc(n, sizeof *r->messages);
    r->joined = calloc(2 * n, sizeof *r->joined); /* of a message text and reasoning */
    r->calls = calloc(n_calls, sizeof *r->calls);
    r->call_objects = calloc(n_calls, sizeof *r->call_objects);
    if (!r->messages || !r->joined || !r->calls || !r->call_objects)
        return api_error_no_memory(e);
    for (size_t i = 0; i < n; i++)
        if (read_message(r, json_array_get(list, i), i, e) < 0)
            return -1;
    r->chat.messages = r->messages;
    r->chat.n_messages = n;
    return openai_order_results(r, e);
}
