#include "daemon/host/engine_host.h"

#include "daemon/base/log.h"
#include "daemon/host/engine_host_state.h"
#include "daemon/wire/channel.h"
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
    SUPERVISOR_OUTBOX = 8 << 20, /* an answer has at most 4 MiB */
    /* Requests that the door lets in beyond what the engine takes: it answers them with BUSY
     * itself, but cancelled ones hold their place until the engine has seen the order. */
    SLACK = 256,
    LIVE_QUEUE = 1024, /* engine.queue can be raised so far without a restart */
    PULSE_US = 1000000,
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

/* It answers, but nothing it could say would be true. */
static void say_changed(struct host *h, const char *text)
{
    struct cz_stats stats;

    if (h->state != ENGINE_READY)
        return;
    h->state = ENGINE_FAILED;
    snprintf(h->fault, sizeof h->fault, "%s", text ? text : "the model's files changed");
    log_line(LOG_LEVEL_ERR, "every request fails from now on: %s", h->fault);
    send_status(h, "failed: the model's files changed; reload to load them anew");
    /* At once, so that a reload that follows knows what it is for. */
    engine_thread_stats(h->engine, &stats);
    send_pulse(h, &stats);
    peers_hello(h);
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

/* By an eighth or more: workers' estimates would be another. */
static bool moved(uint64_t told, uint64_t now)
{
    return (now > told ? now - told : told - now) > told / 8;
}

static int on_pulse(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct host *h = ctx;
    struct cz_stats stats;

    (void)usec;
    engine_thread_stats(h->engine, &stats);
    send_pulse(h, &stats);
    note_pressure(h, &stats);
    if (stats.running != h->running || stats.waiting != h->waiting ||
        moved(h->row_ns, stats.prefill_ns_per_token) ||
        moved(h->token_ns, stats.decode_ns_per_token)) {
        h->running = stats.running;
        h->waiting = stats.waiting;
        h->row_ns = stats.prefill_ns_per_token;
        h->token_ns = stats.decode_ns_per_token;
        peers_hello(h);
    }
    sd_event_source_set_time_relative(source, PULSE_US);
    return 0;
}

/* ---- from the engine ---- */

static void say_loading(struct host *h, uint32_t percent)
{
    char text[64];

    h->percent = percent;
    snprintf(text, sizeof text, "loading the model, %u %%", percent);
    send_status(h, text);
    peers_hello(h);
}

static void say_ready(struct host *h)
{
    const struct engine_facts *f = engine_thread_facts(h->engine);
    struct cz_stats stats;
    char total[24], ram[24];

    h->answers.loaded = true;
    recall_open(h);
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
    peers_hello(h);
    engine_thread_stats(h->engine, &stats);
    send_pulse(h, &stats); /* the plan is known with the first READY */
    struct wire_ready ready = { .landlock = (uint32_t)h->sandbox.landlock,
                                .seccomp = h->sandbox.seccomp };
    const struct channel_part part = { &ready, sizeof ready };
    channel_send(h->supervisor, WIRE_READY, 0, &part, 1, -1, NULL);
    send_status(h, "serving");
}

static void say_broken(struct host *h, const struct engine_word *word)
{
    const char *text = word->text ? word->text : "the engine failed";
    bool opened = h->state != ENGINE_LOADING;

    log_line(LOG_LEVEL_ERR, "%s: %s", opened ? "engine failed" : "cannot open the model", text);
    peers_fail(h, word->error, text);
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
                word->kind != WORD_TOKEN && !(word->kind == WORD_FINISHED && word->more);
    h->places_moved |= word->kind == WORD_ACCEPTED || last;
    /* The entry of a cancelled request waits for GONE, which frees its CANCEL's place in the
     * ring of orders. */
    if (it.cancelled ? word->kind == WORD_GONE : last)
        requests_remove(&h->requests, r);
    if (it.cancelled) {
        change_go_on(h);
        return;
    }

    struct wire_accepted accepted = { .place = word->place };
    struct wire_progress progress = { .n_done = word->n_done,
                                     .n_total = word->n_total,
                                     .n_cached = word->usage.n_cached };
    struct wire_tokens tokens = { .n = 1, .choice = word->choice,
                                  .logprobs = word->logprobs != NULL };
    struct wire_finished finished = { .reason = word->finish, .choice = word->choice,
                                      .more = word->more, .usage = word->usage };
    const char *text = word->text ? word->text : "out of memory";

    switch (word->kind) {
    case WORD_ACCEPTED:
        peer_send(p, WIRE_ACCEPTED, it.peer_id,
                  &(struct channel_part){ &accepted, sizeof accepted }, 1);
        break;
    case WORD_REFUSED:
        peer_refuse(p, it.peer_id, word->error, word->retry_after_s, text);
        break;
    case WORD_PROGRESS:
        peer_send(p, WIRE_PROGRESS, it.peer_id,
                  &(struct channel_part){ &progress, sizeof progress }, 1);
        break;
    case WORD_TOKEN:
        peer_send(p, WIRE_TOKENS, it.peer_id,
                  (struct channel_part[]){ { &tokens, sizeof tokens },
                                           { &word->token, sizeof word->token },
                                           { word->logprobs, sizeof *word->logprobs } },
                  word->logprobs ? 3 : 2);
        break;
    case WORD_FINISHED:
        peer_send(p, WIRE_FINISHED, it.peer_id,
                  &(struct channel_part){ &finished, sizeof finished }, 1);
        break;
    case WORD_FAILED:
        log_line(LOG_LEVEL_WARNING, "request failed: %s worker=%u", text, it.slot);
        peer_fail(p, it.peer_id, word->error, text, &word->usage);
        break;
    default:
        break;
    }
    if (last)
        change_go_on(h);
}

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
            change_adjusted(h, &word);
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
        free(word.logprobs);
    }
    ask_places(h);
    return 0;
}

/* ---- from the supervisor ---- */

void host_answer(void *ctx, uint64_t id, enum err_kind kind, const char *text, size_t size)
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
        peer_fail(&h->peers[r->slot], r->peer_id, ERR_CANCELLED,
                    "the administrator cancelled this request", &nothing);
        if (!r->cancelled) /* sending may have lost the worker, and cancelled it */
            peers_cancel(h, r);
    }
    return n;
}

static void on_supervisor_frame(void *ctx, const struct wire_head *head, const void *body,
                                size_t size, int fd)
{
    struct host *h = ctx;
    const struct wire_text *ask = body;

    (void)size;
    switch (head->type) {
    case WIRE_PEER:
        peers_take(h, body, fd);
        return;
    case WIRE_DRAIN:
        change_drain(h, body);
        break;
    case WIRE_ASK:
        engine_answers_ask(&h->answers, head->id, (const char *)(ask + 1), ask->size);
        break;
    case WIRE_ADJUST:
        change_adjust(h, head->id, body);
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
                                          .recall = &h->recall,
                                          .ctx = h, .answer = host_answer,
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
    recall_close(&h);
    metrics_done(&h.metrics);
    sd_event_source_disable_unref(h.words);
    sd_event_source_disable_unref(h.pulse);
    sd_event_source_disable_unref(h.deadline);
    sd_event_unref(h.loop);
    return h.status;
}
