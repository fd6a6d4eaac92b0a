/* Reads the two levels a config has, straight from libyaml's events: anything deeper, an
 * anchor, an alias or a tag is refused where it starts, so nothing can grow. */
#include "daemon/conf/conf.h"

#include "daemon/conf/conf_keys.h"
#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

enum { MAX_FILE = 256 << 10, MAX_SEEN = 128 };

struct reader {
    struct conf *conf;
    const char *name;
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; owned */
    bool has_event;
    const void *seen[MAX_SEEN]; /* keys that were there; no key comes twice */
    size_t n_seen;
    char sections[8][16];
    size_t n_sections;
};

/* Puts "file:line:column: " before the message. */
static int at_mark(const struct reader *r, yaml_mark_t mark, struct err *err)
{
    return err_within(err, "%s:%zu:%zu", r->name, mark.line + 1, mark.column + 1);
}

static int at_event(const struct reader *r, struct err *err)
{
    return at_mark(r, r->event.start_mark, err);
}

static int not_plain(const struct reader *r, struct err *err)
{
    const yaml_event_t *e = &r->event;
    const yaml_char_t *anchor = NULL, *tag = NULL;

    if (e->type == YAML_ALIAS_EVENT) {
        err_set(err, ERR_INPUT, "aliases (*name) are not used here; write the value out");
        return at_event(r, err);
    }
    if (e->type == YAML_SCALAR_EVENT) {
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
    }
    if (!anchor && !tag)
        return 0;
    err_set(err, ERR_INPUT, "%s are not used here", anchor ? "anchors (&name)" : "tags (!name)");
    return at_event(r, err);
}

static int next(struct reader *r, struct err *err)
{
    if (r->has_event)
        yaml_event_delete(&r->event);
    r->has_event = false;
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        if (r->parser.error == YAML_MEMORY_ERROR)
            return err_set(err, ERR_NOMEM, "%s: no memory", r->name);
        err_set(err, ERR_INPUT, "%s%s%s", r->parser.context ? r->parser.context : "",
                r->parser.context ? ": " : "",
                r->parser.problem ? r->parser.problem : "not readable as YAML");
        return at_mark(r, r->parser.problem_mark, err);
    }
    r->has_event = true;
    return not_plain(r, err);
}

/* The current scalar as a string, NULL when it is none or holds a zero byte. */
static const char *scalar(const struct reader *r)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return NULL;
    const char *value = (const char *)r->event.data.scalar.value;
    return strlen(value) == r->event.data.scalar.length ? value : NULL;
}

static enum conf_null is_null(const struct reader *r)
{
    const char *value = (const char *)r->event.data.scalar.value;

    if (r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return CONF_NOT_NULL;
    return value[0] == '\0' || strcmp(value, "~") == 0 || strcmp(value, "null") == 0
               ? CONF_IS_NULL
               : CONF_NOT_NULL;
}

static int mark_seen(struct reader *r, const struct conf_key *key, struct err *err)
{
    for (size_t i = 0; i < r->n_seen; i++)
        if (r->seen[i] == key)
            return err_set(err, ERR_INPUT, "%s.%s is there twice", key->section, key->name);
    if (r->n_seen == MAX_SEEN)
        return err_set(err, ERR_INPUT, "too many keys");
    r->seen[r->n_seen++] = key;
    return 0;
}

static int mark_section(struct reader *r, const char *section, struct err *err)
{
    for (size_t i = 0; i < r->n_sections; i++)
        if (strcmp(r->sections[i], section) == 0)
            return err_set(err, ERR_INPUT, "section '%s' is there twice", section);
    if (r->n_sections < sizeof r->sections / sizeof r->sections[0])
        strncpy(r->sections[r->n_sections++], section, sizeof r->sections[0] - 1);
    return 0;
}

static int unknown(const char *what, const char *section, const char *name, struct err *err)
{
    const char *near = conf_nearest(section, name);

    if (near)
        return err_set(err, ERR_INPUT, "unknown %s '%.60s'; did you mean '%s'?", what, name, near);
    return err_set(err, ERR_INPUT, "unknown %s '%.60s'", what, name);
}

static int unknown_key(const char *section, const char *name, struct err *err)
{
    static const char *const sections[] = { "model", "memory", "engine", "http",
                                            "admin", "state",  "log" };

    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        if (conf_key_find(sections[i], name))
            return err_set(err, ERR_INPUT, "'%s' has no key '%s'; it belongs under '%s'", section,
                           name, sections[i]);
    return unknown("key", section, name, err);
}

/* The entries of a list, from its start to its end. */
static int read_list(struct reader *r, const struct conf_key *key, struct err *err)
{
    yaml_mark_t start = r->event.start_mark;
    uint32_t n = 0;

    if (key->kind != CONF_LIST && key->kind != CONF_UNBUILT) {
        err_set(err, ERR_INPUT, "must not be a list");
        goto fail;
    }
    if (key->kind == CONF_LIST)
        conf_list_clear(r->conf, key);
    for (;; n++) {
        if (next(r, err) < 0)
            return -1;
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            break;
        start = r->event.start_mark;
        const char *value = scalar(r);
        if (!value) {
            err_set(err, ERR_INPUT, "entries must be plain values");
            goto fail;
        }
        if (key->kind == CONF_LIST && conf_list_add(r->conf, key, value, err) < 0)
            goto fail;
    }
    if (key->kind == CONF_UNBUILT && conf_list_unbuilt(key, n, err) < 0)
        goto fail;
    if (key->kind == CONF_LIST && n < key->min) {
        err_set(err, ERR_INPUT, "needs at least one entry");
        goto fail;
    }
    return 0;

fail:
    err_within(err, "%s.%s", key->section, key->name);
    return at_mark(r, start, err);
}

static int read_value(struct reader *r, const struct conf_key *key, struct err *err)
{
    if (r->event.type == YAML_SEQUENCE_START_EVENT)
        return read_list(r, key, err);
    const char *value = scalar(r);
    if (!value)
        err_set(err, ERR_INPUT, "must be a plain value");
    else if (conf_assign(r->conf, key, value, is_null(r), err) == 0)
        return 0;
    err_within(err, "%s.%s", key->section, key->name);
    return at_event(r, err);
}

/* key: value pairs up to the end of the section's mapping. */
static int read_section(struct reader *r, const char *section, struct err *err)
{
    for (;;) {
        if (next(r, err) < 0)
            return -1;
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return 0;
        const char *name = scalar(r);
        const struct conf_key *key = name ? conf_key_find(section, name) : NULL;
        if (!name) {
            err_set(err, ERR_INPUT, "a key must be a plain word");
            return at_event(r, err);
        }
        if (!key) {
            unknown_key(section, name, err);
            return at_event(r, err);
        }
        if (mark_seen(r, key, err) < 0)
            return at_event(r, err);
        if (next(r, err) < 0 || read_value(r, key, err) < 0)
            return -1;
    }
}

static int read_sections(struct reader *r, struct err *err)
{
    char section[16];

    for (;;) {
        if (next(r, err) < 0)
            return -1;
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return 0;
        const char *name = scalar(r);
        if (!name || !conf_section_known(name)) {
            if (name)
                unknown("section", NULL, name, err);
            else
                err_set(err, ERR_INPUT, "a section must be a plain word");
            return at_event(r, err);
        }
        if (mark_section(r, name, err) < 0)
            return at_event(r, err);
        strncpy(section, name, sizeof section - 1);
        section[sizeof section - 1] = '\0';
        if (next(r, err) < 0)
            return -1;
        if (r->event.type == YAML_SCALAR_EVENT && is_null(r) == CONF_IS_NULL)
            continue; /* a section with nothing in it */
        if (r->event.type != YAML_MAPPING_START_EVENT) {
            err_set(err, ERR_INPUT, "'%s' is a section and must hold keys", section);
            return at_event(r, err);
        }
        if (read_section(r, section, err) < 0)
            return -1;
    }
}

static int read_document(struct reader *r, struct err *err)
{
    if (next(r, err) < 0 || next(r, err) < 0) /* the stream's start, then its first document */
        return -1;
    if (r->event.type == YAML_STREAM_END_EVENT)
        return 0; /* an empty file: all defaults */
    if (next(r, err) < 0)
        return -1;
    if (r->event.type == YAML_MAPPING_START_EVENT) {
        if (read_sections(r, err) < 0)
            return -1;
    } else if (r->event.type != YAML_SCALAR_EVENT || is_null(r) == CONF_NOT_NULL) {
        err_set(err, ERR_INPUT, "sections such as 'model:' belong here");
        return at_event(r, err);
    }
    if (next(r, err) < 0 || next(r, err) < 0) /* the document's end, then what follows */
        return -1;
    if (r->event.type != YAML_STREAM_END_EVENT) {
        err_set(err, ERR_INPUT, "a second document; the config is one");
        return at_event(r, err);
    }
    return 0;
}

int conf_parse(struct conf *c, const char *name, const char *text, size_t size, struct err *err)
{
    struct reader r = { .conf = c, .name = name };

    if (size > MAX_FILE)
        return err_set(err, ERR_INPUT, "%s: larger than %d KiB", name, MAX_FILE >> 10);
    if (!yaml_parser_initialize(&r.parser))
        return err_set(err, ERR_NOMEM, "%s: no memory", name);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, size);
    int rc = read_document(&r, err);
    if (r.has_event)
        yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return rc;
}

int conf_read_fd(struct conf *c, const char *name, int fd, struct err *err)
{
    char *text = malloc(MAX_FILE + 1);
    size_t size = 0;
    int rc = -1;

    if (!text)
        return err_set(err, ERR_NOMEM, "%s: no memory", name);
    while (size <= MAX_FILE) {
        ssize_t n = pread(fd, text + size, MAX_FILE + 1 - size, (off_t)size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            err_errno(err, "%s", name);
            goto done;
        }
        if (n == 0)
            break;
        size += (size_t)n;
    }
    rc = conf_parse(c, name, text, size, err);

done:
    free(text);
    return rc;
}

int conf_read(struct conf *c, const char *path, struct err *err)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        err_errno(err, "%s", path);
        err->kind = ERR_INPUT; /* a wrong path is a wrong setting */
        return -1;
    }
    int rc = -1;
    if (fstat(fd, &about) < 0 || !S_ISREG(about.st_mode))
        err_set(err, ERR_INPUT, "%s: not a regular file", path);
    else
        rc = conf_read_fd(c, path, fd, err);
    close(fd);
    return rc;
}
