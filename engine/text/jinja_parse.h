/* jinja_parse: what the parser of statements and that of expressions share. */
#ifndef TEXT_JINJA_PARSE_H
#define TEXT_JINJA_PARSE_H

#include "text/jinja_ast.h"

struct jinja_parser {
    struct jinja_mem *m;
    const struct jinja_token *at;
    uint32_t depth;
    uint32_t level; /* of expressions inside each other */
    bool soft;      /* inside an if: an unknown filter matters only when it is reached */
    const struct jinja_expr *unknown; /* the first of the expression; NULL: none */
    uint32_t loops; /* around us, up to the macro */
    struct jinja_macro *macro; /* around us */
    struct err *err;
};

/* Names a place at which names of the language end an expression: "in", "recursive". */
struct jinja_tuple {
    bool simple;     /* targets: no operators */
    bool no_if;      /* "x if y else z" is not taken */
    bool parentheses; /* "()" is fine */
    const char *end_word;
};

int jinja_parse_wrong(struct jinja_parser *p, const char *what); /* ERR_FORMAT; returns -1 */
int jinja_parse_unbuilt(struct jinja_parser *p, const char *what);
void *jinja_parse_take(struct jinja_parser *p, size_t size); /* NULL with err set */
bool jinja_parse_is(const struct jinja_parser *p, enum jinja_token_type type, const char *text);
bool jinja_parse_skip(struct jinja_parser *p, enum jinja_token_type type, const char *text);
/* The same, of operators and of words. */
static inline bool jinja_parse_op(struct jinja_parser *p, const char *text)
{
    return jinja_parse_skip(p, TOKEN_OPERATOR, text);
}
static inline bool jinja_parse_word(struct jinja_parser *p, const char *text)
{
    return jinja_parse_skip(p, TOKEN_NAME, text);
}
static inline bool jinja_parse_at_op(const struct jinja_parser *p, const char *text)
{
    return jinja_parse_is(p, TOKEN_OPERATOR, text);
}
static inline bool jinja_parse_at_word(const struct jinja_parser *p, const char *text)
{
    return jinja_parse_is(p, TOKEN_NAME, text);
}
const char *jinja_parse_name(struct jinja_parser *p, const struct jinja_value **text); /* NULL */
struct jinja_expr *jinja_parse_new(struct jinja_parser *p, enum jinja_expr_kind kind);
int jinja_parse_add(struct jinja_parser *p, struct jinja_expr *e, struct jinja_expr *arg,
                    const char *keyword);

enum { JINJA_PARSE_DEPTH = 200 }; /* of expressions and blocks inside each other */
/* A value with what follows it; with_tail: filters and tests too. */
struct jinja_expr *jinja_parse_unary(struct jinja_parser *p, bool with_tail);
struct jinja_expr *jinja_parse_primary(struct jinja_parser *p);
struct jinja_expr *jinja_parse_one_name(struct jinja_parser *p); /* or none, true, false */
int jinja_parse_report(struct jinja_parser *p); /* of p->unknown, unless it is soft */
struct jinja_expr *jinja_parse_tuple(struct jinja_parser *p, const struct jinja_tuple *how);
struct jinja_expr *jinja_parse_expr(struct jinja_parser *p, bool no_if);
/* "| name(...)" one or more times, on a. named_first: the first name has no bar before it. */
struct jinja_expr *jinja_parse_filters(struct jinja_parser *p, struct jinja_expr *a,
                                       bool named_first);
struct jinja_expr *jinja_parse_target(struct jinja_parser *p, bool tuple, bool space,
                                      const char *end_word);

#endif
