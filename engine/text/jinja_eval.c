/* Expressions, with Python's meaning of operators. */
#include "text/jinja_run.h"

#include "util/err.h"
#include "util/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 1500, MAX_ARGS = 64 };

const struct jinja_value *jinja_lookup(struct jinja_run *r, const struct jinja_value *name)
{
    const struct jinja_value *v;

    for (const struct jinja_scope *s = r->scope; s; s = s->parent)
        if ((v = jinja_map_get(&s->names, name)))
            return v;
    return jinja_map_get(r->vars->map, name);
}

static const struct jinja_value *eval_name(struct jinja_run *r, const struct jinja_expr *e)
{
    const struct jinja_value *v = jinja_lookup(r, e->value);
    const struct jinja_method *global;

    if (v)
        return v;
    if ((global = jinja_global_find(e->name))) {
        struct jinja_value *f = jinja_new(r->m, JINJA_FUNCTION);
        if (f)
            f->call.method = global;
        return jinja_made(r, f);
    }
    return jinja_made(r, jinja_none_such(r->m, e->name));
}

/* ---- attributes and items ---- */

static const struct jinja_value *loop_attribute(struct jinja_run *r, const struct jinja_loop *l,
                                                const char *name)
{
    int64_t at = (int64_t)l->at, n = (int64_t)l->items->n;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = { { "index", at + 1 },         { "index0", at },
                    { "revindex", n - at },      { "revindex0", n - at - 1 },
                    { "length", n },             { "depth", l->depth },
                    { "depth0", l->depth - 1 } };

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(name, numbers[i].name) == 0)
            return jinja_made(r, jinja_int(r->m, numbers[i].value));
    if (strcmp(name, "first") == 0)
        return jinja_of_bool(at == 0);
    if (strcmp(name, "last") == 0)
        return jinja_of_bool(at + 1 == n);
    if (strcmp(name, "previtem") == 0 && at > 0)
        return l->items->item[at - 1];
    if (strcmp(name, "nextitem") == 0 && at + 1 < n)
        return l->items->item[at + 1];
    return NULL;
}

static const struct jinja_value *no_attribute(struct jinja_run *r, const struct jinja_value *name)
{
    const char *flat = jinja_str_flat(r->m, name);
    char *copy = flat ? jinja_take(r->m, name->s.size + 1) : NULL;

    if (copy)
        memcpy(copy, flat, name->s.size);
    return jinja_made(r, copy ? jinja_none_such(r->m, copy) : NULL);
}

/* A method or what the type has of its own; NULL: none, or an error that is set. */
static const struct jinja_value *own_attribute(struct jinja_run *r, const struct jinja_value *v,
                                               const struct jinja_value *name, bool *hidden)
{
    char text[64];
    const char *flat = jinja_str_flat(r->m, name);
    const struct jinja_method *method;
    bool unbuilt = false;

    *hidden = false;
    if (!flat || name->s.size >= sizeof text)
        return NULL;
    memcpy(text, flat, name->s.size);
    text[name->s.size] = '\0';
    if (v->type == JINJA_LOOP) {
        const struct jinja_value *found = loop_attribute(r, v->loop, text);
        if (found)
            return found;
    }
    if (v->type == JINJA_MACRO && strcmp(text, "name") == 0)
        return v->m.macro->name_text;
    method = jinja_method_find(v->type, text, hidden, &unbuilt);
    if (unbuilt)
        return jinja_fail_unbuilt(r, text);
    if (!method)
        return NULL;
    struct jinja_value *bound = jinja_new(r->m, JINJA_METHOD);
    if (bound) {
        bound->call.self = v;
        bound->call.method = method;
    }
    return jinja_made(r, bound);
}

static const struct jinja_value *of_undefined(struct jinja_run *r, const struct jinja_value *v)
{
    return jinja_fail(r, "'%s' is undefined", v->hint ? v->hint : "value");
}

const struct jinja_value *jinja_attribute(struct jinja_run *r, const struct jinja_value *v,
                                          const struct jinja_value *name)
{
    const struct jinja_value *found;
    bool hidden;

    if (v->type == JINJA_UNDEFINED)
        return of_undefined(r, v);
    if (v->type == JINJA_NAMESPACE) {
        found = jinja_map_get(v->map, name);
        return found ? found : no_attribute(r, name);
    }
    found = own_attribute(r, v, name, &hidden);
    if (found || r->failed)
        return found;
    if (v->type == JINJA_DICT && !hidden && (found = jinja_map_get(v->map, name)))
        return found;
    return no_attribute(r, name);
}

/* Character number i of a string, counted from its end when negative. */
static const struct jinja_value *character(struct jinja_run *r, const struct jinja_value *s,
                                           int64_t i)
{
    int64_t n = (int64_t)jinja_str_length(s);
    const char *flat = jinja_str_flat(r->m, s);
    size_t at = 0;

    if (!flat)
        return jinja_fail_memory(r);
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return NULL;
    for (; i > 0; i--) {
        int k = utf8_next(flat + at, s->s.size - at, NULL);
        at += k > 0 ? (size_t)k : 1;
    }
    int k = utf8_next(flat + at, s->s.size - at, NULL);
    return jinja_made(r, jinja_str_part(r->m, s, at, at + (k > 0 ? (size_t)k : 1)));
}

static bool is_whole(const struct jinja_value *v)
{
    return v->type == JINJA_INT || v->type == JINJA_BOOL;
}

static int64_t whole(const struct jinja_value *v)
{
    return v->type == JINJA_BOOL ? v->on : v->i;
}

const struct jinja_value *jinja_item(struct jinja_run *r, const struct jinja_value *v,
                                     const struct jinja_value *key)
{
    const struct jinja_value *found = NULL;
    bool hidden;

    if (v->type == JINJA_UNDEFINED)
        return of_undefined(r, v);
    if (v->type == JINJA_DICT) {
        found = jinja_map_get(v->map, key);
    } else if ((v->type == JINJA_LIST || v->type == JINJA_TUPLE) && is_whole(key)) {
        int64_t i = whole(key), n = (int64_t)v->items->n;
        i += i < 0 ? n : 0;
        if (i >= 0 && i < n)
            found = v->items->item[i];
    } else if (v->type == JINJA_STR && is_whole(key)) {
        found = character(r, v, whole(key));
    }
    if (found || r->failed)
        return found;
    if (key->type == JINJA_STR) {
        if (v->type == JINJA_NAMESPACE)
            return jinja_attribute(r, v, key);
        found = own_attribute(r, v, key, &hidden);
        return found || r->failed ? found : no_attribute(r, key);
    }
    return jinja_made(r, jinja_none_such(r->m, "element"));
}

/* ---- slices ---- */

struct span {
    int64_t from, step, n;
};

/* A part of a slice as a number; *given false where it was left out or is none. */
static int bound(struct jinja_run *r, const struct jinja_expr *e, int64_t *out, bool *given)
{
    const struct jinja_value *v = e ? jinja_eval(r, e) : &jinja_none;

    if (!v)
        return -1;
    *given = v->type != JINJA_NONE;
    if (*given && !is_whole(v)) {
        jinja_fail(r, "slice indices must be integers or None");
        return -1;
    }
    *out = *given ? whole(v) : 0;
    return 0;
}

/* As Python's slice.indices. */
static int span_of(struct jinja_run *r, const struct jinja_expr *e, int64_t n, struct span *out)
{
    int64_t from, to, step;
    bool has_from, has_to, has_step;

    if (bound(r, e->arg[0], &from, &has_from) < 0 || bound(r, e->arg[1], &to, &has_to) < 0 ||
        bound(r, e->arg[2], &step, &has_step) < 0)
        return -1;
    if (!has_step)
        step = 1;
    if (step == 0) {
        jinja_fail(r, "slice step cannot be zero");
        return -1;
    }
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    if (!has_from)
        from = step > 0 ? low : high;
    else if ((from += from < 0 ? n : 0) < low)
        from = low;
    else if (from > high)
        from = high;
    if (!has_to)
        to = step > 0 ? high : low;
    else if ((to += to < 0 ? n : 0) < low)
        to = low;
    else if (to > high)
        to = high;
    *out = (struct span){ .from = from, .step = step };
    if (step > 0 && from < to)
        out->n = 1 + (to - from - 1) / step;
    else if (step < 0 && to < from)
        out->n = 1 + (from - to - 1) / (step == INT64_MIN ? INT64_MAX : -step);
    return 0;
}

static const struct jinja_value *slice_str(struct jinja_run *r, const struct jinja_value *s,
                                           const struct span *span, size_t length)
{
    const char *flat = jinja_str_flat(r->m, s);
    size_t *at = jinja_take(r->m, (length + 1) * sizeof *at), n = 0;
    struct jinja_writer w = { .m = r->m };

    if (!flat || !at)
        return jinja_fail_memory(r);
    for (size_t i = 0; i < s->s.size; i++)
        if (((unsigned char)flat[i] & 0xc0) != 0x80)
            at[n++] = i;
    at[n] = s->s.size;
    if (span->step == 1 && span->n > 0)
        return jinja_made(r, jinja_str_part(r->m, s, at[span->from], at[span->from + span->n]));
    for (int64_t k = 0; k < span->n; k++) {
        int64_t i = span->from + k * span->step;
        const struct jinja_value *one = jinja_str_part(r->m, s, at[i], at[i + 1]);
        if (!one)
            return jinja_fail_memory(r);
        jinja_write_str(&w, one);
    }
    return jinja_made(r, jinja_written(&w));
}

static const struct jinja_value *eval_slice(struct jinja_run *r, const struct jinja_expr *e)
{
    const struct jinja_value *v = jinja_eval(r, e->a);
    struct span span;
    struct jinja_items *items;

    if (!v)
        return NULL;
    if (v->type == JINJA_UNDEFINED)
        return of_undefined(r, v);
    if (v->type == JINJA_STR) {
        size_t length = jinja_str_length(v);
        if (span_of(r, e, (int64_t)length, &span) < 0)
            return NULL;
        return slice_str(r, v, &span, length);
    }
    if (v->type != JINJA_LIST && v->type != JINJA_TUPLE)
        return jinja_fail(r, "'%s' cannot be sliced", jinja_type_name(v));
    const struct jinja_value *out = jinja_new_items(r, v->type, &items);
    if (!out || span_of(r, e, (int64_t)v->items->n, &span) < 0)
        return NULL;
    for (int64_t k = 0; k < span.n; k++)
        if (jinja_items_add(r->m, items, v->items->item[span.from + k * span.step]) < 0)
            return jinja_fail_memory(r);
    return out;
}

/* ---- arithmetic ---- */

static const struct jinja_value *no_operator(struct jinja_run *r, const char *op,
                                             const struct jinja_value *a,
                                             const struct jinja_value *b)
{
    if (a->type == JINJA_UNDEFINED || b->type == JINJA_UNDEFINED)
        return of_undefined(r, a->type == JINJA_UNDEFINED ? a : b);
    if (a->type == JINJA_BIG || b->type == JINJA_BIG)
        return jinja_fail_unbuilt(r, "arithmetic beyond 64 bits");
    return jinja_fail(r, "unsupported operand types for %s: '%s' and '%s'", op,
                      jinja_type_name(a), jinja_type_name(b));
}

static const struct jinja_value *float_op(struct jinja_run *r, enum jinja_op op, double x, double y)
{
    if ((op == OP_DIV || op == OP_FLOOR || op == OP_MOD) && y == 0)
        return jinja_fail(r, "division by zero");
    switch (op) {
    case OP_ADD:
        x += y;
        break;
    case OP_SUB:
        x -= y;
        break;
    case OP_MUL:
        x *= y;
        break;
    case OP_DIV:
        x /= y;
        break;
    case OP_FLOOR:
        x = floor(x / y);
        break;
    case OP_MOD: {
        double rest = fmod(x, y);
        x = rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
        break;
    }
    default:
        if (x == 0 && y < 0)
            return jinja_fail(r, "0.0 cannot be raised to a negative power");
        x = pow(x, y);
    }
    return jinja_made(r, jinja_float(r->m, x));
}

static bool int_pow(int64_t x, int64_t y, int64_t *out)
{
    int64_t z = 1;

    for (; y > 0; y >>= 1) {
        if ((y & 1) && __builtin_mul_overflow(z, x, &z))
            return false;
        if (y > 1 && __builtin_mul_overflow(x, x, &x))
            return false;
    }
    *out = z;
    return true;
}

static const struct jinja_value *int_op(struct jinja_run *r, enum jinja_op op, int64_t x, int64_t y)
{
    int64_t z = 0;
    bool fits = true;

    if ((op == OP_FLOOR || op == OP_MOD) && y == 0)
        return jinja_fail(r, "division by zero");
    switch (op) {
    case OP_ADD:
        fits = !__builtin_add_overflow(x, y, &z);
        break;
    case OP_SUB:
        fits = !__builtin_sub_overflow(x, y, &z);
        break;
    case OP_MUL:
        fits = !__builtin_mul_overflow(x, y, &z);
        break;
    case OP_FLOOR:
    case OP_MOD:
        if (y == -1) { /* also for the one quotient that does not fit */
            fits = op == OP_MOD || !__builtin_sub_overflow((int64_t)0, x, &z);
            break;
        }
        z = op == OP_FLOOR ? x / y - (x % y != 0 && (x < 0) != (y < 0))
                           : x % y + (x % y != 0 && (x < 0) != (y < 0) ? y : 0);
        break;
    default:
        if (y < 0)
            return float_op(r, op, (double)x, (double)y);
        fits = int_pow(x, y, &z);
    }
    if (!fits)
        return jinja_fail_unbuilt(r, "arithmetic beyond 64 bits");
    return jinja_made(r, jinja_int(r->m, z));
}

/* "ab" * 3 and [1] * 3. */
static const struct jinja_value *repeat(struct jinja_run *r, const struct jinja_value *v, int64_t n)
{
    struct jinja_writer w = { .m = r->m };
    struct jinja_items *items;

    if (v->type == JINJA_STR) {
        for (; n > 0 && v->s.size > 0 && !w.full; n--) {
            if (jinja_step(r) < 0)
                return NULL;
            jinja_write_str(&w, v);
        }
        return jinja_made(r, jinja_written(&w));
    }
    const struct jinja_value *out = jinja_new_items(r, v->type, &items);
    for (; out && n > 0 && v->items->n > 0; n--) {
        if (jinja_step(r) < 0)
            return NULL;
        for (size_t i = 0; i < v->items->n; i++)
            if (jinja_items_add(r->m, items, v->items->item[i]) < 0)
                return jinja_fail_memory(r);
    }
    return out;
}

static const struct jinja_value *join_lists(struct jinja_run *r, const struct jinja_value *a,
                                            const struct jinja_value *b)
{
    struct jinja_items *items;
    const struct jinja_value *out = jinja_new_items(r, a->type, &items);

    for (size_t i = 0; out && i < a->items->n + b->items->n; i++)
        if (jinja_items_add(r->m, items,
                            i < a->items->n ? a->items->item[i] : b->items->item[i - a->items->n]) <
            0)
            return jinja_fail_memory(r);
    return out;
}

static bool is_row(const struct jinja_value *v)
{
    return v->type == JINJA_STR || v->type == JINJA_LIST || v->type == JINJA_TUPLE;
}

static const struct jinja_value *arithmetic(struct jinja_run *r, enum jinja_op op,
                                            const struct jinja_value *a,
                                            const struct jinja_value *b)
{
    static const char *const names[] = { "+", "-", "*", "/", "//", "%", "**" };

    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a->type == JINJA_FLOAT || b->type == JINJA_FLOAT || op == OP_DIV)
            return float_op(r, op, jinja_number(a), jinja_number(b));
        return int_op(r, op, whole(a), whole(b));
    }
    if (op == OP_ADD && a->type == b->type && a->type == JINJA_STR)
        return jinja_made(r, jinja_str_join(r->m, a, b));
    if (op == OP_ADD && a->type == b->type && is_row(a))
        return join_lists(r, a, b);
    if (op == OP_MUL && is_row(a) && is_whole(b))
        return repeat(r, a, whole(b));
    if (op == OP_MUL && is_row(b) && is_whole(a))
        return repeat(r, b, whole(a));
    if (op == OP_MOD && a->type == JINJA_STR)
        return jinja_fail_unbuilt(r, "formatting by '%'");
    return no_operator(r, names[op], a, b);
}

static const struct jinja_value *eval_sign(struct jinja_run *r, const struct jinja_expr *e)
{
    const struct jinja_value *v = jinja_eval(r, e->a);

    if (!v)
        return NULL;
    if (!jinja_is_number(v))
        return no_operator(r, e->kind == EXPR_NEGATIVE ? "unary -" : "unary +", v, v);
    if (v->type == JINJA_FLOAT)
        return jinja_made(r, jinja_float(r->m, e->kind == EXPR_NEGATIVE ? -v->d : v->d));
    return int_op(r, e->kind == EXPR_NEGATIVE ? OP_SUB : OP_ADD, 0, whole(v));
}

/* ---- comparison ---- */

static const struct jinja_value *find_text(struct jinja_run *r, const struct jinja_value *needle,
                                           const struct jinja_value *hay)
{
    if (needle->type != JINJA_STR)
        return jinja_fail(r, "'in <string>' requires a string as left operand, not %s",
                          jinja_type_name(needle));
    const char *n = jinja_str_flat(r->m, needle), *h = jinja_str_flat(r->m, hay);
    if (!n || !h)
        return jinja_fail_memory(r);
    return jinja_of_bool(needle->s.size == 0 || memmem(h, hay->s.size, n, needle->s.size));
}

const struct jinja_value *jinja_in(struct jinja_run *r, const struct jinja_value *needle,
                                   const struct jinja_value *hay)
{
    if (hay->type == JINJA_STR)
        return find_text(r, needle, hay);
    if (hay->type == JINJA_DICT) {
        if (needle->type == JINJA_LIST || needle->type == JINJA_DICT)
            return jinja_fail(r, "unhashable type: '%s'", jinja_type_name(needle));
        return jinja_of_bool(jinja_map_get(hay->map, needle) != NULL);
    }
    const struct jinja_items *items = jinja_walked(r, hay);
    for (size_t i = 0; items && i < items->n; i++) {
        int same = jinja_same(r, items->item[i], needle);
        if (same)
            return same < 0 ? NULL : &jinja_true;
    }
    return items ? &jinja_false : NULL;
}

static const struct jinja_value *compare(struct jinja_run *r, enum jinja_op op,
                                         const struct jinja_value *a, const struct jinja_value *b)
{
    const struct jinja_value *in;
    int same;

    switch (op) {
    case OP_EQ:
    case OP_NE:
        same = jinja_same(r, a, b);
        return same < 0 ? NULL : jinja_of_bool(same == (op == OP_EQ));
    case OP_IN:
        return jinja_in(r, a, b);
    case OP_NOT_IN:
        in = jinja_in(r, a, b);
        return in ? jinja_of_bool(!in->on) : NULL;
    default:
        break;
    }
    int rc = jinja_order(r, a, b);
    if (rc == -3)
        return NULL;
    if (rc == -2)
        return no_operator(r, "comparison", a, b);
    bool nan = (a->type == JINJA_FLOAT && a->d != a->d) || (b->type == JINJA_FLOAT && b->d != b->d);
    return jinja_of_bool(!nan && (op == OP_LT   ? rc < 0
                                  : op == OP_LE ? rc <= 0
                                  : op == OP_GT ? rc > 0
                                                : rc >= 0));
}

static const struct jinja_value *eval_compare(struct jinja_run *r, const struct jinja_expr *e)
{
    const struct jinja_value *left = jinja_eval(r, e->a), *rc = &jinja_true;

    for (size_t i = 0; left && i < e->n_args; i++) {
        const struct jinja_value *right = jinja_eval(r, e->arg[i]);
        if (!right || !(rc = compare(r, e->ops[i], left, right)))
            return NULL;
        if (!rc->on)
            return rc;
        left = right;
    }
    return left ? rc : NULL;
}

/* ---- calls ---- */

struct given {
    const struct jinja_value *value[MAX_ARGS];
    const char *keyword[MAX_ARGS];
    struct jinja_args args;
};

static int eval_args(struct jinja_run *r, const struct jinja_expr *e, struct given *out)
{
    if (e->n_args > MAX_ARGS) {
        jinja_fail(r, "more than %d arguments", MAX_ARGS);
        return -1;
    }
    for (size_t i = 0; i < e->n_args; i++) {
        if (!(out->value[i] = jinja_eval(r, e->arg[i])))
            return -1;
        out->keyword[i] = e->keyword[i];
    }
    out->args = (struct jinja_args){ out->value, out->keyword, e->n_args };
    return 0;
}

static const struct jinja_value *eval_call(struct jinja_run *r, const struct jinja_expr *e)
{
    const struct jinja_value *f = jinja_eval(r, e->a);
    struct given given;

    if (!f || eval_args(r, e, &given) < 0)
        return NULL;
    r->line = e->line;
    switch (f->type) {
    case JINJA_MACRO:
        return jinja_call_macro(r, f, &given.args);
    case JINJA_METHOD:
    case JINJA_FUNCTION:
        return f->call.method->run(r, f->call.self, &given.args);
    case JINJA_UNDEFINED:
        return of_undefined(r, f);
    default:
        return jinja_fail(r, "'%s' object is not callable", jinja_type_name(f));
    }
}

static const struct jinja_value *run_filter(struct jinja_run *r, const struct jinja_expr *e,
                                            const struct jinja_value *v)
{
    struct given given;

    r->line = e->line;
    if (!e->filter)
        return jinja_fail(r, "no filter named '%s'", e->name);
    return eval_args(r, e, &given) < 0 ? NULL : e->filter->run(r, v, &given.args);
}

const struct jinja_value *jinja_eval_over(struct jinja_run *r, const struct jinja_expr *e,
                                          const struct jinja_value *body)
{
    const struct jinja_value *v = body;

    if (r->depth == MAX_DEPTH)
        return jinja_fail(r, "recursion too deep");
    r->depth++;
    if (e->a)
        v = jinja_eval_over(r, e->a, body);
    r->depth--;
    return v ? run_filter(r, e, v) : NULL;
}

static const struct jinja_value *eval_test(struct jinja_run *r, const struct jinja_expr *e)
{
    const struct jinja_value *v = jinja_eval(r, e->a);
    struct given given;

    if (!v || eval_args(r, e, &given) < 0)
        return NULL;
    r->line = e->line;
    if (!e->test)
        return jinja_fail(r, "no test named '%s'", e->name);
    if (given.args.n != e->test->n_args)
        return jinja_fail(r, "test '%s' takes %zu arguments", e->name, e->test->n_args);
    int rc = e->test->run(r, v, given.value);
    return rc < 0 ? NULL : jinja_of_bool(rc);
}

/* ---- the rest ---- */

static const struct jinja_value *eval_items(struct jinja_run *r, const struct jinja_expr *e)
{
    struct jinja_items *items;
    const struct jinja_value *out =
        jinja_new_items(r, e->kind == EXPR_LIST ? JINJA_LIST : JINJA_TUPLE, &items);

    for (size_t i = 0; out && i < e->n_args; i++) {
        const struct jinja_value *v = jinja_eval(r, e->arg[i]);
        if (!v)
            return NULL;
        if (jinja_items_add(r->m, items, v) < 0)
            return jinja_fail_memory(r);
    }
    return out;
}

static const struct jinja_value *eval_dict(struct jinja_run *r, const struct jinja_expr *e)
{
    struct jinja_value *out = jinja_dict(r->m);

    if (!out)
        return jinja_fail_memory(r);
    for (size_t i = 0; i + 1 < e->n_args; i += 2) {
        const struct jinja_value *key = jinja_eval(r, e->arg[i]);
        const struct jinja_value *value = key ? jinja_eval(r, e->arg[i + 1]) : NULL;
        if (!value)
            return NULL;
        if (key->type == JINJA_LIST || key->type == JINJA_DICT)
            return jinja_fail(r, "unhashable type: '%s'", jinja_type_name(key));
        if (jinja_map_set(r->m, out->map, key, value) < 0)
            return jinja_fail_memory(r);
    }
    return out;
}

static const struct jinja_value *eval_concat(struct jinja_run *r, const struct jinja_expr *e)
{
    const struct jinja_value *out = NULL;

    for (size_t i = 0; i < e->n_args; i++) {
        const struct jinja_value *v = jinja_eval(r, e->arg[i]);
        const struct jinja_value *text = v ? jinja_spelled(r, v) : NULL;
        if (!text)
            return NULL;
        out = out ? jinja_str_join(r->m, out, text) : text;
        if (!out)
            return jinja_fail_memory(r);
    }
    return out;
}

static const struct jinja_value *eval_if(struct jinja_run *r, const struct jinja_expr *e)
{
    const struct jinja_value *condition = jinja_eval(r, e->b);

    if (!condition)
        return NULL;
    if (jinja_truth(condition))
        return jinja_eval(r, e->a);
    return e->arg[0] ? jinja_eval(r, e->arg[0]) : jinja_made(r, jinja_none_such(r->m, "else"));
}

static const struct jinja_value *eval_logic(struct jinja_run *r, const struct jinja_expr *e)
{
    const struct jinja_value *left = jinja_eval(r, e->a);

    if (!left || jinja_truth(left) == (e->kind == EXPR_OR))
        return left;
    return jinja_eval(r, e->b);
}

static const struct jinja_value *eval(struct jinja_run *r, const struct jinja_expr *e)
{
    const struct jinja_value *v, *other;

    switch (e->kind) {
    case EXPR_CONST:
        return e->value;
    case EXPR_NAME:
        return eval_name(r, e);
    case EXPR_ATTRIBUTE:
        v = jinja_eval(r, e->a);
        return v ? jinja_attribute(r, v, e->value) : NULL;
    case EXPR_ITEM:
        v = jinja_eval(r, e->a);
        other = v ? jinja_eval(r, e->arg[0]) : NULL;
        return other ? jinja_item(r, v, other) : NULL;
    case EXPR_SLICE:
        return eval_slice(r, e);
    case EXPR_CALL:
        return eval_call(r, e);
    case EXPR_FILTER:
        v = jinja_eval(r, e->a);
        return v ? run_filter(r, e, v) : NULL;
    case EXPR_TEST:
        return eval_test(r, e);
    case EXPR_NOT:
        v = jinja_eval(r, e->a);
        return v ? jinja_of_bool(!jinja_truth(v)) : NULL;
    case EXPR_NEGATIVE:
    case EXPR_POSITIVE:
        return eval_sign(r, e);
    case EXPR_AND:
    case EXPR_OR:
        return eval_logic(r, e);
    case EXPR_ARITHMETIC:
        v = jinja_eval(r, e->a);
        other = v ? jinja_eval(r, e->b) : NULL;
        return other ? arithmetic(r, e->op, v, other) : NULL;
    case EXPR_COMPARE:
        return eval_compare(r, e);
    case EXPR_CONCAT:
        return eval_concat(r, e);
    case EXPR_IF:
        return eval_if(r, e);
    case EXPR_LIST:
    case EXPR_TUPLE:
        return eval_items(r, e);
    case EXPR_DICT:
        return eval_dict(r, e);
    }
    return NULL;
}

const struct jinja_value *jinja_eval(struct jinja_run *r, const struct jinja_expr *e)
{
    if (r->depth == MAX_DEPTH)
        return jinja_fail(r, "recursion too deep");
    r->depth++;
    const struct jinja_value *v = eval(r, e);
    r->depth--;
    return v;
}
