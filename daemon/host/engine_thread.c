#include "daemon/host/engine_thread.h"

#include "daemon/host/snapshot.h"
#include "daemon/wire/wire.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/ring.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { N_WORDS = 4096, N_EVENTS = 256, IDLE_MS = 1000 };

struct engine_thread {
    struct cz_options opt;
    struct ring *orders, *words; /* owned; door to engine, engine to door */
    struct snapshot stats;
    pthread_t thread;
    bool started;
    atomic_bool abandoned; /* the door will take no more words; door writes, relaxed */

    _Atomic uint64_t reads; /* the thread counts, the door looks; relaxed: only change matters */

    /* Written by the thread before WORD_READY is put, the door's after it is taken. */
    struct engine_facts facts;

    /* The thread's own. */
    struct cz_engine *engine; /* owned */
    struct cz_event *events;  /* owned; [N_EVENTS] */
    uint32_t percent;
    uint32_t at_once; /* requests that run at once */
    struct engine_order adjust; /* to be done; id 0: none */
    bool stop, fault_told;
    double request_s; /* how long a request runs, a decaying mean; 0: none has ended */
    double choices_s; /* of choices that ended since the last request did */
};

/* ---- words ---- */

static void free_word(const struct engine_word *word)
{
    free(word->text);
    free(word->look);
    free(word->places);
    free(word->plan);
    free(word->logprobs);
}

/* The door takes words without ever waiting, so a full ring is soon empty again. */
static void say(struct engine_thread *t, const struct engine_word *word)
{
    static const struct timespec moment = { .tv_nsec = 200000 };

    while (!ring_put(t->words, word)) {
        if (atomic_load_explicit(&t->abandoned, memory_order_relaxed)) {
            free_word(word);
            return;
        }
        nanosleep(&moment, NULL);
    }
}

static void say_error(struct engine_thread *t, struct engine_word word, const struct err *why)
{
    word.error = why->kind;
    word.text = strdup(why->text);
    say(t, &word);
}

static void publish(struct engine_thread *t)
{
    struct cz_stats stats;

    cz_stats(t->engine, &stats);
    snapshot_put(&t->stats, &stats);
}

/* ---- orders ---- */

/* Seconds until one of the running requests should end and a place in the queue be free. An
 * estimate, and meant as one. */
static uint32_t retry_after(const struct engine_thread *t)
{
    double at_once = t->at_once ? t->at_once : 1;
    double seconds = t->request_s / at_once + 1; /* rounded up, and never 0 */

    return seconds > 120 ? 120 : (uint32_t)seconds;
}

static void submit(struct engine_thread *t, const struct engine_order *order)
{
    const struct wire_submit *m = order->submit;
    const uint32_t *prompt = (const uint32_t *)(m + 1);
    const uint32_t *stop_ids = prompt + m->n_prompt;
    const uint32_t *closing = stop_ids + m->n_stop_ids;
    const uint32_t *forced = closing + m->n_closing;
    const uint32_t *forced_behind = forced + m->n_forced;
    struct cz_request request = {
        .id = order->id,
        .client = m->client,
        .prompt = prompt,
        .n_prompt = m->n_prompt,
        .max_tokens = m->max_tokens,
        .min_tokens = m->min_tokens,
        .sampling = m->sampling,
        .stop_ids = stop_ids,
        .n_stop_ids = m->n_stop_ids,
        .bias = (const struct cz_bias *)(forced_behind + m->n_forced_behind),
        .n_bias = m->n_bias,
        .n_choices = m->n_choices,
        .uncached = m->uncached,
        .logprobs = m->logprobs,
        .n_top = m->n_top,
        .thinking = { .open = m->think_open,
                      .close = m->think_close,
                      .inside = m->think_inside,
                      .may_open = m->think_may_open,
                      .call_closes = m->think_call_closes,
                      .call = m->think_call,
                      .budget = m->think_budget,
                      .closing = closing,
                      .n_closing = m->n_closing },
        .forced = forced,
        .n_forced = m->n_forced,
        .forced_behind = forced_behind,
        .n_forced_behind = m->n_forced_behind,
    };
    struct engine_word word = { .id = order->id };
    struct err why;

    if (cz_submit(t->engine, &request, &why) < 0) {
        word.kind = WORD_REFUSED;
        word.retry_after_s = why.kind == ERR_BUSY ? retry_after(t) : 0;
        say_error(t, word, &why);
        return;
    }
    word.kind = WORD_ACCEPTED;
    word.place = cz_place(t->engine, order->id);
    say(t, &word);
}

static void look(struct engine_thread *t, const struct engine_order *order)
{
    struct engine_word word = { .kind = WORD_LOOKED, .id = order->id };
    size_t n_layers = t->facts.info.n_layers;
    struct engine_look *l = malloc(sizeof *l + n_layers * sizeof *l->layers +
                                   order->top * sizeof *l->hottest);

    if (l) {
        l->layers = (struct cz_expert_layer *)(l + 1);
        l->hottest = (struct cz_expert_heat *)(l->layers + n_layers);
        l->n_layers = cz_expert_layers(t->engine, l->layers, (uint32_t)n_layers);
        l->n_hottest = cz_expert_hottest(t->engine, l->hottest, order->top);
    }
    word.look = l;
    say(t, &word);
}

static void place(struct engine_thread *t, const struct engine_order *order)
{
    struct engine_word word = { .kind = WORD_PLACED, .places = order->places };

    for (uint32_t i = 0; i < order->places->n; i++)
        order->places->of[i].place = cz_place(t->engine, order->places->of[i].id);
    say(t, &word);
}

static void follow(struct engine_thread *t, const struct engine_order *order)
{
    struct engine_word gone = { .kind = WORD_GONE, .id = order->id };

    switch (order->kind) {
    case ORDER_SUBMIT:
        submit(t, order);
        free(order->submit);
        break;
    case ORDER_CANCEL:
        cz_cancel(t->engine, order->id);
        say(t, &gone);
        break;
    case ORDER_NEXT:
        cz_next(t->engine, order->id, order->choice);
        break;
    case ORDER_ADJUST:
        t->adjust = *order;
        break;
    case ORDER_LOOK:
        look(t, order);
        break;
    case ORDER_PLACES:
        place(t, order);
        break;
    case ORDER_STOP:
        t->stop = true;
        break;
    }
}

static void read_orders(struct engine_thread *t)
{
    struct engine_order order;

    ring_drain_fd(t->orders);
    while (ring_get(t->orders, &order))
        follow(t, &order);
}

static void adjust(struct engine_thread *t)
{
    struct engine_word word = { .kind = WORD_ADJUSTED, .id = t->adjust.id };
    struct err why;

    if (t->adjust.id == 0)
        return;
    t->adjust.id = 0;
    if (cz_adjust(t->engine, &t->adjust.limits, &why) < 0) {
        say_error(t, word, &why);
        return;
    }
    word.plan = malloc(sizeof *word.plan);
    if (word.plan)
        *word.plan = *cz_engine_plan(t->engine);
    say(t, &word);
}

static void between_layers(void *ctx)
{
    struct engine_thread *t = ctx;

    read_orders(t);
    adjust(t);
    publish(t);
}

/* ---- opening ---- */

/* While the engine is not there, only STOP has a meaning; the door refuses the rest. */
static bool stop_was_ordered(struct engine_thread *t)
{
    struct engine_order order;

    while (ring_get(t->orders, &order)) {
        struct engine_word gone = { .kind = WORD_GONE, .id = order.id };
        if (order.kind == ORDER_STOP)
            t->stop = true;
        if (order.kind == ORDER_ADJUST)
            t->adjust = order;
        if (order.kind == ORDER_CANCEL || order.kind == ORDER_SUBMIT)
            say(t, &gone);
        free(order.submit);
        free(order.places);
    }
    return t->stop;
}

static bool loading(void *ctx, uint64_t done, uint64_t total)
{
    struct engine_thread *t = ctx;
    uint32_t percent = 0;

    if (total > 0)
        percent = (uint32_t)((unsigned __int128)(done < total ? done : total) * 100 / total);
    if (percent != t->percent) {
        struct engine_word word = { .kind = WORD_LOADING, .percent = percent };
        t->percent = percent;
        say(t, &word);
    }
    return !stop_was_ordered(t);
}

static int open_engine(struct engine_thread *t, struct err *err)
{
    struct cz_watch watch = { .ctx = t, .loading = loading, .between_layers = between_layers,
                              .reads_ended = &t->reads };
    struct engine_word ready = { .kind = WORD_READY };

    if (cz_inspect(&t->facts.info, t->opt.model_dir, err) < 0 ||
        cz_open(&t->engine, &t->opt, &watch, err) < 0)
        return -1;
    cz_facts(t->engine, &t->facts.facts);
    t->facts.plan = *cz_engine_plan(t->engine);
    t->at_once = t->facts.plan.sequences;
    t->facts.created = (int64_t)time(NULL);
    publish(t);
    say(t, &ready);
    return 0;
}

/* ---- running ---- */

/* Earlier choices count for whichever request ends next, which leaves the mean what it is. */
static void note_duration(struct engine_thread *t, const struct cz_usage *usage, bool more)
{
    t->choices_s += (double)(usage->prefill_ns + usage->decode_ns) / 1e9;
    if (more)
        return;
    t->request_s = t->request_s > 0 ? 0.8 * t->request_s + 0.2 * t->choices_s : t->choices_s;
    t->choices_s = 0;
}

/* A reply without what was asked for would be a wrong one: without memory for it there is none. */
static bool add_logprobs(struct engine_thread *t, struct engine_word *word,
                         const struct cz_event *e)
{
    struct err why;

    word->logprobs = malloc(sizeof *word->logprobs);
    if (word->logprobs) {
        *word->logprobs = e->logprobs;
        return true;
    }
    cz_cancel(t->engine, e->id);
    err_set(&why, ERR_NOMEM, "no memory for logprobs");
    word->kind = WORD_FAILED;
    say_error(t, *word, &why);
    return false;
}

static void tell(struct engine_thread *t, const struct cz_event *e)
{
    struct engine_word word = { .id = e->id, .choice = e->choice, .usage = e->usage };

    switch (e->type) {
    case CZ_EVENT_PROGRESS:
        word.kind = WORD_PROGRESS;
        word.n_done = e->n_done;
        word.n_total = e->n_total;
        break;
    case CZ_EVENT_TOKEN:
        word.kind = WORD_TOKEN;
        word.token = e->token;
        if (e->has_logprobs && !add_logprobs(t, &word, e))
            return;
        break;
    case CZ_EVENT_FINISHED:
        note_duration(t, &e->usage, e->more);
        word.kind = WORD_FINISHED;
        word.finish = e->finish;
        word.more = e->more;
        break;
    case CZ_EVENT_FAILED:
        word.kind = WORD_FAILED;
        say_error(t, word, &e->err);
        return;
    }
    say(t, &word);
}

/* Sleeps until an order is there, but not for long: memory and files are looked after also when
 * nobody asks for anything. An order put between read_orders and here left the fd readable. */
static void sleep_on_orders(struct engine_thread *t)
{
    struct pollfd wait = { .fd = ring_fd(t->orders), .events = POLLIN };

    while (poll(&wait, 1, IDLE_MS) < 0 && errno == EINTR)
        ;
    cz_tend(t->engine);
}

static void tell_fault(struct engine_thread *t)
{
    struct engine_word changed = { .kind = WORD_CHANGED };
    const struct err *fault = t->fault_told ? NULL : cz_fault(t->engine);

    if (!fault)
        return;
    t->fault_told = true;
    say_error(t, changed, fault);
}

static int run_engine(struct engine_thread *t, struct err *err)
{
    while (!t->stop) {
        read_orders(t);
        adjust(t);
        publish(t);
        tell_fault(t);
        if (t->stop)
            break;
        if (cz_idle(t->engine)) {
            sleep_on_orders(t);
            continue;
        }
        int n = cz_step(t->engine, t->events, N_EVENTS, err);
        if (n < 0)
            return -1;
        for (int i = 0; i < n; i++)
            tell(t, &t->events[i]);
    }
    return 0;
}

static void *thread_main(void *ctx)
{
    struct engine_thread *t = ctx;
    struct engine_word last = { .kind = WORD_STOPPED };
    struct err why;

    prctl(PR_SET_NAME, "colizig-engine");
    int rc = open_engine(t, &why);
    if (rc == 0)
        rc = run_engine(t, &why);
    cz_close(t->engine);
    t->engine = NULL;
    if (rc < 0 && !(t->stop && why.kind == ERR_CANCELLED)) {
        last.kind = WORD_BROKEN;
        say_error(t, last, &why);
    } else {
        say(t, &last);
    }
    return NULL;
}

/* ---- the door's side ---- */

int engine_thread_open(struct engine_thread **out, const struct cz_options *opt,
                       uint32_t max_live, struct err *err)
{
    struct engine_thread *t = calloc(1, sizeof *t);

    if (!t)
        return err_set(err, ERR_NOMEM, "engine thread");
    t->opt = *opt;
    t->events = calloc(N_EVENTS, sizeof *t->events);
    if (!t->events) {
        err_set(err, ERR_NOMEM, "engine thread");
        goto fail;
    }
    /* A live request has at most a SUBMIT, a CANCEL and two NEXT under way; the others come on
     * top. */
    if (ring_open(&t->orders, sizeof(struct engine_order),
                  4 * (size_t)max_live + ENGINE_LOOKS + 16, err) < 0 ||
        ring_open(&t->words, sizeof(struct engine_word), N_WORDS, err) < 0)
        goto fail;
    int rc = pthread_create(&t->thread, NULL, thread_main, t);
    if (rc != 0) {
        errno = rc;
        err_errno(err, "engine thread");
        goto fail;
    }
    t->started = true;
    *out = t;
    return 0;

fail:
    engine_thread_close(t);
    return -1;
}

void engine_thread_close(struct engine_thread *t)
{
    struct engine_order order;
    struct engine_word word;

    if (!t)
        return;
    if (t->started) {
        atomic_store_explicit(&t->abandoned, true, memory_order_relaxed);
        pthread_join(t->thread, NULL);
    }
    while (t->words && ring_get(t->words, &word))
        free_word(&word);
    while (t->orders && ring_get(t->orders, &order)) {
        free(order.submit);
        free(order.places);
    }
    ring_close(t->orders);
    ring_close(t->words);
    free(t->events);
    free(t);
}

bool engine_thread_order(struct engine_thread *t, const struct engine_order *order)
{
    return ring_put(t->orders, order);
}

bool engine_thread_word(struct engine_thread *t, struct engine_word *out)
{
    if (!ring_get(t->words, out))
        return false;
    if (out->plan)
        t->facts.plan = *out->plan;
    free(out->plan);
    out->plan = NULL;
    return true;
}

int engine_thread_fd(const struct engine_thread *t)
{
    return ring_fd(t->words);
}

void engine_thread_drain_fd(struct engine_thread *t)
{
    ring_drain_fd(t->words);
}

void engine_thread_stats(const struct engine_thread *t, struct cz_stats *out)
{
    snapshot_get(&t->stats, out);
}

uint64_t engine_thread_reads(const struct engine_thread *t)
{
    return atomic_load_explicit(&t->reads, memory_order_relaxed);
}

const struct engine_facts *engine_thread_facts(const struct engine_thread *t)
{
    return &t->facts;
}
