#include "daemon/admin/admin_line.h"

#include "daemon/base/log.h"
#include "daemon/base/nearest.h"
#include "daemon/conf/conf.h"
#include "util/shown.h"
#include "util/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TOP_DEFAULT = 20, EVERY_MS = 1000, EVERY_MOST_MS = 3600 * 1000 };

/* ---- fields ---- */

static int integer(uint64_t *out, const json_t *v, const char *name, uint64_t min, uint64_t max,
                   struct err *err)
{
    json_int_t n = json_integer_value(v);

    if (!json_is_integer(v) || n < 0 || (uint64_t)n < min || (uint64_t)n > max)
        return err_set(err, ERR_INPUT,
                       "'%s' must be an integer from %" PRIu64 " to %" PRIu64, name, min, max);
    *out = (uint64_t)n;
    return 0;
}

static int small(uint32_t *out, const json_t *v, const char *name, uint32_t min, uint32_t max,
                 struct err *err)
{
    uint64_t n = 0;

    if (integer(&n, v, name, min, max, err) < 0)
        return -1;
    *out = (uint32_t)n;
    return 0;
}

static int take_request(struct admin_line *line, const json_t *v, struct err *err)
{
    static const char fit[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const char *name = json_string_value(v);
    size_t length = name ? strlen(name) : 0;

    if (length == 0 || length >= sizeof line->request || strspn(name, fit) != length)
        return err_set(err, ERR_INPUT, "'request' must be a request's id as 'requests' lists "
                                       "it: \"req_...\"");
    memcpy(line->request, name, length + 1);
    return 0;
}

static int take_top(struct admin_line *line, const json_t *v, struct err *err)
{
    return small(&line->top, v, "top", 0, ADMIN_TOP_MAX, err);
}

static int take_every(struct admin_line *line, const json_t *v, struct err *err)
{
    return small(&line->every_ms, v, "every_ms", ADMIN_WATCH_LEAST_MS, EVERY_MOST_MS, err);
}

/* Milliseconds, or as the configuration spells it. */
static int take_timeout(struct admin_line *line, const json_t *v, struct err *err)
{
    uint32_t ms;

    if (json_is_string(v) && conf_duration(&ms, json_string_value(v)) && ms > 0) {
        line->timeout_ms = ms;
        return 0;
    }
    if (json_is_string(v))
        return err_set(err, ERR_INPUT, "'timeout' is no duration; \"30s\", \"500ms\" and \"2m\" "
                                       "are");
    return small(&line->timeout_ms, v, "timeout", 1, UINT32_MAX, err);
}

/* Bytes, or as the configuration spells it. */
static int take_ram(struct admin_line *line, const json_t *v, struct err *err)
{
    if (!json_is_string(v))
        return integer(&line->ram, v, "ram", 1, INT64_MAX, err);
    if (!size_parse(&line->ram, json_string_value(v)) || line->ram == 0)
        return err_set(err, ERR_INPUT, "'ram' is no size; \"8GiB\", \"512M\" and bytes are");
    return 0;
}

static int take_level(struct admin_line *line, const json_t *v, struct err *err)
{
    line->level = json_is_string(v) ? admin_level(json_string_value(v)) : 0;
    if (!line->level)
        return err_set(err, ERR_INPUT,
                       "'level' must be err, warning, notice, info or debug");
    line->acts = true; /* without one it only tells */
    return 0;
}

/* ---- commands ---- */

static const struct command {
    const char *name, *field; /* at most one; NULL: none */
    int (*take)(struct admin_line *line, const json_t *value, struct err *err);
    bool required, acts;
} commands[] = {
    [ADMIN_STATUS] = { .name = "status" },
    [ADMIN_STATS] = { .name = "stats" },
    [ADMIN_PLAN] = { .name = "plan" },
    [ADMIN_INSPECT] = { .name = "inspect" },
    [ADMIN_EXPERTS] = { .name = "experts", .field = "top", .take = take_top },
    [ADMIN_REQUESTS] = { .name = "requests" },
    [ADMIN_CANCEL] = { .name = "cancel", .field = "request", .take = take_request,
                       .required = true, .acts = true },
    [ADMIN_RELOAD] = { .name = "reload", .acts = true },
    [ADMIN_DRAIN] = { .name = "drain", .field = "timeout", .take = take_timeout, .acts = true },
    [ADMIN_BUDGET] = { .name = "budget", .field = "ram", .take = take_ram, .required = true,
                       .acts = true },
    [ADMIN_LOG] = { .name = "log", .field = "level", .take = take_level },
    [ADMIN_WATCH] = { .name = "watch", .field = "every_ms", .take = take_every },
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int unknown(const char *name, struct err *err)
{
    const char *names[N_COMMANDS];
    char list[160] = "";

    for (size_t i = 0; i < N_COMMANDS; i++) {
        size_t used = strlen(list);
        names[i] = commands[i].name;
        snprintf(list + used, sizeof list - used, "%s%s", i ? " " : "", names[i]);
    }
    const char *near = nearest(name, names, N_COMMANDS);
    return err_set(err, ERR_UNSUPPORTED, "unknown command '%.60s'%s%s%s; there are: %s",
                   shown_name(name).text, near ? ", did you mean '" : "", near ? near : "",
                   near ? "'" : "", list);
}

static int take_id(struct admin_line *out, json_t *id, struct err *err)
{
    if (!id || json_is_null(id))
        return 0;
    if (!json_is_integer(id) && !json_is_string(id))
        return err_set(err, ERR_INPUT, "'id' must be an integer or a string");
    out->id = json_incref(id);
    return 0;
}

static int take_fields(struct admin_line *out, const struct command *c, const json_t *root,
                       struct err *err)
{
    const char *key;
    json_t *value, *all = (json_t *)(uintptr_t)root; /* iterating changes nothing */

    json_object_foreach (all, key, value) {
        if (strcmp(key, "id") == 0 || strcmp(key, "cmd") == 0)
            continue;
        if (!c->field || strcmp(key, c->field) != 0)
            return err_set(err, ERR_INPUT, "'%s' takes no '%.60s'%s%s", c->name,
                           shown_name(key).text, c->field ? "; it takes " : "",
                           c->field ? c->field : "");
        if (json_is_null(value))
            continue;
        if (c->take(out, value, err) < 0)
            return -1;
    }
    value = c->field ? json_object_get(root, c->field) : NULL;
    if (c->required && (!value || json_is_null(value)))
        return err_set(err, ERR_INPUT, "'%s' needs '%s'", c->name, c->field);
    return 0;
}

static int take_object(struct admin_line *out, const json_t *root, struct err *err)
{
    const json_t *cmd = json_object_get(root, "cmd");
    size_t i = 0;

    if (!json_is_object(root))
        return err_set(err, ERR_INPUT, "a line must be a JSON object: {\"cmd\":\"status\"}");
    if (take_id(out, json_object_get(root, "id"), err) < 0)
        return -1;
    if (!json_is_string(cmd))
        return err_set(err, ERR_INPUT, "'cmd' must be a string: {\"cmd\":\"status\"}");
    while (i < N_COMMANDS && strcmp(json_string_value(cmd), commands[i].name) != 0)
        i++;
    if (i == N_COMMANDS)
        return unknown(json_string_value(cmd), err);
    out->verb = (enum admin_verb)i;
    out->acts = commands[i].acts;
    return take_fields(out, &commands[i], root, err);
}

/* Our words for what jansson found, whose own texts repeat what was sent. */
static const char *fault(const json_error_t *at)
{
    switch (json_error_code(at)) {
    case json_error_duplicate_key:
        return "a key is given twice";
    case json_error_stack_overflow:
        return "it is nested too deeply";
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return "a text holds a zero byte";
    case json_error_invalid_utf8:
        return "it is not UTF-8";
    case json_error_premature_end_of_input:
        return "it ends too soon";
    case json_error_end_of_input_expected:
        return "more follows after the object";
    case json_error_numeric_overflow:
        return "a number is too large";
    case json_error_out_of_memory:
        return "there is no memory for it";
    default:
        return "the syntax is wrong";
    }
}

int admin_line_parse(struct admin_line *out, const char *text, size_t size, struct err *err)
{
    json_error_t at;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &at);

    *out = (struct admin_line){ .top = TOP_DEFAULT, .every_ms = EVERY_MS };
    if (!root)
        return err_set(err, ERR_INPUT, "the line is no JSON at byte %d: %s", at.position,
                       fault(&at));
    int rc = take_object(out, root, err);
    json_decref(root);
    return rc;
}

void admin_line_done(struct admin_line *line)
{
    json_decref(line->id);
    line->id = NULL;
}

const char *admin_verb_name(enum admin_verb verb)
{
    return commands[verb].name;
}

/* ---- levels of the log ---- */

static const char *const levels[] = {
    [LOG_LEVEL_ERR] = "err",       [LOG_LEVEL_WARNING] = "warning", [LOG_LEVEL_NOTICE] = "notice",
    [LOG_LEVEL_INFO] = "info",    [LOG_LEVEL_DEBUG] = "debug",
};

int admin_level(const char *name)
{
    for (int i = LOG_LEVEL_ERR; i <= LOG_LEVEL_DEBUG; i++)
        if (strcmp(name, levels[i]) == 0)
            return i;
    return 0;
}

const char *admin_level_name(int level)
{
    return level >= LOG_LEVEL_ERR && level <= LOG_LEVEL_DEBUG ? levels[level] : NULL;
}
