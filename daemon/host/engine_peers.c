/* Workers: their channels, their requests, and what they are told. */
#include "daemon/host/engine_host_state.h"

#include "daemon/base/buf.h"
#include "daemon/base/log.h"
#include "daemon/wire/channel.h"
#include "util/clock.h"
#include "util/err.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* About 100,000 tokens that a worker left unread, or 20,000 with logprobs: it hangs. */
enum { WORKER_OUTBOX = 4 << 20 };

/* ---- workers come and go ---- */

void peers_cancel(struct host *h, struct request *r)
{
    struct engine_order order = { .kind = ORDER_CANCEL, .id = r->id };

    r->cancelled = true;
    /* There is room: each entry of the list has one SUBMIT and one CANCEL under way at most. */
    if (!engine_thread_order(h->engine, &order))
        log_line(LOG_LEVEL_ERR, "an order was lost: the ring is full");
}

/* Once for the choice that is under way. Should the ring be full, the choice goes on to its end. */
static void next_choice(struct host *h, struct request *r, uint32_t choice)
{
    struct engine_order order = { .kind = ORDER_NEXT, .id = r->id, .choice = choice };

    if (choice == r->choice && !r->next)
        r->next = engine_thread_order(h->engine, &order);
}

/* Nobody is left who could tell how these ended. */
static void cancel_peer(struct host *h, uint32_t slot)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < h->requests.n; i++) {
        struct request *r = &h->requests.list[i];
        if (r->slot != slot || r->cancelled)
            continue;
        peers_cancel(h, r);
        n++;
    }
    metrics_lost(&h->metrics, n);
}

static void lose_peer(struct peer *p)
{
    channel_close(p->channel);
    p->channel = NULL;
    recall_forget(p);
    cancel_peer(p->host, p->slot);
}

/* A worker that talks nonsense or does not read loses its requests, and the supervisor is told. */
static void peer_drop(struct peer *p, const char *why)
{
    struct host *h = p->host;
    struct wire_peer m = { .slot = p->slot, .generation = p->generation };
    const struct channel_part part = { &m, sizeof m };

    log_line(LOG_LEVEL_ERR, "worker %u is given up: %s", p->slot, why);
    lose_peer(p);
    channel_send(h->supervisor, WIRE_LOST, 0, &part, 1, -1, NULL);
}

/* ---- to workers ---- */

void peer_send(struct peer *p, uint16_t type, uint64_t id, const struct channel_part *parts,
                      size_t n_parts)
{
    struct err why;

    if (p->channel && channel_send(p->channel, type, id, parts, n_parts, -1, &why) < 0)
        peer_drop(p, why.text);
}

static void send_hello(struct peer *p)
{
    struct host *h = p->host;
    struct wire_hello m = { .state = h->state, .percent = h->percent,
                            .max_queue = h->queue, .running = h->running,
                            .waiting = h->waiting };
    const struct channel_part part = { &m, sizeof m };

    m.secret = h->secret;
    m.reply_most = h->recall.largest;
    memcpy(m.fault, h->fault, sizeof m.fault);
    if (h->answers.loaded) {
        const struct engine_facts *f = engine_thread_facts(h->engine);
        m.vocab = f->facts.vocab;
        m.context = f->facts.context;
        m.n_stop_ids = f->facts.n_stop_ids;
        memcpy(m.stop_ids, f->facts.stop_ids, sizeof m.stop_ids);
        m.defaults = f->facts.defaults;
        m.fingerprint = f->facts.fingerprint;
        m.tokenizer = f->facts.tokenizer;
        m.n_params = f->info.n_params;
        m.weight_bytes = f->info.total;
        m.created = f->created;
        m.prefill_ns_per_token = h->row_ns;
        m.decode_ns_per_token = h->token_ns;
    }
    peer_send(p, WIRE_HELLO, 0, &part, 1);
}

void peers_hello(struct host *h)
{
    for (size_t i = 0; i < N_PEERS; i++)
        if (h->peers[i].channel)
            send_hello(&h->peers[i]);
}

void peer_refuse(struct peer *p, uint64_t peer_id, enum err_kind kind,
                         uint32_t retry_after_s, const char *text)
{
    struct wire_refused m = { .kind = kind, .retry_after_s = retry_after_s,
                              .text_size = (uint32_t)strlen(text) };
    const struct channel_part parts[] = { { &m, sizeof m }, { text, m.text_size } };

    peer_send(p, WIRE_REFUSED, peer_id, parts, 2);
}

void peer_fail(struct peer *p, uint64_t peer_id, enum err_kind kind, const char *text,
                        const struct cz_usage *usage)
{
    struct wire_failed m = { .kind = kind, .usage = *usage, .text_size = (uint32_t)strlen(text) };
    const struct channel_part parts[] = { { &m, sizeof m }, { text, m.text_size } };

    peer_send(p, WIRE_FAILED, peer_id, parts, 2);
}

/* ---- from workers ---- */

static void take_submit(struct peer *p, uint64_t peer_id, const void *body, size_t size)
{
    struct host *h = p->host;
    struct engine_order order = { .kind = ORDER_SUBMIT };
    const struct wire_submit *m = body;

    if (h->state != ENGINE_READY) {
        peer_refuse(p, peer_id, ERR_BUSY, 1,
                     h->state == ENGINE_LOADING  ? "the model is loading"
                     : h->state == ENGINE_FAILED ? h->fault
                                                 : "the engine is stopping");
        return;
    }
    /* The engine would say so too, but only once the layer under way has ended, and until then
     * every request waits in memory that no plan has a line for. */
    if (m->n_prompt >= engine_thread_facts(h->engine)->facts.context) {
        peer_refuse(p, peer_id, ERR_TOO_LONG, 0, "the prompt leaves no room in the context");
        return;
    }
    struct request *r = requests_add(&h->requests, p->slot, peer_id);
    if (!r) {
        peer_refuse(p, peer_id, ERR_BUSY, 1, "too many requests at once");
        return;
    }
    memcpy(r->name, m->request, sizeof r->name);
    memcpy(r->address, m->address, sizeof r->address);
    r->n_prompt = m->n_prompt;
    r->came_ms = clock_ms();
    order.id = r->id;
    order.submit = malloc(size);
    if (order.submit) {
        memcpy(order.submit, body, size);
        if (engine_thread_order(h->engine, &order))
            return;
    }
    free(order.submit);
    requests_remove(&h->requests, r);
    peer_refuse(p, peer_id, ERR_NOMEM, 1, "no memory for the request");
}

static void send_metrics(struct peer *p, uint64_t peer_id)
{
    struct host *h = p->host;
    struct cz_stats stats;
    struct metrics_view view = { .model = h->conf->model_name, .loaded = h->answers.loaded,
                                 .serving = h->state == ENGINE_READY, .stats = &stats,
                                 .recall = &h->recall };
    struct wire_text m = { 0 };
    struct buf text;

    engine_thread_stats(h->engine, &stats);
    if (view.loaded)
        view.facts = engine_thread_facts(h->engine);
    buf_init(&text, NULL);
    metrics_write(&text, &h->metrics, &view);
    m.size = text.failed ? 0 : (uint32_t)text.size;
    const struct channel_part parts[] = { { &m, sizeof m }, { text.data, m.size } };
    peer_send(p, WIRE_METRICS_TEXT, peer_id, parts, m.size ? 2 : 1);
    buf_done(&text);
}

static void on_peer_frame(void *ctx, const struct wire_head *head, const void *body, size_t size,
                          int fd)
{
    struct peer *p = ctx;
    struct request *r;

    if (fd >= 0)
        close(fd);
    switch (head->type) {
    case WIRE_SUBMIT:
        if (head->id == 0 || requests_find_peer(&p->host->requests, p->slot, head->id))
            peer_drop(p, "it used a request's number twice");
        else
            take_submit(p, head->id, body, size);
        break;
    case WIRE_CANCEL:
        r = requests_find_peer(&p->host->requests, p->slot, head->id);
        if (r)
            peers_cancel(p->host, r);
        break;
    case WIRE_NEXT:
        r = requests_find_peer(&p->host->requests, p->slot, head->id);
        if (r)
            next_choice(p->host, r, ((const struct wire_next *)body)->choice);
        break;
    case WIRE_COUNT:
        metrics_count(&p->host->metrics, body);
        break;
    case WIRE_METRICS:
        send_metrics(p, head->id);
        break;
    case WIRE_REMEMBER:
        recall_remember(p->host, body, size);
        break;
    case WIRE_RECALL:
        recall_ask(p, head->id, body, size);
        break;
    default:
        peer_drop(p, "it sent a message that workers do not send");
    }
}

static void on_peer_closed(void *ctx, const struct err *why)
{
    struct peer *p = ctx;

    if (why->kind != ERR_CLOSED) {
        peer_drop(p, why->text);
        return;
    }
    log_line(LOG_LEVEL_INFO, "worker %u is gone", p->slot);
    lose_peer(p);
}

void peers_take(struct host *h, const struct wire_peer *m, int fd)
{
    struct err why;

    if (m->slot >= N_PEERS) {
        close(fd);
        return;
    }
    struct peer *p = &h->peers[m->slot];
    if (p->channel)
        lose_peer(p);
    p->generation = m->generation;
    struct channel_events events = { .ctx = p, .frame = on_peer_frame, .closed = on_peer_closed };
    if (channel_open(&p->channel, h->loop, fd, WORKER_OUTBOX, &events, &why) < 0) {
        log_line(LOG_LEVEL_ERR, "worker %u cannot be heard: %s", m->slot, why.text);
        return;
    }
    send_hello(p);
}

void peers_fail(struct host *h, enum err_kind kind, const char *text)
{
    static const struct cz_usage nothing;

    for (uint32_t i = 0; i < h->requests.n; i++) {
        const struct request *r = &h->requests.list[i];
        if (!r->cancelled)
            peer_fail(&h->peers[r->slot], r->peer_id, kind, text, &nothing);
    }
    for (size_t i = 0; i < N_PEERS; i++)
        if (h->peers[i].channel)
            channel_flush(h->peers[i].channel, 200, NULL);
}
