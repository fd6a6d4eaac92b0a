#include "daemon/conf/conf_diff.h"

#include "util/err.h"

#include <assert.h>
#include <string.h>

static const void *field(const struct conf *c, size_t offset)
{
    return (const char *)c + offset;
}

static const char *text(const struct conf *c, const struct conf_key *key)
{
    return *(char *const *)field(c, key->offset);
}

static uint32_t count(const struct conf *c, const struct conf_key *key)
{
    return *(const uint32_t *)field(c, key->count_offset);
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static size_t plain_size(enum conf_kind kind)
{
    return kind == CONF_SIZE   ? sizeof(uint64_t)
           : kind == CONF_BOOL ? sizeof(bool)
                               : sizeof(uint32_t);
}

static bool same(const struct conf_key *key, const struct conf *a, const struct conf *b)
{
    char *const *of_a, *const *of_b;

    switch (key->kind) {
    case CONF_TEXT:
        return same_text(text(a, key), text(b, key));
    case CONF_LIST:
        if (count(a, key) != count(b, key))
            return false;
        of_a = field(a, key->offset);
        of_b = field(b, key->offset);
        for (uint32_t i = 0; i < count(a, key); i++)
            if (!same_text(of_a[i], of_b[i]))
                return false;
        return true;
    case CONF_UNBUILT:
        return true; /* it is kept nowhere */
    default:
        return memcmp(field(a, key->offset), field(b, key->offset), plain_size(key->kind)) == 0;
    }
}

void conf_diff(struct conf_diff *out, const struct conf *from, const struct conf *to)
{
    *out = (struct conf_diff){ 0 };
    for (size_t i = 0; conf_key_at(i); i++) {
        const struct conf_key *key = conf_key_at(i);
        if (same(key, from, to))
            continue;
        assert(out->n < CONF_MAX_DIFF && key->change);
        out->keys[out->n++] = key;
        out->changes |= key->change;
    }
}

bool conf_diff_has(const struct conf_diff *d, const char *section, const char *name)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (d->keys[i] == conf_key_find(section, name))
            return true;
    return false;
}

static int keep(struct conf *to, const struct conf *from, const struct conf_key *key,
                struct err *err)
{
    char *const *list = field(from, key->offset);

    switch (key->kind) {
    case CONF_TEXT:
        return conf_assign(to, key, text(from, key), CONF_NOT_NULL, err);
    case CONF_LIST:
        conf_list_clear(to, key);
        for (uint32_t i = 0; i < count(from, key); i++)
            if (conf_list_add(to, key, list[i], err) < 0)
                return -1;
        return 0;
    case CONF_UNBUILT:
        return 0;
    default:
        memcpy((char *)to + key->offset, field(from, key->offset), plain_size(key->kind));
        return 0;
    }
}

int conf_keep(struct conf *to, const struct conf *from, enum conf_change change, struct err *err)
{
    for (size_t i = 0; conf_key_at(i); i++) {
        const struct conf_key *key = conf_key_at(i);
        if (key->change == (unsigned)change && keep(to, from, key, err) < 0)
            return err_within(err, "%s.%s", key->section, key->name);
    }
    return 0;
}
