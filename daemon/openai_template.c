/* How the chat template is to treat the messages: thinking, and the turn that comes. */
#include "daemon/openai_fields.h"

#include "daemon/json_body.h"

#include <stdio.h>
#include <string.h>

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
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (json_body_is(v, efforts[i])) {
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
    const json_t *type = json_object_get(v, "type");

    if (!v)
        return 0;
    if (!json_is_object(v))
        return not_an_object(e, "thinking", v);
    if (json_body_is(type, "enabled"))
        c->thinking = THINKING_ON;
    else if (json_body_is(type, "disabled"))
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

int openai_read_template(struct openai_request *r, struct api_error *e)
{
    if (read_turn(r, e) < 0)
        return -1;
    return read_thinking(&r->chat, r->root, e);
}
