/* jinja_run: one rendering under way. For the jinja_* files only. */
#ifndef TEXT_JINJA_RUN_H
#define TEXT_JINJA_RUN_H

#include "text/jinja_ast.h"
#include "text/jinja_tables.h"

/* Names that a body sets. A loop's turn, a macro's call and the like have one each; an if has
 * none. */
struct jinja_scope {
    struct jinja_scope *parent; /* NULL: the template itself, then its variables */
    struct jinja_map names;
};

struct jinja_run {
    struct jinja_mem *m;
    const struct jinja_value *vars;
    const struct jinja_hooks *hooks;
    struct jinja_scope *scope;
    struct jinja_writer *out; /* of the body under way */
    uint64_t steps, output;   /* left, and how much is written in all */
    uint32_t line, depth, loops, calls;
    const struct jinja_limits *limits;
    bool failed; /* err is set; the first error stays */
    struct err *err;
};

/* NULL with the run's error set. */
const struct jinja_value *jinja_eval(struct jinja_run *r, const struct jinja_expr *e);
/* A filter of a block over what its body gave. */
const struct jinja_value *jinja_eval_over(struct jinja_run *r, const struct jinja_expr *e,
                                          const struct jinja_value *body);
const struct jinja_value *jinja_lookup(struct jinja_run *r, const struct jinja_value *name);
const struct jinja_value *jinja_call_macro(struct jinja_run *r, const struct jinja_value *macro,
                                           const struct jinja_args *args);

#endif
