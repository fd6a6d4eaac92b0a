/* Expressions, by recursive descent in Jinja2's order of precedence, operators tightest first. */
#include "text/jinja_parse.h"

#include <string.h>

struct level {
    const char *text;
    enum jinja_op op;
};

static const struct level *which(struct jinja_parser *p, const struct level *levels)
{
    for (; levels->text; levels++)
        if (jinja_parse_op(p, levels->text))
            return levels;
    return NULL;
}

/* Left to right over operators of one level. */
static struct jinja_expr *parse_level(struct jinja_parser *p, const struct level *levels,
                                      struct jinja_expr *(*inner)(struct jinja_parser *))
{
    struct jinja_expr *left = inner(p), *e;
    const struct level *found;

    while (left && (found = which(p, levels))) {
        if (!(e = jinja_parse_new(p, EXPR_ARITHMETIC)))
            return NULL;
        e->op = found->op;
        e->a = left;
        if (!(e->b = inner(p)))
            return NULL;
        left = e;
    }
    return left;
}

static struct jinja_expr *parse_operand(struct jinja_parser *p)
{
    return jinja_parse_unary(p, true);
}

static struct jinja_expr *parse_power(struct jinja_parser *p)
{
    static const struct level levels[] = { { "**", OP_POW }, { 0 } };

    return parse_level(p, levels, parse_operand);
}

static struct jinja_expr *parse_product(struct jinja_parser *p)
{
    static const struct level levels[] = { { "*", OP_MUL }, { "/", OP_DIV }, { "//", OP_FLOOR },
                                           { "%", OP_MOD }, { 0 } };

    return parse_level(p, levels, parse_power);
}

static struct jinja_expr *parse_concat(struct jinja_parser *p)
{
    struct jinja_expr *first = parse_product(p), *e, *next;

    if (!first || !jinja_parse_at_op(p, "~"))
        return first;
    if (!(e = jinja_parse_new(p, EXPR_CONCAT)) || jinja_parse_add(p, e, first, NULL) < 0)
        return NULL;
    while (jinja_parse_op(p, "~"))
        if (!(next = parse_product(p)) || jinja_parse_add(p, e, next, NULL) < 0)
            return NULL;
    return e;
}

static struct jinja_expr *parse_sum(struct jinja_parser *p)
{
    static const struct level levels[] = { { "+", OP_ADD }, { "-", OP_SUB }, { 0 } };

    return parse_level(p, levels, parse_concat);
}

static bool comparison(struct jinja_parser *p, enum jinja_op *out)
{
    static const struct level levels[] = { { "==", OP_EQ }, { "!=", OP_NE }, { "<=", OP_LE },
                                           { ">=", OP_GE }, { "<", OP_LT },  { ">", OP_GT },
                                           { 0 } };
    const struct level *found = which(p, levels);

    if (found) {
        *out = found->op;
        return true;
    }
    if (jinja_parse_word(p, "in")) {
        *out = OP_IN;
        return true;
    }
    if (jinja_parse_at_word(p, "not") && p->at[1].type == TOKEN_NAME && p->at[1].size == 2 &&
        memcmp(p->at[1].text, "in", 2) == 0) {
        p->at += 2;
        *out = OP_NOT_IN;
        return true;
    }
    return false;
}

static struct jinja_expr *parse_compare(struct jinja_parser *p)
{
    struct jinja_expr *first = parse_sum(p), *e = NULL;
    enum jinja_op found, ops[16];

    while (first && comparison(p, &found)) {
        if (!e && !(e = jinja_parse_new(p, EXPR_COMPARE)))
            return NULL;
        e->a = first;
        if (e->n_args == sizeof ops / sizeof *ops) {
            jinja_parse_wrong(p, "too many comparisons in a row");
            return NULL;
        }
        ops[e->n_args] = found;
        struct jinja_expr *right = parse_sum(p);
        if (!right || jinja_parse_add(p, e, right, NULL) < 0)
            return NULL;
    }
    if (!first || !e)
        return first;
    if (!(e->ops = jinja_parse_take(p, e->n_args * sizeof *e->ops)))
        return NULL;
    memcpy(e->ops, ops, e->n_args * sizeof *ops);
    return e;
}

static struct jinja_expr *parse_not(struct jinja_parser *p)
{
    if (!jinja_parse_word(p, "not"))
        return parse_compare(p);
    if (p->depth >= JINJA_PARSE_DEPTH) {
        jinja_parse_wrong(p, "an expression that is too deep");
        return NULL;
    }
    p->depth++;
    struct jinja_expr *e = jinja_parse_new(p, EXPR_NOT);
    if (e && !(e->a = parse_not(p)))
        e = NULL;
    p->depth--;
    return e;
}

static struct jinja_expr *parse_logic(struct jinja_parser *p, const char *name,
                                      enum jinja_expr_kind kind,
                                      struct jinja_expr *(*inner)(struct jinja_parser *))
{
    struct jinja_expr *left = inner(p), *e;

    while (left && jinja_parse_word(p, name)) {
        if (!(e = jinja_parse_new(p, kind)))
            return NULL;
        e->a = left;
        if (!(e->b = inner(p)))
            return NULL;
        left = e;
    }
    return left;
}

static struct jinja_expr *parse_and(struct jinja_parser *p)
{
    return parse_logic(p, "and", EXPR_AND, parse_not);
}

static struct jinja_expr *parse_or(struct jinja_parser *p)
{
    return parse_logic(p, "or", EXPR_OR, parse_and);
}

static struct jinja_expr *parse_if(struct jinja_parser *p, bool no_if)
{
    const struct jinja_expr *outside = p->unknown;
    struct jinja_expr *first = parse_or(p), *e, *other;

    while (first && !no_if && jinja_parse_word(p, "if")) {
        e = jinja_parse_new(p, EXPR_IF);
        if (!e || !(e->b = parse_or(p)))
            return NULL;
        other = NULL;
        if (jinja_parse_word(p, "else") && !(other = jinja_parse_expr(p, false)))
            return NULL;
        e->a = first;
        first = jinja_parse_add(p, e, other, NULL) < 0 ? NULL : e;
        p->unknown = outside;
    }
    return first;
}

struct jinja_expr *jinja_parse_expr(struct jinja_parser *p, bool no_if)
{
    struct jinja_expr *e;

    if (p->depth >= JINJA_PARSE_DEPTH) {
        jinja_parse_wrong(p, "an expression that is too deep");
        return NULL;
    }
    p->depth++;
    p->level++;
    e = parse_if(p, no_if);
    p->level--;
    p->depth--;
    return p->level == 0 && jinja_parse_report(p) < 0 ? NULL : e;
}

static bool tuple_ends(const struct jinja_parser *p, const struct jinja_tuple *how)
{
    return p->at->type == TOKEN_PRINT_END || p->at->type == TOKEN_BLOCK_END ||
           jinja_parse_at_op(p, ")") || (how->end_word && jinja_parse_at_word(p, how->end_word));
}

struct jinja_expr *jinja_parse_tuple(struct jinja_parser *p, const struct jinja_tuple *how)
{
    struct jinja_expr *first = NULL, *e = NULL, *next;

    if (tuple_ends(p, how)) {
        if (how->parentheses)
            return jinja_parse_new(p, EXPR_TUPLE);
        jinja_parse_wrong(p, "an expression is missing");
        return NULL;
    }
    for (;;) {
        next = how->simple ? jinja_parse_primary(p) : jinja_parse_expr(p, how->no_if);
        if (!next)
            return NULL;
        if (!first)
            first = next;
        if (e && jinja_parse_add(p, e, next, NULL) < 0)
            return NULL;
        if (!jinja_parse_op(p, ","))
            return e ? e : first;
        if (!e && (!(e = jinja_parse_new(p, EXPR_TUPLE)) || jinja_parse_add(p, e, first, NULL) < 0))
            return NULL;
        if (tuple_ends(p, how))
            return e;
    }
}

static bool can_assign(const struct jinja_expr *e)
{
    if (e->kind == EXPR_NAME)
        return true;
    if (e->kind != EXPR_TUPLE && e->kind != EXPR_LIST)
        return false;
    for (size_t i = 0; i < e->n_args; i++)
        if (!can_assign(e->arg[i]))
            return false;
    return true;
}

struct jinja_expr *jinja_parse_target(struct jinja_parser *p, bool tuple, bool space,
                                      const char *end_word)
{
    struct jinja_expr *e;

    if (space && p->at->type == TOKEN_NAME && p->at[1].type == TOKEN_OPERATOR &&
        p->at[1].size == 1 && p->at[1].text[0] == '.') {
        struct jinja_expr *name = jinja_parse_one_name(p);
        p->at++;
        if (!name || name->kind != EXPR_NAME) {
            jinja_parse_wrong(p, "cannot assign to that");
            return NULL;
        }
        e = jinja_parse_new(p, EXPR_ATTRIBUTE);
        if (!e || !(e->name = jinja_parse_name(p, &e->value)))
            return NULL;
        e->a = name;
        return e;
    }
    e = tuple ? jinja_parse_tuple(p, &(struct jinja_tuple){ .simple = true, .end_word = end_word })
              : jinja_parse_one_name(p);
    if (e && !can_assign(e)) {
        jinja_parse_wrong(p, "cannot assign to that");
        return NULL;
    }
    return e;
}
