#include "daemon/supervisor/reload_report.h"

#include "daemon/supervisor/supervisor_state.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static json_t *keys_of(const struct reload *r, bool restart)
{
    json_t *list = json_array();
    char name[64];

    for (uint32_t i = 0; i < r->diff.n; i++) {
        const struct conf_key *key = r->diff.keys[i];
        if ((key->change == CONF_RESTART) != restart)
            continue;
        snprintf(name, sizeof name, "%s.%s", key->section, key->name);
        json_array_append_new(list, json_string(name));
    }
    return list;
}

/* " applied=a,b"; nothing for an empty list. */
static size_t put_list(char *line, size_t cap, const char *word, const json_t *list)
{
    size_t used = 0, i;
    const json_t *name;

    json_array_foreach (list, i, name)
        if (used < cap)
            used += (size_t)snprintf(line + used, cap - used, "%s%s%s%s", i ? "," : " ",
                                     i ? "" : word, i ? "" : "=", json_string_value(name));
    return used < cap ? used : cap - 1;
}

char *reload_report(char *line, size_t cap, const struct reload *r)
{
    bool nothing = r->step == RELOAD_CHECK; /* it went no further */
    json_t *o = json_object(), *applied = keys_of(r, false), *rest = keys_of(r, true);
    const char *workers = r->rolled ? "replaced" : "kept";
    const char *engine = r->engine_stopped ? "restarted" : r->adjusted ? "adjusted" : "kept";
    size_t used = (size_t)snprintf(line, cap, "reload: done%s", nothing ? ", nothing changed" : "");

    used += put_list(line + used, cap - used, "applied", applied);
    if (!nothing)
        used += (size_t)snprintf(line + used, cap - used, " workers=%s engine=%s", workers, engine);
    used = used < cap ? used : cap - 1;
    put_list(line + used, cap - used, "needs_restart", rest);

    json_object_set_new(o, "applied", applied);
    json_object_set_new(o, "workers", json_string(workers));
    json_object_set_new(o, "engine", json_string(engine));
    if (r->engine_stopped)
        json_object_set_new(o, "engine_why", json_string(r->engine_why));
    json_object_set_new(o, "needs_restart", rest);
    char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    return text;
}
