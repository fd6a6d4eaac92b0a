#include "daemon/worker/pages.h"

#include "daemon/base/version.h"
#include "daemon/conf/conf.h"
#include "daemon/wire/link.h"
#include "daemon/worker/exchange.h"
#include "daemon/worker/worker_state.h"

#include <inttypes.h>
#include <string.h>

static enum MHD_Result page(struct exchange *x, const char *text)
{
    buf_text(&x->out, text);
    return exchange_answer(x, 200);
}

static enum MHD_Result not_now(struct exchange *x, uint32_t retry_after_s)
{
    /* The body is a state, not an error object, so the header is all a refusal adds. */
    struct api_error e = { .status = 503, .retry_after_s = retry_after_s };

    return exchange_answer_with(x, 503, &e);
}

enum MHD_Result page_root(struct exchange *x)
{
    buf_printf(&x->out, "{\"service\":\"colizig\",\"version\":\"%s\",\"status\":\"ok\","
               "\"docs\":\"/v1/models\"}", version_number());
    return exchange_answer(x, 200);
}

enum MHD_Result page_version(struct exchange *x)
{
    buf_printf(&x->out, "{\"version\":\"%s\",\"commit\":\"%s\"}", version_number(),
               version_commit());
    return exchange_answer(x, 200);
}

enum MHD_Result page_live(struct exchange *x)
{
    return page(x, "{\"status\":\"ok\"}");
}

enum MHD_Result page_ready(struct exchange *x)
{
    const struct wire_hello *hello = &link_status(x->worker->link)->hello;

    switch (worker_engine(x->worker)) {
    case WORKER_READY:
        return page(x, "{\"status\":\"ready\"}");
    case WORKER_LOADING:
        buf_printf(&x->out, "{\"status\":\"loading\",\"progress\":%" PRIu32 ".%02" PRIu32 "}",
                   hello->percent / 100, hello->percent % 100);
        return not_now(x, 2);
    case WORKER_DRAINING:
        buf_text(&x->out, "{\"status\":\"draining\"}");
        return not_now(x, 10);
    default:
        buf_text(&x->out, "{\"status\":\"failed\"}");
        return not_now(x, 5);
    }
}

static enum MHD_Result unhealthy(struct exchange *x, const char *status, const char *message,
                                 const char *code)
{
    buf_printf(&x->out, "{\"status\":\"%s\",\"error\":{\"message\":", status);
    buf_json_text(&x->out, message);
    buf_printf(&x->out, ",\"type\":\"unavailable_error\",\"param\":null,\"code\":\"%s\"}}", code);
    return not_now(x, 5);
}

enum MHD_Result page_health(struct exchange *x)
{
    switch (worker_engine(x->worker)) {
    case WORKER_READY:
        return page(x, "{\"status\":\"ok\"}");
    case WORKER_LOADING:
        return unhealthy(x, "loading", "Loading model", "model_loading");
    case WORKER_DRAINING:
        return unhealthy(x, "draining", "Shutting down", "draining");
    case WORKER_CHANGED:
        return unhealthy(x, "failed", link_status(x->worker->link)->hello.fault, "engine_error");
    case WORKER_ESTRANGED:
        return unhealthy(x, "failed", "tokenizer.json changed since the engine loaded; reload",
                         "engine_error");
    default:
        return unhealthy(x, "failed", "The engine is not running", "engine_unavailable");
    }
}

/* ---- models ---- */

static void put_model(struct exchange *x)
{
    struct buf *to = &x->out;
    const struct conf *conf = x->worker->conf;
    const struct wire_hello *h = &link_status(x->worker->link)->hello;

    buf_text(to, "{\"id\":");
    buf_json_text(to, conf->model_name);
    buf_printf(to, ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"colizig\"",
               h->created);
    if (h->context)
        buf_printf(to, ",\"max_model_len\":%" PRIu32 ",\"context_length\":%" PRIu32, h->context,
                   h->context);
    buf_printf(to, ",\"architecture\":{\"input_modalities\":[\"text\"],"
               "\"output_modalities\":[\"text\"]},\"capabilities\":[\"completion\"],"
               "\"status\":{\"value\":\"%s\"}",
               worker_engine(x->worker) == WORKER_READY ? "loaded" : "loading");
    if (h->context)
        buf_printf(to, ",\"meta\":{\"n_ctx\":%" PRIu32 ",\"n_vocab\":%" PRIu32
                   ",\"n_params\":%" PRIu64 ",\"size\":%" PRIu64 "}",
                   h->context, h->vocab, h->n_params, h->weight_bytes);
    buf_text(to, "}");
}

enum MHD_Result page_models(struct exchange *x)
{
    buf_text(&x->out, "{\"object\":\"list\",\"data\":[");
    put_model(x);
    buf_text(&x->out, "]}");
    return exchange_answer(x, 200);
}

enum MHD_Result page_model(struct exchange *x)
{
    const struct conf *conf = x->worker->conf;
    const char *id = x->path + strlen("/models/");
    bool known = strcmp(id, conf->model_name) == 0;
    struct api_error e;

    for (uint32_t i = 0; i < conf->n_aliases; i++)
        known |= strcmp(id, conf->aliases[i]) == 0;
    if (!known) {
        api_error_set(&e, 404, "model_not_found", "model",
                      "The model '%.100s' does not exist; this server has '%.100s'.", id,
                      conf->model_name);
        return exchange_refuse(x, &e);
    }
    put_model(x);
    return exchange_answer(x, 200);
}

/* ---- the server itself ---- */

/* llama-server's names. Where the model lies, and on what, is nobody's business. */
enum MHD_Result page_props(struct exchange *x)
{
    const struct conf *conf = x->worker->conf;
    const struct wire_hello *h = &link_status(x->worker->link)->hello;
    const struct cz_sampling *d = &h->defaults;
    struct buf *to = &x->out;

    if (h->context == 0) {
        struct api_error e;
        api_error_loading(&e);
        return exchange_refuse(x, &e);
    }
    buf_printf(to, "{\"default_generation_settings\":{\"n_ctx\":%" PRIu32 ",\"params\":{"
               "\"temperature\":%g,\"top_k\":%" PRIu32 ",\"top_p\":%g,\"min_p\":%g,",
               h->context, (double)d->temperature, d->top_k, (double)d->top_p, (double)d->min_p);
    buf_printf(to, "\"repeat_penalty\":%g,\"presence_penalty\":%g,\"frequency_penalty\":%g}},",
               (double)d->repetition_penalty, (double)d->presence_penalty,
               (double)d->frequency_penalty);
    buf_printf(to, "\"total_slots\":%" PRIu32 ",\"model_alias\":", conf->engine.sequences);
    buf_json_text(to, conf->model_name);
    buf_printf(to, ",\"modalities\":{\"vision\":false,\"audio\":false},\"build_info\":\"%s\"}",
               version_number());
    return exchange_answer(x, 200);
}

/* How busy the server is, and nothing of whose requests these are: colizigctl lists them. */
enum MHD_Result page_slots(struct exchange *x)
{
    const struct wire_hello *h = &link_status(x->worker->link)->hello;
    uint32_t running = link_status(x->worker->link)->connected ? h->running : 0;

    buf_text(&x->out, "[");
    for (uint32_t i = 0; i < x->worker->conf->engine.sequences; i++)
        buf_printf(&x->out, "%s{\"id\":%" PRIu32 ",\"n_ctx\":%" PRIu32 ",\"is_processing\":%s}",
                   i ? "," : "", i, h->context, i < running ? "true" : "false");
    buf_text(&x->out, "]");
    return exchange_answer(x, 200);
}

/* ---- the rest ---- */

enum MHD_Result page_options(struct exchange *x)
{
    return exchange_answer(x, 204);
}

enum MHD_Result page_unsupported(struct exchange *x)
{
    struct api_error e;

    /* The model is not at fault, nor is any other field: no param. */
    api_error_set(&e, 400, "unsupported_operation", NULL,
                  "This server runs a text-generation model; %s are not available.",
                  strcmp(x->path, "/embeddings") == 0 ? "embeddings" : "such requests");
    return exchange_refuse(x, &e);
}

enum MHD_Result page_responses(struct exchange *x)
{
    struct api_error e;

    api_error_set(&e, 404, "unsupported_operation", NULL,
                  "The Responses API is not built; send messages to /v1/chat/completions.");
    return exchange_refuse(x, &e);
}
