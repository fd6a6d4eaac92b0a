/* One table says for every key where it lies, what it may hold and how it is written back.
 * Defaults stand in conf_init and conf_finish. */
#include "daemon/conf.h"

#include "daemon/conf_keys.h"
#include "daemon/listen.h"
#include "daemon/log.h"
#include "util/err.h"
#include "util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define AT(field) offsetof(struct conf, field)
#define MINUTE ((uint64_t)60 * 1000)
#define HOUR (60 * MINUTE)

static const struct conf_choice booleans[] = { { "true", 1, false }, { "false", 0, false }, { 0 } };
static const struct conf_choice io_ways[] = { { "auto", 1, false }, { "buffered", 0, false },
                                              { "io_uring", 0, true }, { 0 } };
static const struct conf_choice profiles[] = { { "tiny", CZ_PROFILE_TINY, false },
                                               { "laptop", CZ_PROFILE_LAPTOP, false },
                                               { "desktop", CZ_PROFILE_DESKTOP, false },
                                               { "gpu", CZ_PROFILE_GPU, false }, { 0 } };
static const struct conf_choice kernels[] = { { "auto", CZ_KERNELS_AUTO, false },
                                              { "scalar", CZ_KERNELS_SCALAR, false },
                                              { "avx2", CZ_KERNELS_AVX2, false },
                                              { "avx512", CZ_KERNELS_AVX512, false }, { 0 } };
static const struct conf_choice kv_dtypes[] = { { "bf16", CZ_KV_BF16, false },
                                                { "f32", CZ_KV_F32, false }, { 0 } };
static const struct conf_choice levels[] = { { "err", LOG_LEVEL_ERR, false },
                                             { "warning", LOG_LEVEL_WARNING, false },
                                             { "notice", LOG_LEVEL_NOTICE, false },
                                             { "info", LOG_LEVEL_INFO, false },
                                             { "debug", LOG_LEVEL_DEBUG, false }, { 0 } };

#define TEXT(s, n, f) { .section = s, .name = n, .kind = CONF_TEXT, .offset = AT(f), .min = 1 }
#define LIST(s, n, f, c, m, least) \
    { .section = s, .name = n, .kind = CONF_LIST, .offset = AT(f), .count_offset = AT(c), \
      .cap = m, .min = least }
#define BOOL(s, n, f, words) \
    { .section = s, .name = n, .kind = CONF_BOOL, .offset = AT(f), .choices = words }
#define CHOICE(s, n, f, words, none) \
    { .section = s, .name = n, .kind = CONF_CHOICE, .offset = AT(f), .choices = words, .zero = none }
#define NUMBER(s, n, k, f, least, most, none) \
    { .section = s, .name = n, .kind = k, .offset = AT(f), .min = least, .max = most, .zero = none }
#define UNBUILT(s, n, ok) { .section = s, .name = n, .kind = CONF_UNBUILT, .defaults = ok }

static const struct conf_key keys[] = {
    TEXT("model", "dir", model_dir),
    TEXT("model", "name", model_name),
    LIST("model", "aliases", aliases, n_aliases, CONF_MAX_ALIASES, 0),
    BOOL("model", "strict_names", strict_names, booleans),
    UNBUILT("model", "chat_template", "null"),
    UNBUILT("model", "mirrors", "[]"),

    NUMBER("memory", "ram", CONF_SIZE, engine.ram, 1, (uint64_t)1 << 50, "auto"),
    UNBUILT("memory", "vram", "0"),
    CHOICE("memory", "profile", engine.profile, profiles, "null"),
    NUMBER("memory", "kv", CONF_SIZE, engine.kv, 1, (uint64_t)1 << 50, "auto"),
    CHOICE("memory", "kv_dtype", engine.kv_dtype, kv_dtypes, NULL),
    UNBUILT("memory", "dense", "bf16"),
    NUMBER("memory", "expert_slots", CONF_COUNT, engine.expert_slots, 1, 1u << 24, "auto"),
    BOOL("memory", "lock", engine.lock, booleans),

    UNBUILT("engine", "device", "cpu"),
    NUMBER("engine", "threads", CONF_COUNT, engine.threads, 1, 1024, "auto"),
    CHOICE("engine", "kernels", engine.kernels, kernels, NULL),
    UNBUILT("engine", "numerics", "invariant"),
    NUMBER("engine", "context", CONF_COUNT, engine.context, 1, 1u << 24, "auto"),
    NUMBER("engine", "sequences", CONF_COUNT, engine.sequences, 1, 1024, NULL),
    NUMBER("engine", "queue", CONF_COUNT, engine.queue, 0, 1u << 16, NULL),
    NUMBER("engine", "prefill_rows", CONF_COUNT, engine.prefill_rows, 1, 1u << 16, "auto"),
    NUMBER("engine", "token_gap", CONF_DURATION, engine.token_gap_ms, 1, HOUR, NULL),
    BOOL("engine", "io", engine.direct_io, io_ways),
    NUMBER("engine", "stall_timeout", CONF_DURATION, engine.stall_timeout_ms, 1000, 24 * HOUR, NULL),

    LIST("http", "listen", listen, n_listen, CONF_MAX_LISTEN, 1),
    NUMBER("http", "workers", CONF_COUNT, workers, 1, CONF_MAX_WORKERS, NULL),
    NUMBER("http", "connections", CONF_COUNT, connections, 1, 1u << 16, NULL),
    NUMBER("http", "per_address", CONF_COUNT, per_address, 1, 1u << 16, NULL),
    NUMBER("http", "body", CONF_SIZE, body, KIB, GIB, NULL),
    NUMBER("http", "buffer", CONF_SIZE, buffer, KIB, (uint64_t)1 << 40, NULL),
    NUMBER("http", "header_timeout", CONF_DURATION, header_timeout_ms, 100, HOUR, NULL),
    NUMBER("http", "body_timeout", CONF_DURATION, body_timeout_ms, 100, HOUR, NULL),
    NUMBER("http", "idle_timeout", CONF_DURATION, idle_timeout_ms, 100, 24 * HOUR, NULL),
    NUMBER("http", "drain_timeout", CONF_DURATION, drain_timeout_ms, 0, HOUR, NULL),
    NUMBER("http", "keepalive", CONF_DURATION, keepalive_ms, 100, HOUR, NULL),
    UNBUILT("http", "keys_file", "null"),
    UNBUILT("http", "cors", "[]"),
    UNBUILT("http", "hosts", "[]"),

    { .section = "admin", .name = "socket", .kind = CONF_TEXT, .offset = AT(admin_socket) },
    TEXT("state", "dir", state_dir),
    UNBUILT("state", "priors", "true|false"),
    UNBUILT("state", "disk_cache", "0"),
    CHOICE("log", "level", log_level, levels, NULL),
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

/* ---- looking keys up ---- */

const struct conf_key *conf_key_find(const char *section, const char *name)
{
    for (size_t i = 0; i < N_KEYS; i++)
        if (strcmp(keys[i].section, section) == 0 && strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

bool conf_section_known(const char *section)
{
    for (size_t i = 0; i < N_KEYS; i++)
        if (strcmp(keys[i].section, section) == 0)
            return true;
    return false;
}

/* How many letters must be changed, added or left out. Names longer than any key are far. */
static size_t distance(const char *a, const char *b)
{
    size_t row[32], n = strlen(b);

    if (strlen(a) >= 32 || n >= 32)
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

const char *conf_nearest(const char *section, const char *name)
{
    const char *best = NULL;
    size_t best_distance = strlen(name) / 2 + 1;

    for (size_t i = 0; i < N_KEYS; i++) {
        if (section && strcmp(keys[i].section, section) != 0)
            continue;
        const char *known = section ? keys[i].name : keys[i].section;
        size_t d = distance(name, known);
        if (strlen(name) >= 3 && strncmp(name, known, strlen(name)) == 0)
            d = 0; /* the beginning of it */
        if (d < best_distance) {
            best = known;
            best_distance = d;
        }
    }
    return best;
}

/* ---- values ---- */

static void *field(struct conf *c, size_t offset)
{
    return (char *)c + offset;
}

static const void *field_const(const struct conf *c, size_t offset)
{
    return (const char *)c + offset;
}

bool conf_duration(uint32_t *ms, const char *text)
{
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = { { "ms", 1 }, { "s", 1000 }, { "m", MINUTE }, { "h", HOUR } };
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
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_set(err, ERR_INPUT, "holds a control character");
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
        if (!w->unbuilt)
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
        return err_set(err, ERR_INPUT, "'%.60s' %s%s%s", value, cure, key->zero ? ", or " : "",
                       key->zero ? key->zero : "");
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

int conf_set(struct conf *c, const char *name, const char *dotted, const char *value, bool more,
             struct err *err)
{
    const char *dot = strchr(dotted, '.');
    char section[16] = "";

    if (dot && (size_t)(dot - dotted) < sizeof section)
        memcpy(section, dotted, (size_t)(dot - dotted));
    const struct conf_key *key = dot ? conf_key_find(section, dot + 1) : NULL;
    if (!key)
        return err_set(err, ERR_INPUT, "%s: unknown setting '%s'", name, dotted);
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
    for (size_t i = 0; i < N_KEYS; i++) {
        if (keys[i].kind == CONF_LIST)
            conf_list_clear(c, &keys[i]);
        else if (keys[i].kind == CONF_TEXT)
            free(*(char **)field(c, keys[i].offset));
    }
    free(c->chat_template);
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
    if (set_default(&c->admin_socket, "/run/colizig/admin.sock", err) < 0 ||
        set_default(&c->state_dir, "/var/lib/colizig", err) < 0)
        return -1;
    if (strlen(c->admin_socket) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return err_set(err, ERR_INPUT, "admin.socket: a socket's path has at most %zu bytes",
                       sizeof((struct sockaddr_un *)0)->sun_path - 1);
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

/* ---- writing it back ---- */

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
        if (!w->unbuilt && w->value == value)
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
    for (size_t i = 0; i < N_KEYS; i++) {
        const struct conf_key *key = &keys[i];
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
