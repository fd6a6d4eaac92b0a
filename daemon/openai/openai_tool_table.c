/* The table of tools that a reply is parsed by: names, and of what type each argument may be. */
#include "daemon/openai/openai_tools_parts.h"

#include "daemon/openai/openai_fields.h"

#include "util/size.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Looks at schemas: those of a parameter, and beyond them what references and alternatives of
     * one body may add. A look takes a microsecond at most. */
    STEPS_OF_PARAMETER = 4,
    STEPS_OF_BODY = 1 << 16,
};

/* Where things go; the first pass only counts. */
struct table {
    struct reply_tool *tool;
    struct reply_parameter *parameter;
    char *text;
};

/* What describes the arguments: some generators put it behind a reference. */
static const json_t *schema_of(const json_t *function)
{
    const json_t *schema = json_object_get(function, "parameters");
    const json_t *behind = openai_schema_follow(json_object_get(schema, "$ref"), schema);

    return behind ? behind : schema;
}

static const json_t *properties_of(const json_t *function)
{
    const json_t *v = json_object_get(schema_of(function), "properties");

    return json_is_object(v) ? v : NULL;
}

static int count_table(uint64_t *size, uint64_t *n_parameters, const json_t *tools)
{
    const json_t *tool, *v;
    const char *key;
    uint64_t text = 0, parameters = 0, bytes, more;
    size_t i;

    json_array_foreach (tools, i, tool) {
        text += json_string_length(json_object_get(openai_tools_function(tool), "name"));
        const json_t *properties = properties_of(openai_tools_function(tool));
        parameters += json_object_size(properties);
        json_object_foreach ((json_t *)(uintptr_t)properties, key, v)
            text += strlen(key);
    }
    *n_parameters = parameters;
    return size_mul(&bytes, json_array_size(tools), sizeof(struct reply_tool)) &&
                   size_mul(&more, parameters, sizeof(struct reply_parameter)) &&
                   size_add(&bytes, bytes, more) && size_add(size, bytes, text)
               ? 0
               : -1;
}

static const char *keep_text(struct table *t, const char *text, size_t size)
{
    char *kept = t->text;

    memcpy(kept, text, size);
    t->text += size;
    return kept;
}

static int by_text_of(const void *a, const void *b)
{
    const json_t *const *x = a, *const *y = b;

    return openai_tools_compare(*x, *y);
}

static int key_and_text(const void *key, const void *element)
{
    const json_t *const *text = element;
    const struct reply_parameter *p = key;
    size_t size = json_string_length(*text);
    int order = memcmp(p->name, json_string_value(*text), p->size < size ? p->size : size);

    return order ? order : (p->size > size) - (p->size < size);
}

/* Marks what the schema lists as required. */
static int mark_required(struct openai_request *r, struct reply_parameter *p, size_t n,
                         const json_t *list, struct api_error *e)
{
    size_t n_listed = 0, i, most = json_array_size(list);
    uint64_t cost = 0;
    const json_t *one;

    if (n == 0 || most == 0)
        return 0;
    if (openai_pay(r, &cost, most * sizeof one, "tools", e) < 0)
        return -1;
    const json_t **listed = calloc(most, sizeof *listed);
    if (!listed) {
        quota_give(r->quota, cost);
        return api_error_no_memory(e);
    }
    json_array_foreach (list, i, one)
        if (json_is_string(one))
            listed[n_listed++] = one;
    qsort(listed, n_listed, sizeof *listed, by_text_of);
    for (i = 0; i < n; i++)
        p[i].required = bsearch(&p[i], listed, n_listed, sizeof *listed, key_and_text) != NULL;
    free(listed);
    quota_give(r->quota, cost);
    return 0;
}

static int fill_tool(struct openai_request *r, struct table *t, const json_t *function,
                     uint32_t *steps, struct api_error *e)
{
    const json_t *root = json_object_get(function, "parameters");
    json_t *properties = (json_t *)(uintptr_t)properties_of(function), *v;
    const json_t *name = json_object_get(function, "name");
    const char *key;

    *t->tool = (struct reply_tool){
        .name = keep_text(t, json_string_value(name), json_string_length(name)),
        .size = json_string_length(name),
        .parameters = t->parameter,
        .n_parameters = json_object_size(properties),
    };
    json_object_foreach (properties, key, v) {
        size_t size = strlen(key);
        *t->parameter++ = (struct reply_parameter){
            .name = keep_text(t, key, size), .size = size,
            .types = openai_schema_types(v, root, steps),
        };
    }
    struct reply_tool *tool = t->tool++;
    return mark_required(r, t->parameter - tool->n_parameters, tool->n_parameters,
                         json_object_get(schema_of(function), "required"), e);
}

int openai_make_tool_table(struct openai_request *r, struct api_error *e)
{
    struct openai_tools *o = &r->offer;
    uint64_t size, n_parameters;
    const json_t *tool;
    size_t i, n = json_array_size(r->tools);

    o->quota = r->quota;
    if (count_table(&size, &n_parameters, r->tools) < 0)
        return api_error_no_memory(e);
    if (openai_pay(r, &o->cost, size, "tools", e) < 0)
        return -1;
    o->table = malloc(size);
    if (!o->table)
        return api_error_no_memory(e);
    uint64_t steps = STEPS_OF_BODY + n_parameters * STEPS_OF_PARAMETER;
    uint32_t left = steps > UINT32_MAX ? UINT32_MAX : (uint32_t)steps;
    struct reply_tool *tools = o->table;
    struct reply_parameter *parameters = (void *)(tools + n);
    struct table t = { tools, parameters, (char *)(parameters + n_parameters) };
    json_array_foreach (r->tools, i, tool)
        if (fill_tool(r, &t, openai_tools_function(tool), &left, e) < 0)
            return -1;
    o->tools = tools;
    o->n = n;
    return 0;
}
