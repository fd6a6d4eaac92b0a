#include "daemon/worker/exchange.h"

#include "daemon/base/log.h"
#include "daemon/base/version.h"
#include "daemon/conf/conf.h"
#include "daemon/worker/client.h"
#include "daemon/worker/counting.h"
#include "daemon/worker/head.h"
#include "daemon/worker/listener.h"
#include "daemon/worker/routes.h"
#include "daemon/worker/worker_state.h"
#include "util/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- beginning and end ---- */

void *exchange_begin(void *cls, const char *uri, struct MHD_Connection *connection)
{
    struct listener *l = cls;
    struct client *client = client_of(connection);
    struct exchange *x = client ? calloc(1, sizeof *x) : NULL;

    (void)uri;
    if (!x)
        return NULL;
    x->listener = l;
    x->worker = l->worker;
    x->client = client;
    x->connection = connection;
    x->started_ns = clock_ns();
    x->route = "?";
    x->route_index = routes_other();
    x->method = "?";
    bare_name_request(x->request_id);
    buf_init(&x->body, &x->worker->quota);
    buf_init(&x->out, &x->worker->quota);
    client->exchange = x;
    client->n_looked -= client->n_looked > 0;
    client_wait(client, CLIENT_HEADER);
    x->worker->n_exchanges++;
    return x;
}

void exchange_completed(void *cls, struct MHD_Connection *connection, void **context,
                        enum MHD_RequestTerminationCode code)
{
    struct exchange *x = *context;

    (void)cls;
    (void)connection;
    if (!x)
        return;
    log_line(x->poll ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO,
             "request id=%s method=%s route=%s status=%d ms=%" PRIu64 "%s", x->request_id, x->method, x->route, x->status,
             (clock_ns() - x->started_ns) / 1000000,
             code == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "" : " client=gone");
    if (x->job)
        x->job->ops->close(x->job);
    counting_request(x);
    client_completed(x->client);
    if (x->worker->draining)
        client_shut(x->client);
    x->worker->n_exchanges--;
    buf_done(&x->body);
    buf_done(&x->out);
    free(x->path);
    free(x);
    *context = NULL;
}

const char *exchange_header(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

/* ---- answers ---- */

static const char exposed[] = "x-request-id, retry-after, openai-processing-ms";

static void add_headers(const struct exchange *x, struct MHD_Response *r, const char *type)
{
    char ms[24], server[48];

    snprintf(server, sizeof server, "colizig/%s", version_number());
    snprintf(ms, sizeof ms, "%" PRIu64, (clock_ns() - x->started_ns) / 1000000);
    MHD_add_response_header(r, "x-request-id", x->request_id);
    MHD_add_response_header(r, "openai-processing-ms", ms);
    MHD_add_response_header(r, "Server", server);
    if (type)
        MHD_add_response_header(r, "Content-Type", type);
    if (x->ignored && *x->ignored)
        MHD_add_response_header(r, "x-ignored-params", x->ignored);
    if (x->mended && *x->mended)
        MHD_add_response_header(r, "x-mended", x->mended);
    if (!x->origin)
        return;
    MHD_add_response_header(r, "Access-Control-Allow-Origin", x->origin);
    MHD_add_response_header(r, "Vary", "Origin");
    MHD_add_response_header(r, "Access-Control-Expose-Headers", exposed);
}

static void add_refusal_headers(struct MHD_Response *r, const struct api_error *e)
{
    char seconds[24];

    if (e->retry_after_s) {
        snprintf(seconds, sizeof seconds, "%" PRIu32, e->retry_after_s);
        MHD_add_response_header(r, "Retry-After", seconds);
    }
    if (e->hopeless)
        MHD_add_response_header(r, "x-should-retry", "false");
    if (e->allow)
        MHD_add_response_header(r, "Allow", e->allow);
    if (e->close)
        MHD_add_response_header(r, "Connection", "close");
}

static void add_preflight_headers(const struct exchange *x, struct MHD_Response *r)
{
    const char *wanted = exchange_header(x, "Access-Control-Request-Headers");

    if (!x->origin)
        return;
    MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, HEAD, OPTIONS");
    if (wanted)
        MHD_add_response_header(r, "Access-Control-Allow-Headers", wanted);
    MHD_add_response_header(r, "Access-Control-Max-Age", "86400");
    if (exchange_header(x, "Access-Control-Request-Private-Network"))
        MHD_add_response_header(r, "Access-Control-Allow-Private-Network", "true");
}

/* The next request would be read by libmicrohttpd alone. */
static bool is_last(const struct exchange *x)
{
    return x->worker->draining || !client_in_step(x->client);
}

static enum MHD_Result queue(struct exchange *x, int status, struct MHD_Response *r)
{
    enum MHD_Result rc = MHD_queue_response(x->connection, (unsigned)status, r);

    MHD_destroy_response(r);
    x->state = EXCHANGE_ANSWERED;
    x->status = status;
    return rc;
}

enum MHD_Result exchange_answer_with(struct exchange *x, int status, const struct api_error *e)
{
    if (x->out.failed)
        return MHD_NO; /* not even a short answer can be paid for */
    /* The bytes stay ours, and counted, until the request is completed. */
    struct MHD_Response *r = MHD_create_response_from_buffer(
        x->out.size, x->out.size ? x->out.data : (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    if (!r)
        return MHD_NO;
    add_headers(x, r, status == MHD_HTTP_NO_CONTENT ? NULL
                      : x->type                       ? x->type
                                                      : "application/json; charset=utf-8");
    if (e)
        add_refusal_headers(r, e);
    if (e ? !e->close && !client_in_step(x->client) : is_last(x))
        MHD_add_response_header(r, "Connection", "close");
    if (status == MHD_HTTP_NO_CONTENT)
        add_preflight_headers(x, r);
    return queue(x, status, r);
}

enum MHD_Result exchange_answer(struct exchange *x, int status)
{
    return exchange_answer_with(x, status, NULL);
}

enum MHD_Result exchange_refuse(struct exchange *x, const struct api_error *e)
{
    buf_done(&x->body); /* its bytes may pay for the answer */
    buf_done(&x->out);
    x->type = NULL;
    x->reject = counting_reject(e);
    api_error_write(&x->out, e);
    if (e->status >= 500)
        log_line(LOG_LEVEL_WARNING, "request refused: status=%d code=%s id=%s", e->status,
                 e->code ? e->code : "-", x->request_id);
    return exchange_answer_with(x, e->status, e);
}

enum MHD_Result exchange_answer_stream(struct exchange *x, MHD_ContentReaderCallback reader)
{
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, reader, x, NULL);

    if (!r)
        return MHD_NO;
    add_headers(x, r, "text/event-stream; charset=utf-8");
    MHD_add_response_header(r, "Cache-Control", "no-cache, no-transform");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");
    if (is_last(x))
        MHD_add_response_header(r, "Connection", "close");
    else
        MHD_set_response_options(r, MHD_RF_SEND_KEEP_ALIVE_HEADER, MHD_RO_END);
    return queue(x, MHD_HTTP_OK, r);
}

static void answer_bare(struct exchange *x, const struct api_error *e)
{
    buf_done(&x->body);
    if (bare_answer(x->client->fd, e, x->request_id))
        x->status = e->status;
}

static void end_body(struct exchange *x, const struct api_error *e)
{
    answer_bare(x, e);
    /* A client whose bytes nobody reads any more would probe a window of zero for minutes; the
     * reset that closing then sends ends it. What it has received stays readable. */
    setsockopt(x->client->fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
               sizeof(struct linger));
}

void exchange_body_late(struct exchange *x)
{
    struct api_error e;

    api_error_set(&e, 408, "request_timeout", NULL,
                  "The request body did not arrive within %" PRIu32 " ms.",
                  x->worker->conf->body_timeout_ms);
    end_body(x, &e);
}

void exchange_body_stuck(struct exchange *x)
{
    struct api_error e;

    api_error_set(&e, 400, "invalid_request", NULL,
                  "A line of the chunked body, a size or a trailer, is longer than this server "
                  "reads.");
    end_body(x, &e);
}

/* ---- gathering ---- */

static void refuse_later(struct exchange *x, bool close)
{
    x->refused = true;
    x->refusal.close = close;
    buf_done(&x->body);
}

static void too_large(struct exchange *x)
{
    api_error_set(&x->refusal, 413, "request_too_large", NULL,
                  "The request body is larger than this server's limit of %" PRIu64
                  " bytes (http.body).", x->worker->conf->body);
    refuse_later(x, true);
}

static void buffers_full(struct exchange *x)
{
    api_error_full(&x->refusal);
    refuse_later(x, false);
}

/* Bodies up to twice the limit are swallowed before they are refused: a client that is still
 * sending reads no answer. */
static bool worth_swallowing(const struct exchange *x, uint64_t size)
{
    return size / 2 <= x->worker->conf->body;
}

static enum MHD_Result head_came(struct exchange *x, const char *url, const char *method,
                                 const char *version)
{
    const char *length = exchange_header(x, "Content-Length");
    uint64_t size = length ? strtoull(length, NULL, 10) : 0;
    bool body = size > 0 || exchange_header(x, "Transfer-Encoding");

    x->state = EXCHANGE_BODY;
    if (!head_check(x->connection, version, &x->refusal)) {
        x->refused = true; /* where its body ends nobody knows */
        return exchange_refuse(x, &x->refusal);
    }
    routes_find(x, url, method);
    if (!x->refused && size > x->worker->conf->body)
        too_large(x);
    if (!body)
        return MHD_YES;
    if (x->refused && (!worth_swallowing(x, size) || exchange_header(x, "Expect"))) {
        x->refusal.close = true;
        return exchange_refuse(x, &x->refusal);
    }
    client_wait(x->client, CLIENT_BODY); /* a length alone reserves nothing */
    return MHD_YES;
}

static enum MHD_Result body_came(struct exchange *x, const char *data, size_t size)
{
    x->n_received += size;
    if (!x->refused && x->n_received > x->worker->conf->body)
        too_large(x);
    if (!x->refused) {
        buf_put(&x->body, data, size);
        if (x->body.failed)
            buffers_full(x);
    }
    if (x->refused && !worth_swallowing(x, x->n_received)) {
        answer_bare(x, &x->refusal);
        return MHD_NO;
    }
    return MHD_YES;
}

enum MHD_Result exchange_handle(void *cls, struct MHD_Connection *connection, const char *url,
                                const char *method, const char *version, const char *data,
                                size_t *size, void **context)
{
    struct exchange *x = *context;

    (void)cls;
    (void)connection;
    if (!x || x->gone)
        return MHD_NO;
    if (x->state == EXCHANGE_HEADER)
        return head_came(x, url, method, version);
    if (x->state == EXCHANGE_WORK)
        return x->job ? x->job->ops->resumed(x->job) : MHD_NO;
    if (*size > 0) {
        size_t n = *size;
        *size = 0;
        return body_came(x, data, n);
    }
    x->state = EXCHANGE_WORK;
    client_wait(x->client, CLIENT_BUSY);
    return x->refused ? exchange_refuse(x, &x->refusal) : x->serve(x);
}

/* ---- suspended ---- */

void exchange_client_left(struct exchange *x)
{
    log_line(LOG_LEVEL_DEBUG, "client left id=%s", x->request_id);
    client_shut(x->client);
    exchange_let_go(x);
}

void exchange_give_up(struct exchange *x)
{
    struct api_error e;

    if (x->job) {
        x->job->ops->give_up(x->job);
    } else if (x->state == EXCHANGE_HEADER || x->state == EXCHANGE_BODY) {
        api_error_draining(&e);
        answer_bare(x, &e);
        client_shut(x->client);
    }
}

void exchange_let_go(struct exchange *x)
{
    x->gone = true;
    if (x->job)
        x->job->ops->client_gone(x->job);
    exchange_resume(x);
}

void exchange_suspend(struct exchange *x)
{
    if (x->suspended)
        return;
    x->suspended = true;
    MHD_suspend_connection(x->connection);
    client_watch(x->client, true);
}

void exchange_resume(struct exchange *x)
{
    if (!x->suspended)
        return;
    x->suspended = false;
    client_watch(x->client, false); /* before libmicrohttpd may close the socket */
    MHD_resume_connection(x->connection);
}
