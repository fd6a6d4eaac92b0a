/* What filters, tests and methods share; tests themselves, which are short. */
#include "text/jinja_tables.h"

#include "text/jinja_run.h"
#include "util/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- arguments ---- */

const struct jinja_value *jinja_arg(const struct jinja_args *args, size_t i, const char *name)
{
    for (size_t k = 0; k < args->n; k++)
        if (args->keyword[k] ? name && strcmp(args->keyword[k], name) == 0 : k == i)
            return args->value[k];
    return NULL;
}

/* How many words "a b c" has, and whether name is one of them. */
static size_t words(const char *names, const char *name, bool *found)
{
    size_t n = 0, size = name ? strlen(name) : 0;

    *found = false;
    for (const char *p = names; *p; n++) {
        size_t k = strcspn(p, " ");
        if (name && k == size && memcmp(p, name, k) == 0)
            *found = true;
        p += k + (p[k] == ' ');
    }
    return n;
}

int jinja_args_check(struct jinja_run *r, const struct jinja_args *args, const char *what,
                     const char *names, size_t least)
{
    bool found;
    size_t most = words(names, NULL, &found);

    for (size_t i = 0; i < args->n; i++) {
        if (!args->keyword[i])
            continue;
        words(names, args->keyword[i], &found);
        if (!found) {
            jinja_fail(r, "%s does not take '%s'", what, args->keyword[i]);
            return -1;
        }
    }
    if (args->n > most || args->n < least) {
        jinja_fail(r, "%s takes %zu to %zu arguments, not %zu", what, least, most, args->n);
        return -1;
    }
    return 0;
}

const struct jinja_value *jinja_new_items(struct jinja_run *r, enum jinja_type type,
                                          struct jinja_items **items)
{
    struct jinja_value *v = jinja_list(r->m);

    if (!v)
        return jinja_fail_memory(r);
    v->type = type;
    *items = v->items;
    return v;
}

/* ---- walking ---- */

static const struct jinja_items *characters(struct jinja_mem *m, const struct jinja_value *s)
{
    struct jinja_items *out = jinja_take(m, sizeof *out);
    const char *flat = jinja_str_flat(m, s);

    for (size_t at = 0; out && flat && at < s->s.size;) {
        int k = utf8_next(flat + at, s->s.size - at, NULL);
        size_t n = k > 0 ? (size_t)k : 1;
        if (jinja_items_add(m, out, jinja_str_part(m, s, at, at + n)) < 0)
            return NULL;
        at += n;
    }
    return flat ? out : NULL;
}

const struct jinja_items *jinja_walk(struct jinja_mem *m, const struct jinja_value *v, bool *full)
{
    struct jinja_items *out;

    *full = false;
    switch (v->type) {
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_STREAM:
    case JINJA_VIEW:
        return v->items;
    case JINJA_STR: {
        const struct jinja_items *all = characters(m, v);
        *full = !all;
        return all;
    }
    case JINJA_UNDEFINED:
    case JINJA_DICT:
        out = jinja_take(m, sizeof *out);
        for (size_t i = 0; out && v->type == JINJA_DICT && i < v->map->n; i++)
            if (jinja_items_add(m, out, v->map->entry[i].key) < 0)
                out = NULL;
        *full = !out;
        return out;
    default:
        return NULL;
    }
}

const struct jinja_items *jinja_walked(struct jinja_run *r, const struct jinja_value *v)
{
    bool full = false;
    const struct jinja_items *items = NULL;

    if (v->type == JINJA_STREAM && !v->items) {
        jinja_fail(r, "%s", v->broken);
        return NULL;
    }
    items = jinja_walk(r->m, v, &full);
    if (full)
        jinja_fail_memory(r);
    else if (!items)
        jinja_fail(r, "'%s' object is not iterable", jinja_type_name(v));
    return items;
}

const struct jinja_value *jinja_spelled(struct jinja_run *r, const struct jinja_value *v)
{
    const char *why;
    const struct jinja_value *text = jinja_to_str(r->m, v, &why);

    if (text)
        return text;
    return why ? jinja_fail_unbuilt(r, why) : jinja_fail_memory(r);
}

/* ---- tests ---- */

static int is_defined(struct jinja_run *r, const struct jinja_value *v,
                      const struct jinja_value *const *args)
{
    (void)r;
    (void)args;
    return v->type != JINJA_UNDEFINED;
}

static int is_undefined(struct jinja_run *r, const struct jinja_value *v,
                        const struct jinja_value *const *args)
{
    return !is_defined(r, v, args);
}

static int is_none(struct jinja_run *r, const struct jinja_value *v,
                   const struct jinja_value *const *args)
{
    (void)r;
    (void)args;
    return v->type == JINJA_NONE;
}

static int is_boolean(struct jinja_run *r, const struct jinja_value *v,
                      const struct jinja_value *const *args)
{
    (void)r;
    (void)args;
    return v->type == JINJA_BOOL;
}

static int is_true(struct jinja_run *r, const struct jinja_value *v,
                   const struct jinja_value *const *args)
{
    (void)r;
    (void)args;
    return v->type == JINJA_BOOL && v->on;
}

static int is_false(struct jinja_run *r, const struct jinja_value *v,
                    const struct jinja_value *const *args)
{
    (void)r;
    (void)args;
    return v->type == JINJA_BOOL && !v->on;
}

static int is_integer(struct jinja_run *r, const struct jinja_value *v,
                      const struct jinja_value *const *args)
{
    (void)r;
    (void)args;
    return v->type == JINJA_INT || v->type == JINJA_BIG;
}

static int is_float(struct jinja_run *r, const struct jinja_value *v,
                    const struct jinja_value *const *args)
{
    (void)r;
    (void)args;
    return v->type == JINJA_FLOAT;
}

static int is_number(struct jinja_run *r, const struct jinja_value *v,
                     const struct jinja_value *const *args)
{
    (void)r;
    (void)args;
    return jinja_is_number(v) || v->type == JINJA_BIG;
}

static int is_string(struct jinja_run *r, const struct jinja_value *v,
                     const struct jinja_value *const *args)
{
    (void)r;
    (void)args;
    return v->type == JINJA_STR;
}

static int is_mapping(struct jinja_run *r, const struct jinja_value *v,
                      const struct jinja_value *const *args)
{
    (void)r;
    (void)args;
    return v->type == JINJA_DICT;
}

/* Undefined counts as an empty one, in Jinja2 too. */
static int is_sequence(struct jinja_run *r, const struct jinja_value *v,
                       const struct jinja_value *const *args)
{
    (void)r;
    (void)args;
    return v->type == JINJA_STR || v->type == JINJA_LIST || v->type == JINJA_TUPLE ||
           v->type == JINJA_DICT || v->type == JINJA_UNDEFINED;
}

static int is_iterable(struct jinja_run *r, const struct jinja_value *v,
                       const struct jinja_value *const *args)
{
    return is_sequence(r, v, args) || v->type == JINJA_STREAM || v->type == JINJA_VIEW ||
           v->type == JINJA_LOOP;
}

static int is_callable(struct jinja_run *r, const struct jinja_value *v,
                       const struct jinja_value *const *args)
{
    (void)r;
    (void)args;
    return v->type == JINJA_MACRO || v->type == JINJA_METHOD || v->type == JINJA_FUNCTION ||
           v->type == JINJA_UNDEFINED;
}

/* Whether v, divided by `by`, leaves `rest`; a float may too. */
static int divides(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *by,
                   int64_t rest)
{
    if (!jinja_is_number(v) || !jinja_is_number(by)) {
        jinja_fail(r, "a number is needed, not '%s'",
                   jinja_type_name(jinja_is_number(v) ? by : v));
        return -1;
    }
    if (jinja_number(by) == 0) {
        jinja_fail(r, "division by zero");
        return -1;
    }
    if (v->type == JINJA_FLOAT || by->type == JINJA_FLOAT)
        return fabs(fmod(jinja_number(v), jinja_number(by))) == (double)rest;
    int64_t n = v->type == JINJA_BOOL ? v->on : v->i, d = by->type == JINJA_BOOL ? by->on : by->i;
    return d == -1 ? rest == 0 : llabs(n % d) == rest;
}

static const struct jinja_value two = { .type = JINJA_INT, .i = 2 };

static int is_even(struct jinja_run *r, const struct jinja_value *v,
                   const struct jinja_value *const *args)
{
    (void)args;
    return divides(r, v, &two, 0);
}

static int is_odd(struct jinja_run *r, const struct jinja_value *v,
                  const struct jinja_value *const *args)
{
    (void)args;
    return divides(r, v, &two, 1);
}

static int is_divisible(struct jinja_run *r, const struct jinja_value *v,
                        const struct jinja_value *const *args)
{
    return divides(r, v, args[0], 0);
}

static int is_equal(struct jinja_run *r, const struct jinja_value *v,
                    const struct jinja_value *const *args)
{
    return jinja_same(r, v, args[0]);
}

static int is_unequal(struct jinja_run *r, const struct jinja_value *v,
                      const struct jinja_value *const *args)
{
    int same = jinja_same(r, v, args[0]);

    return same < 0 ? -1 : !same;
}

static int ordered(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *to,
                   bool less, bool equal)
{
    int rc = jinja_order(r, v, to);

    if (rc == -3)
        return -1;
    if (rc == -2) {
        jinja_fail(r, "'%s' and '%s' cannot be compared", jinja_type_name(v), jinja_type_name(to));
        return -1;
    }
    return rc == 0 ? equal : (rc < 0) == less;
}

static int is_less(struct jinja_run *r, const struct jinja_value *v,
                   const struct jinja_value *const *args)
{
    return ordered(r, v, args[0], true, false);
}

static int is_at_most(struct jinja_run *r, const struct jinja_value *v,
                      const struct jinja_value *const *args)
{
    return ordered(r, v, args[0], true, true);
}

static int is_greater(struct jinja_run *r, const struct jinja_value *v,
                      const struct jinja_value *const *args)
{
    return ordered(r, v, args[0], false, false);
}

static int is_at_least(struct jinja_run *r, const struct jinja_value *v,
                       const struct jinja_value *const *args)
{
    return ordered(r, v, args[0], false, true);
}

static int is_in(struct jinja_run *r, const struct jinja_value *v,
                 const struct jinja_value *const *args)
{
    const struct jinja_value *in = jinja_in(r, v, args[0]);

    return in ? in->on : -1;
}

/* Python's: small numbers and the like are the same object by accident, which we do not copy. */
static int is_same(struct jinja_run *r, const struct jinja_value *v,
                   const struct jinja_value *const *args)
{
    if (v == args[0])
        return 1;
    return v->type == args[0]->type && v->type <= JINJA_FLOAT && v->type != JINJA_UNDEFINED
               ? jinja_same(r, v, args[0]) : 0;
}

/* Cased letters are there, and all of them are of that case. */
static int has_case(struct jinja_run *r, const struct jinja_value *v, utf8proc_category_t wanted)
{
    const struct jinja_value *text = jinja_spelled(r, v);
    const char *s = text ? jinja_str_flat(r->m, text) : NULL;
    bool any = false;
    uint32_t cp;
    int n;

    if (!s)
        return -1;
    for (size_t at = 0; at < text->s.size; at += n > 0 ? (size_t)n : 1) {
        if ((n = utf8_next(s + at, text->s.size - at, &cp)) <= 0)
            continue;
        utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
        if (c != UTF8PROC_CATEGORY_LU && c != UTF8PROC_CATEGORY_LL && c != UTF8PROC_CATEGORY_LT)
            continue;
        if (c != wanted)
            return 0;
        any = true;
    }
    return any;
}

static int is_lower(struct jinja_run *r, const struct jinja_value *v,
                    const struct jinja_value *const *args)
{
    (void)args;
    return has_case(r, v, UTF8PROC_CATEGORY_LL);
}

static int is_upper(struct jinja_run *r, const struct jinja_value *v,
                    const struct jinja_value *const *args)
{
    (void)args;
    return has_case(r, v, UTF8PROC_CATEGORY_LU);
}

static int is_escaped(struct jinja_run *r, const struct jinja_value *v,
                      const struct jinja_value *const *args)
{
    (void)r;
    (void)v;
    (void)args;
    return 0;
}

/* The name that v is, for a look into a table. 0: no name at all. */
static int name_in(struct jinja_run *r, const struct jinja_value *v, char name[64])
{
    const char *flat = v->type == JINJA_STR ? jinja_str_flat(r->m, v) : NULL;

    if (v->type == JINJA_LIST || v->type == JINJA_DICT) {
        jinja_fail(r, "unhashable type: '%s'", jinja_type_name(v));
        return -1;
    }
    if (!flat || v->s.size >= 64)
        return 0;
    memcpy(name, flat, v->s.size);
    name[v->s.size] = '\0';
    return 1;
}

static int is_filter(struct jinja_run *r, const struct jinja_value *v,
                     const struct jinja_value *const *args)
{
    char name[64];
    bool unbuilt = false;
    int rc = name_in(r, v, name);

    (void)args;
    return rc <= 0 ? rc : jinja_filter_find(name, &unbuilt) || unbuilt;
}

static int is_test(struct jinja_run *r, const struct jinja_value *v,
                   const struct jinja_value *const *args)
{
    char name[64];
    bool unbuilt;
    int rc = name_in(r, v, name);

    (void)args;
    return rc <= 0 ? rc : jinja_test_find(name, &unbuilt) != NULL;
}

const struct jinja_test *jinja_test_find(const char *name, bool *unbuilt)
{
    static const struct jinja_test tests[] = {
        { "defined", 0, is_defined },      { "undefined", 0, is_undefined },
        { "none", 0, is_none },            { "boolean", 0, is_boolean },
        { "true", 0, is_true },            { "false", 0, is_false },
        { "integer", 0, is_integer },      { "float", 0, is_float },
        { "number", 0, is_number },        { "string", 0, is_string },
        { "mapping", 0, is_mapping },      { "sequence", 0, is_sequence },
        { "iterable", 0, is_iterable },    { "callable", 0, is_callable },
        { "even", 0, is_even },            { "odd", 0, is_odd },
        { "divisibleby", 1, is_divisible }, { "eq", 1, is_equal },
        { "==", 1, is_equal },             { "equalto", 1, is_equal },
        { "ne", 1, is_unequal },           { "!=", 1, is_unequal },
        { "lt", 1, is_less },              { "<", 1, is_less },
        { "lessthan", 1, is_less },        { "le", 1, is_at_most },
        { "<=", 1, is_at_most },           { "gt", 1, is_greater },
        { ">", 1, is_greater },            { "greaterthan", 1, is_greater },
        { "ge", 1, is_at_least },          { ">=", 1, is_at_least },
        { "in", 1, is_in },                { "sameas", 1, is_same },
        { "lower", 0, is_lower },          { "upper", 0, is_upper },
        { "escaped", 0, is_escaped },      { "filter", 0, is_filter },
        { "test", 0, is_test },
    };

    *unbuilt = false;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strcmp(tests[i].name, name) == 0)
            return &tests[i];
    return NULL;
}

/* ---- by name ---- */

static int name_of(struct jinja_run *r, const struct jinja_value *name, char text[64])
{
    const char *flat = name->type == JINJA_STR ? jinja_str_flat(r->m, name) : NULL;

    if (!flat || name->s.size >= 64) {
        jinja_fail(r, "the name of a filter or test is missing");
        return -1;
    }
    memcpy(text, flat, name->s.size);
    text[name->s.size] = '\0';
    return 0;
}

const struct jinja_value *jinja_apply_filter(struct jinja_run *r, const struct jinja_value *name,
                                             const struct jinja_value *v,
                                             const struct jinja_args *args)
{
    char text[64];
    bool unbuilt;

    if (name_of(r, name, text) < 0)
        return NULL;
    const struct jinja_filter *f = jinja_filter_find(text, &unbuilt);
    if (unbuilt)
        return jinja_fail_unbuilt(r, text);
    return f ? f->run(r, v, args) : jinja_fail(r, "no filter named '%s'", text);
}

int jinja_apply_test(struct jinja_run *r, const struct jinja_value *name,
                     const struct jinja_value *v, const struct jinja_args *args)
{
    char text[64];
    bool unbuilt;

    if (name_of(r, name, text) < 0)
        return -1;
    const struct jinja_test *t = jinja_test_find(text, &unbuilt);
    if (t && args->n == t->n_args)
        return t->run(r, v, args->value);
    jinja_fail(r, t ? "test '%s' with the wrong number of arguments" : "no test named '%s'", text);
    return -1;
}
