/* Values into the struct, by the table in conf_keys.c. Defaults stand in conf_init and
 * conf_finish. */
#include "daemon/conf/conf.h"

#include "daemon/base/listen.h"
#include "daemon/base/log.h"
#include "daemon/conf/conf_keys.h"
#include "util/err.h"
#include "util/size.h"
#include "util/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

/* ---- values ---- */

static void *field(struct conf *c, size_t offset)
{
    return (char *)c + offset;
}

bool conf_duration(uint32_t *ms, const char *text)
{
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = { { "ms", 1 }, { "s", 1000 }, { "m", CONF_MINUTE }, { "h", CONF_HOUR } };
    uint64_t n = 0;

    if (*text < '0' || *text > '9')
        return false;
    for (; *text >= '0' && *text <= '9'; text++) {
        n = n * 10 + (uint64_t)(*text - '0');
        if (n > UINT32_MAX)
            return false;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(text, units[i].unit) != 0)
            continue;
        n *= units[i].ms; /* below 2^32 times 3.6e6 */
        if (n > UINT32_MAX)
            return false;
        *ms = (uint32_t)n;
        return true;
    }
    return false;
}

static bool parse_count(uint64_t *out, const char *text)
{
    uint64_t n = 0;

    if (*text == '\0')
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || n > UINT32_MAX)
            return false;
        n = n * 10 + (uint64_t)(*text - '0');
    }
    *out = n;
    return true;
}

static int check_text(const char *value, struct err *err)
{
    size_t size = strlen(value);
    uint32_t cp;

    if (!utf8_valid(value, size)) /* YAML and JSON could not carry it on */
        return err_set(err, ERR_INPUT, "is not UTF-8");
    for (size_t i = 0; i < size;) {
        i += (size_t)utf8_next(value + i, size - i, &cp);
        /* U+0080 to U+009F too, and what is no character: YAML has none of them, and children
         * read their settings as YAML. */
        if (cp < 0x20 || (cp >= 0x7f && cp <= 0x9f) || cp == 0xfffe || cp == 0xffff)
            return err_set(err, ERR_INPUT, "holds a control character");
    }
    return 0;
}

static int assign_text(struct conf *c, const struct conf_key *key, const char *value,
                       enum conf_null is_null, struct err *err)
{
    char **to = field(c, key->offset), *copy = NULL;

    if (is_null == CONF_NOT_NULL) {
        if (strlen(value) < key->min)
            return err_set(err, ERR_INPUT, "is empty");
        if (check_text(value, err) < 0)
            return -1;
        copy = strdup(value);
        if (!copy)
            return err_set(err, ERR_NOMEM, "no memory");
    }
    free(*to);
    *to = copy;
    return 0;
}

/* The words of a choice, for messages. */
static const char *words(char *buf, size_t cap, const struct conf_key *key)
{
    size_t used = 0;

    buf[0] = '\0';
    for (const struct conf_choice *w = key->choices; w->name && used < cap; w++)
        if (!w->unbuilt && w->name[0])
            used += (size_t)snprintf(buf + used, cap - used, "%s%s", used ? ", " : "", w->name);
    if (key->zero && used < cap)
        snprintf(buf + used, cap - used, ", %s", key->zero);
    return buf;
}

static int assign_choice(struct conf *c, const struct conf_key *key, const char *value,
                         struct err *err)
{
    char list[128];

    for (const struct conf_choice *w = key->choices; w->name; w++) {
        if (strcmp(w->name, value) != 0)
            continue;
        if (w->unbuilt)
            return err_set(err, ERR_INPUT, "'%s' is not built in this version; it may be %s", value,
                           words(list, sizeof list, key));
        if (key->kind == CONF_BOOL)
            *(bool *)field(c, key->offset) = w->value != 0;
        else
            *(int *)field(c, key->offset) = w->value;
        return 0;
    }
    return err_set(err, ERR_INPUT, "'%.40s' is none of %s", value, words(list, sizeof list, key));
}

/* A number of the key's kind as text a person would write. */
static const char *number_text(char *buf, size_t cap, enum conf_kind kind, uint64_t n)
{
    if (kind == CONF_SIZE)
        return size_text(buf, cap, n);
    snprintf(buf, cap, "%" PRIu64 "%s", n, kind == CONF_DURATION ? "ms" : "");
    return buf;
}

static int assign_number(struct conf *c, const struct conf_key *key, const char *value,
                         struct err *err)
{
    const char *cure = key->kind == CONF_SIZE       ? "is no size; write 8GiB or 512MiB"
                       : key->kind == CONF_DURATION ? "is no duration; write 500ms, 10s or 2m"
                                                    : "is no whole number";
    const char *word = key->zero ? key->zero : key->all;
    char least[32], most[32];
    uint32_t ms = 0;
    uint64_t n = 0;
    bool fine;

    if (key->kind == CONF_SIZE) {
        fine = size_parse(&n, value);
    } else if (key->kind == CONF_DURATION) {
        fine = conf_duration(&ms, value);
        n = ms;
    } else {
        fine = parse_count(&n, value);
    }
    if (!fine)
        return err_set(err, ERR_INPUT, "'%.60s' %s%s%s", value, cure, word ? ", or " : "",
                       word ? word : "");
    if (n < key->min || n > key->max)
        return err_set(err, ERR_INPUT, "%.60s is outside %s to %s", value,
                       number_text(least, sizeof least, key->kind, key->min),
                       number_text(most, sizeof most, key->kind, key->max));
    if (key->kind == CONF_SIZE)
        *(uint64_t *)field(c, key->offset) = n;
    else
        *(uint32_t *)field(c, key->offset) = (uint32_t)n;
    return 0;
}

/* Whether value is one of the '|'-separated words. */
static bool among(const char *list, const char *value)
{
    size_t size = strlen(value);

    for (const char *at = list; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, value, size) == 0 && (at[size] == '\0' || at[size] == '|'))
            return size > 0;
    }
    return false;
}

static int assign_unbuilt(const struct conf_key *key, const char *value, struct err *err)
{
    if (among(key->defaults, value))
        return 0;
    return err_set(err, ERR_INPUT,
                   "'%.60s' is not built in this version; leave the key out or at its default, %s",
                   value, key->defaults);
}

int conf_assign(struct conf *c, const struct conf_key *key, const char *value,
                enum conf_null is_null, struct err *err)
{
    if (is_null == CONF_IS_NULL)
        value = "null";
    switch (key->kind) {
    case CONF_TEXT:
        return assign_text(c, key, value, is_null, err);
    case CONF_LIST:
        return err_set(err, ERR_INPUT, "must be a list, in [brackets]");
    case CONF_UNBUILT:
        return assign_unbuilt(key, value, err);
    case CONF_BOOL:
        return assign_choice(c, key, value, err);
    case CONF_CHOICE:
        if (key->zero && strcmp(value, key->zero) == 0) {
            *(int *)field(c, key->offset) = 0;
            return 0;
        }
        return assign_choice(c, key, value, err);
    case CONF_COUNT:
    case CONF_SIZE:
    case CONF_DURATION:
        break;
    }
    if (key->zero && strcmp(value, key->zero) == 0) {
        if (key->kind == CONF_SIZE)
            *(uint64_t *)field(c, key->offset) = 0;
        else
            *(uint32_t *)field(c, key->offset) = 0;
        return 0;
    }
    if (key->all && strcmp(value, key->all) == 0) {
        *(uint64_t *)field(c, key->offset) = UINT64_MAX;
        return 0;
    }
    return assign_number(c, key, value, err);
}

void conf_list_clear(struct conf *c, const struct conf_key *key)
{
    char **list = field(c, key->offset);
    uint32_t *n = field(c, key->count_offset);

    for (uint32_t i = 0; i < *n; i++) {
        free(list[i]);
        list[i] = NULL;
    }
    *n = 0;
}

int conf_list_add(struct conf *c, const struct conf_key *key, const char *value, struct err *err)
{
    char **list = field(c, key->offset);
    uint32_t *n = field(c, key->count_offset);

    if (*n == key->cap)
        return err_set(err, ERR_INPUT, "has more than %u entries", key->cap);
    if (value[0] == '\0')
        return err_set(err, ERR_INPUT, "has an empty entry");
    if (check_text(value, err) < 0)
        return -1;
    list[*n] = strdup(value);
    if (!list[*n])
        return err_set(err, ERR_NOMEM, "no memory");
    ++*n;
    return 0;
}

int conf_list_unbuilt(const struct conf_key *key, uint32_t n_values, struct err *err)
{
    if (strcmp(key->defaults, "[]") != 0)
        return err_set(err, ERR_INPUT, "must not be a list");
    if (n_values > 0)
        return err_set(err, ERR_INPUT,
                       "is not built in this version; leave the key out or at its default, []");
    return 0;
}

/* name is the key itself for --set, and a flag's for the others, which all exist. */
static int unknown_setting(const char *name, const char *section, const char *dotted,
                           struct err *err)
{
    const char *dot = strchr(dotted, '.');
    const char *near = dot && conf_section_known(section) ? conf_nearest(section, dot + 1) : NULL;

    if (near)
        return err_set(err, ERR_INPUT, "%s: unknown setting; did you mean '%s.%s'?", name, section,
                       near);
    if (dot && (near = conf_nearest(NULL, section)))
        return err_set(err, ERR_INPUT, "%s: unknown setting; there is a section '%s'", name, near);
    return err_set(err, ERR_INPUT, "%s: unknown setting; they are written section.key", name);
}

int conf_set(struct conf *c, const char *name, const char *dotted, const char *value, bool more,
             struct err *err)
{
    const char *dot = strchr(dotted, '.');
    char section[16] = "";

    if (dot && (size_t)(dot - dotted) < sizeof section)
        memcpy(section, dotted, (size_t)(dot - dotted));
    const struct conf_key *key = dot ? conf_key_find(section, dot + 1) : NULL;
    if (!key)
        return unknown_setting(name, section, dotted, err);
    if (key->kind != CONF_LIST) {
        if (conf_assign(c, key, value, CONF_NOT_NULL, err) < 0)
            return err_within(err, "%s", name);
        return 0;
    }
    if (!more)
        conf_list_clear(c, key);
    if (conf_list_add(c, key, value, err) < 0)
        return err_within(err, "%s", name);
    return 0;
}

/* ---- the whole ---- */

void conf_init(struct conf *c)
{
    *c = (struct conf){
        .engine = {
            .kv_dtype = CZ_KV_BF16,
            .dense = CZ_DENSE_BF16,
            .reasoning_memory = CZ_MEMORY_AUTO,
            .direct_io = true,
            .sequences = 4,
            .queue = 32,
            .token_gap_ms = 2000,
            .stall_timeout_ms = 300 * 1000,
        },
        .workers = 2,
        .connections = 256,
        .per_address = 64,
        .body = 32 * MIB,
        .buffer = 64 * MIB,
        .header_timeout_ms = 10 * 1000,
        .body_timeout_ms = 30 * 1000,
        .idle_timeout_ms = 60 * 1000,
        .drain_timeout_ms = 30 * 1000,
        .keepalive_ms = 10 * 1000,
        .log_level = LOG_LEVEL_INFO,
    };
}

void conf_done(struct conf *c)
{
    for (size_t i = 0; conf_key_at(i); i++) {
        const struct conf_key *key = conf_key_at(i);
        if (key->kind == CONF_LIST)
            conf_list_clear(c, key);
        else if (key->kind == CONF_TEXT)
            free(*(char **)field(c, key->offset));
    }
    *c = (struct conf){ 0 };
}

static int set_default(char **to, const char *value, struct err *err)
{
    if (*to)
        return 0;
    *to = strdup(value);
    return *to ? 0 : err_set(err, ERR_NOMEM, "no memory");
}

/* The part of a path before `end` and after the slash before it. */
static const char *last_part(const char *path, const char **end)
{
    while (*end > path && (*end)[-1] == '/')
        --*end;
    const char *begin = *end;
    while (begin > path && begin[-1] != '/')
        begin--;
    return begin;
}

static bool part_is(const char *begin, const char *end, const char *text)
{
    return (size_t)(end - begin) == strlen(text) && strncmp(begin, text, strlen(text)) == 0;
}

/* The directory's name; in a Hugging Face cache (models--OWNER--NAME/snapshots/HASH) NAME. */
static int name_model(struct conf *c, struct err *err)
{
    const char *dir = c->model_dir, *end = dir + strlen(dir);
    const char *begin = last_part(dir, &end);
    const char *above_end = begin, *above = last_part(dir, &above_end);

    if (part_is(above, above_end, "snapshots")) {
        const char *repo_end = above, *repo = last_part(dir, &repo_end);
        if ((size_t)(repo_end - repo) > 8 && strncmp(repo, "models--", 8) == 0) {
            end = repo_end;
            begin = repo + 8;
            for (const char *p = begin; p + 2 < end; p++)
                if (p[0] == '-' && p[1] == '-')
                    begin = p + 2;
        }
    }
    if (begin == end || part_is(begin, end, ".") || part_is(begin, end, ".."))
        return err_set(err, ERR_INPUT, "'%s' gives the model no name: set model.name", dir);
    c->model_name = strndup(begin, (size_t)(end - begin));
    return c->model_name ? 0 : err_set(err, ERR_NOMEM, "no memory");
}

/* What a browser sends as Origin, or a page's address would never equal it. */
static int check_origin(const char *origin, struct err *err)
{
    const char *host = strstr(origin, "://");

    if (strcmp(origin, "*") == 0)
        return err_set(err, ERR_INPUT,
                       "http.cors: '*' would let every page on the web use the model, as nothing "
                       "asks for a key; name the origins");
    if (!host || host == origin || host[3] == '\0' || strpbrk(host + 3, "/?#@ *"))
        return err_set(err, ERR_INPUT,
                       "http.cors: '%.80s' is no origin; write scheme, host and port and nothing "
                       "after them: https://chat.home.lan or http://192.168.1.7:3000", origin);
    return 0;
}

/* A name or an address as it stands in a URL, without the port. */
static int check_host(const char *host, struct err *err)
{
    size_t n = strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_");

    if (host[0] == '[')
        n = strspn(host + 1, "0123456789abcdefABCDEF:.") + 2;
    if (n != strlen(host) || (host[0] == '[' && host[n - 1] != ']'))
        return err_set(err, ERR_INPUT,
                       "http.hosts: '%.80s' is no host name; write llm.home.lan or [fd00::7], "
                       "without a port", host);
    return 0;
}

static int check_names(const struct conf *c, struct err *err)
{
    for (uint32_t i = 0; i < c->n_cors; i++)
        if (check_origin(c->cors[i], err) < 0)
            return -1;
    for (uint32_t i = 0; i < c->n_hosts; i++)
        if (check_host(c->hosts[i], err) < 0)
            return -1;
    return 0;
}

int conf_finish(struct conf *c, struct err *err)
{
    struct listen_address address;

    if (!c->model_dir)
        return err_set(err, ERR_INPUT, "no model: set model.dir in the file or give --model DIR");
    if (!c->model_name && name_model(c, err) < 0)
        return -1;
    if (c->n_listen == 0 &&
        conf_list_add(c, conf_key_find("http", "listen"), "127.0.0.1:8080", err) < 0)
        return -1;
    for (uint32_t i = 0; i < c->n_listen; i++)
        if (listen_parse(&address, c->listen[i], err) < 0)
            return err_within(err, "http.listen");

    if (!c->admin_socket)
        c->admin_default = true;
    if (!c->state_dir)
        c->state_default = true;
    if (set_default(&c->admin_socket, "/run/colizig/admin.sock", err) < 0 ||
        set_default(&c->state_dir, "/var/lib/colizig", err) < 0 ||
        set_default(&c->chat_template, "", err) < 0)
        return -1;
    if (strlen(c->admin_socket) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return err_set(err, ERR_INPUT, "admin.socket: a socket's path has at most %zu bytes",
                       sizeof((struct sockaddr_un *)0)->sun_path - 1);
    if (check_names(c, err) < 0)
        return -1;
    if (c->body > c->buffer)
        return err_set(err, ERR_INPUT,
                       "http.body is larger than http.buffer, which all bodies come out of");
    c->engine.model_dir = c->model_dir;
    c->engine.workers = c->workers;
    c->engine.connections = c->connections;
    c->engine.http_buffer = c->buffer;
    return 0;
}

int conf_check_exposure(const struct conf *c, struct err *err)
{
    struct listen_address address;

    for (uint32_t i = 0; i < c->n_listen; i++) {
        if (listen_parse(&address, c->listen[i], err) < 0)
            return err_within(err, "http.listen");
        if (!listen_is_loopback(&address))
            return err_set(err, ERR_INPUT,
                           "http.listen: %s can be reached by others and API keys are not built in "
                           "this version; listen on 127.0.0.1, or give --insecure-no-auth if "
                           "everyone who reaches it may use it",
                           c->listen[i]);
    }
    return 0;
}
