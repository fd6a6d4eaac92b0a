/* jinja_ast: a template as a tree, and how it is made. For the jinja_* files only.
 *
 * jinja_lex cuts the source into tokens, jinja_parse makes statements and expressions of them.
 * All of it lives in the template's own jinja_mem. */
#ifndef TEXT_JINJA_AST_H
#define TEXT_JINJA_AST_H

#include "text/jinja_value.h"

struct err;

/* ---- tokens ---- */

enum jinja_token_type {
    TOKEN_DATA,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_PRINT_BEGIN,
    TOKEN_PRINT_END,
    TOKEN_NAME,
    TOKEN_STRING, /* what stands between the quotes, escapes and all */
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
    TOKEN_END,
};

struct jinja_token {
    enum jinja_token_type type;
    const char *text; /* in the source, which the template's memory has a copy of */
    size_t size;
    uint32_t line;
};

struct jinja_tokens {
    struct jinja_token *token; /* ends with TOKEN_END */
    size_t n, cap;
};

/* source: newlines are "\n" already. ERR_FORMAT with the line. */
int jinja_lex(struct jinja_tokens *out, struct jinja_mem *m, const char *source, size_t size,
              struct err *err);

/* ---- expressions ---- */

enum jinja_expr_kind {
    EXPR_CONST,
    EXPR_NAME,
    EXPR_ATTRIBUTE, /* a.name */
    EXPR_ITEM,      /* a[arg 0] */
    EXPR_SLICE,     /* a[arg 0 : arg 1 : arg 2], each may be NULL */
    EXPR_CALL,      /* a(args) */
    EXPR_FILTER,    /* a | name(args); a NULL in a filter block */
    EXPR_TEST,      /* a is name(args) */
    EXPR_NOT,
    EXPR_NEGATIVE,
    EXPR_POSITIVE,
    EXPR_AND,
    EXPR_OR,
    EXPR_ARITHMETIC, /* a op b */
    EXPR_COMPARE,    /* a, then pairs of op and argument */
    EXPR_CONCAT,     /* args by ~ */
    EXPR_IF,         /* a if b else arg 0, which may be NULL */
    EXPR_LIST,
    EXPR_TUPLE,
    EXPR_DICT, /* args: keys and values in turn */
};

enum jinja_op {
    OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOOR, OP_MOD, OP_POW,
    OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_IN, OP_NOT_IN,
};

struct jinja_filter;
struct jinja_test;

struct jinja_expr {
    enum jinja_expr_kind kind;
    uint32_t line;
    const struct jinja_value *value; /* CONST; NAME, ATTRIBUTE: its text */
    const char *name;                /* zero-terminated; FILTER and TEST too */
    struct jinja_expr *a, *b;
    enum jinja_op op;
    struct jinja_expr **arg; /* NULL where left out, in SLICE and IF */
    const char **keyword;    /* of arg; NULL for those by position, which come first */
    enum jinja_op *ops;      /* COMPARE: before each arg */
    size_t n_args;
    const struct jinja_filter *filter; /* NULL: not known, an error when it is reached */
    const struct jinja_test *test;
};

/* ---- statements ---- */

enum jinja_stmt_kind {
    STMT_DATA,
    STMT_PRINT,
    STMT_IF,
    STMT_FOR,
    STMT_SET,
    STMT_SET_BLOCK, /* the body's output, through expr when it is not NULL */
    STMT_MACRO,
    STMT_WITH,
    STMT_FILTER, /* the body's output through expr */
    STMT_GROUP,  /* the body as it is */
    STMT_BREAK,
    STMT_CONTINUE,
};

struct jinja_stmt {
    enum jinja_stmt_kind kind;
    uint32_t line;
    struct jinja_stmt *next; /* in its block */
    struct jinja_expr *expr; /* PRINT, SET; IF's condition; FOR's iterable */
    struct jinja_expr *filter; /* FOR ... if */
    struct jinja_expr *target; /* FOR, SET: NAME, TUPLE of them, or ATTRIBUTE of a namespace */
    struct jinja_stmt *body, *otherwise;
    const struct jinja_value *data; /* DATA */
    struct jinja_macro *macro;
    struct jinja_expr **targets, **values; /* WITH */
    size_t n;
};

struct jinja_macro {
    const char *name;
    const struct jinja_value *name_text;
    const struct jinja_value **param; /* their names as text */
    const char **param_name;
    struct jinja_expr **preset; /* [n_params], NULL: none */
    size_t n_params;
    struct jinja_stmt *body;
    bool uses_varargs, uses_kwargs;
};

struct jinja_template {
    struct jinja_mem *m; /* owned */
    struct jinja_stmt *body;
};

int jinja_parse(struct jinja_stmt **out, struct jinja_mem *m, const struct jinja_tokens *tokens,
                struct err *err);

#endif
