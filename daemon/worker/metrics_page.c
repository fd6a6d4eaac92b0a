#include "daemon/worker/metrics_page.h"

#include "daemon/base/prom.h"
#include "daemon/openai/api_error.h"
#include "daemon/wire/link.h"
#include "daemon/worker/client.h"
#include "daemon/worker/exchange.h"
#include "daemon/worker/worker_state.h"
#include "util/err.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

/* The door answers in milliseconds; an engine that was stopped, or hangs, never. */
enum { PATIENCE_US = 1000000 };

struct asking {
    struct exchange_job job;
    struct exchange *x;     /* borrowed; owns us */
    sd_event_source *timer; /* owned */
};

static struct asking *asking_of(struct exchange_job *j)
{
    return (struct asking *)(void *)j;
}

/* ---- who asks ---- */

bool metrics_page_may(const struct sockaddr_storage *from)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;

    if (from->ss_family == AF_INET) {
        memcpy(&in, from, sizeof in);
        return ntohl(in.sin_addr.s_addr) >> 24 == 127;
    }
    if (from->ss_family == AF_INET6) {
        memcpy(&in6, from, sizeof in6);
        return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr) && in6.sin6_addr.s6_addr[12] == 127);
    }
    return from->ss_family == AF_UNIX;
}

static enum MHD_Result refuse(struct exchange *x)
{
    struct api_error e;

    api_error_set(&e, 403, "address_not_allowed", NULL,
                  "Metrics are shown to clients on this machine only.");
    return exchange_refuse(x, &e);
}

/* ---- the answer ---- */

static enum MHD_Result answer(struct exchange *x)
{
    x->type = "text/plain; version=0.0.4; charset=utf-8";
    return exchange_answer(x, 200);
}

/* Nothing is waited for any more. An answer that is on its way is read where x->out has it. */
static void stop(struct asking *a)
{
    link_forget_metrics(a->x->worker->link, a);
    a->timer = sd_event_source_disable_unref(a->timer);
}

static void without_engine(struct asking *a)
{
    stop(a);
    prom_service(&a->x->out, false, false);
    exchange_resume(a->x);
}

static void said(void *owner, const char *text, size_t size)
{
    struct asking *a = owner;

    if (!text) {
        without_engine(a);
        return;
    }
    stop(a);
    buf_put(&a->x->out, text, size);
    exchange_resume(a->x);
}

static int late(sd_event_source *source, uint64_t usec, void *ctx)
{
    (void)source;
    (void)usec;
    without_engine(ctx);
    return 0;
}

static enum MHD_Result resumed(struct exchange_job *j)
{
    return answer(asking_of(j)->x);
}

static void client_gone(struct exchange_job *j)
{
    stop(asking_of(j));
}

static void give_up(struct exchange_job *j)
{
    if (asking_of(j)->x->suspended)
        without_engine(asking_of(j));
}

static void close_asking(struct exchange_job *j)
{
    stop(asking_of(j));
    free(asking_of(j));
}

static const struct exchange_job_ops ops = {
    .resumed = resumed,
    .client_gone = client_gone,
    .give_up = give_up,
    .close = close_asking,
};

enum MHD_Result page_metrics(struct exchange *x)
{
    struct asking *a;
    struct api_error e;
    struct err why;

    if (!metrics_page_may(&x->client->address))
        return refuse(x);
    a = calloc(1, sizeof *a);
    if (!a)
        return MHD_NO;
    a->job.ops = &ops;
    a->x = x;
    x->job = &a->job;
    if (link_ask_metrics(x->worker->link, a, said, &why) < 0) {
        if (why.kind == ERR_BUSY) { /* that is no engine that is down */
            api_error_engine(&e, why.kind, 0, why.text);
            return exchange_refuse(x, &e);
        }
        prom_service(&x->out, false, false);
        return answer(x);
    }
    if (sd_event_add_time_relative(x->worker->loop, &a->timer, CLOCK_MONOTONIC, PATIENCE_US,
                                   10000, late, a) < 0) {
        link_forget_metrics(x->worker->link, a);
        prom_service(&x->out, false, false);
        return answer(x);
    }
    exchange_suspend(x);
    return MHD_YES;
}
