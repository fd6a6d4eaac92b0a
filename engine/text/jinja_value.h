/* jinja_value: what a template's expressions are made of. For the jinja_* and chat_*
 * files only.
 *
 * Values are immutable once a template can see them, namespaces excepted, and live in one
 * jinja_mem, which goes as a whole. A string is a row of segments, each trusted or not: joining
 * and cutting never copies text. */
#ifndef TEXT_JINJA_VALUE_H
#define TEXT_JINJA_VALUE_H

#include "text/jinja.h"

struct jinja_run;

enum jinja_type {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_BIG, /* an integer beyond 64 bits, as its digits */
    JINJA_FLOAT,
    JINJA_STR,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_STREAM, /* what a generator gives: can be walked, has no length; items NULL: walking it
                     is an error */
    JINJA_VIEW,   /* keys, values or items of a dict: has a length, and no order of its own */
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_METHOD,   /* of the value it hangs on */
    JINJA_FUNCTION, /* a global */
};

/* Growing on the right is shared: who ends where the row ends may add to it in place. */
struct jinja_row {
    struct text_run *seg;
    size_t n, cap;
};

struct jinja_str {
    size_t size;                /* bytes */
    size_t n;                   /* segments */
    const struct text_run *seg; /* none is empty */
    struct jinja_row *row;      /* NULL: seg has no room behind it */
};

struct jinja_items {
    const struct jinja_value **item;
    size_t n, cap;
};

struct jinja_entry {
    const struct jinja_value *key, *value;
};

struct jinja_map {
    struct jinja_entry *entry; /* in the order of insertion */
    size_t n, cap;
    uint32_t *slot; /* hash table of entry + 1, a power of two; NULL while small */
    size_t n_slots;
};

struct jinja_loop {
    const struct jinja_items *items;
    size_t at;
    uint32_t depth; /* 1 for the outermost */
    const struct jinja_value *changed; /* what loop.changed saw last; NULL: nothing */
};

struct jinja_macro; /* jinja_ast.h */
struct jinja_scope;

struct jinja_value {
    enum jinja_type type;
    union {
        bool on;
        int64_t i;
        double d;
        struct jinja_str s;
        struct {
            struct jinja_items *items;
            const char *broken; /* STREAM without items: what went wrong making them */
        };
        struct jinja_map *map;
        struct jinja_loop *loop;
        const char *hint; /* UNDEFINED: what was looked for */
        struct {
            const struct jinja_macro *macro;
            struct jinja_scope *scope; /* where it was defined */
        } m;
        struct { /* METHOD, FUNCTION */
            const struct jinja_value *self;
            const struct jinja_method *method;
        } call;
    };
};

extern const struct jinja_value jinja_none, jinja_true, jinja_false, jinja_undefined;

static inline const struct jinja_value *jinja_of_bool(bool on)
{
    return on ? &jinja_true : &jinja_false;
}

/* ---- memory: NULL at the limit ---- */

const struct jinja_limits *jinja_mem_limits(const struct jinja_mem *m);
void *jinja_take(struct jinja_mem *m, size_t size); /* zeroed */
struct jinja_value *jinja_new(struct jinja_mem *m, enum jinja_type type);
const struct jinja_value *jinja_none_such(struct jinja_mem *m, const char *hint); /* undefined */

/* ---- strings ---- */

const struct jinja_value *jinja_str(struct jinja_mem *m, const char *bytes, size_t size,
                                    bool trusted); /* borrows bytes */
const struct jinja_value *jinja_str_join(struct jinja_mem *m, const struct jinja_value *a,
                                         const struct jinja_value *b);
/* Bytes [from, to). */
const struct jinja_value *jinja_str_part(struct jinja_mem *m, const struct jinja_value *s,
                                         size_t from, size_t to);
/* All bytes in a row; copied when there are several segments. */
const char *jinja_str_flat(struct jinja_mem *m, const struct jinja_value *s);
bool jinja_str_is(const struct jinja_value *v, const char *literal);
bool jinja_str_equal(const struct jinja_value *a, const struct jinja_value *b);
size_t jinja_str_length(const struct jinja_value *s); /* characters */
/* Python's white space, which is wider than C's. */
bool jinja_is_space(uint32_t cp);
/* trim and its halves; chars NULL: white space. */
const struct jinja_value *jinja_str_strip(struct jinja_mem *m, const struct jinja_value *s,
                                          bool left, bool right, const struct jinja_value *chars);

/* A string being written. Appending text that was copied or is borrowed. */
struct jinja_writer {
    struct jinja_mem *m;
    struct jinja_row *row;
    uint64_t size, cap; /* cap 0: none */
    bool full;          /* something was left out: no memory, or past cap */
};
void jinja_write(struct jinja_writer *w, const char *bytes, size_t size, bool trusted);
void jinja_write_copy(struct jinja_writer *w, const char *bytes, size_t size, bool trusted);
void jinja_write_str(struct jinja_writer *w, const struct jinja_value *s);
const struct jinja_value *jinja_written(struct jinja_writer *w); /* NULL when full */

/* ---- containers ---- */

int jinja_items_add(struct jinja_mem *m, struct jinja_items *items, const struct jinja_value *v);
const struct jinja_value *jinja_map_get(const struct jinja_map *map,
                                        const struct jinja_value *key); /* NULL: not there */
const struct jinja_value *jinja_map_text(const struct jinja_map *map, const char *key);
int jinja_map_set(struct jinja_mem *m, struct jinja_map *map, const struct jinja_value *key,
                  const struct jinja_value *value);
/* What a loop over v walks: list, tuple, stream, keys, characters; NULL when it cannot be walked,
 * or *full when there is no memory. */
const struct jinja_items *jinja_walk(struct jinja_mem *m, const struct jinja_value *v, bool *full);

/* ---- as Python sees them ---- */

bool jinja_truth(const struct jinja_value *v);
bool jinja_is_number(const struct jinja_value *v); /* bool, int, float; not BIG */
double jinja_number(const struct jinja_value *v);
/* What comparing may take: a value can hold another many times over, and nest as deep as there is
 * memory. Once it is over, the answer means nothing. */
struct jinja_effort {
    uint64_t left;  /* items of containers still to be looked at */
    uint32_t depth; /* of the containers that are open */
    bool too_deep, over;
};
bool jinja_equal(const struct jinja_value *a, const struct jinja_value *b, struct jinja_effort *e);
/* -1, 0, 1; -2 when the two cannot be ordered, or the effort is over. */
int jinja_compare(struct jinja_mem *m, const struct jinja_value *a, const struct jinja_value *b,
                  struct jinja_effort *e);
const char *jinja_type_name(const struct jinja_value *v); /* "str", "dict" */

/* str(v); repr(v) of strings inside containers. What has no spelling of its own is NULL with
 * *why. */
const struct jinja_value *jinja_to_str(struct jinja_mem *m, const struct jinja_value *v,
                                       const char **why);
/* json.dumps(v, ensure_ascii=False); indent < 0: on one line. NULL with *why. */
struct jinja_dumps {
    int64_t indent;
    bool ascii, sort_keys;
    const struct jinja_value *item_separator, *key_separator; /* NULL: the usual ones */
};
const struct jinja_value *jinja_to_json(struct jinja_mem *m, const struct jinja_value *v,
                                        const struct jinja_dumps *how, const char **why);
enum { JINJA_FLOAT_TEXT = 40 };
size_t jinja_float_text(char buf[JINJA_FLOAT_TEXT], double d); /* Python's repr */

#endif
