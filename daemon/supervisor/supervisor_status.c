#include "daemon/supervisor/supervisor_status.h"

#include "daemon/base/listen.h"
#include "daemon/base/version.h"
#include "daemon/conf/conf.h"
#include "daemon/supervisor/child.h"
#include "daemon/supervisor/measure.h"
#include "daemon/wire/wire.h"
#include "util/clock.h"

#include <unistd.h>

struct sum {
    uint64_t anonymous, locked, swapped;
};

static void put(json_t *o, const char *key, uint64_t n)
{
    json_object_set_new(o, key, json_integer((json_int_t)n));
}

/* What is not known is null, so that nobody takes it for nothing. */
static void put_known(json_t *o, const char *key, uint64_t n, bool known)
{
    json_object_set_new(o, key, known ? json_integer((json_int_t)n) : json_null());
}

static void put_measured(json_t *o, pid_t pid, struct sum *sum)
{
    struct measured_process p = { 0 };
    bool there = measure_process(&p, pid);

    put_known(o, "anonymous_bytes", p.anonymous, there);
    put_known(o, "locked_bytes", p.locked, there);
    put_known(o, "swapped_bytes", p.swapped, there);
    put_known(o, "descriptors", p.descriptors, there && p.descriptors_known);
    sum->anonymous += p.anonymous;
    sum->locked += p.locked;
    sum->swapped += p.swapped;
}

static json_t *child_json(const struct child *c, struct sum *sum)
{
    json_t *o = json_object();

    put(o, "pid", (uint64_t)c->pid);
    json_object_set_new(o, "ready", json_boolean(c->ready));
    put(o, "restarts", c->life > c->born ? c->life - c->born - 1 : 0);
    put(o, "up_ms", c->pid > 0 ? clock_ms() - c->started_ms : 0);
    put_measured(o, c->pid, sum);
    put_known(o, "landlock", c->sandbox.landlock, c->ready);
    json_object_set_new(o, "seccomp", c->ready ? json_boolean(c->sandbox.seccomp) : json_null());
    return o;
}

static json_t *worker_json(const struct child *c, struct sum *sum)
{
    json_t *o = child_json(c, sum);

    put(o, "slot", c->slot);
    put(o, "requests", c->pid > 0 ? c->pulse.running : 0);
    put(o, "connections", c->pid > 0 ? c->pulse.connections : 0);
    if (c->said[0]) /* why it could not serve, the last time it tried */
        json_object_set_new(o, "status", json_string(c->said));
    return o;
}

static json_t *cgroup_json(void)
{
    struct measured_cgroup g;

    if (!measure_cgroup(&g, ""))
        return json_null();
    json_t *o = json_object();
    json_object_set_new(o, "path", json_string(g.dir));
    put(o, "version", (uint64_t)g.version);
    put(o, "usage_bytes", g.usage);
    put(o, "file_bytes", g.file);
    put_known(o, "limit_bytes", g.limit, g.limit != UINT64_MAX);
    return o;
}

static json_t *memory_json(const struct supervisor_view *v, const struct sum *sum)
{
    json_t *o = json_object();

    put_known(o, "planned_bytes", v->engine->pulse.planned, v->engine->pulse.planned > 0);
    put_known(o, "budget_bytes", v->engine->pulse.ram, v->engine->pulse.ram > 0);
    put(o, "anonymous_bytes", sum->anonymous);
    put(o, "locked_bytes", sum->locked);
    put(o, "swapped_bytes", sum->swapped);
    json_object_set_new(o, "cgroup", cgroup_json());
    return o;
}

static json_t *engine_json(const struct supervisor_view *v, struct sum *sum)
{
    json_t *o = child_json(v->engine, sum);

    json_object_set_new(o, "status", json_string(v->engine->said));
    put(o, "running", v->engine->pulse.running);
    put(o, "waiting", v->engine->pulse.waiting);
    return o;
}

json_t *supervisor_status(const struct supervisor_view *v)
{
    json_t *o = json_object(), *workers = json_array(), *listeners = json_array();
    struct sum sum = { 0 };
    char name[64];

    json_object_set_new(o, "version", json_string(version_number()));
    json_object_set_new(o, "commit", json_string(version_commit()));
    json_object_set_new(o, "phase", json_string(v->phase));
    json_object_set_new(o, "reload", v->reload ? json_string(v->reload) : json_null());
    json_object_set_new(o, "model", json_string(v->conf->model_name));
    json_object_set_new(o, "model_dir", json_string(v->conf->model_dir));
    put(o, "pid", (uint64_t)getpid());
    put(o, "up_ms", clock_ms() - v->started_ms);
    put_measured(o, getpid(), &sum);
    json_object_set_new(o, "engine", engine_json(v, &sum));
    for (uint32_t i = 0; i < v->n_workers; i++)
        json_array_append_new(workers, worker_json(v->workers[i], &sum));
    json_object_set_new(o, "workers", workers);
    for (uint32_t i = 0; i < v->n_listeners; i++)
        json_array_append_new(listeners,
                              json_string(listen_name(name, sizeof name, v->listeners[i])));
    json_object_set_new(o, "listen", listeners);
    json_object_set_new(o, "memory", memory_json(v, &sum));
    return o;
}
