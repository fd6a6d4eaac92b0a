#include "daemon/openai/template_values.h"

#include "daemon/openai/json_read.h"
#include "text/jinja.h"
#include "util/err.h"

#include <string.h>

enum { MAX_DEPTH = 256 };

struct walk {
    struct jinja_mem *m;
    const json_t *root;
    uint32_t depth;
    struct err *err;
};

static const struct jinja_value *value_of(struct walk *w, const json_t *v);

static const struct jinja_value *list_of(struct walk *w, const json_t *v)
{
    struct jinja_value *list = jinja_list(w->m);
    const json_t *one;
    size_t i;

    json_array_foreach (v, i, one) {
        const struct jinja_value *item = list ? value_of(w, one) : NULL;
        if (!item || jinja_list_add(w->m, list, item) < 0)
            return NULL;
    }
    return list;
}

static const struct jinja_value *dict_of(struct walk *w, const json_t *v)
{
    struct jinja_value *dict = jinja_dict(w->m);
    json_t *object = (json_t *)(uintptr_t)v; /* jansson's iterators only read */
    const char *key;
    json_t *one;

    json_object_foreach (object, key, one) {
        const struct jinja_value *member = dict ? value_of(w, one) : NULL;
        if (!member || jinja_dict_put(w->m, dict, key, strlen(key), member) < 0)
            return NULL;
    }
    return dict;
}

static const struct jinja_value *number_of(struct walk *w, const json_t *v)
{
    const char *digits = json_read_digits(w->root, v);

    if (digits)
        return jinja_digits(w->m, digits, strlen(digits));
    return json_is_integer(v) ? jinja_int(w->m, json_integer_value(v))
                              : jinja_float(w->m, json_real_value(v));
}

static const struct jinja_value *value_of(struct walk *w, const json_t *v)
{
    const struct jinja_value *out;

    switch (json_typeof(v)) {
    case JSON_STRING:
        return jinja_text(w->m, json_string_value(v), json_string_length(v));
    case JSON_INTEGER:
    case JSON_REAL:
        return number_of(w, v);
    case JSON_TRUE:
    case JSON_FALSE:
        return jinja_bool(w->m, json_is_true(v));
    case JSON_NULL:
        return jinja_null(w->m);
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    if (w->depth == MAX_DEPTH) {
        err_set(w->err, ERR_INPUT, "a value nests deeper than the %d levels that a chat template "
                                   "takes", MAX_DEPTH);
        return NULL;
    }
    w->depth++;
    out = json_is_array(v) ? list_of(w, v) : dict_of(w, v);
    w->depth--;
    return out;
}

const struct jinja_value *template_value(struct jinja_mem *m, const json_t *root, const json_t *v,
                                         struct err *err)
{
    struct walk w = { .m = m, .root = root, .err = err };

    /* Whatever fails and says nothing found no memory. */
    err_set(err, ERR_BUDGET, "a request's values take more memory than rendering may");
    return value_of(&w, v);
}
