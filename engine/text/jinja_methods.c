/* Methods of Python's types, and the global functions. */
#include "text/jinja_run.h"

#include "text/jinja_text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define METHOD_ARGS struct jinja_run *r, const struct jinja_value *self, const struct jinja_args *args

/* ---- of strings ---- */

/* A string argument; NULL and an error when it is something else. none: None is like absence. */
static int text_arg(struct jinja_run *r, const struct jinja_args *args, size_t i, const char *name,
                    bool none, const struct jinja_value **out)
{
    *out = jinja_arg(args, i, name);
    if (*out && none && (*out)->type == JINJA_NONE)
        *out = NULL;
    if (!*out || (*out)->type == JINJA_STR)
        return 0;
    jinja_fail(r, "a string is needed, not '%s'", jinja_type_name(*out));
    return -1;
}

static int whole_arg(struct jinja_run *r, const struct jinja_args *args, size_t i,
                     const char *name, int64_t *out)
{
    const struct jinja_value *v = jinja_arg(args, i, name);

    if (!v)
        return 0;
    if (v->type != JINJA_INT && v->type != JINJA_BOOL) {
        jinja_fail(r, "an integer is needed, not '%s'", jinja_type_name(v));
        return -1;
    }
    *out = v->type == JINJA_BOOL ? v->on : v->i;
    return 0;
}

static bool begins(struct jinja_run *r, const struct jinja_value *s, const struct jinja_value *with,
                   bool at_end)
{
    if (with->s.size > s->s.size)
        return false;
    const struct jinja_value *part =
        at_end ? jinja_str_part(r->m, s, s->s.size - with->s.size, s->s.size)
               : jinja_str_part(r->m, s, 0, with->s.size);
    return part && jinja_str_equal(part, with);
}

static const struct jinja_value *begins_with(struct jinja_run *r, const struct jinja_value *self,
                                             const struct jinja_args *args, bool at_end)
{
    if (jinja_args_check(r, args, at_end ? "endswith" : "startswith", "prefix", 1) < 0)
        return NULL;
    const struct jinja_value *v = args->value[0];
    if (v->type == JINJA_STR)
        return jinja_of_bool(begins(r, self, v, at_end));
    if (v->type != JINJA_TUPLE)
        return jinja_fail(r, "a string or a tuple of them is needed, not '%s'", jinja_type_name(v));
    for (size_t i = 0; i < v->items->n; i++) {
        if (v->items->item[i]->type != JINJA_STR)
            return jinja_fail(r, "a tuple of strings is needed");
        if (begins(r, self, v->items->item[i], at_end))
            return &jinja_true;
    }
    return &jinja_false;
}

static const struct jinja_value *str_startswith(METHOD_ARGS)
{
    return begins_with(r, self, args, false);
}

static const struct jinja_value *str_endswith(METHOD_ARGS)
{
    return begins_with(r, self, args, true);
}

static const struct jinja_value *strip(METHOD_ARGS, bool left, bool right)
{
    const struct jinja_value *chars;

    if (jinja_args_check(r, args, "strip", "chars", 0) < 0 ||
        text_arg(r, args, 0, "chars", true, &chars) < 0 ||
        (chars && jinja_work(r, self->s.size, chars->s.size) < 0))
        return NULL;
    return jinja_made(r, jinja_str_strip(r->m, self, left, right, chars));
}

static const struct jinja_value *str_strip(METHOD_ARGS)
{
    return strip(r, self, args, true, true);
}

static const struct jinja_value *str_lstrip(METHOD_ARGS)
{
    return strip(r, self, args, true, false);
}

static const struct jinja_value *str_rstrip(METHOD_ARGS)
{
    return strip(r, self, args, false, true);
}

static const struct jinja_value *split(METHOD_ARGS, bool from_right)
{
    const struct jinja_value *by;
    int64_t most = -1;

    if (jinja_args_check(r, args, "split", "sep maxsplit", 0) < 0 ||
        text_arg(r, args, 0, "sep", true, &by) < 0 || whole_arg(r, args, 1, "maxsplit", &most) < 0)
        return NULL;
    return jinja_text_split(r, self, by, most, from_right);
}

static const struct jinja_value *str_split(METHOD_ARGS)
{
    return split(r, self, args, false);
}

static const struct jinja_value *str_rsplit(METHOD_ARGS)
{
    return split(r, self, args, true);
}

static const struct jinja_value *str_splitlines(METHOD_ARGS)
{
    const struct jinja_value *keep = jinja_arg(args, 0, "keepends");

    if (jinja_args_check(r, args, "splitlines", "keepends", 0) < 0)
        return NULL;
    return jinja_text_lines(r, self, keep && jinja_truth(keep));
}

static const struct jinja_value *str_replace(METHOD_ARGS)
{
    const struct jinja_value *from, *to;
    int64_t most = -1;

    if (jinja_args_check(r, args, "replace", "old new count", 2) < 0 ||
        text_arg(r, args, 0, "old", false, &from) < 0 ||
        text_arg(r, args, 1, "new", false, &to) < 0 || whole_arg(r, args, 2, "count", &most) < 0)
        return NULL;
    if (!from || !to)
        return jinja_fail(r, "replace needs what to replace and by what");
    return jinja_text_replace(r, self, from, to, most);
}

static const struct jinja_value *with_case(METHOD_ARGS, enum jinja_case as)
{
    return jinja_args_check(r, args, "this method", "", 0) < 0 ? NULL : jinja_text_case(r, self, as);
}

static const struct jinja_value *str_upper(METHOD_ARGS)
{
    return with_case(r, self, args, CASE_UPPER);
}

static const struct jinja_value *str_lower(METHOD_ARGS)
{
    return with_case(r, self, args, CASE_LOWER);
}

static const struct jinja_value *str_title(METHOD_ARGS)
{
    return with_case(r, self, args, CASE_TITLE);
}

static const struct jinja_value *str_capitalize(METHOD_ARGS)
{
    return with_case(r, self, args, CASE_FIRST);
}

static const struct jinja_value *find(METHOD_ARGS, bool last, bool must)
{
    const struct jinja_value *what;

    if (jinja_args_check(r, args, "find", "sub", 1) < 0 ||
        text_arg(r, args, 0, "sub", false, &what) < 0)
        return NULL;
    if (last && jinja_work(r, self->s.size, what->s.size) < 0)
        return NULL;
    int64_t at = jinja_text_find(r, self, what, last);
    if (at < 0 && must)
        return jinja_fail(r, "substring not found");
    return jinja_made(r, jinja_int(r->m, at));
}

static const struct jinja_value *str_find(METHOD_ARGS)
{
    return find(r, self, args, false, false);
}

static const struct jinja_value *str_rfind(METHOD_ARGS)
{
    return find(r, self, args, true, false);
}

static const struct jinja_value *str_index(METHOD_ARGS)
{
    return find(r, self, args, false, true);
}

static const struct jinja_value *str_count(METHOD_ARGS)
{
    const struct jinja_value *what, *parts;

    if (jinja_args_check(r, args, "count", "sub", 1) < 0 ||
        text_arg(r, args, 0, "sub", false, &what) < 0)
        return NULL;
    if (what->s.size == 0)
        return jinja_made(r, jinja_int(r->m, (int64_t)jinja_str_length(self) + 1));
    parts = jinja_text_split(r, self, what, -1, false);
    return parts ? jinja_made(r, jinja_int(r->m, (int64_t)parts->items->n - 1)) : NULL;
}

static const struct jinja_value *str_join(METHOD_ARGS)
{
    if (jinja_args_check(r, args, "join", "iterable", 1) < 0)
        return NULL;
    const struct jinja_items *items = jinja_walked(r, args->value[0]);
    for (size_t i = 0; items && i < items->n; i++)
        if (items->item[i]->type != JINJA_STR)
            return jinja_fail(r, "join: item %zu is no string", i);
    return items ? jinja_text_join(r, items, self) : NULL;
}

static const struct jinja_value *without(METHOD_ARGS, bool at_end)
{
    const struct jinja_value *affix;

    if (jinja_args_check(r, args, "this method", "affix", 1) < 0 ||
        text_arg(r, args, 0, "affix", false, &affix) < 0)
        return NULL;
    if (!begins(r, self, affix, at_end))
        return self;
    size_t n = affix->s.size, size = self->s.size;
    return jinja_made(r, at_end ? jinja_str_part(r->m, self, 0, size - n)
                                : jinja_str_part(r->m, self, n, size));
}

static const struct jinja_value *str_removeprefix(METHOD_ARGS)
{
    return without(r, self, args, false);
}

static const struct jinja_value *str_removesuffix(METHOD_ARGS)
{
    return without(r, self, args, true);
}

static const struct jinja_value *is_all(METHOD_ARGS, enum jinja_class class)
{
    return jinja_args_check(r, args, "this method", "", 0) < 0
               ? NULL
               : jinja_of_bool(jinja_text_all(r, self, class));
}

static const struct jinja_value *str_isdigit(METHOD_ARGS)
{
    return is_all(r, self, args, CLASS_DIGIT);
}

static const struct jinja_value *str_isalpha(METHOD_ARGS)
{
    return is_all(r, self, args, CLASS_ALPHA);
}

static const struct jinja_value *str_isalnum(METHOD_ARGS)
{
    return is_all(r, self, args, CLASS_ALNUM);
}

static const struct jinja_value *str_isspace(METHOD_ARGS)
{
    return is_all(r, self, args, CLASS_SPACE);
}

/* ---- of containers ---- */

static const struct jinja_value *dict_get(METHOD_ARGS)
{
    if (jinja_args_check(r, args, "get", "key default", 1) < 0)
        return NULL;
    const struct jinja_value *key = args->value[0], *v;
    if (key->type == JINJA_LIST || key->type == JINJA_DICT)
        return jinja_fail(r, "unhashable type: '%s'", jinja_type_name(key));
    if ((v = jinja_map_get(self->map, key)))
        return v;
    v = jinja_arg(args, 1, NULL);
    return v ? v : &jinja_none;
}

enum part { PART_KEYS, PART_VALUES, PART_ITEMS };

static const struct jinja_value *dict_part(METHOD_ARGS, enum part part)
{
    struct jinja_items *items, *pair;

    if (jinja_args_check(r, args, "this method", "", 0) < 0)
        return NULL;
    const struct jinja_value *out = jinja_new_items(r, JINJA_VIEW, &items);
    for (size_t i = 0; out && i < self->map->n; i++) {
        const struct jinja_entry *e = &self->map->entry[i];
        const struct jinja_value *v = part == PART_KEYS ? e->key : e->value;
        if (part == PART_ITEMS) {
            if (!(v = jinja_new_items(r, JINJA_TUPLE, &pair)))
                return NULL;
            if (jinja_items_add(r->m, pair, e->key) < 0 || jinja_items_add(r->m, pair, e->value) < 0)
                return jinja_fail_memory(r);
        }
        if (jinja_items_add(r->m, items, v) < 0)
            return jinja_fail_memory(r);
    }
    return out;
}

static const struct jinja_value *dict_keys(METHOD_ARGS)
{
    return dict_part(r, self, args, PART_KEYS);
}

static const struct jinja_value *dict_values(METHOD_ARGS)
{
    return dict_part(r, self, args, PART_VALUES);
}

static const struct jinja_value *dict_items(METHOD_ARGS)
{
    return dict_part(r, self, args, PART_ITEMS);
}

static const struct jinja_value *copy(METHOD_ARGS)
{
    return jinja_args_check(r, args, "copy", "", 0) < 0 ? NULL : self;
}

static const struct jinja_value *list_index(METHOD_ARGS)
{
    if (jinja_args_check(r, args, "index", "value", 1) < 0)
        return NULL;
    for (size_t i = 0; i < self->items->n; i++) {
        int same = jinja_same(r, self->items->item[i], args->value[0]);
        if (same)
            return same < 0 ? NULL : jinja_made(r, jinja_int(r->m, (int64_t)i));
    }
    return jinja_fail(r, "the value is not in the list");
}

static const struct jinja_value *list_count(METHOD_ARGS)
{
    int64_t n = 0;

    if (jinja_args_check(r, args, "count", "value", 1) < 0)
        return NULL;
    for (size_t i = 0; i < self->items->n; i++) {
        int same = jinja_same(r, self->items->item[i], args->value[0]);
        if (same < 0)
            return NULL;
        n += same;
    }
    return jinja_made(r, jinja_int(r->m, n));
}

/* ---- of loops ---- */

static const struct jinja_value *loop_cycle(METHOD_ARGS)
{
    if (args->n == 0)
        return jinja_fail(r, "cycle needs values");
    return args->value[self->loop->at % args->n];
}

static const struct jinja_value *loop_changed(METHOD_ARGS)
{
    struct jinja_items *items;
    const struct jinja_value *now = jinja_new_items(r, JINJA_TUPLE, &items);

    for (size_t i = 0; now && i < args->n; i++)
        if (jinja_items_add(r->m, items, args->value[i]) < 0)
            return jinja_fail_memory(r);
    if (!now)
        return NULL;
    int same = self->loop->changed ? jinja_same(r, self->loop->changed, now) : 0;
    self->loop->changed = now;
    return same < 0 ? NULL : jinja_of_bool(!same);
}

/* ---- globals ---- */

static int fill_by_name(struct jinja_run *r, struct jinja_value *dict,
                        const struct jinja_args *args, const char *what)
{
    for (size_t i = 0; i < args->n; i++) {
        if (!args->keyword[i]) {
            const struct jinja_value *from = args->value[i];
            if (i > 0 || from->type != JINJA_DICT) {
                jinja_fail(r, "%s takes a mapping and names", what);
                return -1;
            }
            for (size_t k = 0; k < from->map->n; k++)
                if (jinja_map_set(r->m, dict->map, from->map->entry[k].key,
                                  from->map->entry[k].value) < 0)
                    return jinja_fail_memory(r), -1;
            continue;
        }
        if (jinja_dict_set(r->m, dict, args->keyword[i], args->value[i]) < 0)
            return jinja_fail_memory(r), -1;
    }
    return 0;
}

static const struct jinja_value *global_namespace(METHOD_ARGS)
{
    struct jinja_value *v = jinja_dict(r->m);

    (void)self;
    if (!v)
        return jinja_fail_memory(r);
    if (fill_by_name(r, v, args, "namespace") < 0)
        return NULL;
    v->type = JINJA_NAMESPACE;
    return v;
}

static const struct jinja_value *global_dict(METHOD_ARGS)
{
    struct jinja_value *v = jinja_dict(r->m);

    (void)self;
    if (!v)
        return jinja_fail_memory(r);
    return fill_by_name(r, v, args, "dict") < 0 ? NULL : v;
}

static const struct jinja_value *global_range(METHOD_ARGS)
{
    enum { MAX_RANGE = 100000 };
    int64_t part[3] = { 0, 0, 1 };
    struct jinja_items *items;

    (void)self;
    if (jinja_args_check(r, args, "range", "a b c", 1) < 0)
        return NULL;
    for (size_t i = 0; i < args->n; i++) {
        if (args->value[i]->type != JINJA_INT && args->value[i]->type != JINJA_BOOL)
            return jinja_fail(r, "range needs integers");
        part[args->n == 1 ? 1 : i] = args->value[i]->type == JINJA_BOOL ? args->value[i]->on
                                                                       : args->value[i]->i;
    }
    if (part[2] == 0)
        return jinja_fail(r, "range: the step must not be zero");
    const struct jinja_value *out = jinja_new_items(r, JINJA_LIST, &items);
    for (int64_t i = part[0]; out && (part[2] > 0 ? i < part[1] : i > part[1]);) {
        if (items->n == MAX_RANGE)
            return jinja_fail(r, "range: more than %d numbers", MAX_RANGE);
        if (jinja_items_add(r->m, items, jinja_int(r->m, i)) < 0)
            return jinja_fail_memory(r);
        if (__builtin_add_overflow(i, part[2], &i))
            break;
    }
    return out;
}

static const struct jinja_value *global_raise(METHOD_ARGS)
{
    (void)self;
    if (jinja_args_check(r, args, "raise_exception", "message", 1) < 0)
        return NULL;
    const struct jinja_value *text = jinja_spelled(r, args->value[0]);
    return text ? jinja_raised(r, text) : NULL;
}

/* The date of the day is all that templates want; finer times would change every prompt. */
static const struct jinja_value *global_now(METHOD_ARGS)
{
    const struct jinja_value *how;
    char format[64] = "", text[256];
    time_t now = time(NULL);
    struct tm day;

    (void)self;
    if (jinja_args_check(r, args, "strftime_now", "format", 1) < 0 ||
        text_arg(r, args, 0, "format", false, &how) < 0)
        return NULL;
    const char *flat = jinja_str_flat(r->m, how);
    if (!flat || how->s.size >= sizeof format || !localtime_r(&now, &day))
        return jinja_fail(r, "strftime_now: a format that is too long");
    memcpy(format, flat, how->s.size);
    /* The format is the template's, and the conversions of strftime read nothing but the date. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, sizeof text, format, &day);
#pragma GCC diagnostic pop
    char *kept = jinja_take(r->m, n + 1);
    if (!kept)
        return jinja_fail_memory(r);
    memcpy(kept, text, n);
    bool trusted = true; /* as far as the format is */
    for (size_t i = 0; i < how->s.n; i++)
        trusted = trusted && how->s.seg[i].trusted;
    return jinja_made(r, jinja_str(r->m, kept, n, trusted));
}

const struct jinja_method *jinja_global_find(const char *name)
{
    static const struct jinja_method globals[] = {
        { "namespace", global_namespace },   { "dict", global_dict },
        { "range", global_range },           { "raise_exception", global_raise },
        { "strftime_now", global_now },
    };

    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (strcmp(globals[i].name, name) == 0)
            return &globals[i];
    return NULL;
}

/* ---- the tables ---- */

static bool among(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static const struct jinja_method *search(const struct jinja_method *table, const char *name)
{
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0)
            return table;
    return NULL;
}

const struct jinja_method *jinja_method_find(enum jinja_type type, const char *name, bool *hidden,
                                             bool *unbuilt)
{
    static const struct jinja_method of_str[] = {
        { "startswith", str_startswith },     { "endswith", str_endswith },
        { "strip", str_strip },               { "lstrip", str_lstrip },
        { "rstrip", str_rstrip },             { "split", str_split },
        { "rsplit", str_rsplit },             { "splitlines", str_splitlines },
        { "replace", str_replace },           { "upper", str_upper },
        { "lower", str_lower },               { "title", str_title },
        { "capitalize", str_capitalize },     { "find", str_find },
        { "rfind", str_rfind },               { "index", str_index },
        { "count", str_count },               { "join", str_join },
        { "removeprefix", str_removeprefix }, { "removesuffix", str_removesuffix },
        { "isdigit", str_isdigit },           { "isalpha", str_isalpha },
        { "isalnum", str_isalnum },           { "isspace", str_isspace },
        { 0 },
    };
    static const struct jinja_method of_dict[] = {
        { "get", dict_get }, { "keys", dict_keys }, { "values", dict_values },
        { "items", dict_items }, { "copy", copy }, { 0 },
    };
    static const struct jinja_method of_list[] = {
        { "index", list_index }, { "count", list_count }, { "copy", copy }, { 0 },
    };
    static const struct jinja_method of_loop[] = {
        { "cycle", loop_cycle }, { "changed", loop_changed }, { 0 },
    };
    /* The sandbox lets nobody change a container, and no string be formatted by its own text. */
    static const char *const changing[] = { "append", "clear", "extend", "insert", "pop",
                                            "popitem", "remove", "reverse", "setdefault", "sort",
                                            "update", NULL };
    static const char *const str_rest[] = { "casefold", "center", "encode", "expandtabs",
                                            "format", "format_map", "isascii", "isdecimal",
                                            "isidentifier", "islower", "isnumeric",
                                            "isprintable", "istitle", "isupper", "ljust",
                                            "maketrans", "partition", "rindex", "rjust",
                                            "rpartition", "swapcase", "translate", "zfill", NULL };

    *hidden = *unbuilt = false;
    switch (type) {
    case JINJA_STR:
        *unbuilt = among(str_rest, name);
        return search(of_str, name);
    case JINJA_DICT:
        *hidden = among(changing, name) && strcmp(name, "append") != 0 &&
                  strcmp(name, "extend") != 0 && strcmp(name, "insert") != 0 &&
                  strcmp(name, "remove") != 0 && strcmp(name, "reverse") != 0 &&
                  strcmp(name, "sort") != 0;
        *unbuilt = strcmp(name, "fromkeys") == 0;
        return search(of_dict, name);
    case JINJA_LIST:
        *hidden = among(changing, name);
        return search(of_list, name);
    case JINJA_TUPLE: {
        const struct jinja_method *found = search(of_list, name);
        return found && found->run == copy ? NULL : found;
    }
    case JINJA_LOOP:
        return search(of_loop, name);
    default:
        return NULL;
    }
}
