#include "daemon/engine_host.h"

#include "daemon/channel.h"
#include "daemon/conf.h"
#include "daemon/engine_answers.h"
#include "daemon/engine_json.h"
#include "daemon/engine_thread.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/requests.h"
#include "daemon/sandbox.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    /* About 100,000 tokens that a worker left unread: it hangs. */
    WORKER_OUTBOX = 4 << 20,
    SUPERVISOR_OUTBOX = 8 << 20, /* an answer has at most 4 MiB */
    /* Requests that the door lets in beyond what the engine takes: it answers them with BUSY
     * itself, but cancelled ones hold their place until the engine has seen the order. */
    SLACK = 256,
    LIVE_QUEUE = 1024, /* engine.queue can be raised so far without a restart */
    STOP_MS = 3000, /* to put down a layer and close, once nothing is to be finished */
    PULSE_US = 1000000,
    N_PEERS = CONF_MAX_WORKERS + 1, /* one more while workers are replaced */
};

struct host;

struct peer {
    struct host *host;
    struct channel *channel; /* NULL: nobody is there */
    uint32_t slot, generation;
};

struct host {
    const struct conf *conf;
    sd_event *loop;
    struct channel *supervisor;
    struct engine_thread *engine;
    sd_event_source *words, *pulse, *deadline;
    struct peer peers[N_PEERS];
    struct requests requests;
    bool places_moved, placing; /* the queue's order changed; the engine is asked for it */
    enum wire_engine_state state;
    bool short_of_memory; /* and the journal was told */
    struct engine_answers answers; /* loaded: the engine thread's facts may be read */
    bool stopping; /* the engine thread was told to end */
    uint32_t percent;
    uint32_t running, waiting; /* as workers were told */
    struct metrics metrics;
    uint32_t queue, most_queue; /* engine.queue as it is now, and what the door is made for */
    struct engine_order adjust; /* under way in the engine; id 0: none */
    int status; /* of the process */
    struct sandbox sandbox;
    char fault[200]; /* with ENGINE_FAILED: why */
};

/* ---- to the supervisor ---- */

static void send_status(struct host *h, const char *text)
{
    struct wire_text m = { .size = (uint32_t)strlen(text) };
    const struct channel_part parts[] = { { &m, sizeof m }, { text, m.size } };
    struct err why;

    if (channel_send(h->supervisor, WIRE_STATUS, 0, parts, 2, -1, &why) < 0)
        log_line(LOG_LEVEL_WARNING, "supervisor was not told: %s", why.text);
}

static void leave(struct host *h, int status)
{
    h->status = status;
    sd_event_exit(h->loop, 0);
}

static void hello_all(struct host *h);

/* It answers, but nothing it could say would be true. */
static void say_changed(struct host *h, const char *text)
{
    if (h->state != ENGINE_READY)
        return;
    h->state = ENGINE_FAILED;
    snprintf(h->fault, sizeof h->fault, "%s", text ? text : "the model's files changed");
    log_line(LOG_LEVEL_ERR, "every request fails from now on: %s", h->fault);
    send_status(h, "failed: the model's files changed; restart to load them");
    hello_all(h);
}

static void send_pulse(struct host *h, const struct cz_stats *stats)
{
    struct wire_pulse m = { .layers = stats->layers, .reads = engine_thread_reads(h->engine),
                            .running = stats->running, .waiting = stats->waiting,
                            .state = h->state };
    const struct channel_part part = { &m, sizeof m };

    if (h->answers.loaded) {
        m.planned = engine_thread_facts(h->engine)->plan.total;
        m.ram = engine_thread_facts(h->engine)->plan.ram;
    }
    channel_send(h->supervisor, WIRE_PULSE, 0, &part, 1, -1, NULL);
}

/* The engine gives slots back and takes them again by itself; whoever reads the journal should
 * know why it was slower meanwhile. */
static void note_pressure(struct host *h, const struct cz_stats *stats)
{
    char room[24];

    if ((stats->pressure != CZ_PRESSURE_NONE) == h->short_of_memory)
        return;
    h->short_of_memory = stats->pressure != CZ_PRESSURE_NONE;
    if (h->short_of_memory)
        log_line(LOG_LEVEL_WARNING, "memory is short: expert slots are given back reason=%s "
                                    "slots=%u planned=%u room=\"%s\"",
                 cz_pressure_name(stats->pressure), stats->expert_slots,
                 stats->expert_slots_planned, size_text(room, sizeof room, stats->room_bytes));
    else
        log_line(LOG_LEVEL_NOTICE, "memory is there again: slots=%u given_back=%" PRIu64,
                 stats->expert_slots, stats->slots_given_back);
}

static int on_pulse(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct host *h = ctx;
    struct cz_stats stats;

    (void)usec;
    engine_thread_stats(h->engine, &stats);
    send_pulse(h, &stats);
    note_pressure(h, &stats);
    if (stats.running != h->running || stats.waiting != h->waiting) {
        h->running = stats.running;
        h->waiting = stats.waiting;
        hello_all(h);
    }
    sd_event_source_set_time_relative(source, PULSE_US);
    return 0;
}

/* ---- workers come and go ---- */

static void cancel(struct host *h, struct request *r)
{
    struct engine_order order = { .kind = ORDER_CANCEL, .id = r->id };

    r->cancelled = true;
    /* There is room: each entry of the list has one SUBMIT and one CANCEL under way at most. */
    if (!engine_thread_order(h->engine, &order))
        log_line(LOG_LEVEL_ERR, "an order was lost: the ring is full");
}

/* Nobody is left who could tell how these ended. */
static void cancel_peer(struct host *h, uint32_t slot)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < h->requests.n; i++) {
        struct request *r = &h->requests.list[i];
        if (r->slot != slot || r->cancelled)
            continue;
        cancel(h, r);
        n++;
    }
    metrics_lost(&h->metrics, n);
}

static void lose_peer(struct peer *p)
{
    channel_close(p->channel);
    p->channel = NULL;
    cancel_peer(p->host, p->slot);
}

/* A worker that talks nonsense or does not read loses its requests, and the supervisor is told. */
static void drop_peer(struct peer *p, const char *why)
{
    struct host *h = p->host;
    struct wire_peer m = { .slot = p->slot, .generation = p->generation };
    const struct channel_part part = { &m, sizeof m };

    log_line(LOG_LEVEL_ERR, "worker %u is given up: %s", p->slot, why);
    lose_peer(p);
    channel_send(h->supervisor, WIRE_LOST, 0, &part, 1, -1, NULL);
}

/* ---- to workers ---- */

static void send_peer(struct peer *p, uint16_t type, uint64_t id, const struct channel_part *parts,
                      size_t n_parts)
{
    struct err why;

    if (p->channel && channel_send(p->channel, type, id, parts, n_parts, -1, &why) < 0)
        drop_peer(p, why.text);
}

static void send_hello(struct peer *p)
{
    struct host *h = p->host;
    struct wire_hello m = { .state = h->state, .percent = h->percent,
                            .max_queue = h->queue, .running = h->running,
                            .waiting = h->waiting };
    const struct channel_part part = { &m, sizeof m };

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
    }
    send_peer(p, WIRE_HELLO, 0, &part, 1);
}

static void hello_all(struct host *h)
{
    for (size_t i = 0; i < N_PEERS; i++)
        if (h->peers[i].channel)
            send_hello(&h->peers[i]);
}

static void send_refused(struct peer *p, uint64_t peer_id, enum err_kind kind,
                         uint32_t retry_after_s, const char *text)
{
    struct wire_refused m = { .kind = kind, .retry_after_s = retry_after_s,
                              .text_size = (uint32_t)strlen(text) };
    const struct channel_part parts[] = { { &m, sizeof m }, { text, m.text_size } };

    send_peer(p, WIRE_REFUSED, peer_id, parts, 2);
}

static void send_failed(struct peer *p, uint64_t peer_id, enum err_kind kind, const char *text,
                        const struct cz_usage *usage)
{
    struct wire_failed m = { .kind = kind, .usage = *usage, .text_size = (uint32_t)strlen(text) };
    const struct channel_part parts[] = { { &m, sizeof m }, { text, m.text_size } };

    send_peer(p, WIRE_FAILED, peer_id, parts, 2);
}

/* ---- from workers ---- */

static void take_submit(struct peer *p, uint64_t peer_id, const void *body, size_t size)
{
    struct host *h = p->host;
    struct engine_order order = { .kind = ORDER_SUBMIT };
    const struct wire_submit *m = body;

    if (h->state != ENGINE_READY) {
        send_refused(p, peer_id, ERR_BUSY, 1,
                     h->state == ENGINE_LOADING  ? "the model is loading"
                     : h->state == ENGINE_FAILED ? h->fault
                                                 : "the engine is stopping");
        return;
    }
    struct request *r = requests_add(&h->requests, p->slot, peer_id);
    if (!r) {
        send_refused(p, peer_id, ERR_BUSY, 1, "too many requests at once");
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
    send_refused(p, peer_id, ERR_NOMEM, 1, "no memory for the request");
}

static void send_metrics(struct peer *p, uint64_t peer_id)
{
    struct host *h = p->host;
    struct cz_stats stats;
    struct metrics_view view = { .model = h->conf->model_name, .loaded = h->answers.loaded,
                                 .serving = h->state == ENGINE_READY, .stats = &stats };
    struct wire_text m = { 0 };
    struct buf text;

    engine_thread_stats(h->engine, &stats);
    if (view.loaded)
        view.facts = engine_thread_facts(h->engine);
    buf_init(&text, NULL);
    metrics_write(&text, &h->metrics, &view);
    m.size = text.failed ? 0 : (uint32_t)text.size;
    const struct channel_part parts[] = { { &m, sizeof m }, { text.data, m.size } };
    send_peer(p, WIRE_METRICS_TEXT, peer_id, parts, m.size ? 2 : 1);
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
            drop_peer(p, "it used a request's number twice");
        else
            take_submit(p, head->id, body, size);
        break;
    case WIRE_CANCEL:
        r = requests_find_peer(&p->host->requests, p->slot, head->id);
        if (r)
            cancel(p->host, r);
        break;
    case WIRE_COUNT:
        metrics_count(&p->host->metrics, body);
        break;
    case WIRE_METRICS:
        send_metrics(p, head->id);
        break;
    default:
        drop_peer(p, "it sent a message that workers do not send");
    }
}

static void on_peer_closed(void *ctx, const struct err *why)
{
    struct peer *p = ctx;

    if (why->kind != ERR_CLOSED) {
        drop_peer(p, why->text);
        return;
    }
    log_line(LOG_LEVEL_INFO, "worker %u is gone", p->slot);
    lose_peer(p);
}

static void take_peer(struct host *h, const struct wire_peer *m, int fd)
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

/* ---- from the engine ---- */

static void say_loading(struct host *h, uint32_t percent)
{
    char text[64];

    h->percent = percent;
    snprintf(text, sizeof text, "loading the model, %u %%", percent);
    send_status(h, text);
    hello_all(h);
}

static void say_ready(struct host *h)
{
    const struct engine_facts *f = engine_thread_facts(h->engine);
    struct cz_stats stats;
    char total[24], ram[24];

    h->answers.loaded = true;
    if (h->state == ENGINE_LOADING)
        h->state = ENGINE_READY;
    h->percent = 100;
    log_line(LOG_LEVEL_NOTICE,
             "model is loaded name=%s planned=\"%s\" ram=\"%s\" context=%u sequences=%u "
             "expert_slots=%u threads=%u",
             h->conf->model_name, size_text(total, sizeof total, f->plan.total),
             size_text(ram, sizeof ram, f->plan.ram), f->facts.context, f->plan.sequences,
             f->plan.expert_slots, f->plan.threads);
    for (uint32_t i = 0; i < f->info.n_warnings; i++)
        log_line(LOG_LEVEL_WARNING, "config.json: %s", f->info.warnings[i]);
    hello_all(h);
    engine_thread_stats(h->engine, &stats);
    send_pulse(h, &stats); /* the plan is known with the first READY */
    struct wire_ready ready = { .landlock = (uint32_t)h->sandbox.landlock,
                                .seccomp = h->sandbox.seccomp };
    const struct channel_part part = { &ready, sizeof ready };
    channel_send(h->supervisor, WIRE_READY, 0, &part, 1, -1, NULL);
    send_status(h, "serving");
}

static void fail_all(struct host *h, enum err_kind kind, const char *text)
{
    static const struct cz_usage nothing;

    for (uint32_t i = 0; i < h->requests.n; i++) {
        const struct request *r = &h->requests.list[i];
        if (!r->cancelled)
            send_failed(&h->peers[r->slot], r->peer_id, kind, text, &nothing);
    }
    for (size_t i = 0; i < N_PEERS; i++)
        if (h->peers[i].channel)
            channel_flush(h->peers[i].channel, 200, NULL);
}

static void say_broken(struct host *h, const struct engine_word *word)
{
    const char *text = word->text ? word->text : "the engine failed";
    bool opened = h->state != ENGINE_LOADING;

    log_line(LOG_LEVEL_ERR, "%s: %s", opened ? "engine failed" : "cannot open the model", text);
    fail_all(h, word->error, text);
    send_status(h, text);
    leave(h, opened ? EXIT_FAILED : (int)err_exit_status(word->error));
}

/* Whose turn it is changes when others come and go. The answer comes between two layers; until
 * then the list of requests shows the last one. */
static void ask_places(struct host *h)
{
    struct engine_order order = { .kind = ORDER_PLACES };

    if (h->placing || !h->places_moved)
        return;
    h->places_moved = false;
    order.places = requests_waiting(&h->requests);
    h->placing = order.places && engine_thread_order(h->engine, &order);
    if (!h->placing)
        free(order.places);
}

static void take_places(struct host *h, const struct engine_word *word)
{
    h->placing = false;
    requests_place(&h->requests, word->places);
}
static void finish_drain(struct host *h);

/* Words about one request. */
static void answer(struct host *h, const struct engine_word *word)
{
    struct request *r = requests_find(&h->requests, word->id);

    if (!r)
        return; /* GONE after the last word */
    requests_note(r, word);
    struct request it = *r;
    struct peer *p = &h->peers[it.slot];
    bool last = word->kind != WORD_ACCEPTED && word->kind != WORD_PROGRESS &&
                word->kind != WORD_TOKEN;
    h->places_moved |= word->kind == WORD_ACCEPTED || last;
    /* The entry of a cancelled request waits for GONE, which frees its CANCEL's place in the
     * ring of orders. */
    if (it.cancelled ? word->kind == WORD_GONE : last)
        requests_remove(&h->requests, r);
    if (it.cancelled) {
        finish_drain(h);
        return;
    }

    struct wire_accepted accepted = { .place = word->place };
    struct wire_progress progress = { .n_done = word->n_done, .n_total = word->n_total };
    struct wire_tokens tokens = { .n = 1 };
    struct wire_finished finished = { .reason = word->finish, .usage = word->usage };
    const char *text = word->text ? word->text : "out of memory";

    switch (word->kind) {
    case WORD_ACCEPTED:
        send_peer(p, WIRE_ACCEPTED, it.peer_id,
                  &(struct channel_part){ &accepted, sizeof accepted }, 1);
        break;
    case WORD_REFUSED:
        send_refused(p, it.peer_id, word->error, word->retry_after_s, text);
        break;
    case WORD_PROGRESS:
        send_peer(p, WIRE_PROGRESS, it.peer_id,
                  &(struct channel_part){ &progress, sizeof progress }, 1);
        break;
    case WORD_TOKEN:
        send_peer(p, WIRE_TOKENS, it.peer_id,
                  (struct channel_part[]){ { &tokens, sizeof tokens },
                                           { &word->token, sizeof word->token } },
                  2);
        break;
    case WORD_FINISHED:
        send_peer(p, WIRE_FINISHED, it.peer_id,
                  &(struct channel_part){ &finished, sizeof finished }, 1);
        break;
    case WORD_FAILED:
        log_line(LOG_LEVEL_WARNING, "request failed: %s worker=%u", text, it.slot);
        send_failed(p, it.peer_id, word->error, text, &word->usage);
        break;
    default:
        break;
    }
    if (last)
        finish_drain(h);
}

static void say_adjusted(struct host *h, const struct engine_word *word);

static int on_words(sd_event_source *source, int fd, uint32_t ready, void *ctx)
{
    struct host *h = ctx;
    struct engine_word word;

    (void)source;
    (void)fd;
    (void)ready;
    engine_thread_drain_fd(h->engine);
    while (engine_thread_word(h->engine, &word)) {
        switch (word.kind) {
        case WORD_LOADING:
            say_loading(h, word.percent);
            break;
        case WORD_READY:
            if (h->state == ENGINE_LOADING)
                say_ready(h);
            break;
        case WORD_CHANGED:
            say_changed(h, word.text);
            break;
        case WORD_BROKEN:
            say_broken(h, &word);
            break;
        case WORD_ADJUSTED:
            say_adjusted(h, &word);
            break;
        case WORD_STOPPED:
            leave(h, h->state == ENGINE_DRAINING ? EXIT_FINE : EXIT_FAILED);
            break;
        case WORD_LOOKED:
            engine_answers_looked(&h->answers, &word);
            break;
        case WORD_PLACED:
            take_places(h, &word);
            break;
        default:
            answer(h, &word);
        }
        free(word.text);
        free(word.look);
        free(word.places);
    }
    ask_places(h);
    return 0;
}

/* ---- from the supervisor ---- */

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
        send_failed(&h->peers[r->slot], r->peer_id, ERR_CLOSED, why, &nothing);
        if (!r->cancelled) /* sending may have lost the worker, and cancelled it */
            cancel(h, r);
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
static void finish_drain(struct host *h)
{
    if (h->state != ENGINE_DRAINING || h->stopping)
        return;
    for (uint32_t i = 0; i < h->requests.n; i++)
        if (!h->requests.list[i].cancelled)
            return;
    stop_engine(h, "");
}

static void drain(struct host *h, const struct wire_drain *m)
{
    if (h->state != ENGINE_DRAINING) {
        h->state = ENGINE_DRAINING;
        h->percent = 0; /* of the one to come */
        hello_all(h);
    }
    if (m->mode == DRAIN_STOP) {
        stop_engine(h, "the server is shutting down");
        return;
    }
    h->deadline = sd_event_source_disable_unref(h->deadline);
    sd_event_add_time_relative(h->loop, &h->deadline, CLOCK_MONOTONIC,
                               (uint64_t)m->deadline_ms * 1000, 0, on_deadline, h);
    finish_drain(h);
}

static void send_answer(void *ctx, uint64_t id, enum err_kind kind, const char *text, size_t size)
{
    struct host *h = ctx;
    struct wire_answer m = { .kind = kind, .text_size = (uint32_t)size };
    const struct channel_part parts[] = { { &m, sizeof m }, { text, size } };
    struct err why;

    if (channel_send(h->supervisor, WIRE_ANSWER, id, parts, 2, -1, &why) < 0)
        log_line(LOG_LEVEL_WARNING, "supervisor got no answer: %s", why.text);
}

static uint32_t cancel_named(void *ctx, const char *name)
{
    static const struct cz_usage nothing;
    struct host *h = ctx;
    uint32_t n = 0;

    for (uint32_t i = 0; i < h->requests.n; i++) {
        struct request *r = &h->requests.list[i];
        if (r->cancelled || strcmp(r->name, name) != 0)
            continue;
        n++;
        send_failed(&h->peers[r->slot], r->peer_id, ERR_CANCELLED,
                    "the administrator cancelled this request", &nothing);
        if (!r->cancelled) /* sending may have lost the worker, and cancelled it */
            cancel(h, r);
    }
    return n;
}

/* ---- settings that change live ---- */

static void take_adjust(struct host *h, uint64_t id, const struct wire_adjust *m)
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
        send_answer(h, id, ERR_UNSUPPORTED, text, strlen(text));
    } else if (h->adjust.id || !engine_thread_order(h->engine, &order)) {
        send_answer(h, id, ERR_BUSY, busy, sizeof busy - 1);
    } else {
        h->adjust = order;
    }
}

static void say_adjusted(struct host *h, const struct engine_word *word)
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
        hello_all(h);
    }
    send_answer(h, word->id, kind, text, strlen(text));
    free(made);
    h->adjust.id = 0;
}

static void on_supervisor_frame(void *ctx, const struct wire_head *head, const void *body,
                                size_t size, int fd)
{
    struct host *h = ctx;
    const struct wire_text *ask = body;

    (void)size;
    switch (head->type) {
    case WIRE_PEER:
        take_peer(h, body, fd);
        return;
    case WIRE_DRAIN:
        drain(h, body);
        break;
    case WIRE_ASK:
        engine_answers_ask(&h->answers, head->id, (const char *)(ask + 1), ask->size);
        break;
    case WIRE_ADJUST:
        take_adjust(h, head->id, body);
        break;
    default:
        log_line(LOG_LEVEL_WARNING, "unexpected message of type %u", head->type);
    }
    if (fd >= 0)
        close(fd);
}

static void on_supervisor_closed(void *ctx, const struct err *why)
{
    (void)ctx;
    log_line(LOG_LEVEL_ERR, "supervisor: %s", why->text);
    _exit(EXIT_FAILED);
}

/* ---- the process ---- */

/* Before the engine's threads begin, which are covered then, and before a byte of the checkpoint
 * is looked at. */
static int narrow(struct host *h, struct err *err)
{
    struct sandbox_files files = { .model_dir = h->conf->model_dir,
                                   .state_dir = h->conf->state_dir };
    char text[160];

    if (sandbox_engine(&h->sandbox, &files, err) < 0)
        return -1;
    log_line(LOG_LEVEL_NOTICE, "narrowed %s", sandbox_text(text, sizeof text, &h->sandbox));
    return 0;
}

static int start(struct host *h, int channel, struct err *err)
{
    struct channel_events events = { .ctx = h, .frame = on_supervisor_frame,
                                     .closed = on_supervisor_closed };
    uint32_t max_live;

    h->queue = h->conf->engine.queue;
    h->most_queue = h->queue > LIVE_QUEUE ? h->queue : LIVE_QUEUE;
    max_live = h->conf->engine.sequences + h->most_queue + SLACK;
    metrics_init(&h->metrics);
    for (uint32_t i = 0; i < N_PEERS; i++)
        h->peers[i] = (struct peer){ .host = h, .slot = i };
    int rc = sd_event_default(&h->loop);
    if (rc < 0) {
        close(channel);
        errno = -rc;
        return err_errno(err, "event loop");
    }
    if (channel_open(&h->supervisor, h->loop, channel, SUPERVISOR_OUTBOX, &events, err) < 0 ||
        requests_init(&h->requests, max_live, err) < 0 || narrow(h, err) < 0 ||
        engine_thread_open(&h->engine, &h->conf->engine, max_live, err) < 0)
        return -1;
    h->answers = (struct engine_answers){ .engine = h->engine, .requests = &h->requests,
                                          .ctx = h, .answer = send_answer,
                                          .cancel = cancel_named };
    rc = sd_event_add_io(h->loop, &h->words, engine_thread_fd(h->engine), EPOLLIN, on_words, h);
    if (rc >= 0)
        rc = sd_event_add_time_relative(h->loop, &h->pulse, CLOCK_MONOTONIC, PULSE_US, 0, on_pulse,
                                        h);
    if (rc >= 0)
        rc = sd_event_source_set_enabled(h->pulse, SD_EVENT_ON);
    if (rc < 0) {
        errno = -rc;
        return err_errno(err, "event loop");
    }
    return 0;
}

int engine_host_run(const struct conf *conf, int channel)
{
    struct host h = { .conf = conf, .status = EXIT_FAILED };
    struct err why;

    if (start(&h, channel, &why) < 0) {
        /* The engine thread may run already; the process ends as it stands. */
        log_line(LOG_LEVEL_ERR, "%s", why.text);
        return err_exit_status(why.kind);
    }
    int rc = sd_event_loop(h.loop);
    if (rc < 0)
        log_line(LOG_LEVEL_ERR, "event loop: %s", strerror(-rc));
    channel_flush(h.supervisor, 500, NULL);

    engine_thread_close(h.engine);
    for (size_t i = 0; i < N_PEERS; i++)
        channel_close(h.peers[i].channel);
    channel_close(h.supervisor);
    requests_done(&h.requests);
    metrics_done(&h.metrics);
    sd_event_source_disable_unref(h.words);
    sd_event_source_disable_unref(h.pulse);
    sd_event_source_disable_unref(h.deadline);
    sd_event_unref(h.loop);
    return h.status;
}
