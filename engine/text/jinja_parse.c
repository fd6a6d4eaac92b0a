/* Statements. */
#include "text/jinja_parse.h"

#include "util/err.h"

#include <string.h>

static struct jinja_stmt *new_stmt(struct jinja_parser *p, enum jinja_stmt_kind kind)
{
    struct jinja_stmt *s = jinja_parse_take(p, sizeof *s);

    if (s) {
        s->kind = kind;
        s->line = p->at->line;
    }
    return s;
}

static int end_block(struct jinja_parser *p)
{
    if (p->at->type != TOKEN_BLOCK_END)
        return jinja_parse_wrong(p, "'%}' is missing");
    p->at++;
    return 0;
}

static int parse_body(struct jinja_parser *p, struct jinja_stmt **out, const char *const *ends);

/* The body of a statement with its own scope, up to "{% end %}" and with it. */
static int parse_until(struct jinja_parser *p, struct jinja_stmt **out, const char *end)
{
    const char *const ends[] = { end, NULL };
    bool soft = p->soft;

    p->soft = false;
    if (end_block(p) < 0 || parse_body(p, out, ends) < 0)
        return -1;
    p->soft = soft;
    p->at++;
    return 0;
}

/* Behind "if", or the "elif" number n. */
static struct jinja_stmt *parse_if(struct jinja_parser *p, uint32_t n)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    static const char *const last[] = { "endif", NULL };
    struct jinja_stmt *s = new_stmt(p, STMT_IF);
    bool soft = p->soft;

    if (!s)
        return NULL;
    p->soft = true;
    s->expr = jinja_parse_tuple(p, &(struct jinja_tuple){ .no_if = true });
    if (!s->expr || end_block(p) < 0 || parse_body(p, &s->body, ends) < 0)
        return NULL;
    if (jinja_parse_word(p, "elif")) {
        if (n == 500) {
            jinja_parse_wrong(p, "too many branches");
            return NULL;
        }
        s->otherwise = parse_if(p, n + 1);
        p->soft = soft;
        return s->otherwise ? s : NULL;
    }
    if (jinja_parse_word(p, "else") && (end_block(p) < 0 || parse_body(p, &s->otherwise, last) < 0))
        return NULL;
    p->at++;
    p->soft = soft;
    return s;
}

static bool names_loop(const struct jinja_expr *target)
{
    if (target->kind == EXPR_NAME)
        return strcmp(target->name, "loop") == 0;
    for (size_t i = 0; i < target->n_args; i++)
        if (names_loop(target->arg[i]))
            return true;
    return false;
}

static struct jinja_stmt *parse_for(struct jinja_parser *p)
{
    static const char *const ends[] = { "else", "endfor", NULL }, *const last[] = { "endfor", NULL };
    struct jinja_stmt *s = new_stmt(p, STMT_FOR);
    bool soft = p->soft;

    if (!s || !(s->target = jinja_parse_target(p, true, false, "in")))
        return NULL;
    if (names_loop(s->target)) {
        jinja_parse_wrong(p, "a loop cannot be over 'loop'");
        return NULL;
    }
    if (!jinja_parse_word(p, "in")) {
        jinja_parse_wrong(p, "'in' is missing");
        return NULL;
    }
    s->expr = jinja_parse_tuple(p, &(struct jinja_tuple){ .no_if = true, .end_word = "recursive" });
    if (!s->expr)
        return NULL;
    p->soft = false;
    if (jinja_parse_word(p, "if") && !(s->filter = jinja_parse_expr(p, false)))
        return NULL;
    if (jinja_parse_word(p, "recursive")) {
        jinja_parse_unbuilt(p, "a recursive loop");
        return NULL;
    }
    p->loops++;
    if (end_block(p) < 0 || parse_body(p, &s->body, ends) < 0)
        return NULL;
    p->loops--;
    if (jinja_parse_word(p, "else") && (end_block(p) < 0 || parse_body(p, &s->otherwise, last) < 0))
        return NULL;
    p->at++;
    p->soft = soft;
    return s;
}

static struct jinja_stmt *parse_set(struct jinja_parser *p)
{
    struct jinja_stmt *s = new_stmt(p, STMT_SET);

    if (!s || !(s->target = jinja_parse_target(p, true, true, NULL)))
        return NULL;
    if (jinja_parse_op(p, "=")) {
        s->expr = jinja_parse_tuple(p, &(struct jinja_tuple){ 0 });
        return s->expr ? s : NULL;
    }
    s->kind = STMT_SET_BLOCK;
    if (s->target->kind == EXPR_TUPLE) {
        jinja_parse_wrong(p, "a block cannot be set to several names");
        return NULL;
    }
    if (jinja_parse_op(p, "|") && !(s->expr = jinja_parse_filters(p, NULL, true)))
        return NULL;
    return parse_until(p, &s->body, "endset") < 0 ? NULL : s;
}

static int parse_params(struct jinja_parser *p, struct jinja_macro *macro)
{
    enum { MAX_PARAMS = 32 };
    bool preset = false;

    macro->param = jinja_parse_take(p, MAX_PARAMS * sizeof(*macro->param));
    macro->param_name = jinja_parse_take(p, MAX_PARAMS * sizeof(*macro->param_name));
    macro->preset = jinja_parse_take(p, MAX_PARAMS * sizeof(*macro->preset));
    if (!macro->param || !macro->param_name || !macro->preset)
        return -1;
    if (!jinja_parse_op(p, "("))
        return jinja_parse_wrong(p, "'(' is missing");
    while (!jinja_parse_op(p, ")")) {
        size_t n = macro->n_params;
        if (n && !jinja_parse_op(p, ","))
            return jinja_parse_wrong(p, "',' or ')' is missing");
        if (n == MAX_PARAMS)
            return jinja_parse_wrong(p, "too many parameters");
        struct jinja_expr *name = jinja_parse_target(p, false, false, NULL);
        if (!name)
            return -1;
        macro->param_name[n] = name->name;
        macro->param[n] = name->value;
        if (jinja_parse_op(p, "=")) {
            preset = true;
            if (!(macro->preset[n] = jinja_parse_expr(p, false)))
                return -1;
        } else if (preset) {
            return jinja_parse_wrong(p, "a parameter without a default after one with");
        }
        macro->n_params++;
    }
    return 0;
}

static struct jinja_stmt *parse_macro(struct jinja_parser *p)
{
    struct jinja_stmt *s = new_stmt(p, STMT_MACRO);
    struct jinja_macro *outside = p->macro, *macro = jinja_parse_take(p, sizeof *macro);
    uint32_t loops = p->loops;

    if (!s || !macro)
        return NULL;
    struct jinja_expr *name = jinja_parse_target(p, false, false, NULL);
    if (!name)
        return NULL;
    macro->name = name->name;
    macro->name_text = name->value;
    if (parse_params(p, macro) < 0)
        return NULL;
    p->macro = s->macro = macro;
    p->loops = 0;
    if (parse_until(p, &macro->body, "endmacro") < 0)
        return NULL;
    p->macro = outside;
    p->loops = loops;
    return s;
}

static struct jinja_stmt *parse_with(struct jinja_parser *p)
{
    enum { MAX = 32 };
    struct jinja_stmt *s = new_stmt(p, STMT_WITH);

    if (!s)
        return NULL;
    s->targets = jinja_parse_take(p, MAX * sizeof(*s->targets));
    s->values = jinja_parse_take(p, MAX * sizeof(*s->values));
    if (!s->targets || !s->values)
        return NULL;
    while (p->at->type != TOKEN_BLOCK_END) {
        if ((s->n && !jinja_parse_op(p, ",")) || s->n == MAX) {
            jinja_parse_wrong(p, "',' is missing, or too many names");
            return NULL;
        }
        struct jinja_expr *target = jinja_parse_target(p, true, false, NULL), *value;
        if (!target)
            return NULL;
        if (!jinja_parse_op(p, "=")) {
            jinja_parse_wrong(p, "'=' is missing");
            return NULL;
        }
        if (!(value = jinja_parse_expr(p, false)))
            return NULL;
        s->targets[s->n] = target;
        s->values[s->n++] = value;
    }
    return parse_until(p, &s->body, "endwith") < 0 ? NULL : s;
}

static struct jinja_stmt *parse_filter_block(struct jinja_parser *p)
{
    struct jinja_stmt *s = new_stmt(p, STMT_FILTER);

    if (!s || !(s->expr = jinja_parse_filters(p, NULL, true)))
        return NULL;
    return parse_until(p, &s->body, "endfilter") < 0 ? NULL : s;
}

static struct jinja_stmt *parse_group(struct jinja_parser *p)
{
    struct jinja_stmt *s = new_stmt(p, STMT_GROUP);

    return s && parse_until(p, &s->body, "endgeneration") == 0 ? s : NULL;
}

/* Jinja2's print statement: "{% print a, b %}". */
static struct jinja_stmt *parse_print_tag(struct jinja_parser *p)
{
    struct jinja_stmt *s = NULL, **end = &s;

    do {
        if (!(*end = new_stmt(p, STMT_PRINT)) ||
            !((*end)->expr = jinja_parse_expr(p, false)))
            return NULL;
        end = &(*end)->next;
    } while (jinja_parse_op(p, ","));
    struct jinja_stmt *group = new_stmt(p, STMT_GROUP);
    if (group)
        group->body = s;
    return group;
}

static struct jinja_stmt *parse_jump(struct jinja_parser *p, enum jinja_stmt_kind kind)
{
    if (p->loops == 0) {
        jinja_parse_wrong(p, "break and continue belong into a loop");
        return NULL;
    }
    return new_stmt(p, kind);
}

/* Behind "{%". Those with a body have read their own end but its "%}". */
static struct jinja_stmt *parse_statement(struct jinja_parser *p)
{
    static const char *const unbuilt[] = { "block", "extends", "include", "import", "from",
                                           "autoescape", "call" };

    if (p->at->type != TOKEN_NAME) {
        jinja_parse_wrong(p, "the name of a statement is missing");
        return NULL;
    }
    if (jinja_parse_word(p, "if"))
        return parse_if(p, 0);
    if (jinja_parse_word(p, "for"))
        return parse_for(p);
    if (jinja_parse_word(p, "set"))
        return parse_set(p);
    if (jinja_parse_word(p, "macro"))
        return parse_macro(p);
    if (jinja_parse_word(p, "with"))
        return parse_with(p);
    if (jinja_parse_word(p, "filter"))
        return parse_filter_block(p);
    if (jinja_parse_word(p, "generation"))
        return parse_group(p);
    if (jinja_parse_word(p, "print"))
        return parse_print_tag(p);
    if (jinja_parse_word(p, "break"))
        return parse_jump(p, STMT_BREAK);
    if (jinja_parse_word(p, "continue"))
        return parse_jump(p, STMT_CONTINUE);
    for (size_t i = 0; i < sizeof unbuilt / sizeof *unbuilt; i++)
        if (jinja_parse_at_word(p, unbuilt[i])) {
            jinja_parse_unbuilt(p, unbuilt[i]);
            return NULL;
        }
    jinja_parse_wrong(p, "unknown statement");
    return NULL;
}

static struct jinja_stmt *parse_print(struct jinja_parser *p)
{
    struct jinja_stmt *s = new_stmt(p, STMT_PRINT);

    if (!s || !(s->expr = jinja_parse_tuple(p, &(struct jinja_tuple){ 0 })))
        return NULL;
    if (p->at->type != TOKEN_PRINT_END) {
        jinja_parse_wrong(p, "'}}' is missing");
        return NULL;
    }
    p->at++;
    return s;
}

static bool ends_here(const struct jinja_parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (jinja_parse_at_word(p, *ends))
            return true;
    return false;
}

/* Statements up to one of `ends`, at whose name p->at stands then; NULL: up to the source's end. */
static int parse_body(struct jinja_parser *p, struct jinja_stmt **out, const char *const *ends)
{
    if (p->depth > 150)
        return jinja_parse_wrong(p, "blocks too deep");
    p->depth++;
    while (p->at->type != TOKEN_END) {
        struct jinja_stmt *s;
        if (p->at->type == TOKEN_DATA) {
            if (!(s = new_stmt(p, STMT_DATA)))
                return -1;
            s->data = jinja_str(p->m, p->at->text, p->at->size, true);
            if (!s->data)
                return err_set(p->err, ERR_BUDGET, "chat template: too large");
            p->at++;
        } else if (p->at->type == TOKEN_PRINT_BEGIN) {
            p->at++;
            s = parse_print(p);
        } else {
            p->at++;
            if (ends_here(p, ends)) {
                p->depth--;
                return 0;
            }
            s = parse_statement(p);
            if (s && end_block(p) < 0)
                return -1;
        }
        if (!s)
            return -1;
        *out = s;
        out = &s->next;
    }
    p->depth--;
    return ends ? jinja_parse_wrong(p, "a block without its end") : 0;
}

int jinja_parse(struct jinja_stmt **out, struct jinja_mem *m, const struct jinja_tokens *tokens,
                struct err *err)
{
    struct jinja_parser p = { .m = m, .at = tokens->token, .err = err };

    return parse_body(&p, out, NULL);
}
