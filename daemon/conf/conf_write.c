/* The effective config as YAML, so that children read what the supervisor decided with the code
 * that reads files. What is not built has nothing to write. */
#include "daemon/conf/conf.h"

#include "daemon/conf/conf_keys.h"
#include "util/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const void *field_const(const struct conf *c, size_t offset)
{
    return (const char *)c + offset;
}

/* Single quotes: nothing inside is special but the quote. */
static void write_quoted(FILE *out, const char *text)
{
    putc('\'', out);
    for (; *text; text++) {
        if (*text == '\'')
            putc('\'', out);
        putc(*text, out);
    }
    putc('\'', out);
}

static const char *choice_name(const struct conf_key *key, int value)
{
    for (const struct conf_choice *w = key->choices; w->name; w++)
        if (!w->unbuilt && w->name[0] && w->value == value)
            return w->name;
    return key->zero ? key->zero : "null";
}

static void write_value(FILE *out, const struct conf *c, const struct conf_key *key)
{
    const void *at = field_const(c, key->offset);
    uint64_t n;

    switch (key->kind) {
    case CONF_TEXT:
        if (*(char *const *)at)
            write_quoted(out, *(char *const *)at);
        else
            fputs("null", out);
        return;
    case CONF_LIST:
        putc('[', out);
        for (uint32_t i = 0; i < *(const uint32_t *)field_const(c, key->count_offset); i++) {
            fputs(i ? ", " : "", out);
            write_quoted(out, ((char *const *)at)[i]);
        }
        putc(']', out);
        return;
    case CONF_BOOL:
        fputs(choice_name(key, *(const bool *)at), out);
        return;
    case CONF_CHOICE:
        fputs(choice_name(key, *(const int *)at), out);
        return;
    case CONF_COUNT:
    case CONF_DURATION:
        n = *(const uint32_t *)at;
        break;
    case CONF_SIZE:
    default:
        n = *(const uint64_t *)at;
        break;
    }
    if (n == 0 && key->zero)
        fputs(key->zero, out);
    else if (n == UINT64_MAX && key->all)
        fputs(key->all, out);
    else
        fprintf(out, "%" PRIu64 "%s", n, key->kind == CONF_DURATION ? "ms" : "");
}

int conf_write(const struct conf *c, char **text, size_t *size, struct err *err)
{
    const char *section = "";
    char *bytes = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&bytes, &n_bytes);

    if (!out)
        return err_set(err, ERR_NOMEM, "no memory for the config");
    for (size_t i = 0; conf_key_at(i); i++) {
        const struct conf_key *key = conf_key_at(i);
        if (key->kind == CONF_UNBUILT)
            continue;
        if (key->kind == CONF_LIST && *(const uint32_t *)field_const(c, key->count_offset) == 0)
            continue; /* the default */
        if (strcmp(section, key->section) != 0)
            fprintf(out, "%s:\n", key->section);
        section = key->section;
        fprintf(out, "  %s: ", key->name);
        write_value(out, c, key);
        putc('\n', out);
    }
    if (fclose(out) != 0) {
        free(bytes);
        return err_set(err, ERR_NOMEM, "no memory for the config");
    }
    *text = bytes;
    *size = n_bytes;
    return 0;
}
