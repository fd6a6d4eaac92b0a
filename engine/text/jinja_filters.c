/* Filters over one value: text, numbers, JSON. */
#include "text/jinja_filters.h"

#include "text/jinja_run.h"
#include "text/jinja_text.h"
#include "util/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int jinja_whole(struct jinja_run *r, const struct jinja_args *args, size_t i, const char *name,
                int64_t *out)
{
    const struct jinja_value *v = jinja_arg(args, i, name);

    if (!v)
        return 0;
    if (v->type != JINJA_INT && v->type != JINJA_BOOL) {
        jinja_fail(r, "'%s' must be an integer, not '%s'", name, jinja_type_name(v));
        return -1;
    }
    *out = v->type == JINJA_BOOL ? v->on : v->i;
    return 0;
}

bool jinja_flag(const struct jinja_args *args, size_t i, const char *name)
{
    const struct jinja_value *v = jinja_arg(args, i, name);

    return v && jinja_truth(v);
}

/* ---- text ---- */

static const struct jinja_value *string(FILTER_ARGS)
{
    return jinja_args_check(r, args, "string", "", 0) < 0 ? NULL : jinja_spelled(r, v);
}

/* Values are not marked as safe for HTML here: nothing is escaped in the first place. */
static const struct jinja_value *safe(FILTER_ARGS)
{
    return string(r, v, args);
}

static const struct jinja_value *cased(FILTER_ARGS, enum jinja_case as)
{
    const struct jinja_value *text = string(r, v, args);

    return text ? jinja_text_case(r, text, as) : NULL;
}

static const struct jinja_value *upper(FILTER_ARGS)
{
    return cased(r, v, args, CASE_UPPER);
}

static const struct jinja_value *lower(FILTER_ARGS)
{
    return cased(r, v, args, CASE_LOWER);
}

static const struct jinja_value *capitalize(FILTER_ARGS)
{
    return cased(r, v, args, CASE_FIRST);
}

static bool begins_word(uint32_t cp)
{
    return jinja_is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
}

/* Jinja2's own: words begin after blanks, dashes and opening brackets, not after any mark. */
static const struct jinja_value *title(FILTER_ARGS)
{
    const struct jinja_value *text = string(r, v, args), *word;
    const char *flat = text ? jinja_str_flat(r->m, text) : NULL;
    struct jinja_writer w = { .m = r->m };
    uint32_t cp;
    int n;

    if (!flat)
        return NULL;
    for (size_t at = 0, from; at < text->s.size;) {
        bool between = (n = utf8_next(flat + at, text->s.size - at, &cp)) > 0 && begins_word(cp);
        for (from = at; at < text->s.size; at += n > 0 ? (size_t)n : 1) {
            n = utf8_next(flat + at, text->s.size - at, &cp);
            if ((n > 0 && begins_word(cp)) != between)
                break;
        }
        word = jinja_made(r, jinja_str_part(r->m, text, from, at));
        if (word && !between)
            word = jinja_text_case(r, word, CASE_FIRST);
        if (!word)
            return NULL;
        jinja_write_str(&w, word);
    }
    return jinja_made(r, jinja_written(&w));
}

static const struct jinja_value *trim(FILTER_ARGS)
{
    const struct jinja_value *chars = jinja_arg(args, 0, "chars"), *text;

    if (jinja_args_check(r, args, "trim", "chars", 0) < 0 || !(text = jinja_spelled(r, v)))
        return NULL;
    if (chars && chars->type == JINJA_NONE)
        chars = NULL;
    if (chars && chars->type != JINJA_STR)
        return jinja_fail(r, "trim: characters are a string");
    if (chars && jinja_work(r, text->s.size, chars->s.size) < 0)
        return NULL;
    return jinja_made(r, jinja_str_strip(r->m, text, true, true, chars));
}

static const struct jinja_value *replace(FILTER_ARGS)
{
    const struct jinja_value *from, *to, *count = jinja_arg(args, 2, "count"), *text;
    int64_t most = -1;

    if (jinja_args_check(r, args, "replace", "old new count", 2) < 0)
        return NULL;
    if (count && count->type != JINJA_NONE && jinja_whole(r, args, 2, "count", &most) < 0)
        return NULL;
    from = jinja_arg(args, 0, "old");
    to = jinja_arg(args, 1, "new");
    if (!from || !to)
        return jinja_fail(r, "replace needs what to replace and by what");
    if (!(text = jinja_spelled(r, v)) || !(from = jinja_spelled(r, from)) ||
        !(to = jinja_spelled(r, to)))
        return NULL;
    return jinja_text_replace(r, text, from, to, most);
}

/* Lines behind a margin of `width` blanks, or behind that text. */
static const struct jinja_value *indent(FILTER_ARGS)
{
    const struct jinja_value *width = jinja_arg(args, 0, "width"), *text, *margin, *lines;
    bool first = jinja_flag(args, 1, "first"), blank = jinja_flag(args, 2, "blank");
    struct jinja_writer w = { .m = r->m };
    int64_t n = 4;

    if (jinja_args_check(r, args, "indent", "width first blank", 0) < 0)
        return NULL;
    if (v->type != JINJA_STR)
        return jinja_fail(r, "indent: no string but '%s'", jinja_type_name(v));
    text = v;
    if (width && width->type == JINJA_STR) {
        margin = width;
    } else {
        if (jinja_whole(r, args, 0, "width", &n) < 0)
            return NULL;
        n = n < 0 ? 0 : n > 4096 ? 4096 : n;
        char *blanks = jinja_take(r->m, (size_t)n + 1);
        if (!blanks)
            return jinja_fail_memory(r);
        memset(blanks, ' ', (size_t)n);
        margin = jinja_made(r, jinja_str(r->m, blanks, (size_t)n, true));
    }
    /* One newline more, so that one at the text's end counts as the start of a line. */
    const struct jinja_value *newline = jinja_str(r->m, "\n", 1, true);
    text = newline ? jinja_str_join(r->m, text, newline) : NULL;
    lines = text && margin ? jinja_text_lines(r, text, false) : NULL;
    if (!lines)
        return r->failed ? NULL : jinja_fail_memory(r);
    if (first)
        jinja_write_str(&w, margin);
    for (size_t i = 0; i < lines->items->n; i++) {
        const struct jinja_value *line = lines->items->item[i];
        if (i) {
            jinja_write(&w, "\n", 1, true);
            if (blank || line->s.size > 0)
                jinja_write_str(&w, margin);
        }
        jinja_write_str(&w, line);
    }
    return jinja_made(r, jinja_written(&w));
}

static const struct jinja_value *wordcount(FILTER_ARGS)
{
    const struct jinja_value *text = string(r, v, args);
    const struct jinja_value *words = text ? jinja_text_split(r, text, NULL, -1, false) : NULL;

    return words ? jinja_made(r, jinja_int(r->m, (int64_t)words->items->n)) : NULL;
}

/* ---- numbers ---- */

static const struct jinja_value *absolute(FILTER_ARGS)
{
    if (jinja_args_check(r, args, "abs", "", 0) < 0)
        return NULL;
    if (v->type == JINJA_FLOAT)
        return jinja_made(r, jinja_float(r->m, fabs(v->d)));
    if (v->type != JINJA_INT && v->type != JINJA_BOOL)
        return jinja_fail(r, "abs: no number but '%s'", jinja_type_name(v));
    if (v->type == JINJA_INT && v->i == INT64_MIN)
        return jinja_fail_unbuilt(r, "arithmetic beyond 64 bits");
    int64_t i = v->type == JINJA_BOOL ? v->on : v->i;
    return jinja_made(r, jinja_int(r->m, i < 0 ? -i : i));
}

/* Text as a number, blanks around it aside. */
static bool number_of(struct jinja_run *r, const struct jinja_value *v, char text[80])
{
    const struct jinja_value *bare = jinja_str_strip(r->m, v, true, true, NULL);
    const char *flat = bare ? jinja_str_flat(r->m, bare) : NULL;

    if (!flat || bare->s.size == 0 || bare->s.size >= 80 || memchr(flat, '\0', bare->s.size))
        return false;
    memcpy(text, flat, bare->s.size);
    text[bare->s.size] = '\0';
    return true;
}

static const struct jinja_value *to_int(FILTER_ARGS)
{
    const struct jinja_value *otherwise = jinja_arg(args, 0, "default");
    char text[80], *end;
    int64_t base = 10;

    if (jinja_args_check(r, args, "int", "default base", 0) < 0 ||
        jinja_whole(r, args, 1, "base", &base) < 0)
        return NULL;
    if (!otherwise && !(otherwise = jinja_int(r->m, 0)))
        return jinja_fail_memory(r);
    if (v->type == JINJA_INT || v->type == JINJA_BIG)
        return v;
    if (v->type == JINJA_BOOL)
        return jinja_made(r, jinja_int(r->m, v->on));
    if (v->type == JINJA_UNDEFINED)
        return jinja_fail(r, "'%s' is undefined", v->hint ? v->hint : "value");
    double d = v->type == JINJA_FLOAT ? v->d : (double)NAN;
    if (v->type == JINJA_STR && base >= 2 && base <= 36 && number_of(r, v, text)) {
        errno = 0;
        long long i = strtoll(text, &end, (int)base);
        if (*end == '\0' && errno == 0)
            return jinja_made(r, jinja_int(r->m, i));
        d = strtod(text, &end);
        if (*end != '\0')
            d = (double)NAN;
    }
    if (isnan(d) || d >= 9.2e18 || d <= -9.2e18)
        return otherwise;
    return jinja_made(r, jinja_int(r->m, (int64_t)d));
}

static const struct jinja_value *to_float(FILTER_ARGS)
{
    const struct jinja_value *otherwise = jinja_arg(args, 0, "default");
    char text[80], *end;

    if (jinja_args_check(r, args, "float", "default", 0) < 0)
        return NULL;
    if (!otherwise && !(otherwise = jinja_float(r->m, 0)))
        return jinja_fail_memory(r);
    if (jinja_is_number(v))
        return jinja_made(r, jinja_float(r->m, jinja_number(v)));
    if (v->type == JINJA_UNDEFINED)
        return jinja_fail(r, "'%s' is undefined", v->hint ? v->hint : "value");
    if (v->type == JINJA_STR && number_of(r, v, text)) {
        double d = strtod(text, &end);
        if (*end == '\0')
            return jinja_made(r, jinja_float(r->m, d));
    }
    return otherwise;
}

static const struct jinja_value *rounded(FILTER_ARGS)
{
    const struct jinja_value *how = jinja_arg(args, 1, "method");
    int64_t places = 0;

    if (jinja_args_check(r, args, "round", "precision method", 0) < 0 ||
        jinja_whole(r, args, 0, "precision", &places) < 0)
        return NULL;
    if (!jinja_is_number(v))
        return jinja_fail(r, "round: no number but '%s'", jinja_type_name(v));
    if (places < -300 || places > 300)
        return jinja_fail(r, "round: %lld places", (long long)places);
    double d = jinja_number(v), scale = pow(10, (double)places);
    if (!how || jinja_str_is(how, "common")) {
        if (v->type != JINJA_FLOAT)
            return places >= 0 ? v : jinja_fail_unbuilt(r, "rounding an integer to tens");
        /* To even at the half, and of the decimal spelling, as Python does. */
        char text[700];
        if (places >= 0) {
            snprintf(text, sizeof text, "%.*f", (int)places, d);
            return jinja_made(r, jinja_float(r->m, strtod(text, NULL)));
        }
        return jinja_made(r, jinja_float(r->m, nearbyint(d * scale) / scale));
    }
    if (jinja_str_is(how, "ceil"))
        return jinja_made(r, jinja_float(r->m, ceil(d * scale) / scale));
    if (jinja_str_is(how, "floor"))
        return jinja_made(r, jinja_float(r->m, floor(d * scale) / scale));
    return jinja_fail(r, "round: the method is common, ceil or floor");
}

/* ---- the rest ---- */

static const struct jinja_value *or_default(FILTER_ARGS)
{
    const struct jinja_value *otherwise = jinja_arg(args, 0, "default_value");

    if (jinja_args_check(r, args, "default", "default_value boolean", 0) < 0)
        return NULL;
    if (v->type != JINJA_UNDEFINED && !(jinja_flag(args, 1, "boolean") && !jinja_truth(v)))
        return v;
    return otherwise ? otherwise : jinja_made(r, jinja_str(r->m, "", 0, true));
}

static const struct jinja_value *to_json(FILTER_ARGS)
{
    const struct jinja_value *indent = jinja_arg(args, 1, "indent"), *out, *separators;
    struct jinja_dumps how = { .indent = -1, .ascii = jinja_flag(args, 0, "ensure_ascii"),
                               .sort_keys = jinja_flag(args, 3, "sort_keys") };
    const char *why;

    if (jinja_args_check(r, args, "tojson", "ensure_ascii indent separators sort_keys", 0) < 0)
        return NULL;
    if (indent && indent->type == JINJA_STR)
        return jinja_fail_unbuilt(r, "tojson with an indent of text");
    if (indent && indent->type != JINJA_NONE) {
        if (jinja_whole(r, args, 1, "indent", &how.indent) < 0)
            return NULL;
        how.indent = how.indent < 0 ? 0 : how.indent > 64 ? 64 : how.indent;
    }
    separators = jinja_arg(args, 2, "separators");
    if (separators && separators->type != JINJA_NONE) {
        const struct jinja_items *two = jinja_walked(r, separators);
        if (!two)
            return NULL;
        if (two->n != 2 || two->item[0]->type != JINJA_STR || two->item[1]->type != JINJA_STR)
            return jinja_fail(r, "tojson: separators are two strings");
        how.item_separator = two->item[0];
        how.key_separator = two->item[1];
    }
    if ((out = jinja_to_json(r->m, v, &how, &why)))
        return out;
    return why ? jinja_fail(r, "tojson: %s", why) : jinja_fail_memory(r);
}

const struct jinja_filter *jinja_filter_find(const char *name, bool *unbuilt)
{
    static const struct jinja_filter filters[] = {
        { "string", string },       { "safe", safe },         { "upper", upper },
        { "lower", lower },         { "capitalize", capitalize }, { "title", title },
        { "trim", trim },           { "replace", replace },   { "indent", indent },
        { "wordcount", wordcount }, { "abs", absolute },      { "int", to_int },
        { "float", to_float },      { "round", rounded },     { "default", or_default },
        { "d", or_default },        { "tojson", to_json },
    };
    static const char *const rest[] = {
        "attr", "batch", "center", "e", "escape", "filesizeformat", "forceescape", "format",
        "groupby", "pprint", "random", "slice", "striptags", "truncate", "urlencode", "urlize",
        "wordwrap", "xmlattr",
    };

    *unbuilt = false;
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (strcmp(filters[i].name, name) == 0)
            return &filters[i];
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        if (strcmp(rest[i], name) == 0) {
            *unbuilt = true;
            return NULL;
        }
    return jinja_sequence_filter(name);
}
