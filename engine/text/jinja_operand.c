/* Operands: literals, names, and what may follow a value: attributes, indices, calls, filters,
 * tests. */
#include "text/jinja_parse.h"

#include "text/jinja_tables.h"
#include "util/err.h"
#include "util/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int jinja_parse_wrong(struct jinja_parser *p, const char *what)
{
    return err_set(p->err, ERR_FORMAT, "chat template, line %u: %s, at '%.*s'", p->at->line, what,
                   (int)(p->at->size < 40 ? p->at->size : 40), p->at->text);
}

int jinja_parse_unbuilt(struct jinja_parser *p, const char *what)
{
    return err_set(p->err, ERR_UNSUPPORTED, "chat template, line %u: %s is not built", p->at->line,
                   what);
}

void *jinja_parse_take(struct jinja_parser *p, size_t size)
{
    void *at = jinja_take(p->m, size);

    if (!at)
        err_set(p->err, ERR_BUDGET, "chat template: too large");
    return at;
}

bool jinja_parse_is(const struct jinja_parser *p, enum jinja_token_type type, const char *text)
{
    return p->at->type == type && p->at->size == strlen(text) &&
           memcmp(p->at->text, text, p->at->size) == 0;
}

bool jinja_parse_skip(struct jinja_parser *p, enum jinja_token_type type, const char *text)
{
    if (!jinja_parse_is(p, type, text))
        return false;
    p->at++;
    return true;
}

const char *jinja_parse_name(struct jinja_parser *p, const struct jinja_value **text)
{
    if (p->at->type != TOKEN_NAME) {
        jinja_parse_wrong(p, "a name is missing");
        return NULL;
    }
    char *name = jinja_parse_take(p, p->at->size + 1);
    if (!name)
        return NULL;
    memcpy(name, p->at->text, p->at->size);
    if (text) {
        *text = jinja_str(p->m, name, p->at->size, true);
        if (!*text) {
            err_set(p->err, ERR_BUDGET, "chat template: too large");
            return NULL;
        }
    }
    p->at++;
    return name;
}

struct jinja_expr *jinja_parse_new(struct jinja_parser *p, enum jinja_expr_kind kind)
{
    struct jinja_expr *e = jinja_parse_take(p, sizeof *e);

    if (e) {
        e->kind = kind;
        e->line = p->at->line;
    }
    return e;
}

int jinja_parse_add(struct jinja_parser *p, struct jinja_expr *e, struct jinja_expr *arg,
                    const char *keyword)
{
    /* Room for a power of two of them. */
    if ((e->n_args & (e->n_args - 1)) == 0) {
        size_t cap = e->n_args ? 2 * e->n_args : 1;
        struct jinja_expr **args = jinja_parse_take(p, cap * sizeof(*args));
        const char **keywords = jinja_parse_take(p, cap * sizeof(*keywords));
        if (!args || !keywords)
            return -1;
        if (e->n_args) {
            memcpy(args, e->arg, e->n_args * sizeof(*args));
            memcpy(keywords, e->keyword, e->n_args * sizeof(*keywords));
        }
        e->arg = args;
        e->keyword = keywords;
    }
    e->keyword[e->n_args] = keyword;
    e->arg[e->n_args++] = arg;
    return 0;
}

static struct jinja_expr *constant(struct jinja_parser *p, const struct jinja_value *v)
{
    struct jinja_expr *e = jinja_parse_new(p, EXPR_CONST);

    if (!v)
        err_set(p->err, ERR_BUDGET, "chat template: too large");
    if (e)
        e->value = v;
    return v ? e : NULL;
}

/* ---- literals ---- */

static int hex_escape(const char *s, size_t left, size_t digits, uint32_t *cp)
{
    char text[9] = "", *end;

    if (left < digits)
        return -1;
    memcpy(text, s, digits);
    if (strspn(text, "0123456789abcdefABCDEF") != digits)
        return -1;
    *cp = (uint32_t)strtoul(text, &end, 16);
    return *cp > 0x10ffff || (*cp >= 0xd800 && *cp <= 0xdfff) ? -1 : 0;
}

/* One of Python's escapes, s behind the backslash. How many bytes it takes; 0: it is none, and
 * the backslash stands; -1: a broken one. */
static int unescape(const char *s, size_t left, char out[4], size_t *n)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const char *known = left && s[0] ? strchr(from, s[0]) : NULL;
    uint32_t cp = 0;
    int used = 0;

    *n = 1;
    if (known) {
        out[0] = to[known - from];
        return 1;
    }
    if (left && s[0] == '\n') {
        *n = 0;
        return 1;
    }
    if (left && s[0] >= '0' && s[0] <= '7') {
        for (; used < 3 && (size_t)used < left && s[used] >= '0' && s[used] <= '7'; used++)
            cp = cp * 8 + (uint32_t)(s[used] - '0');
    } else if (left && strchr("xuU", s[0]) && s[0]) {
        size_t digits = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : 8;
        if (hex_escape(s + 1, left - 1, digits, &cp) < 0)
            return -1;
        used = (int)digits + 1;
    } else {
        return left && s[0] == 'N' ? -1 : 0;
    }
    *n = utf8_put(out, cp);
    return used;
}

/* Adjoining strings are one. */
static struct jinja_expr *parse_string(struct jinja_parser *p)
{
    struct jinja_writer w = { .m = p->m };

    for (; p->at->type == TOKEN_STRING; p->at++) {
        const char *s = p->at->text;
        size_t size = p->at->size, plain = 0;
        for (size_t i = 0; i < size; i++) {
            char out[4];
            size_t n;
            if (s[i] != '\\')
                continue;
            int used = unescape(s + i + 1, size - i - 1, out, &n);
            if (used < 0) {
                jinja_parse_wrong(p, "a wrong escape in a string");
                return NULL;
            }
            if (used == 0)
                continue;
            jinja_write(&w, s + plain, i - plain, true);
            jinja_write_copy(&w, out, n, true);
            i += (size_t)used;
            plain = i + 1;
        }
        jinja_write(&w, s + plain, size - plain, true);
    }
    /* One segment, so that it is one in every output. */
    const struct jinja_value *v = jinja_written(&w);
    const char *flat = v ? jinja_str_flat(p->m, v) : NULL;
    return constant(p, flat ? jinja_str(p->m, flat, v->s.size, true) : NULL);
}

static struct jinja_expr *parse_number(struct jinja_parser *p)
{
    bool real = p->at->type == TOKEN_FLOAT;
    char text[64];
    size_t n = 0;

    for (size_t i = 0; i < p->at->size && n < sizeof text - 1; i++)
        if (p->at->text[i] != '_')
            text[n++] = p->at->text[i];
    text[n] = '\0';
    if (n == sizeof text - 1) {
        jinja_parse_wrong(p, "a number of too many digits");
        return NULL;
    }
    errno = 0;
    const struct jinja_value *v;
    if (real) {
        v = jinja_float(p->m, strtod(text, NULL));
        errno = 0; /* beyond the range it is infinite, as in Python */
    } else if (n > 2 && text[0] == '0' && strchr("oObB", text[1])) {
        v = jinja_int(p->m, strtoll(text + 2, NULL, text[1] == 'b' || text[1] == 'B' ? 2 : 8));
    } else {
        v = jinja_int(p->m, strtoll(text, NULL, n > 1 && (text[1] == 'x' || text[1] == 'X') ? 16
                                                                                            : 10));
    }
    if (errno) {
        jinja_parse_wrong(p, "a number beyond 64 bits");
        return NULL;
    }
    struct jinja_expr *e = constant(p, v);
    p->at++;
    return e;
}

struct jinja_expr *jinja_parse_one_name(struct jinja_parser *p)
{
    static const struct {
        const char *name;
        const struct jinja_value *value;
    } words[] = { { "true", &jinja_true },   { "True", &jinja_true },   { "false", &jinja_false },
                  { "False", &jinja_false }, { "none", &jinja_none }, { "None", &jinja_none } };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (jinja_parse_word(p, words[i].name))
            return constant(p, words[i].value);
    struct jinja_expr *e = jinja_parse_new(p, EXPR_NAME);
    if (!e || !(e->name = jinja_parse_name(p, &e->value)))
        return NULL;
    if (p->macro && strcmp(e->name, "varargs") == 0)
        p->macro->uses_varargs = true;
    if (p->macro && strcmp(e->name, "kwargs") == 0)
        p->macro->uses_kwargs = true;
    return e;
}

static struct jinja_expr *parse_list(struct jinja_parser *p)
{
    struct jinja_expr *e = jinja_parse_new(p, EXPR_LIST);

    if (!e)
        return NULL;
    while (!jinja_parse_at_op(p, "]")) {
        if (e->n_args && !jinja_parse_op(p, ",")) {
            jinja_parse_wrong(p, "',' or ']' is missing");
            return NULL;
        }
        if (jinja_parse_at_op(p, "]"))
            break;
        struct jinja_expr *one = jinja_parse_expr(p, false);
        if (!one || jinja_parse_add(p, e, one, NULL) < 0)
            return NULL;
    }
    p->at++;
    return e;
}

static struct jinja_expr *parse_dict(struct jinja_parser *p)
{
    struct jinja_expr *e = jinja_parse_new(p, EXPR_DICT);

    if (!e)
        return NULL;
    while (!jinja_parse_at_op(p, "}")) {
        if (e->n_args && !jinja_parse_op(p, ",")) {
            jinja_parse_wrong(p, "',' or '}' is missing");
            return NULL;
        }
        if (jinja_parse_at_op(p, "}"))
            break;
        struct jinja_expr *key = jinja_parse_expr(p, false);
        if (!key)
            return NULL;
        if (!jinja_parse_op(p, ":")) {
            jinja_parse_wrong(p, "':' is missing");
            return NULL;
        }
        struct jinja_expr *value = jinja_parse_expr(p, false);
        if (!value || jinja_parse_add(p, e, key, NULL) < 0 || jinja_parse_add(p, e, value, NULL) < 0)
            return NULL;
    }
    p->at++;
    return e;
}

struct jinja_expr *jinja_parse_primary(struct jinja_parser *p)
{
    struct jinja_expr *e;

    switch (p->at->type) {
    case TOKEN_NAME:
        return jinja_parse_one_name(p);
    case TOKEN_STRING:
        return parse_string(p);
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return parse_number(p);
    default:
        break;
    }
    if (jinja_parse_op(p, "(")) {
        e = jinja_parse_tuple(p, &(struct jinja_tuple){ .parentheses = true });
        if (e && !jinja_parse_op(p, ")")) {
            jinja_parse_wrong(p, "')' is missing");
            return NULL;
        }
        return e;
    }
    if (jinja_parse_op(p, "["))
        return parse_list(p);
    if (jinja_parse_op(p, "{"))
        return parse_dict(p);
    jinja_parse_wrong(p, "an expression is missing");
    return NULL;
}

/* ---- what follows a value ---- */

/* Behind "(": arguments up to and with ")". Those by position come before those by name. */
static int parse_args(struct jinja_parser *p, struct jinja_expr *e)
{
    bool named = false;

    for (bool first = true; !jinja_parse_op(p, ")"); first = false) {
        const char *keyword = NULL;
        if (!first && !jinja_parse_op(p, ","))
            return jinja_parse_wrong(p, "',' or ')' is missing");
        if (!first && jinja_parse_op(p, ")"))
            return 0;
        if (jinja_parse_at_op(p, "*") || jinja_parse_at_op(p, "**"))
            return jinja_parse_unbuilt(p, "'*' before an argument");
        if (p->at->type == TOKEN_NAME && p->at[1].type == TOKEN_OPERATOR && p->at[1].size == 1 &&
            p->at[1].text[0] == '=') {
            if (!(keyword = jinja_parse_name(p, NULL)))
                return -1;
            p->at++;
            named = true;
        } else if (named) {
            return jinja_parse_wrong(p, "an argument without a name after one with");
        }
        struct jinja_expr *arg = jinja_parse_expr(p, false);
        if (!arg || jinja_parse_add(p, e, arg, keyword) < 0)
            return -1;
    }
    return 0;
}

static struct jinja_expr *parse_call(struct jinja_parser *p, struct jinja_expr *a)
{
    struct jinja_expr *e = jinja_parse_new(p, EXPR_CALL);

    if (!e)
        return NULL;
    e->a = a;
    return parse_args(p, e) < 0 ? NULL : e;
}

/* One of "a", "a:b", ":b:c" and so on. */
static struct jinja_expr *parse_index(struct jinja_parser *p)
{
    struct jinja_expr *part[3] = { NULL }, *e;
    int n = 0;

    if (!jinja_parse_at_op(p, ":")) {
        if (!(part[0] = jinja_parse_expr(p, false)))
            return NULL;
        if (!jinja_parse_at_op(p, ":"))
            return part[0];
    }
    while (n < 2 && jinja_parse_op(p, ":")) {
        n++;
        if (jinja_parse_at_op(p, ":") || jinja_parse_at_op(p, "]") || jinja_parse_at_op(p, ","))
            continue;
        if (!(part[n] = jinja_parse_expr(p, false)))
            return NULL;
    }
    if (!(e = jinja_parse_new(p, EXPR_SLICE)))
        return NULL;
    for (int i = 0; i < 3; i++)
        if (jinja_parse_add(p, e, part[i], NULL) < 0)
            return NULL;
    return e;
}

/* What stands between "[" and "]": one index, a slice, or several that make a tuple. */
static struct jinja_expr *parse_indices(struct jinja_parser *p)
{
    struct jinja_expr *tuple = NULL, *index = NULL;

    if (!jinja_parse_at_op(p, "]") && !(index = parse_index(p)))
        return NULL;
    if (index && !jinja_parse_at_op(p, ","))
        return index;
    tuple = jinja_parse_new(p, EXPR_TUPLE);
    while (tuple && index) {
        if (index->kind == EXPR_SLICE) {
            jinja_parse_unbuilt(p, "a slice among several indices");
            return NULL;
        }
        if (jinja_parse_add(p, tuple, index, NULL) < 0)
            return NULL;
        if (jinja_parse_at_op(p, "]"))
            return tuple;
        if (!jinja_parse_op(p, ",")) {
            jinja_parse_wrong(p, "',' or ']' is missing");
            return NULL;
        }
        if (!(index = parse_index(p)))
            return NULL;
    }
    return tuple;
}

static struct jinja_expr *parse_subscript(struct jinja_parser *p, struct jinja_expr *a)
{
    struct jinja_expr *index = parse_indices(p), *e;

    if (!index)
        return NULL;
    if (!jinja_parse_op(p, "]")) {
        jinja_parse_wrong(p, "']' is missing");
        return NULL;
    }
    if (index->kind == EXPR_SLICE) {
        index->a = a;
        return index;
    }
    e = jinja_parse_new(p, EXPR_ITEM);
    if (!e || jinja_parse_add(p, e, index, NULL) < 0)
        return NULL;
    e->a = a;
    return e;
}

static struct jinja_expr *parse_dot(struct jinja_parser *p, struct jinja_expr *a)
{
    struct jinja_expr *e, *index;

    if (p->at->type == TOKEN_INTEGER) {
        e = jinja_parse_new(p, EXPR_ITEM);
        index = parse_number(p);
        if (!e || !index || jinja_parse_add(p, e, index, NULL) < 0)
            return NULL;
    } else {
        e = jinja_parse_new(p, EXPR_ATTRIBUTE);
        if (!e || !(e->name = jinja_parse_name(p, &e->value)))
            return NULL;
    }
    e->a = a;
    return e;
}

static struct jinja_expr *parse_postfix(struct jinja_parser *p, struct jinja_expr *e)
{
    while (e) {
        if (jinja_parse_op(p, "."))
            e = parse_dot(p, e);
        else if (jinja_parse_op(p, "["))
            e = parse_subscript(p, e);
        else if (jinja_parse_op(p, "("))
            e = parse_call(p, e);
        else
            return e;
    }
    return NULL;
}

/* "a.b" is one name here. */
static const char *dotted_name(struct jinja_parser *p)
{
    const char *name = jinja_parse_name(p, NULL);

    while (name && jinja_parse_op(p, ".")) {
        const char *more = jinja_parse_name(p, NULL);
        size_t size = more ? strlen(name) + strlen(more) + 2 : 0;
        char *both = more ? jinja_parse_take(p, size) : NULL;
        if (!both)
            return NULL;
        snprintf(both, size, "%s.%s", name, more);
        name = both;
    }
    return name;
}

/* An unknown name inside an if is an error only when it is reached, and whether an if follows is
 * known at the expression's end. */
static int know(struct jinja_parser *p, const struct jinja_expr *e, const char *what, bool found,
                bool unbuilt)
{
    char text[96];

    if (unbuilt) {
        snprintf(text, sizeof text, "%s '%.40s'", what, e->name);
        return jinja_parse_unbuilt(p, text);
    }
    if (!found && !p->unknown)
        p->unknown = e;
    return 0;
}

int jinja_parse_report(struct jinja_parser *p)
{
    const struct jinja_expr *e = p->unknown;

    p->unknown = NULL;
    if (!e || p->soft)
        return 0;
    return err_set(p->err, ERR_FORMAT, "chat template, line %u: unknown %s '%.40s'", e->line,
                   e->kind == EXPR_TEST ? "test" : "filter", e->name);
}

static struct jinja_expr *parse_filter(struct jinja_parser *p, struct jinja_expr *a)
{
    struct jinja_expr *e = jinja_parse_new(p, EXPR_FILTER);
    bool unbuilt;

    if (!e || !(e->name = dotted_name(p)))
        return NULL;
    e->a = a;
    e->filter = jinja_filter_find(e->name, &unbuilt);
    if (know(p, e, "filter", e->filter != NULL, unbuilt) < 0)
        return NULL;
    if (jinja_parse_op(p, "(") && parse_args(p, e) < 0)
        return NULL;
    return e;
}

struct jinja_expr *jinja_parse_filters(struct jinja_parser *p, struct jinja_expr *a,
                                       bool named_first)
{
    struct jinja_expr *e = a;

    if (named_first && !(e = parse_filter(p, a)))
        return NULL;
    while (jinja_parse_op(p, "|"))
        if (!(e = parse_filter(p, e)))
            return NULL;
    return p->level == 0 && jinja_parse_report(p) < 0 ? NULL : e;
}

/* A test may take one argument without brackets: "is divisibleby 3". */
static bool takes_bare_argument(const struct jinja_parser *p)
{
    switch (p->at->type) {
    case TOKEN_NAME:
        return !jinja_parse_at_word(p, "else") && !jinja_parse_at_word(p, "or") &&
               !jinja_parse_at_word(p, "and");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return true;
    default:
        return jinja_parse_at_op(p, "[") || jinja_parse_at_op(p, "{");
    }
}

static struct jinja_expr *parse_test(struct jinja_parser *p, struct jinja_expr *a)
{
    bool negated = jinja_parse_word(p, "not"), unbuilt;
    struct jinja_expr *e = jinja_parse_new(p, EXPR_TEST), *not;

    if (!e || !(e->name = dotted_name(p)))
        return NULL;
    e->a = a;
    e->test = jinja_test_find(e->name, &unbuilt);
    if (know(p, e, "test", e->test != NULL, unbuilt) < 0)
        return NULL;
    if (jinja_parse_op(p, "(")) {
        if (parse_args(p, e) < 0)
            return NULL;
    } else if (takes_bare_argument(p)) {
        if (jinja_parse_at_word(p, "is")) {
            jinja_parse_wrong(p, "tests do not chain");
            return NULL;
        }
        struct jinja_expr *arg = jinja_parse_primary(p);
        if (!arg || !(arg = parse_postfix(p, arg)) || jinja_parse_add(p, e, arg, NULL) < 0)
            return NULL;
    }
    if (!negated)
        return e;
    if (!(not = jinja_parse_new(p, EXPR_NOT)))
        return NULL;
    not->a = e;
    return not;
}

static struct jinja_expr *parse_tail(struct jinja_parser *p, struct jinja_expr *e)
{
    while (e) {
        if (jinja_parse_op(p, "|"))
            e = parse_filter(p, e);
        else if (jinja_parse_word(p, "is"))
            e = parse_test(p, e);
        else if (jinja_parse_op(p, "(")) /* after a filter or a test */
            e = parse_call(p, e);
        else
            return e;
    }
    return NULL;
}

struct jinja_expr *jinja_parse_unary(struct jinja_parser *p, bool with_tail)
{
    struct jinja_expr *e = NULL;

    if (p->depth >= JINJA_PARSE_DEPTH) {
        jinja_parse_wrong(p, "an expression that is too deep");
        return NULL;
    }
    p->depth++;
    if (jinja_parse_at_op(p, "-") || jinja_parse_at_op(p, "+")) {
        e = jinja_parse_new(p, jinja_parse_at_op(p, "-") ? EXPR_NEGATIVE : EXPR_POSITIVE);
        p->at++;
        if (e && !(e->a = jinja_parse_unary(p, false)))
            e = NULL;
    } else {
        e = jinja_parse_primary(p);
    }
    if (e)
        e = parse_postfix(p, e);
    if (e && with_tail)
        e = parse_tail(p, e);
    p->depth--;
    return e;
}
