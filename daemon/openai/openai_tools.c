#include "daemon/openai/openai_tools_parts.h"

#include "daemon/openai/json_body.h"
#include "daemon/openai/json_read.h"
#include "daemon/openai/openai_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what may be offered ---- */

static bool is_name(const char *name, size_t size)
{
    static const char others[] = "_.:-";

    for (size_t i = 0; i < size; i++) {
        char c = name[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z') &&
            (!c || !strchr(others, c)))
            return false;
    }
    return size >= 1 && size <= OPENAI_MAX_TOOL_NAME;
}

static int check_name(const json_t *function, const char *where, struct api_error *e)
{
    const json_t *v = json_body_get(function, "name");
    char param[128];

    snprintf(param, sizeof param, "%s.name", where);
    if (!v)
        return json_body_missing(e, param);
    if (!json_is_string(v))
        return json_body_wants(e, param, "a string", v);
    if (!is_name(json_string_value(v), json_string_length(v)))
        return api_error_field(e, "invalid_value", param,
                               "'%s' must be 1 to %d of the characters a-z A-Z 0-9 _ . : -.", param,
                               OPENAI_MAX_TOOL_NAME);
    return 0;
}

/* where: "tools[3].function" or "functions[3]". */
static int check_function(struct openai_request *r, const json_t *function, const char *where,
                          struct api_error *e)
{
    const json_t *v;
    char param[128];
    bool strict = false;

    if (!function)
        return json_body_missing(e, where);
    if (!json_is_object(function))
        return json_body_wants(e, where, "an object", function);
    if (check_name(function, where, e) < 0)
        return -1;
    snprintf(param, sizeof param, "%s.description", where);
    v = json_body_get(function, "description");
    if (v && !json_is_string(v))
        return json_body_wants(e, param, "a string", v);
    snprintf(param, sizeof param, "%s.parameters", where);
    v = json_body_get(function, "parameters");
    if (v && !json_is_object(v))
        return json_body_wants(e, param, "an object", v);
    snprintf(param, sizeof param, "%s.strict", where);
    v = json_body_get(function, "strict");
    if (v && !json_is_boolean(v))
        return json_body_wants(e, param, "a boolean", v);
    strict = json_is_true(v);
    if (strict) /* arguments are not held to their schema */
        openai_note_ignored(r, "tools.function.strict");
    return 0;
}

static int check_tool(struct openai_request *r, const json_t *tool, size_t i, struct api_error *e)
{
    char param[64];

    snprintf(param, sizeof param, "tools[%zu]", i);
    if (!json_is_object(tool))
        return json_body_wants(e, param, "an object", tool);
    snprintf(param, sizeof param, "tools[%zu].type", i);
    const json_t *type = json_body_get(tool, "type");
    if (!type)
        return json_body_missing(e, param);
    if (!json_is_string(type))
        return json_body_wants(e, param, "a string", type);
    if (!json_body_is(type, "function"))
        return api_error_field(e, "unsupported_tool_type", param,
                               "'%s': tools of type '%.60s' are not supported, only 'function'.",
                               param, json_string_value(type));
    snprintf(param, sizeof param, "tools[%zu].function", i);
    return check_function(r, json_body_get(tool, "function"), param, e);
}

/* ---- each name once ---- */

int openai_tools_compare(const json_t *a, const json_t *b)
{
    size_t x = json_string_length(a), y = json_string_length(b);
    int order = memcmp(json_string_value(a), json_string_value(b), x < y ? x : y);

    return order ? order : (x > y) - (x < y);
}

static int by_name(const void *a, const void *b)
{
    const struct tool_name *x = a, *y = b;
    int order = openai_tools_compare(x->name, y->name);

    return order ? order : (x->index > y->index) - (x->index < y->index);
}

json_t *openai_tools_function(const json_t *tool)
{
    return json_object_get(tool, "function");
}

static void drop_names(const struct openai_request *r, struct tool_names *names)
{
    free(names->sorted);
    quota_give(r->quota, names->cost);
}

static int sort_names(struct tool_names *out, struct openai_request *r, struct api_error *e)
{
    struct tool_names names = { .n = json_array_size(r->tools) };

    *out = names;
    if (names.n == 0)
        return 0;
    if (openai_pay(r, &out->cost, names.n * sizeof *names.sorted, "tools", e) < 0)
        return -1;
    out->sorted = calloc(names.n, sizeof *names.sorted);
    if (!out->sorted)
        return api_error_no_memory(e);
    for (size_t i = 0; i < names.n; i++)
        out->sorted[i] = (struct tool_name){
            json_object_get(openai_tools_function(json_array_get(r->tools, i)), "name"), i };
    qsort(out->sorted, names.n, sizeof *names.sorted, by_name);
    return 0;
}

static int check_doubles(const struct openai_request *r, const struct tool_names *names,
                         struct api_error *e)
{
    size_t second = names->n;
    char param[64];

    for (size_t i = 1; i < names->n; i++)
        if (names->sorted[i].index < second &&
            openai_tools_compare(names->sorted[i].name, names->sorted[i - 1].name) == 0)
            second = names->sorted[i].index;
    if (second == names->n)
        return 0;
    snprintf(param, sizeof param,
             r->offer.legacy ? "functions[%zu].name" : "tools[%zu].function.name", second);
    return api_error_field(e, "invalid_value", param,
                           "'%s' is the name of an earlier function too; each needs its own.",
                           param);
}

/* ---- the two ways to offer ---- */

/* As they came: the template may render what we do not know. */
static int take_tools(struct openai_request *r, json_t *list, struct api_error *e)
{
    const json_t *tool;
    size_t i;

    json_array_foreach (list, i, tool)
        if (check_tool(r, tool, i, e) < 0)
            return -1;
    r->tools = json_incref(list);
    return 0;
}

/* Each is wrapped as a tool. */
static int take_functions(struct openai_request *r, json_t *list, struct api_error *e)
{
    size_t n = json_array_size(list), i;
    json_t *function;
    char where[64];

    json_array_foreach (list, i, function) {
        snprintf(where, sizeof where, "functions[%zu]", i);
        if (check_function(r, function, where, e) < 0)
            return -1;
    }
    uint64_t entry = JSON_COST_OBJECT + 2 * (uint64_t)(JSON_COST_MEMBER + JSON_COST_ELEMENT);
    if (openai_pay(r, &r->cost, JSON_COST_ARRAY + n * entry, "tools", e) < 0)
        return -1;
    r->tools = json_array();
    json_array_foreach (list, i, function) {
        json_t *tool = json_pack("{s:s, s:O}", "type", "function", "function", function);
        if (!tool || json_array_append_new(r->tools, tool) < 0)
            return api_error_no_memory(e);
    }
    return r->tools ? 0 : api_error_no_memory(e);
}

static int read_offer(struct openai_request *r, struct api_error *e)
{
    json_t *tools = json_body_get(r->root, "tools");
    json_t *functions = json_body_get(r->root, "functions");

    if (tools && !json_is_array(tools))
        return json_body_wants(e, "tools", "an array", tools);
    if (functions && !json_is_array(functions))
        return json_body_wants(e, "functions", "an array", functions);
    bool some = json_array_size(tools) > 0;
    if (some && json_array_size(functions) > 0)
        return api_error_field(e, "invalid_value", "functions",
                               "'functions' and 'tools' exclude each other; 'tools' is the newer.");
    if (!some && json_array_size(functions) == 0)
        return 0;
    r->offer.legacy = !some;
    r->offer.choice = OPENAI_TOOLS_AUTO;
    r->offer.one_call = r->offer.legacy;
    return some ? take_tools(r, tools, e) : take_functions(r, functions, e);
}

/* ---- all of it ---- */

int openai_read_tools(struct openai_request *r, struct api_error *e)
{
    struct tool_names names = { 0 };
    bool parallel = true;

    if (json_body_bool(&parallel, r->root, "parallel_tool_calls", e) < 0 || read_offer(r, e) < 0)
        return -1;
    int rc = sort_names(&names, r, e);
    if (rc == 0)
        rc = check_doubles(r, &names, e);
    if (rc == 0)
        rc = openai_read_tool_choice(r, &names, e);
    drop_names(r, &names);
    if (rc < 0)
        return -1;
    r->offer.one_call |= !parallel;
    if (r->tools && openai_make_tool_table(r, e) < 0)
        return -1;
    /* A call of the only one there is: its name need not be left to the model. */
    if (r->offer.choice == OPENAI_TOOLS_REQUIRED && r->offer.n == 1) {
        r->offer.choice = OPENAI_TOOLS_NAMED;
        r->offer.named = 0;
    }
    return 0;
}

void openai_tools_done(struct openai_tools *t)
{
    free(t->table);
    if (t->cost)
        quota_give(t->quota, t->cost);
    *t = (struct openai_tools){ 0 };
}
