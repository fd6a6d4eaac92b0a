#include "daemon/host/engine_answers.h"

#include "daemon/host/engine_json.h"
#include "daemon/host/engine_thread.h"
#include "daemon/host/recall_store.h"
#include "daemon/host/requests.h"
#include "util/clock.h"

#include <stdlib.h>
#include <string.h>

enum { TOP_MAX = 1024 }; /* experts in a list */

static void refuse(struct engine_answers *a, uint64_t id, const struct err *why)
{
    a->answer(a->ctx, id, why->kind, why->text, strlen(why->text));
}

/* Takes data. */
static void give(struct engine_answers *a, uint64_t id, json_t *data)
{
    char *text = data ? json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    struct err none;

    json_decref(data);
    if (text) {
        a->answer(a->ctx, id, ERR_NONE, text, strlen(text));
    } else {
        err_set(&none, ERR_NOMEM, "no memory for the answer");
        refuse(a, id, &none);
    }
    free(text);
}

/* ---- requests ---- */

/* The bytes came from a worker; what is no UTF-8 is null. */
static void put_text(json_t *o, const char *key, const char *text)
{
    json_t *value = json_string(text);

    json_object_set_new(o, key, value ? value : json_null());
}

static void put(json_t *o, const char *key, uint64_t n)
{
    json_object_set_new(o, key, json_integer((json_int_t)n));
}

static json_t *request_json(const struct request *r)
{
    static const char *const states[] = { "waiting", "prefill", "decode" };
    json_t *o = json_object();

    put_text(o, "request", r->name);
    put(o, "worker", r->slot);
    put_text(o, "client", r->address);
    put_text(o, "state", states[r->state]);
    put(o, "place", r->state == REQUEST_WAITING ? r->place : 0);
    put(o, "prompt_tokens", r->n_prompt);
    put(o, "prompt_done", r->n_done);
    put(o, "generated", r->n_generated);
    put(o, "age_ms", clock_ms() - r->came_ms);
    return o;
}

static json_t *requests_json(const struct requests *all)
{
    json_t *o = json_object(), *list = json_array();

    for (uint32_t i = 0; i < all->n; i++)
        if (!all->list[i].cancelled)
            json_array_append_new(list, request_json(&all->list[i]));
    json_object_set_new(o, "requests", list);
    return o;
}

static void cancel(struct engine_answers *a, uint64_t id, const json_t *question)
{
    const char *name = json_string_value(json_object_get(question, "request"));
    uint32_t n = name && *name ? a->cancel(a->ctx, name) : 0;
    struct err why;

    if (n > 0) {
        json_t *o = json_object();
        json_object_set(o, "request", json_object_get(question, "request"));
        give(a, id, o);
        return;
    }
    err_set(&why, ERR_INPUT, "no request '%.60s' waits or runs; 'requests' lists those that do",
            name ? name : "");
    refuse(a, id, &why);
}

/* ---- experts ---- */

static void look(struct engine_answers *a, uint64_t id, const json_t *question)
{
    struct engine_order order = { .kind = ORDER_LOOK, .id = id };
    struct err busy;

    json_int_t top = json_integer_value(json_object_get(question, "top"));
    order.top = top < 0 ? 0 : top > TOP_MAX ? TOP_MAX : (uint32_t)top;
    if (a->n_looks < ENGINE_LOOKS && engine_thread_order(a->engine, &order)) {
        a->n_looks++;
        return;
    }
    err_set(&busy, ERR_BUSY, "%d such questions wait for the end of a layer already",
            ENGINE_LOOKS);
    refuse(a, id, &busy);
}

void engine_answers_looked(struct engine_answers *a, const struct engine_word *word)
{
    const struct engine_look *l = word->look;

    a->n_looks--;
    give(a, word->id,
         l ? engine_json_experts(l->layers, l->n_layers, l->hottest, l->n_hottest) : NULL);
}

/* ---- all of them ---- */

static json_t *stats_json(const struct engine_answers *a)
{
    struct cz_stats stats;

    engine_thread_stats(a->engine, &stats);
    json_t *o = engine_json_stats(&stats);
    put(o, "reasoning_memory_bytes", a->recall->region.size);
    put(o, "reasoning_memory_used", a->recall->n_bytes);
    put(o, "reasoning_memory_entries", a->recall->n_records);
    put(o, "reasoning_memory_hits", a->recall->hits);
    put(o, "reasoning_memory_misses", a->recall->misses);
    put(o, "reasoning_memory_evictions", a->recall->evicted);
    return o;
}

static void answer(struct engine_answers *a, uint64_t id, const char *command,
                   const json_t *question)
{
    struct err why;

    if (!a->loaded) {
        err_set(&why, ERR_BUSY, "the model is still loading");
        refuse(a, id, &why);
    } else if (strcmp(command, "stats") == 0) {
        give(a, id, stats_json(a));
    } else if (strcmp(command, "plan") == 0) {
        give(a, id, engine_json_plan(&engine_thread_facts(a->engine)->plan));
    } else if (strcmp(command, "inspect") == 0) {
        give(a, id, engine_json_info(&engine_thread_facts(a->engine)->info));
    } else if (strcmp(command, "requests") == 0) {
        give(a, id, requests_json(a->requests));
    } else if (strcmp(command, "cancel") == 0) {
        cancel(a, id, question);
    } else if (strcmp(command, "experts") == 0) {
        look(a, id, question);
    } else {
        err_set(&why, ERR_UNSUPPORTED, "the engine knows no command '%.60s'", command);
        refuse(a, id, &why);
    }
}

void engine_answers_ask(struct engine_answers *a, uint64_t id, const char *question, size_t size)
{
    json_t *root = json_loadb(question, size, 0, NULL);
    const char *command = json_string_value(json_object_get(root, "cmd"));

    answer(a, id, command ? command : "", root);
    json_decref(root);
}
