/* Calls that an assistant made in earlier turns, and what came of them. */
#include "daemon/openai/openai_fields.h"

#include "daemon/openai/json_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- calls ---- */

size_t openai_count_calls(const json_t *messages)
{
    const json_t *message;
    size_t i, n = 0;

    json_array_foreach (messages, i, message)
        n += json_array_size(json_object_get(message, "tool_calls")) +
             json_is_object(json_object_get(message, "function_call"));
    return n;
}

static int read_name(struct chat_call *out, const json_t *function, const char *where,
                     struct api_error *e)
{
    const json_t *v = json_body_get(function, "name");
    char param[128];

    snprintf(param, sizeof param, "%s.name", where);
    if (!v)
        return json_body_missing(e, param);
    if (!json_is_string(v))
        return json_body_wants(e, param, "a string", v);
    out->name = json_string_value(v);
    out->name_size = json_string_length(v);
    return 0;
}

/* JSON in a string, as the API has it; the object itself is taken too. */
static int read_arguments(struct openai_request *r, struct chat_call *out, const json_t *function,
                          const char *where, struct api_error *e)
{
    const json_t *v = json_body_get(function, "arguments");
    char param[128];

    snprintf(param, sizeof param, "%s.arguments", where);
    out->arguments = "";
    if (json_is_object(v)) {
        r->call_objects[out - r->calls] = v;
        return 0;
    }
    if (v && !json_is_string(v))
        return api_error_field(e, "invalid_type", param,
                               "'%s' must be a string that holds JSON, not %s.", param,
                               json_body_type(v));
    if (v) {
        out->arguments = json_string_value(v);
        out->arguments_size = json_string_length(v);
    }
    return 0;
}

static int read_function(struct openai_request *r, struct chat_call *out, const json_t *function,
                         const char *where, struct api_error *e)
{
    if (!json_is_object(function))
        return api_error_field(e, "invalid_type", where, "'%s' must be an object.", where);
    return read_name(out, function, where, e) < 0 ? -1
                                                  : read_arguments(r, out, function, where, e);
}

static int read_call(struct openai_request *r, struct chat_call *out, const json_t *call,
                     const char *where, struct api_error *e)
{
    const json_t *id = json_body_get(call, "id");
    char param[128];

    if (!json_is_object(call))
        return api_error_field(e, "invalid_type", where,
                               "'%s' must be an object with a 'function'.", where);
    if (id && !json_is_string(id)) {
        snprintf(param, sizeof param, "%s.id", where);
        return json_body_wants(e, param, "a string", id);
    }
    out->id = json_string_value(id);
    out->id_size = json_string_length(id);
    /* Some leave the wrapping away. */
    const json_t *function = json_body_get(call, "function");
    snprintf(param, sizeof param, "%s%s", where, function ? ".function" : "");
    return read_function(r, out, function ? function : call, param, e);
}

/* What a result answers. The legacy role "function" names a function instead of a call. */
static int read_result(struct chat_message *m, const json_t *message, size_t i,
                       struct api_error *e)
{
    const json_t *id = json_body_get(message, "tool_call_id");
    char param[64];

    if (json_body_is(json_object_get(message, "role"), "function"))
        return 0;
    if (json_is_string(id)) {
        m->call_id = json_string_value(id);
        m->call_id_size = json_string_length(id);
        return 0;
    }
    snprintf(param, sizeof param, "messages[%zu].tool_call_id", i);
    return api_error_field(e, "missing_required_parameter", param,
                           "'%s' must be the id of a call.", param);
}

int openai_read_calls(struct openai_request *r, struct chat_message *m, const json_t *message,
                      size_t i, struct api_error *e)
{
    const json_t *list = json_body_get(message, "tool_calls"), *call;
    const json_t *legacy = json_body_get(message, "function_call");
    char where[96];
    size_t k;

    if (m->role == CHAT_TOOL)
        return read_result(m, message, i, e);
    if (m->role != CHAT_ASSISTANT)
        return 0;
    snprintf(where, sizeof where, "messages[%zu].tool_calls", i);
    if (list && !json_is_array(list))
        return json_body_wants(e, where, "an array", list);
    m->calls = r->calls + r->n_calls;
    json_array_foreach (list, k, call) {
        snprintf(where, sizeof where, "messages[%zu].tool_calls[%zu]", i, k);
        if (read_call(r, &r->calls[r->n_calls++], call, where, e) < 0)
            return -1;
    }
    snprintf(where, sizeof where, "messages[%zu].function_call", i);
    if (legacy && (!json_is_object(legacy) ||
                   read_function(r, &r->calls[r->n_calls], legacy, where, e) < 0))
        return json_is_object(legacy)
                   ? -1
                   : api_error_field(e, "invalid_type", where, "'%s' must be an object, not %s.",
                                     where, json_body_type(legacy));
    r->n_calls += legacy != NULL;
    m->n_calls = (size_t)(r->calls + r->n_calls - m->calls);
    return 0;
}

/* ---- results ---- */

struct known_call {
    const char *id;
    size_t size, index;
};

struct known_result {
    struct chat_message message;
    size_t call, place;
};

static int by_id(const void *a, const void *b)
{
    const struct known_call *x = a, *y = b;
    int order = memcmp(x->id, y->id, x->size < y->size ? x->size : y->size);

    return order ? order : (x->size > y->size) - (x->size < y->size);
}

static int by_call(const void *a, const void *b)
{
    const struct known_result *x = a, *y = b;

    return x->call != y->call ? (x->call > y->call) - (x->call < y->call)
                              : (x->place > y->place) - (x->place < y->place);
}

struct ordering {
    struct known_call *calls;     /* [of a turn], by id */
    struct known_result *results; /* [of a run], those that answer a call */
    size_t *places;               /* where these stand, in ascending order */
};

static size_t learn_calls(struct known_call *known, const struct chat_message *m)
{
    size_t n = 0;

    for (size_t i = 0; i < m->n_calls; i++)
        if (m->calls[i].id)
            known[n++] = (struct known_call){ m->calls[i].id, m->calls[i].id_size, i };
    if (n)
        qsort(known, n, sizeof *known, by_id);
    return n;
}

/* Results that answer calls change places among themselves; the others stay where they are. */
static void order_run(struct openai_request *r, struct ordering *o, size_t caller, size_t from,
                      size_t to)
{
    size_t n_calls = learn_calls(o->calls, &r->messages[caller]), n = 0;

    for (size_t i = from; i < to; i++) {
        const struct chat_message *m = &r->messages[i];
        const struct known_call wanted = { m->call_id, m->call_id_size, 0 }, *call = NULL;
        if (m->call_id && n_calls)
            call = bsearch(&wanted, o->calls, n_calls, sizeof wanted, by_id);
        if (call) {
            o->places[n] = i;
            o->results[n++] = (struct known_result){ *m, call->index, i };
        } else if (m->call_id) {
            r->mended |= OPENAI_MENDED_RESULTS;
        }
    }
    if (n)
        qsort(o->results, n, sizeof *o->results, by_call);
    for (size_t k = 0; k < n; k++)
        r->messages[o->places[k]] = o->results[k].message;
}

static void order_runs(struct openai_request *r, struct ordering *o)
{
    size_t n = r->chat.n_messages;

    for (size_t i = 0; i < n; i++) {
        size_t to = i + 1;
        if (r->messages[i].role != CHAT_ASSISTANT || r->messages[i].n_calls == 0)
            continue;
        while (to < n && r->messages[to].role == CHAT_TOOL)
            to++;
        order_run(r, o, i, i + 1, to);
    }
}

/* A result before any call answers nothing. */
static int check_results(const struct openai_request *r, struct api_error *e)
{
    char param[64];

    for (size_t i = 0; i < r->chat.n_messages; i++) {
        if (r->messages[i].n_calls)
            return 0;
        if (r->messages[i].role != CHAT_TOOL)
            continue;
        snprintf(param, sizeof param, "messages[%zu]", i);
        return api_error_field(e, "invalid_tool_message", param,
                               "'%s' is the result of a tool, and no message before it has "
                               "'tool_calls'.", param);
    }
    return 0;
}

int openai_order_results(struct openai_request *r, struct api_error *e)
{
    struct ordering o = { 0 };
    size_t n_results = 0, bytes;
    int rc = 0;

    if (check_results(r, e) < 0)
        return -1;
    for (size_t i = 0; i < r->chat.n_messages; i++)
        n_results += r->messages[i].role == CHAT_TOOL;
    if (n_results == 0)
        return 0;
    bytes = r->n_calls * sizeof *o.calls + n_results * (sizeof *o.results + sizeof *o.places);
    if (openai_pay(r, &r->cost, bytes, "messages", e) < 0)
        return -1;
    o.calls = calloc(r->n_calls, sizeof *o.calls);
    o.results = calloc(n_results, sizeof *o.results);
    o.places = calloc(n_results, sizeof *o.places);
    if (o.calls && o.results && o.places)
        order_runs(r, &o);
    else
        rc = api_error_no_memory(e);
    free(o.calls);
    free(o.results);
    free(o.places);
    quota_give(r->quota, bytes);
    r->cost -= bytes;
    return rc;
}

const char *openai_mended_text(char buf[OPENAI_MENDED_TEXT], unsigned mended)
{
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = { { CHAT_MENDED_ARGUMENTS, "tool_call_arguments" },
                  { OPENAI_MENDED_RESULTS, "tool_call_id" },
                  { CHAT_MENDED_SYSTEM_TURN | CHAT_MENDED_LATE_SYSTEM, "system_message" } };
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (mended & names[i].bit)
            used += (size_t)snprintf(buf + used, OPENAI_MENDED_TEXT - used, "%s%s",
                                     used ? "," : "", names[i].name);
    return buf;
}
