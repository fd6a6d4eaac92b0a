#include "daemon/worker/worker.h"

#include "daemon/base/log.h"
#include "daemon/conf/chat_template.h"
#include "daemon/conf/conf.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/wire/channel.h"
#include "daemon/wire/last_word.h"
#include "daemon/wire/link.h"
#include "daemon/worker/exchange.h"
#include "daemon/worker/listener.h"
#include "daemon/worker/stream.h"
#include "daemon/worker/worker_state.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/region.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
    CHANNEL_OUTBOX = 64 << 10,
    LARGE_BLOCK = 128 << 10,
    /* Over http.buffer: a body of half of it needs as much again for its text, and then a few bytes
     * more; other clients hold a little besides. Part of the plan's lines for workers. */
    BUFFER_MARGIN = 256 << 10,
    FORMAT_FREE = 768 << 10, /* of an opened chat template; part of those lines too */
    /* After a drain's deadline, for the last words to leave. */
    DRAIN_GRACE_MS = 500,
    PULSE_US = 1000000,
    /* Descriptors beside connections: loop, channels, timers, and for a moment the tokenizer's
     * file; for each listener itself, and libmicrohttpd's epoll set and event. */
    OTHER_FDS = 32,
    LISTENER_FDS = 4,
};

/* The process: what the parts of a worker share, and what only this file touches. */
struct process {
    struct worker worker;
    struct channel *supervisor; /* owned */
    struct listener *listeners; /* owned */
    uint32_t n_listeners;
    sd_event_source *http_timer, *drain_timer, *pulse, *after_each; /* owned */
    bool gave_up; /* the drain's deadline has passed */
    struct sandbox sandbox;
    int64_t read_at; /* the tokenizer, Unix seconds */
    bool estranged;  /* and that was told */
};

uint32_t worker_descriptors(const struct conf *conf, uint32_t n_listeners)
{
    return conf->connections + n_listeners * LISTENER_FDS + OTHER_FDS;
}

enum worker_engine worker_engine(struct worker *w)
{
    const struct link_status *status = link_status(w->link);

    if (w->draining && !w->replaced)
        return WORKER_DRAINING;
    /* An engine that drains while we do not makes room for one with other settings. */
    if (status->hello.state == ENGINE_DRAINING)
        return WORKER_LOADING;
    if (!status->connected)
        return w->engine_was_ready ? WORKER_FAILED : WORKER_LOADING;
    if (status->hello.state == ENGINE_LOADING)
        return WORKER_LOADING;
    w->engine_was_ready = true;
    if (status->hello.state != ENGINE_READY)
        return WORKER_CHANGED;
    return status->hello.tokenizer == tokenizer_fingerprint(w->tokenizer) ? WORKER_READY
                                                                          : WORKER_ESTRANGED;
}

/* tokenizer.json was changed between the engine's reading and ours. A worker that begins anew
 * reads what a younger engine has read; beside an older one it can only refuse. */
static void check_tokenizer(struct process *p)
{
    bool estranged = worker_engine(&p->worker) == WORKER_ESTRANGED;

    if (estranged && !p->estranged &&
        link_status(p->worker.link)->hello.created >= p->read_at) {
        log_line(LOG_LEVEL_WARNING, "tokenizer.json changed and the engine has loaded it: "
                                    "beginning anew");
        sd_event_exit(p->worker.loop, EXIT_FAILED);
    } else if (estranged && !p->estranged) {
        log_line(LOG_LEVEL_ERR, "tokenizer.json changed since the engine loaded: requests are "
                                "refused; put it back, or reload");
    }
    p->estranged = estranged;
}

/* ---- libmicrohttpd on our loop ---- */

static int http_late(sd_event_source *source, uint64_t usec, void *ctx)
{
    (void)source;
    (void)usec;
    (void)ctx;
    return 0;
}

/* Runs after whatever else the loop did: connections that were resumed go on, and the next
 * timeout is honoured. libmicrohttpd's epoll is edge-triggered, so without its timeout the
 * loop could sleep on work that is waiting. */
static int run_http(sd_event_source *source, void *ctx)
{
    struct process *p = ctx;
    MHD_UNSIGNED_LONG_LONG least = UINT64_MAX / 2000, ms;

    (void)source;
    for (uint32_t i = 0; i < p->n_listeners; i++) {
        MHD_run(p->listeners[i].daemon);
        if (MHD_get_timeout(p->listeners[i].daemon, &ms) == MHD_YES && ms < least)
            least = ms;
    }
    clients_turn(&p->worker.clients);
    for (uint32_t i = 0; i < p->n_listeners; i++) {
        uint64_t again_ms = listener_turn(&p->listeners[i]);
        least = again_ms < least ? again_ms : least;
    }
    sd_event_source_set_time(p->http_timer, clock_ns() / 1000 + least * 1000);
    sd_event_source_set_enabled(p->http_timer, SD_EVENT_ONESHOT);
    check_tokenizer(p);
    if (p->worker.draining && p->worker.n_exchanges == 0 &&
        (p->gave_up || !clients_expected(&p->worker.clients)))
        sd_event_exit(p->worker.loop, EXIT_FINE);
    return 0;
}

/* Every waiting client is let go first: libmicrohttpd cannot stop while one is suspended. */
static void close_listeners(struct process *p)
{
    for (struct client *c = p->worker.clients.first; c; c = c->next)
        if (c->exchange)
            exchange_let_go(c->exchange);
    clients_done(&p->worker.clients);
    for (uint32_t i = 0; i < p->n_listeners; i++) {
        if (p->listeners[i].daemon)
            MHD_run(p->listeners[i].daemon);
        listener_close(&p->listeners[i]);
    }
    free(p->listeners);
}

/* ---- draining ---- */

static int drain_late(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct process *p = ctx;

    if (p->gave_up) {
        log_line(LOG_LEVEL_WARNING, "drain: leaving with requests=%u unanswered",
                 p->worker.n_exchanges);
        return sd_event_exit(p->worker.loop, EXIT_FINE);
    }
    p->gave_up = true;
    log_line(LOG_LEVEL_NOTICE, "drain: deadline passed requests=%u", p->worker.n_exchanges);
    for (struct client *c = p->worker.clients.first; c; c = c->next)
        if (c->exchange)
            exchange_give_up(c->exchange);
    sd_event_source_set_time(source, usec + DRAIN_GRACE_MS * 1000);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static void drain(struct process *p, uint32_t deadline_ms, enum wire_drain_mode mode)
{
    uint64_t due = clock_ns() / 1000 + (uint64_t)deadline_ms * 1000;
    struct worker *w = &p->worker;

    if (!w->draining) {
        log_line(LOG_LEVEL_NOTICE, "draining requests=%u deadline_ms=%u%s", w->n_exchanges,
                 deadline_ms, mode == DRAIN_REPLACE ? ": another worker takes over" : "");
        /* The socket stays open, as it is not ours alone; new clients wait in its backlog. */
        w->draining = true;
        clients_drain(&w->clients);
    }
    w->replaced = mode == DRAIN_REPLACE;
    if (!p->gave_up) {
        sd_event_source_set_time(p->drain_timer, due);
        sd_event_source_set_enabled(p->drain_timer, SD_EVENT_ONESHOT);
    }
}

/* ---- the supervisor ---- */

static void on_frame(void *ctx, const struct wire_head *head, const void *body, size_t size,
                     int fd)
{
    struct process *p = ctx;
    const struct wire_drain *order = body;
    struct err err;

    (void)size;
    switch (head->type) {
    case WIRE_PEER:
        if (fd < 0 || link_attach(p->worker.link, fd, &err) < 0)
            log_line(LOG_LEVEL_ERR, "no link to the engine: %s",
                     fd < 0 ? "the message brought no descriptor" : err.text);
        return;
    case WIRE_DRAIN:
        drain(p, order->deadline_ms, (enum wire_drain_mode)order->mode);
        break;
    case WIRE_ADJUST:
        log_level(((const struct wire_adjust *)body)->log_level);
        break;
    default:
        break;
    }
    if (fd >= 0)
        close(fd);
}

static int on_pulse(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct process *p = ctx;
    struct wire_pulse m = { .running = p->worker.n_exchanges,
                            .connections = p->worker.clients.n };
    const struct channel_part part = { &m, sizeof m };

    (void)usec;
    channel_send(p->supervisor, WIRE_PULSE, 0, &part, 1, -1, NULL);
    return sd_event_source_set_time_relative(source, PULSE_US);
}

static void on_closed(void *ctx, const struct err *why)
{
    struct process *p = ctx;

    log_line(LOG_LEVEL_WARNING, "the supervisor is gone: %s", why->text);
    sd_event_exit(p->worker.loop, EXIT_FAILED);
}

/* ---- opening ---- */

static int event_failed(int rc, struct err *err, const char *what)
{
    errno = -rc;
    return err_errno(err, "%s", what);
}

static int open_loop(struct process *p, struct err *err)
{
    struct worker *w = &p->worker;
    int rc = sd_event_new(&w->loop);

    if (rc < 0)
        return event_failed(rc, err, "event loop");
    if ((rc = sd_event_add_post(w->loop, &p->after_each, run_http, p)) < 0 ||
        (rc = sd_event_add_time(w->loop, &p->http_timer, CLOCK_MONOTONIC, UINT64_MAX, 1000,
                                http_late, p)) < 0 ||
        (rc = sd_event_add_time(w->loop, &p->drain_timer, CLOCK_MONOTONIC, UINT64_MAX, 1000,
                                drain_late, p)) < 0 ||
        (rc = sd_event_add_time_relative(w->loop, &p->pulse, CLOCK_MONOTONIC, PULSE_US, 100000,
                                         on_pulse, p)) < 0)
        return event_failed(rc, err, "event sources");
    sd_event_source_set_enabled(p->http_timer, SD_EVENT_OFF);
    sd_event_source_set_enabled(p->drain_timer, SD_EVENT_OFF);
    sd_event_source_set_enabled(p->pulse, SD_EVENT_ON);
    return 0;
}

/* Large templates are paid for as bodies are; the plan's line for workers has room for others. */
static int pay_format(struct worker *w, struct err *err)
{
    uint64_t bytes = chat_format_memory(w->format);

    if (bytes <= FORMAT_FREE || quota_take(&w->quota, bytes - FORMAT_FREE))
        return 0;
    return err_set(err, ERR_BUDGET, "the chat template takes %" PRIu64 " bytes of memory; "
                                    "http.buffer has room for %" PRIu64, bytes, w->quota.cap);
}

static int open_format(struct process *p, const struct template_files *files, struct err *err)
{
    struct worker *w = &p->worker;
    char name[CHAT_TEMPLATE_NAME];

    if (chat_template_open(&w->format, files, w->conf->chat_template, w->tokenizer, name, err) < 0)
        return err_within(err, "model.chat_template");
    log_line(LOG_LEVEL_NOTICE, "chat format: %s", name);
    return pay_format(w, err);
}

/* What the files hold is looked at in the sandbox: they are the last that is opened. */
static int open_text(struct process *p, struct err *err)
{
    struct worker *w = &p->worker;
    struct template_files files = { 0 };
    struct region bytes = { 0 };
    char path[4096];
    uint64_t size;
    int rc;

    if ((size_t)snprintf(path, sizeof path, "%s/tokenizer.json", w->conf->model_dir) >=
        sizeof path)
        return err_set(err, ERR_INPUT, "model.dir is too long");
    if (chat_template_read(&files, w->conf->model_dir, w->conf->chat_template, err) < 0)
        return -1;
    rc = tokenizer_read(&bytes, &size, path, err);
    p->read_at = (int64_t)time(NULL);
    tzset(); /* a template may ask for today's date, and /etc/localtime will be out of reach */
    if (rc == 0)
        rc = sandbox_worker(&p->sandbox, err);
    if (rc == 0)
        rc = tokenizer_open_buffer(&w->tokenizer, path, bytes.base, size, err);
    region_close(&bytes);
    if (rc == 0)
        rc = open_format(p, &files, err);
    template_files_done(&files);
    return rc;
}

static int open_process(struct process *p, const struct worker_options *opt, struct err *err)
{
    struct channel_events events = { .ctx = p, .frame = on_frame, .closed = on_closed };

    p->worker.conf = opt->conf;
    p->worker.quota.cap = opt->conf->buffer + BUFFER_MARGIN;
    if (open_loop(p, err) < 0)
        return -1;
    clients_init(&p->worker.clients, p->worker.loop, opt->conf);
    if (link_open(&p->worker.link, p->worker.loop, &stream_events, err) < 0 ||
        channel_open(&p->supervisor, p->worker.loop, opt->channel, CHANNEL_OUTBOX, &events,
                     err) < 0)
        return -1;
    p->listeners = calloc(opt->n_listeners ? opt->n_listeners : 1, sizeof *p->listeners);
    if (!p->listeners)
        return err_set(err, ERR_NOMEM, "%u listeners", opt->n_listeners);
    for (uint32_t i = 0; i < opt->n_listeners; i++) {
        p->n_listeners++; /* first, so that what it has is closed on failure */
        if (listener_open(&p->listeners[i], &p->worker, opt->listeners[i], err) < 0)
            return -1;
    }
    if (open_text(p, err) < 0)
        return -1;
    struct wire_ready ready = { .landlock = (uint32_t)p->sandbox.landlock,
                                .seccomp = p->sandbox.seccomp };
    const struct channel_part part = { &ready, sizeof ready };
    return channel_send(p->supervisor, WIRE_READY, 0, &part, 1, -1, err);
}

static void close_process(struct process *p)
{
    close_listeners(p);
    link_close(p->worker.link);
    channel_close(p->supervisor);
    chat_format_close(p->worker.format);
    tokenizer_close(p->worker.tokenizer);
    sd_event_source_disable_unref(p->after_each);
    sd_event_source_disable_unref(p->http_timer);
    sd_event_source_disable_unref(p->drain_timer);
    sd_event_source_disable_unref(p->pulse);
    sd_event_unref(p->worker.loop);
}

/* Clients choose the keys of objects. jansson would look for a seed when it is first needed, with
 * the file system gone by then. */
static void seed_hashes(void)
{
    size_t seed = 0;

    while (getrandom(&seed, sizeof seed, 0) < 0 && errno == EINTR)
        ;
    json_object_seed(seed);
}

int worker_run(const struct worker_options *opt)
{
    struct process p = { 0 };
    char sandbox[160];
    struct err err;
    int status;

    /* Large blocks are mappings of their own always: they grow without a copy, and what is freed
     * goes back to the kernel, as the budget counts on. By itself malloc raises the limit. */
    mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
    seed_hashes();
    if (open_process(&p, opt, &err) < 0) {
        log_line(LOG_LEVEL_ERR, "cannot serve: %s", err.text);
        last_word(opt->channel, err.text);
        status = (int)err_exit_status(err.kind);
    } else {
        log_line(LOG_LEVEL_NOTICE, "serving listeners=%u slot=%u %s", p.n_listeners, opt->slot,
                 sandbox_text(sandbox, sizeof sandbox, &p.sandbox));
        status = sd_event_loop(p.worker.loop);
    }
    close_process(&p);
    return status < 0 ? EXIT_FAILED : status;
}
