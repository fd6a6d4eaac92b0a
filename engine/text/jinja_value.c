#include "text/jinja_value.h"

#include "util/fnv.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 32 << 10,
    HASH_FROM = 12, /* entries, from which a table pays */
    MAX_DEPTH = 300, /* of containers that are compared; of those that are printed too */
    KEY_ITEMS = 1000000, /* of a tuple that is a key: more are another key */
};

struct chunk {
    struct chunk *next;
    size_t size, used;
    _Alignas(16) char bytes[];
};

struct jinja_mem {
    struct chunk *chunk; /* owned; the newest first */
    uint64_t used, cap;
    bool full; /* something was refused */
    struct jinja_limits limits;
};

const struct jinja_value jinja_none = { .type = JINJA_NONE };
const struct jinja_value jinja_true = { .type = JINJA_BOOL, .on = true };
const struct jinja_value jinja_false = { .type = JINJA_BOOL, .on = false };
const struct jinja_value jinja_undefined = { .type = JINJA_UNDEFINED };

/* ---- memory ---- */

struct jinja_mem *jinja_mem_open(const struct jinja_limits *limits)
{
    struct jinja_mem *m = calloc(1, sizeof *m);

    if (!m)
        return NULL;
    if (limits)
        m->limits = *limits;
    if (m->limits.steps == 0)
        m->limits.steps = 1000000;
    if (m->limits.memory == 0)
        m->limits.memory = (uint64_t)64 << 20;
    if (m->limits.output == 0)
        m->limits.output = (uint64_t)64 << 20;
    m->cap = m->limits.memory;
    return m;
}

void jinja_mem_close(struct jinja_mem *m)
{
    if (!m)
        return;
    while (m->chunk) {
        struct chunk *next = m->chunk->next;
        free(m->chunk);
        m->chunk = next;
    }
    free(m);
}

uint64_t jinja_mem_used(const struct jinja_mem *m)
{
    return m->used;
}

bool jinja_mem_full(const struct jinja_mem *m)
{
    return m->full;
}

const struct jinja_limits *jinja_mem_limits(const struct jinja_mem *m)
{
    return &m->limits;
}

static void *refuse(struct jinja_mem *m)
{
    m->full = true;
    return NULL;
}

void *jinja_take(struct jinja_mem *m, size_t size)
{
    if (size > m->cap)
        return refuse(m);
    size = (size + 15) & ~(size_t)15;
    struct chunk *c = m->chunk;
    if (!c || size > c->size - c->used) {
        size_t room = size > CHUNK ? size : CHUNK;
        if (room > m->cap - m->used)
            room = size;
        c = room > m->cap - m->used ? NULL : calloc(1, sizeof *c + room);
        if (!c)
            return refuse(m);
        c->size = room;
        m->used += room;
        /* A large block is full at once; the one with room stays in front. */
        if (m->chunk && room == size && size > CHUNK) {
            c->next = m->chunk->next;
            m->chunk->next = c;
        } else {
            c->next = m->chunk;
            m->chunk = c;
        }
    }
    void *at = c->bytes + c->used;
    c->used += size;
    return at;
}

struct jinja_value *jinja_new(struct jinja_mem *m, enum jinja_type type)
{
    struct jinja_value *v = jinja_take(m, sizeof *v);

    if (v)
        v->type = type;
    return v;
}

const struct jinja_value *jinja_bool(struct jinja_mem *m, bool on)
{
    (void)m;
    return jinja_of_bool(on);
}

const struct jinja_value *jinja_null(struct jinja_mem *m)
{
    (void)m;
    return &jinja_none;
}

const struct jinja_value *jinja_int(struct jinja_mem *m, int64_t i)
{
    struct jinja_value *v = jinja_new(m, JINJA_INT);

    if (v)
        v->i = i;
    return v;
}

const struct jinja_value *jinja_float(struct jinja_mem *m, double d)
{
    struct jinja_value *v = jinja_new(m, JINJA_FLOAT);

    if (v)
        v->d = d;
    return v;
}

const struct jinja_value *jinja_none_such(struct jinja_mem *m, const char *hint)
{
    struct jinja_value *v = jinja_new(m, JINJA_UNDEFINED);

    if (v)
        v->hint = hint;
    return v;
}

const struct jinja_value *jinja_digits(struct jinja_mem *m, const char *digits, size_t size)
{
    struct jinja_value *v = jinja_new(m, JINJA_BIG);
    struct text_run *seg = jinja_take(m, sizeof *seg);

    if (!v || !seg)
        return NULL;
    *seg = (struct text_run){ digits, size, false };
    v->s = (struct jinja_str){ .size = size, .n = 1, .seg = seg };
    return v;
}

const struct jinja_value *jinja_literal(struct jinja_mem *m, const char *text, size_t size)
{
    return jinja_str(m, text, size, true);
}

const struct jinja_value *jinja_text(struct jinja_mem *m, const char *bytes, size_t size)
{
    return jinja_str(m, bytes, size, false);
}

/* ---- lists ---- */

int jinja_items_add(struct jinja_mem *m, struct jinja_items *items, const struct jinja_value *v)
{
    if (!v)
        return -1;
    if (items->n == items->cap) {
        size_t cap = items->cap ? 2 * items->cap : 8;
        const struct jinja_value **grown = jinja_take(m, cap * sizeof(*grown));
        if (!grown)
            return -1;
        if (items->n)
            memcpy(grown, items->item, items->n * sizeof(*grown));
        items->item = grown;
        items->cap = cap;
    }
    items->item[items->n++] = v;
    return 0;
}

struct jinja_value *jinja_list(struct jinja_mem *m)
{
    struct jinja_value *v = jinja_new(m, JINJA_LIST);

    if (!v)
        return NULL;
    v->items = jinja_take(m, sizeof *v->items);
    return v->items ? v : NULL;
}

int jinja_list_add(struct jinja_mem *m, struct jinja_value *list, const struct jinja_value *value)
{
    return jinja_items_add(m, list->items, value);
}

/* ---- maps ---- */

/* The map's own place makes it another one each time. */
static uint32_t hash_str(const struct jinja_map *map, const struct jinja_value *key)
{
    uint64_t h = FNV_BEGIN ^ (uint64_t)(uintptr_t)map;

    for (size_t i = 0; i < key->s.n; i++)
        h = fnv(h, key->s.seg[i].bytes, key->s.seg[i].size);
    return (uint32_t)(h ^ h >> 32);
}

static void put_slot(struct jinja_map *map, size_t entry)
{
    size_t mask = map->n_slots - 1;
    size_t at = hash_str(map, map->entry[entry].key) & mask;

    while (map->slot[at])
        at = (at + 1) & mask;
    map->slot[at] = (uint32_t)entry + 1;
}

static struct jinja_entry *map_find(const struct jinja_map *map, const struct jinja_value *key)
{
    if (map->slot && key->type == JINJA_STR) {
        size_t mask = map->n_slots - 1;
        for (size_t at = hash_str(map, key) & mask; map->slot[at]; at = (at + 1) & mask) {
            struct jinja_entry *e = &map->entry[map->slot[at] - 1];
            if (jinja_str_equal(e->key, key))
                return e;
        }
        return NULL;
    }
    struct jinja_effort e = { .left = KEY_ITEMS };
    for (size_t i = 0; i < map->n; i++)
        if (jinja_equal(map->entry[i].key, key, &e))
            return &map->entry[i];
    return NULL;
}

const struct jinja_value *jinja_map_get(const struct jinja_map *map, const struct jinja_value *key)
{
    const struct jinja_entry *e = map_find(map, key);

    return e ? e->value : NULL;
}

const struct jinja_value *jinja_map_text(const struct jinja_map *map, const char *key)
{
    struct text_run run = { key, strlen(key), true };
    struct jinja_value v = { .type = JINJA_STR, .s = { .size = run.size, .n = run.size != 0,
                                                       .seg = &run } };

    return jinja_map_get(map, &v);
}

static int grow_map(struct jinja_mem *m, struct jinja_map *map)
{
    size_t cap = map->cap ? 2 * map->cap : 8;
    struct jinja_entry *grown = jinja_take(m, cap * sizeof *grown);

    if (!grown)
        return -1;
    if (map->n)
        memcpy(grown, map->entry, map->n * sizeof *grown);
    map->entry = grown;
    map->cap = cap;
    if (cap <= HASH_FROM)
        return 0;
    map->slot = jinja_take(m, 2 * cap * sizeof *map->slot);
    if (!map->slot)
        return -1;
    map->n_slots = 2 * cap;
    for (size_t i = 0; i < map->n; i++)
        if (map->entry[i].key->type == JINJA_STR)
            put_slot(map, i);
    return 0;
}

int jinja_map_set(struct jinja_mem *m, struct jinja_map *map, const struct jinja_value *key,
                  const struct jinja_value *value)
{
    if (!key || !value)
        return -1;
    struct jinja_entry *there = map_find(map, key);
    if (there) {
        there->value = value;
        return 0;
    }
    if (map->n == map->cap && grow_map(m, map) < 0)
        return -1;
    map->entry[map->n] = (struct jinja_entry){ key, value };
    if (map->slot && key->type == JINJA_STR)
        put_slot(map, map->n);
    map->n++;
    return 0;
}

struct jinja_value *jinja_dict(struct jinja_mem *m)
{
    struct jinja_value *v = jinja_new(m, JINJA_DICT);

    if (!v)
        return NULL;
    v->map = jinja_take(m, sizeof *v->map);
    return v->map ? v : NULL;
}

int jinja_dict_set(struct jinja_mem *m, struct jinja_value *dict, const char *key,
                   const struct jinja_value *value)
{
    return jinja_map_set(m, dict->map, jinja_str(m, key, strlen(key), false), value);
}

int jinja_dict_put(struct jinja_mem *m, struct jinja_value *dict, const char *key, size_t size,
                   const struct jinja_value *value)
{
    return jinja_map_set(m, dict->map, jinja_str(m, key, size, false), value);
}

bool jinja_is_dict(const struct jinja_value *v)
{
    return v->type == JINJA_DICT;
}

const struct jinja_value *jinja_dict_get(const struct jinja_value *dict, const char *key)
{
    return jinja_map_text(dict->map, key);
}

int jinja_dict_update(struct jinja_mem *m, struct jinja_value *dict,
                      const struct jinja_value *from)
{
    for (size_t i = 0; from && from->type == JINJA_DICT && i < from->map->n; i++)
        if (jinja_map_set(m, dict->map, from->map->entry[i].key, from->map->entry[i].value) < 0)
            return -1;
    return 0;
}

/* ---- as Python sees them ---- */

const char *jinja_type_name(const struct jinja_value *v)
{
    static const char *const names[] = {
        [JINJA_UNDEFINED] = "Undefined", [JINJA_NONE] = "NoneType", [JINJA_BOOL] = "bool",
        [JINJA_INT] = "int",             [JINJA_BIG] = "int",       [JINJA_FLOAT] = "float",
        [JINJA_STR] = "str",             [JINJA_LIST] = "list",     [JINJA_TUPLE] = "tuple",
        [JINJA_DICT] = "dict",           [JINJA_STREAM] = "generator",
        [JINJA_VIEW] = "dict view",
        [JINJA_NAMESPACE] = "Namespace", [JINJA_LOOP] = "LoopContext",
        [JINJA_MACRO] = "Macro",         [JINJA_METHOD] = "method",
        [JINJA_FUNCTION] = "function",
    };

    return names[v->type];
}

bool jinja_truth(const struct jinja_value *v)
{
    switch (v->type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v->on;
    case JINJA_INT:
        return v->i != 0;
    case JINJA_FLOAT:
        return v->d != 0;
    case JINJA_STR:
        return v->s.size != 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_VIEW:
        return v->items->n != 0;
    case JINJA_DICT:
        return v->map->n != 0;
    default:
        return true;
    }
}

bool jinja_is_number(const struct jinja_value *v)
{
    return v->type == JINJA_BOOL || v->type == JINJA_INT || v->type == JINJA_FLOAT;
}

double jinja_number(const struct jinja_value *v)
{
    return v->type == JINJA_FLOAT ? v->d : v->type == JINJA_BOOL ? v->on : (double)v->i;
}

static int64_t whole(const struct jinja_value *v)
{
    return v->type == JINJA_BOOL ? v->on : v->i;
}

/* One more item of a container. */
static bool may_go_on(struct jinja_effort *e)
{
    e->over = e->over || e->left == 0;
    e->left -= !e->over;
    return !e->over;
}

static bool may_open(struct jinja_effort *e)
{
    if (e->depth == MAX_DEPTH)
        e->over = e->too_deep = true;
    return !e->over;
}

static bool equal_items(const struct jinja_items *a, const struct jinja_items *b,
                        struct jinja_effort *e)
{
    bool equal = a->n == b->n && may_open(e);

    e->depth++;
    for (size_t i = 0; equal && i < a->n; i++)
        equal = may_go_on(e) && jinja_equal(a->item[i], b->item[i], e);
    e->depth--;
    return equal;
}

static bool equal_maps(const struct jinja_map *a, const struct jinja_map *b,
                       struct jinja_effort *e)
{
    bool equal = a->n == b->n && may_open(e);

    e->depth++;
    for (size_t i = 0; equal && i < a->n; i++) {
        const struct jinja_value *other = jinja_map_get(b, a->entry[i].key);
        equal = other && may_go_on(e) && jinja_equal(a->entry[i].value, other, e);
    }
    e->depth--;
    return equal;
}

bool jinja_equal(const struct jinja_value *a, const struct jinja_value *b, struct jinja_effort *e)
{
    if (a == b)
        return a->type != JINJA_FLOAT || a->d == a->d;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a->type == JINJA_FLOAT || b->type == JINJA_FLOAT)
            return jinja_number(a) == jinja_number(b);
        return whole(a) == whole(b);
    }
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return true;
    case JINJA_STR:
    case JINJA_BIG:
        return jinja_str_equal(a, b);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return equal_items(a->items, b->items, e);
    case JINJA_DICT:
        return equal_maps(a->map, b->map, e);
    case JINJA_FUNCTION:
        return a->call.method == b->call.method;
    default:
        return false;
    }
}

static int compare_items(struct jinja_mem *m, const struct jinja_items *a,
                         const struct jinja_items *b, struct jinja_effort *e)
{
    int rc = (a->n > b->n) - (a->n < b->n);

    if (!may_open(e))
        return -2;
    e->depth++;
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        if (may_go_on(e) && jinja_equal(a->item[i], b->item[i], e))
            continue;
        rc = e->over ? -2 : jinja_compare(m, a->item[i], b->item[i], e);
        break;
    }
    e->depth--;
    return rc;
}

int jinja_compare(struct jinja_mem *m, const struct jinja_value *a, const struct jinja_value *b,
                  struct jinja_effort *e)
{
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (a->type == JINJA_FLOAT || b->type == JINJA_FLOAT) {
            double x = jinja_number(a), y = jinja_number(b);
            return (x > y) - (x < y);
        }
        return (whole(a) > whole(b)) - (whole(a) < whole(b));
    }
    if (a->type != b->type)
        return -2;
    if (a->type == JINJA_STR) {
        const char *x = jinja_str_flat(m, a), *y = jinja_str_flat(m, b);
        if (!x || !y)
            return -2;
        /* The order of UTF-8 bytes is that of code points. */
        size_t least = a->s.size < b->s.size ? a->s.size : b->s.size;
        int rc = least ? memcmp(x, y, least) : 0;
        return rc ? (rc > 0) - (rc < 0) : (a->s.size > b->s.size) - (a->s.size < b->s.size);
    }
    if (a->type == JINJA_LIST || a->type == JINJA_TUPLE)
        return compare_items(m, a->items, b->items, e);
    return -2;
}
