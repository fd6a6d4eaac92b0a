/* Statements, scopes and macros, and the limits of a rendering. */
#include "text/jinja_run.h"

#include "util/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_CALLS = 64, /* macros inside macros */
    TEMPLATE_MEMORY = 32 << 20,
    TEMPLATE_SIZE = 1 << 20,
};

/* ---- failing ---- */

const struct jinja_value *jinja_fail(struct jinja_run *r, const char *fmt, ...)
{
    char text[400];
    va_list args;

    if (r->failed)
        return NULL;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    r->failed = true;
    err_set(r->err, ERR_INPUT, "chat template, line %u: %s", r->line, text);
    return NULL;
}

const struct jinja_value *jinja_fail_unbuilt(struct jinja_run *r, const char *what)
{
    if (!r->failed)
        err_set(r->err, ERR_UNSUPPORTED, "chat template, line %u: '%s' is not built", r->line,
                what);
    r->failed = true;
    return NULL;
}

static const struct jinja_value *fail_limit(struct jinja_run *r, const char *what, uint64_t limit)
{
    if (!r->failed)
        err_set(r->err, ERR_BUDGET, "chat template, line %u: more than %llu %s", r->line,
                (unsigned long long)limit, what);
    r->failed = true;
    return NULL;
}

const struct jinja_value *jinja_fail_memory(struct jinja_run *r)
{
    return fail_limit(r, "bytes of memory", r->limits->memory);
}

const struct jinja_value *jinja_made(struct jinja_run *r, const struct jinja_value *v)
{
    return v || r->failed ? v : jinja_fail_memory(r);
}

int jinja_step(struct jinja_run *r)
{
    if (r->steps == 0) {
        fail_limit(r, "steps", r->limits->steps);
        return -1;
    }
    r->steps--;
    return 0;
}

int jinja_work(struct jinja_run *r, size_t n, size_t others)
{
    enum { BYTES_A_STEP = 4096 };
    unsigned __int128 steps = (unsigned __int128)n * others / BYTES_A_STEP;

    if (steps > r->steps) {
        fail_limit(r, "steps", r->limits->steps);
        return -1;
    }
    r->steps -= (uint64_t)steps;
    return 0;
}

/* Whether the effort sufficed; what it took are steps. */
static bool spent(struct jinja_run *r, const struct jinja_effort *e)
{
    r->steps = e->left;
    if (e->too_deep)
        jinja_fail(r, "values that are too deep to compare");
    else if (e->over)
        fail_limit(r, "steps", r->limits->steps);
    return !e->over;
}

int jinja_same(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b)
{
    struct jinja_effort e = { .left = r->steps };
    bool equal = jinja_equal(a, b, &e);

    return spent(r, &e) ? equal : -1;
}

int jinja_order(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b)
{
    struct jinja_effort e = { .left = r->steps };
    int rc = jinja_compare(r->m, a, b, &e);

    return spent(r, &e) ? rc : -3;
}

const struct jinja_value *jinja_raised(struct jinja_run *r, const struct jinja_value *text)
{
    const char *flat = jinja_str_flat(r->m, text);
    char *copy = flat ? jinja_take(r->m, text->s.size + 1) : NULL;
    const struct jinja_value *instead = NULL;

    if (!copy)
        return jinja_fail_memory(r);
    memcpy(copy, flat, text->s.size);
    if (r->hooks && r->hooks->raised) {
        const struct jinja_value *name = jinja_str(r->m, "message", 7, true);
        const struct jinja_value *message = name ? jinja_lookup(r, name) : NULL;
        instead = r->hooks->raised(r->hooks->ctx, r->m, copy, message);
    }
    return instead ? instead : jinja_fail(r, "%s", copy);
}

/* ---- scopes and bodies ---- */

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE, FLOW_FAILED };

static enum flow run_body(struct jinja_run *r, const struct jinja_stmt *s);

static struct jinja_scope *scope_open(struct jinja_run *r, struct jinja_scope *parent)
{
    struct jinja_scope *scope = jinja_take(r->m, sizeof *scope);

    if (!scope) {
        jinja_fail_memory(r);
        return NULL;
    }
    scope->parent = parent;
    return scope;
}

static enum flow run_inner(struct jinja_run *r, const struct jinja_stmt *body)
{
    struct jinja_scope *outside = r->scope, *scope = scope_open(r, outside);

    if (!scope)
        return FLOW_FAILED;
    r->scope = scope;
    enum flow flow = run_body(r, body);
    r->scope = outside;
    return flow;
}

/* What a body prints, as a string. */
static const struct jinja_value *capture(struct jinja_run *r, const struct jinja_stmt *body)
{
    struct jinja_writer w = { .m = r->m, .cap = r->limits->output }, *outside = r->out;

    r->out = &w;
    enum flow flow = run_inner(r, body);
    r->out = outside;
    if (flow == FLOW_FAILED)
        return NULL;
    return jinja_made(r, jinja_written(&w));
}

static int print(struct jinja_run *r, const struct jinja_value *text)
{
    jinja_write_str(r->out, text);
    if (!r->out->full)
        return 0;
    if (r->out->cap && text->s.size > r->out->cap - r->out->size)
        fail_limit(r, "bytes of output", r->limits->output);
    else
        jinja_fail_memory(r);
    return -1;
}

/* ---- assignment ---- */

static int set_name(struct jinja_run *r, const struct jinja_expr *name,
                    const struct jinja_value *v)
{
    if (jinja_map_set(r->m, &r->scope->names, name->value, v) == 0)
        return 0;
    jinja_fail_memory(r);
    return -1;
}

static int assign(struct jinja_run *r, const struct jinja_expr *target,
                  const struct jinja_value *v)
{
    if (target->kind == EXPR_NAME)
        return set_name(r, target, v);
    if (target->kind == EXPR_ATTRIBUTE) {
        const struct jinja_value *space = jinja_eval(r, target->a);
        if (!space)
            return -1;
        if (space->type != JINJA_NAMESPACE) {
            jinja_fail(r, "cannot assign attribute on non-namespace object");
            return -1;
        }
        if (jinja_map_set(r->m, space->map, target->value, v) == 0)
            return 0;
        jinja_fail_memory(r);
        return -1;
    }
    const struct jinja_items *items = jinja_walked(r, v);
    if (!items)
        return -1;
    if (items->n != target->n_args) {
        jinja_fail(r, "%zu values to unpack where there are %zu names", items->n, target->n_args);
        return -1;
    }
    for (size_t i = 0; i < items->n; i++)
        if (assign(r, target->arg[i], items->item[i]) < 0)
            return -1;
    return 0;
}

/* ---- loops ---- */

/* The items that a loop's filter lets through. */
static const struct jinja_items *filtered(struct jinja_run *r, const struct jinja_stmt *s,
                                          const struct jinja_items *items)
{
    struct jinja_items *out = jinja_take(r->m, sizeof *out);
    struct jinja_scope *outside = r->scope;

    if (!out) {
        jinja_fail_memory(r);
        return NULL;
    }
    for (size_t i = 0; i < items->n; i++) {
        const struct jinja_value *keep = NULL;
        if (jinja_step(r) == 0 && (r->scope = scope_open(r, outside)) &&
            assign(r, s->target, items->item[i]) == 0)
            keep = jinja_eval(r, s->filter);
        r->scope = outside;
        if (!keep)
            return NULL;
        if (jinja_truth(keep) && jinja_items_add(r->m, out, items->item[i]) < 0) {
            jinja_fail_memory(r);
            return NULL;
        }
    }
    return out;
}

static enum flow run_turn(struct jinja_run *r, const struct jinja_stmt *s,
                          const struct jinja_value *loop)
{
    static const struct text_run name = { "loop", 4, true };
    static const struct jinja_value loop_name = { .type = JINJA_STR,
                                                  .s = { .size = 4, .n = 1, .seg = &name } };
    struct jinja_scope *outside = r->scope, *scope = scope_open(r, outside);
    enum flow flow = FLOW_FAILED;

    if (!scope || jinja_step(r) < 0)
        return FLOW_FAILED;
    r->scope = scope;
    if (jinja_map_set(r->m, &scope->names, &loop_name, loop) < 0)
        jinja_fail_memory(r);
    else if (assign(r, s->target, loop->loop->items->item[loop->loop->at]) == 0)
        flow = run_body(r, s->body);
    r->scope = outside;
    return flow;
}

static enum flow run_for(struct jinja_run *r, const struct jinja_stmt *s)
{
    const struct jinja_value *over = jinja_eval(r, s->expr);
    const struct jinja_items *items = over ? jinja_walked(r, over) : NULL;

    if (items && s->filter)
        items = filtered(r, s, items);
    if (!items)
        return FLOW_FAILED;
    if (items->n == 0)
        return s->otherwise ? run_inner(r, s->otherwise) : FLOW_ON;

    struct jinja_value *loop = jinja_new(r->m, JINJA_LOOP);
    if (loop)
        loop->loop = jinja_take(r->m, sizeof *loop->loop);
    if (!loop || !loop->loop) {
        jinja_fail_memory(r);
        return FLOW_FAILED;
    }
    *loop->loop = (struct jinja_loop){ .items = items, .depth = ++r->loops };
    enum flow flow = FLOW_ON;
    for (size_t i = 0; i < items->n && flow == FLOW_ON; i++) {
        loop->loop->at = i;
        flow = run_turn(r, s, loop);
        if (flow == FLOW_CONTINUE)
            flow = FLOW_ON;
    }
    r->loops--;
    return flow == FLOW_FAILED ? flow : FLOW_ON;
}

/* ---- macros ---- */

static enum flow define_macro(struct jinja_run *r, const struct jinja_stmt *s)
{
    struct jinja_value *v = jinja_new(r->m, JINJA_MACRO);

    if (v) {
        v->m.macro = s->macro;
        v->m.scope = r->scope;
    }
    if (v && jinja_map_set(r->m, &r->scope->names, s->macro->name_text, v) == 0)
        return FLOW_ON;
    jinja_fail_memory(r);
    return FLOW_FAILED;
}

static const struct jinja_value *const *param_named(const struct jinja_macro *macro,
                                                    const char *name, size_t *at)
{
    for (*at = 0; *at < macro->n_params; (*at)++)
        if (strcmp(macro->param_name[*at], name) == 0)
            return &macro->param[*at];
    return NULL;
}

/* Arguments into r->scope, which is the macro's. */
static int bind_args(struct jinja_run *r, const struct jinja_macro *macro,
                     const struct jinja_args *args)
{
    struct jinja_items *rest;
    const struct jinja_value *varargs = jinja_new_items(r, JINJA_TUPLE, &rest);
    struct jinja_value *kwargs = jinja_dict(r->m);
    struct jinja_map *names = &r->scope->names;
    size_t at;
    int rc = varargs && kwargs ? 0 : -1;

    for (size_t i = 0; rc == 0 && i < args->n; i++) {
        const char *keyword = args->keyword[i];
        if (!keyword && i < macro->n_params)
            rc = jinja_map_set(r->m, names, macro->param[i], args->value[i]);
        else if (!keyword && macro->uses_varargs)
            rc = jinja_items_add(r->m, rest, args->value[i]);
        else if (keyword && param_named(macro, keyword, &at)) {
            if (jinja_map_get(names, macro->param[at])) {
                jinja_fail(r, "macro '%s' got several values for '%s'", macro->name, keyword);
                return -1;
            }
            rc = jinja_map_set(r->m, names, macro->param[at], args->value[i]);
        } else if (keyword && macro->uses_kwargs)
            rc = jinja_dict_set(r->m, kwargs, keyword, args->value[i]);
        else {
            jinja_fail(r, "macro '%s' does not take %s%s", macro->name,
                       keyword ? "an argument " : "so many arguments", keyword ? keyword : "");
            return -1;
        }
    }
    if (rc == 0 && macro->uses_varargs)
        rc = jinja_map_set(r->m, names, jinja_str(r->m, "varargs", 7, true), varargs);
    if (rc == 0 && macro->uses_kwargs)
        rc = jinja_map_set(r->m, names, jinja_str(r->m, "kwargs", 6, true), kwargs);
    if (rc < 0)
        jinja_fail_memory(r);
    return rc;
}

static int preset_args(struct jinja_run *r, const struct jinja_macro *macro)
{
    for (size_t i = 0; i < macro->n_params; i++) {
        if (jinja_map_get(&r->scope->names, macro->param[i]))
            continue;
        const struct jinja_value *v =
            macro->preset[i] ? jinja_eval(r, macro->preset[i])
                             : jinja_made(r, jinja_none_such(r->m, macro->param_name[i]));
        if (!v)
            return -1;
        if (jinja_map_set(r->m, &r->scope->names, macro->param[i], v) < 0) {
            jinja_fail_memory(r);
            return -1;
        }
    }
    return 0;
}

const struct jinja_value *jinja_call_macro(struct jinja_run *r, const struct jinja_value *v,
                                           const struct jinja_args *args)
{
    const struct jinja_macro *macro = v->m.macro;
    struct jinja_scope *outside = r->scope;
    uint32_t loops = r->loops;
    const struct jinja_value *out = NULL;

    if (r->calls == MAX_CALLS)
        return jinja_fail(r, "macros call each other more than %d deep", MAX_CALLS);
    if (jinja_step(r) < 0 || !(r->scope = scope_open(r, v->m.scope))) {
        r->scope = outside;
        return NULL;
    }
    r->calls++;
    r->loops = 0;
    if (bind_args(r, macro, args) == 0 && preset_args(r, macro) == 0)
        out = capture(r, macro->body);
    r->loops = loops;
    r->calls--;
    r->scope = outside;
    return out;
}

/* ---- statements ---- */

static enum flow run_if(struct jinja_run *r, const struct jinja_stmt *s)
{
    for (;;) {
        r->line = s->line;
        const struct jinja_value *v = jinja_eval(r, s->expr);
        if (!v)
            return FLOW_FAILED;
        if (jinja_truth(v))
            return run_body(r, s->body);
        if (!s->otherwise)
            return FLOW_ON;
        /* An "elif" is an if alone in its branch. */
        if (s->otherwise->kind != STMT_IF || s->otherwise->next)
            return run_body(r, s->otherwise);
        s = s->otherwise;
    }
}

static enum flow run_set(struct jinja_run *r, const struct jinja_stmt *s)
{
    const struct jinja_value *v;

    if (s->kind == STMT_SET) {
        v = jinja_eval(r, s->expr);
    } else {
        v = capture(r, s->body);
        if (v && s->expr)
            v = jinja_eval_over(r, s->expr, v);
    }
    return v && assign(r, s->target, v) == 0 ? FLOW_ON : FLOW_FAILED;
}

static enum flow run_print(struct jinja_run *r, const struct jinja_value *v)
{
    const struct jinja_value *text = v ? jinja_spelled(r, v) : NULL;

    return text && print(r, text) == 0 ? FLOW_ON : FLOW_FAILED;
}

static enum flow run_with(struct jinja_run *r, const struct jinja_stmt *s)
{
    struct jinja_scope *outside = r->scope, *scope = scope_open(r, outside);
    enum flow flow = FLOW_ON;

    if (!scope)
        return FLOW_FAILED;
    for (size_t i = 0; i < s->n && flow == FLOW_ON; i++) {
        const struct jinja_value *v = jinja_eval(r, s->values[i]); /* of the outer scope */
        r->scope = scope;
        if (!v || assign(r, s->targets[i], v) < 0)
            flow = FLOW_FAILED;
        r->scope = outside;
    }
    if (flow == FLOW_FAILED)
        return flow;
    r->scope = scope;
    flow = run_body(r, s->body);
    r->scope = outside;
    return flow;
}

static enum flow run_one(struct jinja_run *r, const struct jinja_stmt *s)
{
    const struct jinja_value *v;

    switch (s->kind) {
    case STMT_DATA:
        return print(r, s->data) < 0 ? FLOW_FAILED : FLOW_ON;
    case STMT_PRINT:
        return run_print(r, jinja_eval(r, s->expr));
    case STMT_IF:
        return run_if(r, s);
    case STMT_FOR:
        return run_for(r, s);
    case STMT_SET:
    case STMT_SET_BLOCK:
        return run_set(r, s);
    case STMT_MACRO:
        return define_macro(r, s);
    case STMT_WITH:
        return run_with(r, s);
    case STMT_FILTER:
        v = capture(r, s->body);
        return run_print(r, v ? jinja_eval_over(r, s->expr, v) : NULL);
    case STMT_GROUP:
        return run_inner(r, s->body);
    case STMT_BREAK:
        return FLOW_BREAK;
    case STMT_CONTINUE:
        return FLOW_CONTINUE;
    }
    return FLOW_FAILED;
}

static enum flow run_body(struct jinja_run *r, const struct jinja_stmt *s)
{
    enum flow flow = FLOW_ON;

    if (r->depth > 1400) {
        jinja_fail(r, "recursion too deep");
        return FLOW_FAILED;
    }
    r->depth++;
    for (; s && flow == FLOW_ON; s = s->next) {
        r->line = s->line;
        flow = jinja_step(r) < 0 ? FLOW_FAILED : run_one(r, s);
    }
    r->depth--;
    return flow;
}

/* ---- the front ---- */

/* "\r\n" and "\r" are "\n", and one at the end goes. */
static char *normalized(struct jinja_mem *m, const char *source, size_t *size)
{
    char *copy = jinja_take(m, *size + 1);
    size_t n = 0;

    for (size_t i = 0; copy && i < *size; i++) {
        if (source[i] == '\r' && i + 1 < *size && source[i + 1] == '\n')
            continue;
        copy[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (copy && n > 0 && copy[n - 1] == '\n')
        n--;
    *size = n;
    return copy;
}

int jinja_open(struct jinja_template **out, const char *source, size_t size, struct err *err)
{
    struct jinja_limits limits = { .memory = TEMPLATE_MEMORY };
    struct jinja_tokens tokens = { 0 };
    struct jinja_template *t;

    if (size > TEMPLATE_SIZE)
        return err_set(err, ERR_FORMAT, "chat template: %zu bytes, at most %d are taken", size,
                       TEMPLATE_SIZE);
    if (!(t = calloc(1, sizeof *t)) || !(t->m = jinja_mem_open(&limits))) {
        err_set(err, ERR_NOMEM, "chat template");
        goto fail;
    }
    char *copy = normalized(t->m, source, &size);
    if (!copy) {
        err_set(err, ERR_NOMEM, "chat template");
        goto fail;
    }
    if (jinja_lex(&tokens, t->m, copy, size, err) < 0 ||
        jinja_parse(&t->body, t->m, &tokens, err) < 0)
        goto fail;
    *out = t;
    return 0;

fail:
    jinja_close(t);
    return -1;
}

void jinja_close(struct jinja_template *t)
{
    if (!t)
        return;
    jinja_mem_close(t->m);
    free(t);
}

uint64_t jinja_memory(const struct jinja_template *t)
{
    return jinja_mem_used(t->m);
}

int jinja_render(struct jinja_output *out, const struct jinja_template *t, struct jinja_mem *m,
                 const struct jinja_value *vars, const struct jinja_hooks *hooks, struct err *err)
{
    const struct jinja_limits *limits = jinja_mem_limits(m);
    struct jinja_writer w = { .m = m, .cap = limits->output };
    struct jinja_run r = { .m = m, .vars = vars, .hooks = hooks, .out = &w,
                           .steps = limits->steps, .limits = limits, .line = 1, .err = err };

    if (!(r.scope = scope_open(&r, NULL)) || run_body(&r, t->body) == FLOW_FAILED) {
        if (!r.failed)
            jinja_fail_memory(&r);
        return -1;
    }
    *out = (struct jinja_output){ .run = w.row ? w.row->seg : NULL, .n = w.row ? w.row->n : 0,
                                  .size = w.size };
    return 0;
}
