/* JSON schemas, as far as they say of what type a value is. */
#include "daemon/openai/openai_tools.h"

#include "daemon/openai/json_body.h"

#include <string.h>

enum {
    MAX_DEPTH = 32,     /* of references and alternatives inside each other */
    MAX_POINTER = 256, /* bytes of a reference */
};

struct walk {
    const json_t *root;
    uint32_t *steps;
};

/* ---- references ---- */

/* One token of a JSON pointer (RFC 6901) from *at to the next slash, unescaped. */
static size_t take_token(char *out, const char **at)
{
    size_t n = 0;

    for (; **at && **at != '/'; ++*at) {
        char c = **at;
        if (c == '~' && ((*at)[1] == '0' || (*at)[1] == '1')) {
            c = (*at)[1] == '0' ? '~' : '/';
            ++*at;
        }
        out[n++] = c;
    }
    return n;
}

static const json_t *step_into(const json_t *v, const char *token, size_t size)
{
    size_t index = 0;

    if (json_is_object(v))
        return json_object_getn(v, token, size);
    for (size_t i = 0; i < size; i++) {
        if (token[i] < '0' || token[i] > '9' || index > json_array_size(v))
            return NULL;
        index = index * 10 + (size_t)(token[i] - '0');
    }
    return size ? json_array_get(v, index) : NULL;
}

const json_t *openai_schema_follow(const json_t *ref, const json_t *root)
{
    const char *at = json_string_value(ref);
    char token[MAX_POINTER];

    if (!at || at[0] != '#' || json_string_length(ref) >= sizeof token)
        return NULL;
    for (at++; root && *at == '/';) {
        at++;
        size_t size = take_token(token, &at);
        root = step_into(root, token, size);
    }
    return *at ? NULL : root;
}

/* ---- types ---- */

static unsigned type_of_name(const json_t *name)
{
    static const struct {
        const char *name;
        unsigned bit;
    } names[] = { { "string", REPLY_MAY_STRING },   { "integer", REPLY_MAY_INTEGER },
                  { "number", REPLY_MAY_NUMBER },   { "boolean", REPLY_MAY_BOOLEAN },
                  { "null", REPLY_MAY_NULL },       { "object", REPLY_MAY_OBJECT },
                  { "array", REPLY_MAY_ARRAY } };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_body_is(name, names[i].name))
            return names[i].bit;
    return 0;
}

static unsigned type_of_value(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        return REPLY_MAY_STRING;
    case JSON_INTEGER:
        return REPLY_MAY_INTEGER;
    case JSON_REAL:
        return REPLY_MAY_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return REPLY_MAY_BOOLEAN;
    case JSON_OBJECT:
        return REPLY_MAY_OBJECT;
    case JSON_ARRAY:
        return REPLY_MAY_ARRAY;
    default:
        return REPLY_MAY_NULL;
    }
}

static bool may_go_on(struct walk *w)
{
    return *w->steps > 0 && (*w->steps)-- > 0;
}

static unsigned type_names(struct walk *w, const json_t *type)
{
    unsigned bits = type_of_name(type);
    const json_t *one;
    size_t i;

    json_array_foreach (type, i, one) {
        if (!may_go_on(w))
            return 0;
        bits |= type_of_name(one);
    }
    return bits;
}

static unsigned types_of_values(struct walk *w, const json_t *list)
{
    unsigned bits = 0;
    const json_t *one;
    size_t i;

    json_array_foreach (list, i, one) {
        if (!may_go_on(w))
            return 0;
        bits |= type_of_value(one);
    }
    return bits;
}

static unsigned types_at(struct walk *w, const json_t *schema, uint32_t depth);

/* Any of the alternatives; one that nothing is known of may be anything. */
static unsigned types_of_any(struct walk *w, const json_t *list, uint32_t depth)
{
    unsigned bits = 0, one;
    const json_t *schema;
    size_t i;

    json_array_foreach (list, i, schema) {
        one = types_at(w, schema, depth);
        if (!one)
            return 0;
        bits |= one;
    }
    return bits;
}

/* All of them at once: the first that says something. */
static unsigned types_of_all(struct walk *w, const json_t *list, uint32_t depth)
{
    unsigned bits = 0;
    const json_t *schema;
    size_t i;

    json_array_foreach (list, i, schema) {
        bits = types_at(w, schema, depth);
        if (bits || *w->steps == 0)
            break;
    }
    return bits;
}

/* The most direct word counts. 0: the schema does not say. */
static unsigned types_said(struct walk *w, const json_t *schema, uint32_t depth)
{
    const json_t *v;
    unsigned bits = 0;

    if ((v = json_object_get(schema, "type")))
        bits = type_names(w, v);
    if (!bits && (v = json_object_get(schema, "const")))
        bits = type_of_value(v);
    if (!bits && (v = json_object_get(schema, "enum")))
        bits = types_of_values(w, v);
    if (!bits && (v = json_object_get(schema, "$ref")))
        bits = types_at(w, openai_schema_follow(v, w->root), depth + 1);
    if (!bits && (v = json_object_get(schema, "anyOf")))
        bits = types_of_any(w, v, depth + 1);
    if (!bits && (v = json_object_get(schema, "oneOf")))
        bits = types_of_any(w, v, depth + 1);
    if (!bits && (v = json_object_get(schema, "allOf")))
        bits = types_of_all(w, v, depth + 1);
    if (!bits && json_object_get(schema, "properties"))
        bits = REPLY_MAY_OBJECT;
    if (!bits && json_object_get(schema, "items"))
        bits = REPLY_MAY_ARRAY;
    return bits;
}

static unsigned types_at(struct walk *w, const json_t *schema, uint32_t depth)
{
    if (depth > MAX_DEPTH || !json_is_object(schema) || !may_go_on(w))
        return 0;
    unsigned bits = types_said(w, schema, depth);
    /* OpenAPI's spelling. */
    if (bits && json_is_true(json_object_get(schema, "nullable")))
        bits |= REPLY_MAY_NULL;
    return bits;
}

unsigned openai_schema_types(const json_t *schema, const json_t *root, uint32_t *steps)
{
    struct walk w = { root, steps };
    unsigned bits = types_at(&w, schema, 0);

    return bits ? bits : REPLY_MAY_STRING;
}
