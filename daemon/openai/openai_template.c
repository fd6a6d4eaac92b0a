/* How the chat template is to treat the messages: thinking, and the turn that comes. */
#include "daemon/openai/openai_fields.h"

#include "daemon/conf/conf.h"
#include "daemon/openai/json_body.h"

#include <stdio.h>
#include <string.h>

/* What was said about thinking so far, weakest first: what is said more explicitly wins. */
struct wishes {
    struct openai_request *r;
    bool off_by_effort; /* thinking was switched off by an effort of "none" */
};

static int not_an_object(struct api_error *e, const char *key, const json_t *v)
{
    return json_body_wants(e, key, "an object", v);
}

static int read_switch(struct wishes *w, const json_t *o, const char *key, struct api_error *e)
{
    bool on;

    if (!json_body_get(o, key))
        return 0;
    if (json_body_bool(&on, o, key, e) < 0)
        return -1;
    w->r->chat.thinking = on ? THINKING_ON : THINKING_OFF;
    w->off_by_effort = false;
    return 0;
}

/* A later effort takes back an earlier "none", but not a switch. */
static void set_effort(struct wishes *w, enum chat_effort effort)
{
    w->r->chat.effort = effort;
    if (w->off_by_effort)
        w->r->chat.thinking = THINKING_DEFAULT;
    w->off_by_effort = false;
}

static void set_no_effort(struct wishes *w)
{
    w->r->chat.effort = EFFORT_DEFAULT;
    w->r->chat.thinking = THINKING_OFF;
    w->off_by_effort = true;
}

static int read_effort(struct wishes *w, const json_t *o, const char *key, struct api_error *e)
{
    const json_t *v = json_body_get(o, key);

    if (!v)
        return 0;
    if (json_body_is(v, "none")) {
        set_no_effort(w);
        return 0;
    }
    for (enum chat_effort effort = EFFORT_MINIMAL; effort < N_CHAT_EFFORTS; effort++)
        if (json_body_is(v, chat_effort_name(effort))) {
            set_effort(w, effort);
            return 0;
        }
    return api_error_field(e, "invalid_value", key,
                           "'%s' must be none, minimal, low, medium, high, xhigh or max.", key);
}

static int read_preserve(struct wishes *w, const json_t *o, struct api_error *e)
{
    bool on = w->r->chat.preserve_thinking == PRESERVE_ON;

    if (!json_body_get(o, "preserve_thinking"))
        return 0;
    if (json_body_bool(&on, o, "preserve_thinking", e) < 0)
        return -1;
    w->r->chat.preserve_thinking = on ? PRESERVE_ON : PRESERVE_OFF;
    return 0;
}

/* {"effort", "enabled", "exclude"} */
static int read_reasoning(struct wishes *w, const json_t *root, struct api_error *e)
{
    const json_t *v = json_body_get(root, "reasoning");
    bool exclude = false;

    if (!v)
        return 0;
    if (!json_is_object(v))
        return not_an_object(e, "reasoning", v);
    if (read_effort(w, v, "effort", e) < 0 || read_switch(w, v, "enabled", e) < 0 ||
        json_body_bool(&exclude, v, "exclude", e) < 0)
        return -1;
    w->r->hide_reasoning |= exclude;
    return 0;
}

/* {"type": "enabled" or "disabled"} */
static int read_thinking_object(struct wishes *w, const json_t *root, struct api_error *e)
{
    const json_t *v = json_body_get(root, "thinking");
    const json_t *type = json_object_get(v, "type");

    if (!v)
        return 0;
    if (!json_is_object(v))
        return not_an_object(e, "thinking", v);
    bool on = json_body_is(type, "enabled");
    if (!on && !json_body_is(type, "disabled"))
        return api_error_field(e, "invalid_value", "thinking.type",
                               "'thinking.type' must be enabled or disabled.");
    w->r->chat.thinking = on ? THINKING_ON : THINKING_OFF;
    w->off_by_effort = false;
    return 0;
}

/* All of them become variables of the template; those that we know are looked at too. */
static int read_template_kwargs(struct wishes *w, const json_t *root, struct api_error *e)
{
    static const char *const reserved[] = { "messages", "tools", "add_generation_prompt",
                                            "bos_token", "eos_token" };
    static const char *const known[] = { "enable_thinking", "reasoning_effort",
                                         "preserve_thinking" };
    json_t *v = json_body_get(root, "chat_template_kwargs");
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
    /* null is as good as absent, which templates tell from None. */
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (json_is_null(json_object_get(v, known[i])))
            json_object_del(v, known[i]);
    w->r->kwargs = v;
    if (read_effort(w, v, "reasoning_effort", e) < 0 ||
        read_switch(w, v, "enable_thinking", e) < 0)
        return -1;
    return read_preserve(w, v, e);
}

static int read_thinking(struct openai_request *r, const struct conf *conf, struct api_error *e)
{
    struct wishes w = { .r = r };

    if (conf->reasoning_effort == CONF_EFFORT_NONE)
        set_no_effort(&w);
    else
        set_effort(&w, (enum chat_effort)conf->reasoning_effort);
    if (read_effort(&w, r->root, "reasoning_effort", e) < 0 ||
        read_reasoning(&w, r->root, e) < 0 || read_thinking_object(&w, r->root, e) < 0)
        return -1;
    if (read_switch(&w, r->root, "enable_thinking", e) < 0 || read_preserve(&w, r->root, e) < 0)
        return -1;
    return read_template_kwargs(&w, r->root, e);
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

int openai_read_template(struct openai_request *r, const struct openai_rules *rules,
                         struct api_error *e)
{
    r->chat.late_system = (enum chat_late_system)rules->conf->late_system;
    if (read_turn(r, e) < 0)
        return -1;
    return read_thinking(r, rules->conf, e);
}
