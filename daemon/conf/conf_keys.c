/* One table says for every key where it lies and what it may hold. */
#include "daemon/conf/conf_keys.h"

#include "daemon/base/log.h"
#include "text/chat.h"
#include "util/size.h"

#include <string.h>

#define AT(field) offsetof(struct conf, field)

static const struct conf_choice booleans[] = { { "true", 1, false }, { "false", 0, false }, { 0 } };
static const struct conf_choice negated[] = { { "true", 0, false }, { "false", 1, false }, { 0 } };
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
static const struct conf_choice dense_types[] = { { "bf16", CZ_DENSE_BF16, false },
                                                  { "fp8", CZ_DENSE_FP8, false }, { 0 } };
static const struct conf_choice levels[] = { { "err", LOG_LEVEL_ERR, false },
                                             { "warning", LOG_LEVEL_WARNING, false },
                                             { "notice", LOG_LEVEL_NOTICE, false },
                                             { "info", LOG_LEVEL_INFO, false },
                                             { "debug", LOG_LEVEL_DEBUG, false }, { 0 } };

static const struct conf_choice efforts[] = { { "", EFFORT_DEFAULT, false },
                                              { "none", CONF_EFFORT_NONE, false },
                                              { "minimal", EFFORT_MINIMAL, false },
                                              { "low", EFFORT_LOW, false },
                                              { "medium", EFFORT_MEDIUM, false },
                                              { "high", EFFORT_HIGH, false },
                                              { "xhigh", EFFORT_XHIGH, false },
                                              { "max", EFFORT_MAX, false }, { 0 } };
static const struct conf_choice late_systems[] = { { "inline", LATE_SYSTEM_INLINE, false },
                                                   { "merge", LATE_SYSTEM_MERGE, false },
                                                   { "reject", LATE_SYSTEM_REJECT, false },
                                                   { 0 } };

/* Of a key that changes: who begins anew. The engine's plan counts what workers take. */
#define L CONF_LIVE
#define W CONF_WORKERS
#define E CONF_ENGINE
#define P CONF_PLAN
#define R CONF_RESTART
#define TEXT(w, s, n, f, least) \
    { .change = w, .section = s, .name = n, .kind = CONF_TEXT, .offset = AT(f), .min = least }
#define LIST(w, s, n, f, c, m, least) \
    { .change = w, .section = s, .name = n, .kind = CONF_LIST, .offset = AT(f), \
      .count_offset = AT(c), .cap = m, .min = least }
#define BOOL(w, s, n, f, words) \
    { .change = w, .section = s, .name = n, .kind = CONF_BOOL, .offset = AT(f), .choices = words }
#define CHOICE(w, s, n, f, words, none) \
    { .change = w, .section = s, .name = n, .kind = CONF_CHOICE, .offset = AT(f), \
      .choices = words, .zero = none }
#define NUMBER(w, s, n, k, f, least, most, none) \
    { .change = w, .section = s, .name = n, .kind = k, .offset = AT(f), .min = least, \
      .max = most, .zero = none }
#define UNBUILT(s, n, ok) { .section = s, .name = n, .kind = CONF_UNBUILT, .defaults = ok }

static const struct conf_key keys[] = {
    TEXT(W | E, "model", "dir", model_dir, 1),
    TEXT(W, "model", "name", model_name, 1),
    LIST(W, "model", "aliases", aliases, n_aliases, CONF_MAX_ALIASES, 0),
    BOOL(W, "model", "strict_names", strict_names, booleans),
    TEXT(W, "model", "chat_template", chat_template, 0),
    CHOICE(W, "model", "reasoning_effort", reasoning_effort, efforts, "null"),
    CHOICE(W, "model", "late_system", late_system, late_systems, NULL),
    UNBUILT("model", "mirrors", "[]"),

    NUMBER(P, "memory", "ram", CONF_SIZE, engine.ram, 1, (uint64_t)1 << 50, "auto"),
    UNBUILT("memory", "vram", "0"),
    CHOICE(E, "memory", "profile", engine.profile, profiles, "null"),
    NUMBER(E, "memory", "kv", CONF_SIZE, engine.kv, 1, (uint64_t)1 << 50, "auto"),
    CHOICE(E, "memory", "kv_dtype", engine.kv_dtype, kv_dtypes, NULL),
    CHOICE(E, "memory", "dense", engine.dense, dense_types, NULL),
    NUMBER(E, "memory", "expert_slots", CONF_COUNT, engine.expert_slots, 1, 1u << 24, "auto"),
    BOOL(E, "memory", "lock", engine.lock, booleans),
    { .change = E, .section = "memory", .name = "reasoning", .kind = CONF_SIZE,
      .offset = AT(engine.reasoning_memory), .max = (uint64_t)1 << 40, .all = "auto" },

    UNBUILT("engine", "device", "cpu"),
    NUMBER(E, "engine", "threads", CONF_COUNT, engine.threads, 1, 1024, "auto"),
    CHOICE(E, "engine", "kernels", engine.kernels, kernels, NULL),
    UNBUILT("engine", "numerics", "invariant"),
    NUMBER(E, "engine", "context", CONF_COUNT, engine.context, 16, 1u << 24, "auto"),
    NUMBER(E, "engine", "sequences", CONF_COUNT, engine.sequences, 1, 256, NULL),
    NUMBER(P, "engine", "queue", CONF_COUNT, engine.queue, 0, 1u << 16, NULL),
    NUMBER(E, "engine", "prefill_rows", CONF_COUNT, engine.prefill_rows, 1, 8192, "auto"),
    NUMBER(E, "engine", "token_gap", CONF_DURATION, engine.token_gap_ms, 1, CONF_HOUR, NULL),
    BOOL(E, "engine", "prefix_cache", engine.no_prefix_cache, negated),
    BOOL(E, "engine", "io", engine.direct_io, io_ways),
    NUMBER(E, "engine", "stall_timeout", CONF_DURATION, engine.stall_timeout_ms, 1000,
           24 * CONF_HOUR, NULL),

    LIST(R, "http", "listen", listen, n_listen, CONF_MAX_LISTEN, 1),
    NUMBER(W | P, "http", "workers", CONF_COUNT, workers, 1, CONF_MAX_WORKERS, NULL),
    NUMBER(W | P, "http", "connections", CONF_COUNT, connections, 1, 1u << 16, NULL),
    NUMBER(W, "http", "per_address", CONF_COUNT, per_address, 1, 1u << 16, NULL),
    NUMBER(W, "http", "body", CONF_SIZE, body, KIB, GIB, NULL),
    NUMBER(W | P, "http", "buffer", CONF_SIZE, buffer, KIB, (uint64_t)1 << 40, NULL),
    NUMBER(W, "http", "header_timeout", CONF_DURATION, header_timeout_ms, 100, CONF_HOUR, NULL),
    NUMBER(W, "http", "body_timeout", CONF_DURATION, body_timeout_ms, 100, CONF_HOUR, NULL),
    NUMBER(W, "http", "idle_timeout", CONF_DURATION, idle_timeout_ms, 100, 24 * CONF_HOUR, NULL),
    NUMBER(L, "http", "drain_timeout", CONF_DURATION, drain_timeout_ms, 0, CONF_HOUR, NULL),
    NUMBER(W, "http", "keepalive", CONF_DURATION, keepalive_ms, 100, CONF_HOUR, NULL),
    UNBUILT("http", "keys_file", "null"),
    LIST(W, "http", "cors", cors, n_cors, CONF_MAX_ORIGINS, 0),
    LIST(W, "http", "hosts", hosts, n_hosts, CONF_MAX_ORIGINS, 0),

    TEXT(R, "admin", "socket", admin_socket, 0),
    TEXT(E, "state", "dir", state_dir, 1),
    UNBUILT("state", "priors", "true|false"),
    UNBUILT("state", "disk_cache", "0"),
    CHOICE(L, "log", "level", log_level, levels, NULL),
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

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

const struct conf_key *conf_key_at(size_t i)
{
    return i < N_KEYS ? &keys[i] : NULL;
}
