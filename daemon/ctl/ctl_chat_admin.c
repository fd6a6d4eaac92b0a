#include "daemon/ctl/ctl_chat_admin.h"

#include "daemon/ctl/ctl_talk.h"

/* SLACK: counters are published between steps, so that the last token may be missing yet, and
 * a stop token is counted by the reply alone. */
enum { PATIENCE_MS = 500, SLACK = 2 };

json_t *chat_admin_stats(const char *path)
{
    struct ctl_talk t;
    json_t *data = NULL;
    struct err ignored;

    if (!path || ctl_talk_open_at(&t, path, &ignored) < 0)
        return NULL;
    t.send_ms = PATIENCE_MS;
    if (ctl_talk_ask(&t, json_pack("{s:s}", "cmd", "stats"), PATIENCE_MS, &data, &ignored) <= 0)
        data = NULL;
    ctl_talk_close(&t);
    return data;
}

static uint64_t count(const json_t *data, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(data, key));

    return n > 0 ? (uint64_t)n : 0;
}

struct chat_counters chat_admin_counters(const char *path)
{
    json_t *data = chat_admin_stats(path);
    struct chat_counters c = {
        .known = data != NULL,
        .hits = count(data, "expert_hits"),
        .misses = count(data, "expert_misses"),
        .submitted = count(data, "n_submitted"),
        .generated = count(data, "generated_tokens"),
        .running = count(data, "running"),
        .waiting = count(data, "waiting"),
    };

    json_decref(data);
    return c;
}

double chat_admin_hit_rate(const struct chat_counters *before, const struct chat_counters *after,
                           uint32_t n_generated, uint64_t *n_others)
{
    if (!before->known || !after->known || after->submitted <= before->submitted ||
        after->generated + SLACK < before->generated + n_generated ||
        after->hits < before->hits ||
        after->misses < before->misses)
        return -1.0;
    uint64_t hits = after->hits - before->hits, misses = after->misses - before->misses;
    *n_others = after->submitted - before->submitted - 1;
    return hits + misses ? (double)hits / (double)(hits + misses) : -1.0;
}
