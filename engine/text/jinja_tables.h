/* jinja_tables: filters, tests, methods and global functions by name. For the jinja_* files. */
#ifndef TEXT_JINJA_TABLES_H
#define TEXT_JINJA_TABLES_H

#include "text/jinja_value.h"

struct jinja_run;

/* What a call was given: first those by position. */
struct jinja_args {
    const struct jinja_value *const *value;
    const char *const *keyword; /* NULL for those by position */
    size_t n;
};

/* NULL with the run's error set. */
typedef const struct jinja_value *(*jinja_function)(struct jinja_run *r,
                                                    const struct jinja_value *self,
                                                    const struct jinja_args *args);

struct jinja_filter {
    const char *name;
    jinja_function run;
};

struct jinja_test {
    const char *name;
    size_t n_args;
    /* 1, 0, or -1 with the run's error set. */
    int (*run)(struct jinja_run *r, const struct jinja_value *v,
               const struct jinja_value *const *args);
};

struct jinja_method {
    const char *name;
    jinja_function run;
};

/* unbuilt: Jinja2 has it and we have not. */
const struct jinja_filter *jinja_filter_find(const char *name, bool *unbuilt);
const struct jinja_test *jinja_test_find(const char *name, bool *unbuilt);
/* Of a value of this type; attributes that change it, or that we lack, are *hidden: the sandbox
 * gives undefined for the first, and the second are an error when called. */
const struct jinja_method *jinja_method_find(enum jinja_type type, const char *name, bool *hidden,
                                             bool *unbuilt);
const struct jinja_method *jinja_global_find(const char *name);

/* ---- for those who implement them ---- */

/* ERR_INPUT with the line under way; returns NULL. ERR_BUDGET for no memory. */
const struct jinja_value *jinja_fail(struct jinja_run *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
const struct jinja_value *jinja_fail_unbuilt(struct jinja_run *r, const char *what);
const struct jinja_value *jinja_fail_memory(struct jinja_run *r);
int jinja_step(struct jinja_run *r); /* counts work; -1 at the limit */
/* The same before each of n bytes is compared with up to so many others. */
int jinja_work(struct jinja_run *r, size_t n, size_t others);
/* Comparing, whose work is counted too: 1 equal, 0 not; -1 failed. */
int jinja_same(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b);
/* As jinja_compare; -3 failed. */
int jinja_order(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b);
/* v, or the error that there was no memory for it. */
const struct jinja_value *jinja_made(struct jinja_run *r, const struct jinja_value *v);

/* Argument i, or the one named so; NULL when it was not given. */
const struct jinja_value *jinja_arg(const struct jinja_args *args, size_t i, const char *name);
/* Refuses too many arguments and names that are not in `names` ("a b c"). */
int jinja_args_check(struct jinja_run *r, const struct jinja_args *args, const char *what,
                     const char *names, size_t least);

const struct jinja_value *jinja_attribute(struct jinja_run *r, const struct jinja_value *v,
                                          const struct jinja_value *name);
const struct jinja_value *jinja_item(struct jinja_run *r, const struct jinja_value *v,
                                     const struct jinja_value *key);
const struct jinja_value *jinja_spelled(struct jinja_run *r, const struct jinja_value *v); /* str */
const struct jinja_items *jinja_walked(struct jinja_run *r, const struct jinja_value *v);
const struct jinja_value *jinja_in(struct jinja_run *r, const struct jinja_value *needle,
                                   const struct jinja_value *hay);
const struct jinja_value *jinja_raised(struct jinja_run *r, const struct jinja_value *text);
const struct jinja_value *jinja_new_items(struct jinja_run *r, enum jinja_type type,
                                          struct jinja_items **items);

/* "map('upper')", "select('defined')": another filter or test, by name, over one value. */
const struct jinja_value *jinja_apply_filter(struct jinja_run *r, const struct jinja_value *name,
                                             const struct jinja_value *v,
                                             const struct jinja_args *args);
int jinja_apply_test(struct jinja_run *r, const struct jinja_value *name,
                     const struct jinja_value *v, const struct jinja_args *args);

#endif
