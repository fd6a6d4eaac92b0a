/* jinja: a checkpoint's chat template, run as Hugging Face runs it.
 *
 * The subset of Jinja2 3.1 that chat templates use, with trim_blocks and lstrip_blocks on, in the
 * sandbox's spirit: no imports, no files, no attributes beyond the values' own. What is known to
 * Jinja2 and not built here is ERR_UNSUPPORTED by name; it is never rendered wrongly.
 *
 * Every byte of the output knows whether it may be trusted: literals of the template are, what
 * flowed from the messages is not, through every filter and method. So text of a request never
 * becomes a control token.
 *
 * Steps, memory, output and depth are bounded, whatever the template says. A template is
 * immutable once open: any thread may render, each with memory of its own. */
#ifndef TEXT_JINJA_H
#define TEXT_JINJA_H

#include "text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct jinja_mem;
struct jinja_template;
struct jinja_value;

/* source is borrowed during the call only. A template that is not well formed is ERR_FORMAT with
 * its line; one that uses what is not built ERR_UNSUPPORTED. */
int jinja_open(struct jinja_template **out, const char *source, size_t size, struct err *err);
void jinja_close(struct jinja_template *t); /* NULL is fine */
uint64_t jinja_memory(const struct jinja_template *t); /* bytes it holds */

struct jinja_limits { /* 0: the default */
    uint64_t steps;   /* statements, loop turns, values and 4 KiB of text compared; 1,000,000 */
    uint64_t memory;  /* bytes, output included, text of the variables not; 64 MiB */
    uint64_t output;  /* bytes; 64 MiB */
};

/* ---- variables ---- */

/* Where a rendering's values live; all go with it. NULL when there is no memory. */
struct jinja_mem *jinja_mem_open(const struct jinja_limits *limits);
void jinja_mem_close(struct jinja_mem *m); /* NULL is fine */
uint64_t jinja_mem_used(const struct jinja_mem *m);
bool jinja_mem_full(const struct jinja_mem *m); /* something found no room in it */

/* Values that come from outside. Text is borrowed until jinja_mem_close and not trusted; it is
 * valid UTF-8 and may hold NUL. NULL when there is no memory left within the limits. */
const struct jinja_value *jinja_text(struct jinja_mem *m, const char *bytes, size_t size);
const struct jinja_value *jinja_bool(struct jinja_mem *m, bool on);
const struct jinja_value *jinja_null(struct jinja_mem *m);
const struct jinja_value *jinja_int(struct jinja_mem *m, int64_t i);
const struct jinja_value *jinja_float(struct jinja_mem *m, double d);
/* An integer of any length, by its decimal digits, which are borrowed. */
const struct jinja_value *jinja_digits(struct jinja_mem *m, const char *digits, size_t size);
/* Text of the checkpoint itself: trusted, and borrowed. */
const struct jinja_value *jinja_literal(struct jinja_mem *m, const char *text, size_t size);
/* JSON as it stands, numbers exact: ERR_INPUT with the place when it is none. */
const struct jinja_value *jinja_json(struct jinja_mem *m, const char *text, size_t size,
                                     struct err *err);
/* Containers are filled before anybody renders. 0, or -1 without memory. */
struct jinja_value *jinja_dict(struct jinja_mem *m);
struct jinja_value *jinja_list(struct jinja_mem *m);
int jinja_dict_set(struct jinja_mem *m, struct jinja_value *dict, const char *key,
                   const struct jinja_value *value); /* key: a literal */
int jinja_dict_put(struct jinja_mem *m, struct jinja_value *dict, const char *key, size_t size,
                   const struct jinja_value *value); /* key: as jinja_text */
int jinja_list_add(struct jinja_mem *m, struct jinja_value *list, const struct jinja_value *value);
/* All of `from`, if it is a dict; NULL is fine. */
int jinja_dict_update(struct jinja_mem *m, struct jinja_value *dict,
                      const struct jinja_value *from);
bool jinja_is_dict(const struct jinja_value *v);
const struct jinja_value *jinja_dict_get(const struct jinja_value *dict, const char *key); /* NULL */

/* ---- rendering ---- */

struct jinja_output {
    struct text_run *run; /* in m; the bytes are the template's, m's or the variables' */
    size_t n;
    uint64_t size; /* bytes in all */
};

struct jinja_hooks { /* each may be NULL */
    void *ctx;
    /* raise_exception(text) was called where `message` has this value (NULL: none). A value is
     * printed in place of the exception; NULL lets it happen. */
    const struct jinja_value *(*raised)(void *ctx, struct jinja_mem *m, const char *text,
                                        const struct jinja_value *message);
};

/* vars: a dict of the template's variables. ERR_INPUT with the template's line and what was
 * wrong (also what the template raised itself), ERR_BUDGET at a limit. */
int jinja_render(struct jinja_output *out, const struct jinja_template *t, struct jinja_mem *m,
                 const struct jinja_value *vars, const struct jinja_hooks *hooks,
                 struct err *err);

#endif
