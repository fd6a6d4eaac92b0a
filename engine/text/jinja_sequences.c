/* Filters over many values. */
#include "text/jinja_filters.h"

#include "text/jinja_run.h"
#include "text/jinja_text.h"
#include "util/err.h"

#include <string.h>

static int add(struct jinja_run *r, struct jinja_items *items, const struct jinja_value *v)
{
    if (jinja_items_add(r->m, items, v) == 0)
        return 0;
    jinja_fail_memory(r);
    return -1;
}

/* ---- attributes by path ---- */

/* "a.b.0" of v; numbers are indices. */
static const struct jinja_value *by_path(struct jinja_run *r, const struct jinja_value *v,
                                         const struct jinja_value *path)
{
    if (path->type != JINJA_STR)
        return jinja_item(r, v, path);
    const struct jinja_value *dot = jinja_made(r, jinja_str(r->m, ".", 1, true));
    const struct jinja_value *parts = dot ? jinja_text_split(r, path, dot, -1, false) : NULL;

    for (size_t i = 0; parts && v && i < parts->items->n; i++) {
        const struct jinja_value *key = parts->items->item[i];
        if (jinja_text_all(r, key, CLASS_DIGIT)) {
            const char *flat = jinja_str_flat(r->m, key);
            int64_t n = 0;
            for (size_t k = 0; flat && k < key->s.size && n < 1000000; k++)
                n = 10 * n + (flat[k] - '0');
            key = jinja_made(r, jinja_int(r->m, n));
        }
        v = key ? jinja_item(r, v, key) : NULL;
    }
    return parts ? v : NULL;
}

/* ---- ends and lengths ---- */

static const struct jinja_value *length(FILTER_ARGS)
{
    size_t n;

    if (jinja_args_check(r, args, "length", "", 0) < 0)
        return NULL;
    switch (v->type) {
    case JINJA_UNDEFINED:
        n = 0;
        break;
    case JINJA_STR:
        n = jinja_str_length(v);
        break;
    case JINJA_DICT:
        n = v->map->n;
        break;
    case JINJA_LOOP:
        n = v->loop->items->n;
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_VIEW:
        n = v->items->n;
        break;
    default:
        return jinja_fail(r, "object of type '%s' has no len()", jinja_type_name(v));
    }
    return jinja_made(r, jinja_int(r->m, (int64_t)n));
}

static const struct jinja_value *first(FILTER_ARGS)
{
    const struct jinja_items *items;

    if (jinja_args_check(r, args, "first", "", 0) < 0 || !(items = jinja_walked(r, v)))
        return NULL;
    return items->n ? items->item[0] : jinja_made(r, jinja_none_such(r->m, "first"));
}

static const struct jinja_value *last(FILTER_ARGS)
{
    const struct jinja_items *items;

    if (jinja_args_check(r, args, "last", "", 0) < 0)
        return NULL;
    if (v->type == JINJA_STREAM)
        return jinja_fail(r, "'%s' object is not reversible", jinja_type_name(v));
    if (!(items = jinja_walked(r, v)))
        return NULL;
    return items->n ? items->item[items->n - 1] : jinja_made(r, jinja_none_such(r->m, "last"));
}

static const struct jinja_value *list(FILTER_ARGS)
{
    const struct jinja_items *from;
    struct jinja_items *items;

    if (jinja_args_check(r, args, "list", "", 0) < 0 || !(from = jinja_walked(r, v)))
        return NULL;
    const struct jinja_value *out = jinja_new_items(r, JINJA_LIST, &items);
    for (size_t i = 0; out && i < from->n; i++)
        if (add(r, items, from->item[i]) < 0)
            return NULL;
    return out;
}

static const struct jinja_value *reverse(FILTER_ARGS)
{
    const struct jinja_items *from;
    struct jinja_items *items;
    struct jinja_writer w = { .m = r->m };

    if (jinja_args_check(r, args, "reverse", "", 0) < 0 || !(from = jinja_walked(r, v)))
        return NULL;
    if (v->type == JINJA_STR) {
        for (size_t i = from->n; i > 0; i--)
            jinja_write_str(&w, from->item[i - 1]);
        return jinja_made(r, jinja_written(&w));
    }
    const struct jinja_value *out =
        jinja_new_items(r, v->type == JINJA_STREAM ? JINJA_LIST : JINJA_STREAM, &items);
    for (size_t i = from->n; out && i > 0; i--)
        if (add(r, items, from->item[i - 1]) < 0)
            return NULL;
    return out;
}

static const struct jinja_value *join(FILTER_ARGS)
{
    const struct jinja_value *between = jinja_arg(args, 0, "d");
    const struct jinja_value *path = jinja_arg(args, 1, "attribute");
    const struct jinja_items *from;
    struct jinja_items *texts = jinja_take(r->m, sizeof *texts);

    if (jinja_args_check(r, args, "join", "d attribute", 0) < 0 || !(from = jinja_walked(r, v)))
        return NULL;
    between = between ? jinja_spelled(r, between) : jinja_made(r, jinja_str(r->m, "", 0, true));
    for (size_t i = 0; between && texts && i < from->n; i++) {
        const struct jinja_value *one = from->item[i];
        if (path && path->type != JINJA_NONE)
            one = by_path(r, one, path);
        if (!one || !(one = jinja_spelled(r, one)) || add(r, texts, one) < 0)
            return NULL;
    }
    if (!texts)
        return jinja_fail_memory(r);
    return between ? jinja_text_join(r, texts, between) : NULL;
}

/* ---- choosing ---- */

/* Jinja2's generators do nothing until they are walked, so what fails in making one is an error
 * only then. */
static const struct jinja_value *broken_stream(struct jinja_run *r)
{
    struct jinja_value *v = jinja_new(r->m, JINJA_STREAM);
    size_t size = strlen(r->err->text) + 1;
    char *text = jinja_take(r->m, size);

    if (!v || !text || r->err->kind != ERR_INPUT)
        return NULL;
    memcpy(text, r->err->text, size);
    v->broken = text;
    r->failed = false;
    return v;
}

static const struct jinja_value *lazily(struct jinja_run *r, const struct jinja_value *v,
                                        const struct jinja_args *args,
                                        const struct jinja_value *(*make)(FILTER_ARGS))
{
    struct jinja_items *none;

    if (!jinja_truth(v))
        return jinja_new_items(r, JINJA_STREAM, &none);
    const struct jinja_value *out = make(r, v, args);
    return out ? out : broken_stream(r);
}

static const struct jinja_value *items_now(FILTER_ARGS)
{
    struct jinja_items *items, *pair;

    if (jinja_args_check(r, args, "items", "", 0) < 0)
        return NULL;
    const struct jinja_value *out = jinja_new_items(r, JINJA_STREAM, &items);
    if (!out || v->type == JINJA_UNDEFINED)
        return out;
    if (v->type != JINJA_DICT)
        return jinja_fail(r, "Can only get item pairs from a mapping.");
    for (size_t i = 0; i < v->map->n; i++) {
        const struct jinja_value *both = jinja_new_items(r, JINJA_TUPLE, &pair);
        if (!both || add(r, pair, v->map->entry[i].key) < 0 ||
            add(r, pair, v->map->entry[i].value) < 0 || add(r, items, both) < 0)
            return NULL;
    }
    return out;
}

/* A generator too: what is no mapping is an error when it is walked. */
static const struct jinja_value *items_of(FILTER_ARGS)
{
    const struct jinja_value *out = items_now(r, v, args);

    return out ? out : broken_stream(r);
}

static struct jinja_args behind(const struct jinja_args *args, size_t n)
{
    return (struct jinja_args){ args->value + n, args->keyword + n, args->n > n ? args->n - n : 0 };
}

/* select, reject: by a test over the value, or over an attribute of it. */
static const struct jinja_value *choose(FILTER_ARGS, bool by_attribute, bool keep)
{
    const struct jinja_items *from = jinja_walked(r, v);
    size_t n = by_attribute;
    struct jinja_items *items;

    if (!from)
        return NULL;
    if (args->n < n || (n && args->keyword[0]))
        return jinja_fail(r, "the attribute to choose by is missing");
    struct jinja_args rest = behind(args, n + 1);
    const struct jinja_value *out = jinja_new_items(r, JINJA_STREAM, &items);
    for (size_t i = 0; out && i < from->n; i++) {
        const struct jinja_value *one = from->item[i];
        if (jinja_step(r) < 0 || (by_attribute && !(one = by_path(r, one, args->value[0]))))
            return NULL;
        int rc = args->n > n ? jinja_apply_test(r, args->value[n], one, &rest) : jinja_truth(one);
        if (rc < 0 || (rc == keep && add(r, items, from->item[i]) < 0))
            return NULL;
    }
    return out;
}

static const struct jinja_value *choose_true_now(FILTER_ARGS)
{
    return choose(r, v, args, false, true);
}

static const struct jinja_value *choose_false_now(FILTER_ARGS)
{
    return choose(r, v, args, false, false);
}

static const struct jinja_value *choose_attribute_now(FILTER_ARGS)
{
    return choose(r, v, args, true, true);
}

static const struct jinja_value *drop_attribute_now(FILTER_ARGS)
{
    return choose(r, v, args, true, false);
}

static const struct jinja_value *map_now(FILTER_ARGS)
{
    const struct jinja_items *from = jinja_walked(r, v);
    const struct jinja_value *path = NULL, *otherwise = NULL;
    struct jinja_items *items;

    if (!from)
        return NULL;
    for (size_t i = 0; i < args->n; i++) {
        if (args->keyword[i] && strcmp(args->keyword[i], "attribute") == 0)
            path = args->value[i];
        else if (args->keyword[i] && strcmp(args->keyword[i], "default") == 0)
            otherwise = args->value[i];
    }
    if (args->n == 0 || (!path && args->keyword[0]))
        return jinja_fail(r, "map needs a filter or an attribute");
    struct jinja_args rest = behind(args, 1);
    const struct jinja_value *out = jinja_new_items(r, JINJA_STREAM, &items);
    for (size_t i = 0; out && i < from->n; i++) {
        const struct jinja_value *one;
        if (jinja_step(r) < 0)
            return NULL;
        one = path ? by_path(r, from->item[i], path)
                   : jinja_apply_filter(r, args->value[0], from->item[i], &rest);
        if (one && path && otherwise && one->type == JINJA_UNDEFINED)
            one = otherwise;
        if (!one || add(r, items, one) < 0)
            return NULL;
    }
    return out;
}

/* ---- order ---- */

struct sorted {
    const struct jinja_value *key, *value;
};

/* What to order by: the attribute if one is named, in lower case unless case counts. */
static const struct jinja_value *key_of(struct jinja_run *r, const struct jinja_value *v,
                                        const struct jinja_value *path, bool exact)
{
    if (path && path->type != JINJA_NONE)
        v = by_path(r, v, path);
    return v && !exact && v->type == JINJA_STR ? jinja_text_case(r, v, CASE_LOWER) : v;
}

/* A stable merge sort: qsort is not, and cannot fail in the middle. */
static int merge_sort(struct jinja_run *r, struct sorted *at, struct sorted *beside, size_t n,
                      bool down)
{
    size_t half = n / 2;

    if (n < 2)
        return 0;
    if (merge_sort(r, at, beside, half, down) < 0 ||
        merge_sort(r, at + half, beside, n - half, down) < 0)
        return -1;
    memcpy(beside, at, half * sizeof *at);
    for (size_t left = 0, right = half, out = 0; left < half; out++) {
        if (right == n) {
            at[out] = beside[left++];
            continue;
        }
        int rc = jinja_order(r, at[right].key, beside[left].key);
        if (rc == -3)
            return -1;
        if (rc == -2) {
            jinja_fail(r, "'%s' and '%s' cannot be ordered", jinja_type_name(at[right].key),
                       jinja_type_name(beside[left].key));
            return -1;
        }
        at[out] = (down ? rc > 0 : rc < 0) ? at[right++] : beside[left++];
    }
    return 0;
}

static const struct jinja_value *sort_items(struct jinja_run *r, const struct jinja_items *from,
                                            const struct jinja_value *path, bool exact, bool down)
{
    struct sorted *all = jinja_take(r->m, 2 * (from->n + 1) * sizeof *all);
    struct jinja_items *items;
    const struct jinja_value *out = jinja_new_items(r, JINJA_LIST, &items);

    if (!all || !out)
        return r->failed ? NULL : jinja_fail_memory(r);
    for (size_t i = 0; i < from->n; i++) {
        all[i] = (struct sorted){ key_of(r, from->item[i], path, exact), from->item[i] };
        if (!all[i].key || jinja_step(r) < 0)
            return NULL;
    }
    if (merge_sort(r, all, all + from->n, from->n, down) < 0)
        return NULL;
    for (size_t i = 0; i < from->n; i++)
        if (add(r, items, all[i].value) < 0)
            return NULL;
    return out;
}

static const struct jinja_value *sort(FILTER_ARGS)
{
    const struct jinja_items *from;

    if (jinja_args_check(r, args, "sort", "reverse case_sensitive attribute", 0) < 0 ||
        !(from = jinja_walked(r, v)))
        return NULL;
    return sort_items(r, from, jinja_arg(args, 2, "attribute"),
                      jinja_flag(args, 1, "case_sensitive"), jinja_flag(args, 0, "reverse"));
}

static const struct jinja_value *dictsort(FILTER_ARGS)
{
    const struct jinja_value *by = jinja_arg(args, 1, "by"), *pairs, *index;

    if (jinja_args_check(r, args, "dictsort", "case_sensitive by reverse", 0) < 0)
        return NULL;
    if (v->type != JINJA_DICT)
        return jinja_fail(r, "dictsort: no mapping but '%s'", jinja_type_name(v));
    if (by && !jinja_str_is(by, "key") && !jinja_str_is(by, "value"))
        return jinja_fail(r, "dictsort: by is \"key\" or \"value\"");
    pairs = items_now(r, v, &(struct jinja_args){ 0 });
    index = jinja_made(r, jinja_int(r->m, by && jinja_str_is(by, "value")));
    if (!pairs || !index)
        return NULL;
    return sort_items(r, pairs->items, index, jinja_flag(args, 0, "case_sensitive"),
                      jinja_flag(args, 2, "reverse"));
}

static const struct jinja_value *extreme(FILTER_ARGS, int sign)
{
    const struct jinja_value *path = jinja_arg(args, 1, "attribute"), *best = NULL, *best_key = NULL;
    bool exact = jinja_flag(args, 0, "case_sensitive");
    const struct jinja_items *from;

    if (jinja_args_check(r, args, "min and max", "case_sensitive attribute", 0) < 0 ||
        !(from = jinja_walked(r, v)))
        return NULL;
    for (size_t i = 0; i < from->n; i++) {
        const struct jinja_value *key = key_of(r, from->item[i], path, exact);
        if (!key)
            return NULL;
        int rc = best ? jinja_order(r, key, best_key) : sign;
        if (rc == -3)
            return NULL;
        if (rc == -2)
            return jinja_fail(r, "'%s' and '%s' cannot be ordered", jinja_type_name(key),
                              jinja_type_name(best_key));
        if (rc == sign) {
            best = from->item[i];
            best_key = key;
        }
    }
    return best ? best : jinja_made(r, jinja_none_such(r->m, "extreme of nothing"));
}

static const struct jinja_value *minimum(FILTER_ARGS)
{
    return extreme(r, v, args, -1);
}

static const struct jinja_value *maximum(FILTER_ARGS)
{
    return extreme(r, v, args, 1);
}

static const struct jinja_value *unique_now(FILTER_ARGS)
{
    const struct jinja_value *path = jinja_arg(args, 1, "attribute");
    bool exact = jinja_flag(args, 0, "case_sensitive");
    struct jinja_map *seen = jinja_take(r->m, sizeof *seen);
    const struct jinja_items *from;
    struct jinja_items *items;

    if (jinja_args_check(r, args, "unique", "case_sensitive attribute", 0) < 0 ||
        !(from = jinja_walked(r, v)))
        return NULL;
    const struct jinja_value *out = jinja_new_items(r, JINJA_STREAM, &items);
    for (size_t i = 0; out && seen && i < from->n; i++) {
        const struct jinja_value *key = key_of(r, from->item[i], path, exact);
        if (!key || jinja_step(r) < 0)
            return NULL;
        if (key->type == JINJA_LIST || key->type == JINJA_DICT)
            return jinja_fail(r, "unhashable type: '%s'", jinja_type_name(key));
        if (jinja_map_get(seen, key))
            continue;
        if (jinja_map_set(r->m, seen, key, key) < 0)
            return jinja_fail_memory(r);
        if (add(r, items, from->item[i]) < 0)
            return NULL;
    }
    return seen ? out : jinja_fail_memory(r);
}

#define LAZY(name)                                                                                 \
    static const struct jinja_value *name(FILTER_ARGS)                                             \
    {                                                                                              \
        return lazily(r, v, args, name##_now);                                                     \
    }
LAZY(choose_true)
LAZY(choose_false)
LAZY(choose_attribute)
LAZY(drop_attribute)
LAZY(map)
LAZY(unique)

static const struct jinja_value *sum(FILTER_ARGS)
{
    const struct jinja_value *path = jinja_arg(args, 0, "attribute");
    const struct jinja_value *start = jinja_arg(args, 1, "start");
    const struct jinja_items *from;
    int64_t whole = 0;
    double real = 0;
    bool is_real = false;

    if (jinja_args_check(r, args, "sum", "attribute start", 0) < 0 || !(from = jinja_walked(r, v)))
        return NULL;
    for (size_t i = 0; i < from->n + (start != NULL); i++) {
        const struct jinja_value *one = i < from->n ? from->item[i] : start;
        if (i < from->n && path && path->type != JINJA_NONE && !(one = by_path(r, one, path)))
            return NULL;
        if (!jinja_is_number(one))
            return jinja_fail(r, "sum: no number but '%s'", jinja_type_name(one));
        real += jinja_number(one);
        is_real |= one->type == JINJA_FLOAT;
        if (one->type != JINJA_FLOAT &&
            __builtin_add_overflow(whole, one->type == JINJA_BOOL ? one->on : one->i, &whole))
            return jinja_fail_unbuilt(r, "arithmetic beyond 64 bits");
    }
    return jinja_made(r, is_real ? jinja_float(r->m, real) : jinja_int(r->m, whole));
}

const struct jinja_filter *jinja_sequence_filter(const char *name)
{
    static const struct jinja_filter filters[] = {
        { "length", length },   { "count", length },          { "first", first },
        { "last", last },       { "list", list },             { "reverse", reverse },
        { "items", items_of },  { "join", join },             { "select", choose_true },
        { "reject", choose_false }, { "selectattr", choose_attribute },
        { "rejectattr", drop_attribute }, { "map", map },     { "sort", sort },
        { "dictsort", dictsort }, { "min", minimum },         { "max", maximum },
        { "unique", unique },   { "sum", sum },
    };

    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (strcmp(filters[i].name, name) == 0)
            return &filters[i];
    return NULL;
}
