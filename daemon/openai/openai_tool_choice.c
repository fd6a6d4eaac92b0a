/* tool_choice, and function_call before it: may the model call, must it, and what. */
#include "daemon/openai/openai_tools_parts.h"

#include "daemon/openai/json_body.h"
#include "daemon/openai/openai_fields.h"
#include "daemon/openai/json_read.h"

#include <stdio.h>
#include <stdlib.h>

static int name_and_entry(const void *name, const void *entry)
{
    return openai_tools_compare(name, ((const struct tool_name *)entry)->name);
}

/* o.name, which must be offered. */
static int read_name(size_t *index, const struct openai_request *r, const struct tool_names *names,
                     const json_t *o, const char *where, struct api_error *e)
{
    const json_t *name = json_body_get(o, "name");
    const struct tool_name *found;
    char param[128];

    snprintf(param, sizeof param, "%s.name", where);
    if (!json_is_object(o))
        return o ? json_body_wants(e, where, "an object", o) : json_body_missing(e, where);
    if (!name)
        return json_body_missing(e, param);
    if (!json_is_string(name))
        return json_body_wants(e, param, "a string", name);
    found = bsearch(name, names->sorted, names->n, sizeof *found, name_and_entry);
    if (found) {
        *index = found->index;
        return 0;
    }
    return api_error_field(e, "invalid_value", param, "'%s': there is no function '%.64s' in '%s'.",
                           param, json_string_value(name), r->offer.legacy ? "functions" : "tools");
}

/* None, auto and required; false for another word. */
static bool is_choice(enum openai_tool_choice *out, const json_t *word)
{
    static const char *const words[] = { [OPENAI_TOOLS_NONE] = "none", [OPENAI_TOOLS_AUTO] = "auto",
                                         [OPENAI_TOOLS_REQUIRED] = "required" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (json_body_is(word, words[i])) {
            *out = (enum openai_tool_choice)i;
            return true;
        }
    return false;
}

/* Marks the allowed ones; there is a mark for each tool. */
static int mark_allowed(const struct openai_request *r, const struct tool_names *names,
                        const json_t *list, bool *allowed, struct api_error *e)
{
    char where[64];
    const json_t *tool;
    size_t i, index;

    json_array_foreach (list, i, tool) {
        snprintf(where, sizeof where, "tool_choice.allowed_tools.tools[%zu]", i);
        if (!json_is_object(tool))
            return json_body_wants(e, where, "an object", tool);
        snprintf(where, sizeof where, "tool_choice.allowed_tools.tools[%zu].function", i);
        if (read_name(&index, r, names, json_body_get(tool, "function"), where, e) < 0)
            return -1;
        allowed[index] = true;
    }
    return 0;
}

/* The others are not offered: nothing but that keeps a model from calling them. */
static int keep_allowed(struct openai_request *r, const struct tool_names *names,
                        const json_t *list, struct api_error *e)
{
    size_t n = json_array_size(r->tools);
    uint64_t cost = 0;
    int rc = -1;

    if (openai_pay(r, &cost, n, "tools", e) < 0)
        return -1;
    bool *allowed = calloc(n, sizeof *allowed);
    json_t *kept = json_array();
    if (!allowed || !kept) {
        api_error_no_memory(e);
        goto end;
    }
    if (mark_allowed(r, names, list, allowed, e) < 0 ||
        openai_pay(r, &r->cost, JSON_COST_ARRAY + n * (uint64_t)JSON_COST_ELEMENT, "tools", e) < 0)
        goto end;
    for (size_t i = 0; i < n; i++)
        if (allowed[i] && json_array_append(kept, json_array_get(r->tools, i)) < 0) {
            api_error_no_memory(e);
            goto end;
        }
    json_decref(r->tools);
    r->tools = kept;
    kept = NULL;
    rc = 0;

end:
    free(allowed);
    json_decref(kept);
    quota_give(r->quota, cost);
    return rc;
}

static int read_allowed(struct openai_request *r, const struct tool_names *names, const json_t *o,
                        struct api_error *e)
{
    const char *where = "tool_choice.allowed_tools", *mode_of = "tool_choice.allowed_tools.mode",
               *list_of = "tool_choice.allowed_tools.tools";
    const json_t *mode = json_body_get(o, "mode"), *list = json_body_get(o, "tools");

    if (!o)
        return json_body_missing(e, where);
    if (!json_is_object(o))
        return json_body_wants(e, where, "an object", o);
    if (!mode)
        return json_body_missing(e, mode_of);
    if (!is_choice(&r->offer.choice, mode) || r->offer.choice == OPENAI_TOOLS_NONE)
        return api_error_field(e, "invalid_value", mode_of, "'%s' must be auto or required.",
                               mode_of);
    if (!list)
        return json_body_missing(e, list_of);
    if (!json_is_array(list))
        return json_body_wants(e, list_of, "an array", list);
    if (json_array_size(list) == 0)
        return api_error_field(e, "empty_array", list_of, "'%s' must not be empty.", list_of);
    return keep_allowed(r, names, list, e);
}

static int read_choice_object(struct openai_request *r, const struct tool_names *names,
                              const json_t *v, struct api_error *e)
{
    const json_t *type = json_body_get(v, "type");

    if (json_body_is(type, "allowed_tools"))
        return read_allowed(r, names, json_body_get(v, "allowed_tools"), e);
    if (type && !json_body_is(type, "function"))
        return api_error_field(e, "invalid_value", "tool_choice.type",
                               "'tool_choice.type' must be function or allowed_tools.");
    r->offer.choice = OPENAI_TOOLS_NAMED;
    return read_name(&r->offer.named, r, names, json_body_get(v, "function"), "tool_choice.function", e);
}

/* Before anything is offered there is nothing to choose. */
static int read_idle_choice(const json_t *v, const char *key, const char *list, struct api_error *e)
{
    if (!v || json_body_is(v, "none") || json_body_is(v, "auto"))
        return 0;
    return api_error_field(e, "invalid_value", key, "'%s' is only allowed with '%s'.", key, list);
}

static int read_choice(struct openai_request *r, const struct tool_names *names,
                       struct api_error *e)
{
    const json_t *v = json_body_get(r->root, "tool_choice");

    if (!r->tools || r->offer.legacy)
        return read_idle_choice(v, "tool_choice", "tools", e);
    if (!v || is_choice(&r->offer.choice, v))
        return 0;
    if (json_is_object(v))
        return read_choice_object(r, names, v, e);
    if (!json_is_string(v))
        return json_body_wants(e, "tool_choice", "a string or an object", v);
    return api_error_field(e, "invalid_value", "tool_choice",
                           "'tool_choice' must be none, auto, required or an object that names a "
                           "function.");
}

static int read_function_call(struct openai_request *r, const struct tool_names *names,
                              struct api_error *e)
{
    const json_t *v = json_body_get(r->root, "function_call");

    if (!r->tools || !r->offer.legacy)
        return read_idle_choice(v, "function_call", "functions", e);
    if (!v || json_body_is(v, "auto"))
        return 0;
    if (json_body_is(v, "none")) {
        r->offer.choice = OPENAI_TOOLS_NONE;
        return 0;
    }
    if (!json_is_object(v))
        return api_error_field(e, "invalid_value", "function_call",
                               "'function_call' must be none, auto or an object with a name.");
    r->offer.choice = OPENAI_TOOLS_NAMED;
    return read_name(&r->offer.named, r, names, v, "function_call", e);
}

int openai_read_tool_choice(struct openai_request *r, const struct tool_names *names,
                            struct api_error *e)
{
    if (read_choice(r, names, e) < 0)
        return -1;
    return read_function_call(r, names, e);
}
