/* What changes while the engine runs: it drains, for the end or for another one, or takes other
 * limits. */
#include "daemon/host/engine_host_state.h"

#include "daemon/base/log.h"
#include "daemon/host/engine_json.h"
#include "util/err.h"
#include "util/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STOP_MS = 3000 }; /* to put down a layer and close, once nothing is to be finished */

/* ---- draining ---- */

static int on_stuck(sd_event_source *source, uint64_t usec, void *ctx)
{
    (void)source;
    (void)usec;
    (void)ctx;
    log_line(LOG_LEVEL_WARNING, "the engine did not stop in time");
    _exit(EXIT_FINE); /* it holds nothing that must be written */
}

/* Ends the engine thread; a request that still runs is told why. */
static void stop_engine(struct host *h, const char *why)
{
    static const struct cz_usage nothing;
    struct engine_order stop = { .kind = ORDER_STOP };

    if (h->stopping)
        return;
    h->stopping = true;
    for (uint32_t i = 0; i < h->requests.n; i++) {
        struct request *r = &h->requests.list[i];
        if (r->cancelled)
            continue;
        peer_fail(&h->peers[r->slot], r->peer_id, ERR_CLOSED, why, &nothing);
        if (!r->cancelled) /* sending may have lost the worker, and cancelled it */
            peers_cancel(h, r);
    }
    if (!engine_thread_order(h->engine, &stop))
        log_line(LOG_LEVEL_ERR, "an order was lost: the ring is full");
    h->deadline = sd_event_source_disable_unref(h->deadline);
    sd_event_add_time_relative(h->loop, &h->deadline, CLOCK_MONOTONIC, STOP_MS * 1000, 0, on_stuck,
                               h);
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *ctx)
{
    (void)source;
    (void)usec;
    stop_engine(ctx, "its settings were changed and it is being restarted");
    return 0;
}

/* Nobody waits for anything any more. */
void change_go_on(struct host *h)
{
    if (h->state != ENGINE_DRAINING || h->stopping)
        return;
    for (uint32_t i = 0; i < h->requests.n; i++)
        if (!h->requests.list[i].cancelled)
            return;
    stop_engine(h, "");
}

void change_drain(struct host *h, const struct wire_drain *m)
{
    if (h->state != ENGINE_DRAINING) {
        h->state = ENGINE_DRAINING;
        h->percent = 0; /* of the one to come */
        peers_hello(h);
    }
    if (m->mode == DRAIN_STOP) {
        stop_engine(h, "the server is shutting down");
        return;
    }
    h->deadline = sd_event_source_disable_unref(h->deadline);
    sd_event_add_time_relative(h->loop, &h->deadline, CLOCK_MONOTONIC,
                               (uint64_t)m->deadline_ms * 1000, 0, on_deadline, h);
    change_go_on(h);
}

/* ---- other limits ---- */

void change_adjust(struct host *h, uint64_t id, const struct wire_adjust *m)
{
    struct engine_order order = { .kind = ORDER_ADJUST, .id = id,
                                  .limits = { .queue = m->queue, .ram = m->ram,
                                              .workers = m->workers,
                                              .connections = m->connections,
                                              .http_buffer = m->buffer } };
    static const char busy[] = "the engine is being adjusted";
    char text[128];

    log_level(m->log_level);
    if (id == 0)
        return;
    if (m->queue > h->most_queue) {
        snprintf(text, sizeof text, "engine.queue beyond %u needs another engine", h->most_queue);
        host_answer(h, id, ERR_UNSUPPORTED, text, strlen(text));
    } else if (h->adjust.id || !engine_thread_order(h->engine, &order)) {
        host_answer(h, id, ERR_BUSY, busy, sizeof busy - 1);
    } else {
        h->adjust = order;
    }
}

void change_adjusted(struct host *h, const struct engine_word *word)
{
    const struct cz_plan *plan = &engine_thread_facts(h->engine)->plan;
    const char *text = word->text ? word->text : "no memory";
    char total[24], ram[24], *made = NULL;
    enum err_kind kind = word->error;

    if (kind == ERR_NONE) {
        h->queue = h->adjust.limits.queue;
        log_line(LOG_LEVEL_NOTICE, "adjusted planned=\"%s\" ram=\"%s\" expert_slots=%u queue=%u",
                 size_text(total, sizeof total, plan->total), size_text(ram, sizeof ram, plan->ram),
                 plan->expert_slots, h->queue);
        json_t *data = engine_json_adjusted(plan, h->queue);
        made = data ? json_dumps(data, JSON_COMPACT) : NULL;
        json_decref(data);
        text = made ? made : text;
        kind = made ? ERR_NONE : ERR_NOMEM;
        peers_hello(h);
    }
    host_answer(h, word->id, kind, text, strlen(text));
    free(made);
    h->adjust.id = 0;
}
