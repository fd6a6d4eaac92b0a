#include "run/sched.h"

#include "families/family.h"
#include "run/events.h"
#include "run/sample.h"
#include "run/seq.h"
#include "run/tray.h"
#include "run/waiting.h"
#include "store/kv_pool.h"
#include "util/clock.h"
#include "util/err.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Prompt rows that a decode step may carry besides its own, so that a short prompt need not
 * wait behind a long prefill. Few enough that the step stays a decode step. */
enum { RIDER_ROWS = 64 };

struct sched {
    struct sched_options o;
    struct sampler *sampler;
    struct seq **running; /* owned; [sequences], in order of admission */
    uint32_t n_running;
    struct waiting waiting;   /* owns those in it */
    struct seq_state **states; /* owned; [sequences]: those not in use */
    uint32_t n_states;
    struct tray prefill, decode;
    struct tray *current;    /* whose forward is running */
    struct events events;
    uint32_t n_displaced;    /* of these events, at most, since there were none */
    struct step_counters counters;
    uint64_t admissions, last_decode_ns;
    uint64_t last_prefill_ns; /* what the last prefill step took; 0: not known yet */
    struct cz_stats stats;    /* the counters that are ours */
};

/* ---- sizes ---- */

static uint32_t decode_rows(uint32_t sequences)
{
    return sequences + RIDER_ROWS;
}

static uint32_t prefill_cap(uint32_t prefill_rows, uint32_t sequences)
{
    return prefill_rows + sequences;
}

/* What a step says of each sequence and, between two steps, one word for each request that loses
 * its place in the queue. */
static uint64_t events_cap(uint32_t sequences, uint32_t queue)
{
    return 8ull * sequences + 16 + queue;
}

uint64_t sched_size(const struct model_shape *shape, const struct family *family,
                    uint32_t context, uint32_t sequences, uint32_t queue, uint32_t prefill_rows,
                    uint32_t logit_rows, uint64_t *choices)
{
    uint64_t part, rows = prefill_cap(prefill_rows, sequences);
    uint64_t size = tray_size(family->scratch_size(shape, (uint32_t)rows, logit_rows, &part),
                              (uint32_t)rows, sequences);

    *choices = part;
    rows = decode_rows(sequences);
    size += tray_size(family->scratch_size(shape, (uint32_t)rows, logit_rows, &part),
                      (uint32_t)rows, sequences);
    *choices += part;
    size += sampler_size(shape->vocab);
    size += ((uint64_t)sequences + queue) * ((uint64_t)context * sizeof(uint32_t) + sizeof(struct seq));
    return size + events_cap(sequences, queue) * sizeof(struct cz_event);
}

/* ---- coming and going ---- */

static void leave_running(struct sched *s, struct seq *seq)
{
    uint32_t i = 0;

    while (s->running[i] != seq)
        i++;
    memmove(s->running + i, s->running + i + 1, (--s->n_running - i) * sizeof *s->running);
    s->o.family->seq_reset(seq->state);
    s->states[s->n_states++] = seq->state;
    seq->state = NULL;
}

static void finish(struct sched *s, struct seq *seq, enum cz_finish reason, uint32_t n_unsent)
{
    struct cz_event *event = events_put(&s->events, seq->id, CZ_EVENT_FINISHED);

    event->finish = reason;
    seq_usage(&event->usage, seq, clock_ns());
    event->usage.n_generated += n_unsent;
    s->stats.n_finished++;
    leave_running(s, seq);
    seq_close(seq);
}

static void fail(struct sched *s, struct seq *seq, const struct err *why)
{
    struct cz_event *event = events_put(&s->events, seq->id, CZ_EVENT_FAILED);

    event->err = *why;
    seq_usage(&event->usage, seq, clock_ns());
    s->stats.n_failed++;
    leave_running(s, seq);
    seq_close(seq);
}

static void forget(struct sched *s, struct seq *seq)
{
    s->stats.n_cancelled++;
    leave_running(s, seq);
    seq_close(seq);
}

/* Back to the head of the queue, to start over from its tokens. */
static void preempt(struct sched *s, struct seq *seq)
{
    s->stats.n_preempted++;
    leave_running(s, seq);
    seq->n_seen = 0;
    waiting_send_back(&s->waiting, seq);
}

static void admit(struct sched *s)
{
    struct seq *seq;

    while ((seq = waiting_first(&s->waiting)) && s->n_states > 0) {
        struct seq_state *state = s->states[s->n_states - 1];

        if (!s->o.family->seq_reserve(state, seq->n_tokens)) {
            s->o.family->seq_reset(state);
            return;
        }
        s->n_states--;
        waiting_take_first(&s->waiting);
        seq->state = state;
        seq->admitted = ++s->admissions;
        if (!seq->admitted_ns)
            seq->admitted_ns = clock_ns();
        s->running[s->n_running++] = seq;
    }
}

/* Pages for all its tokens, if need be from those admitted after it. Below 1 it cannot run
 * now: 0 it must wait for a step that was put down, -1 it was sent back itself. */
static int make_room(struct sched *s, struct seq *seq)
{
    while (!s->o.family->seq_reserve(seq->state, seq->n_tokens)) {
        struct seq *victim = NULL;
        bool others_busy = false;

        for (uint32_t i = 0; i < s->n_running; i++) {
            struct seq *other = s->running[i];
            if (other->tray)
                others_busy = true;
            else if (other->admitted > seq->admitted)
                victim = other;
        }
        if (victim) {
            preempt(s, victim);
            continue;
        }
        if (others_busy)
            return 0;
        preempt(s, seq);
        return -1;
    }
    return 1;
}

/* ---- building steps ---- */

static bool is_free(const struct seq *seq)
{
    return !seq->tray;
}

/* Adds every sequence with exactly one unseen row. */
static void add_decoding(struct sched *s, struct tray *t)
{
    for (uint32_t i = 0; i < s->n_running && tray_room(t) > 0;) {
        struct seq *seq = s->running[i];
        int room = 0;
        if (is_free(seq) && seq_unseen(seq) == 1) {
            room = make_room(s, seq);
            if (room > 0)
                tray_add(t, seq, 1);
        }
        if (room >= 0)
            i++;
    }
}

/* Adds prompts whose rest is at most `most` rows and fits, oldest first. */
static void add_short(struct sched *s, struct tray *t, uint32_t most)
{
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct seq *seq = s->running[i];
        uint32_t n = seq_unseen(seq);
        if (is_free(seq) && n > 1 && n <= most && n <= tray_room(t))
            tray_add(t, seq, n);
    }
}

static bool build_decode(struct sched *s)
{
    tray_begin(&s->decode);
    add_decoding(s, &s->decode);
    add_short(s, &s->decode, RIDER_ROWS);
    if (s->decode.step.n_rows == 0)
        tray_end(&s->decode);
    return s->decode.active;
}

static bool build_prefill(struct sched *s)
{
    struct tray *t = &s->prefill;
    bool any = false;

    for (uint32_t i = 0; i < s->n_running; i++)
        any = any || (is_free(s->running[i]) && seq_unseen(s->running[i]) > 1);
    if (!any)
        return false;

    tray_begin(t);
    /* Decoding rows come first: room is reserved for them, and make_room may send prompts back. */
    if (s->last_prefill_ns > 0 && s->last_prefill_ns < s->o.token_gap_ns)
        add_decoding(s, t);
    uint32_t end = t->step.n_rows + s->o.prefill_rows;
    add_short(s, t, s->o.prefill_rows / 4);
    for (uint32_t i = 0; i < s->n_running && t->step.n_rows < end; i++) {
        struct seq *seq = s->running[i];
        uint32_t n = seq_unseen(seq), left = end - t->step.n_rows;
        if (is_free(seq) && n > 1)
            tray_add(t, seq, n < left ? n : left);
    }
    if (t->n_prefill == 0 && t->n_decode == 0)
        tray_end(t);
    return t->active;
}

/* ---- running them ---- */

static bool decode_waits(const struct sched *s)
{
    const struct seq *next = waiting_first(&s->waiting);

    if (next && s->n_states > 0 && seq_unseen(next) <= RIDER_ROWS)
        return true;
    for (uint32_t i = 0; i < s->n_running; i++)
        if (is_free(s->running[i]) && seq_unseen(s->running[i]) <= RIDER_ROWS)
            return true;
    return false;
}

static bool between_layers(void *ctx)
{
    struct sched *s = ctx;

    if (s->o.watch.between_layers)
        s->o.watch.between_layers(s->o.watch.ctx);
    return s->current == &s->prefill && decode_waits(s) &&
           clock_ns() - s->last_decode_ns >= s->o.token_gap_ns;
}

static int take_logits(void *ctx, uint32_t row_index, float *logits, struct err *err)
{
    struct sched *s = ctx;
    struct tray *t = s->current;
    const struct row *row = &t->step.rows[row_index];
    struct seq *seq = t->seqs[row->seq];

    (void)err;
    if (seq->cancelled)
        return 0;
    if (seq->take_logits && row->pos >= seq->logits_from)
        seq->take_logits(seq->logits_ctx, row->pos, logits);
    if (row->pos + 1 != seq->n_tokens)
        return 0;

    bool too_short = seq_generated(seq) < seq->min_generated;
    struct sample_request r = {
        .how = &seq->sampling,
        .bias = seq->bias,
        .n_bias = seq->n_bias,
        .banned = seq->stop_ids,
        .n_banned = too_short ? seq->n_stop_ids : 0,
        .tokens = seq->tokens,
        .n_tokens = seq->n_tokens,
        .n_prompt = seq->n_prompt,
        .index = seq_generated(seq),
    };
    /* A fault in one row's numbers is that request's, not the step's. */
    if (sampler_pick(s->sampler, &seq->token, logits, &r, &seq->fault) == 0)
        seq->picked = true;
    return 0;
}

static void accept(struct sched *s, struct seq *seq)
{
    if (!seq->first_token_ns)
        seq->first_token_ns = clock_ns();
    s->stats.generated_tokens++;
    for (uint32_t i = 0; i < seq->n_stop_ids; i++) {
        if (seq->token == seq->stop_ids[i]) {
            finish(s, seq, CZ_FINISH_STOP, 1);
            return;
        }
    }
    seq->tokens[seq->n_tokens++] = seq->token;
    events_put(&s->events, seq->id, CZ_EVENT_TOKEN)->token = seq->token;
    if (seq->n_tokens == seq->max_tokens)
        finish(s, seq, CZ_FINISH_LENGTH, 0);
}

static void settle(struct sched *s, struct seq *seq, uint32_t n_rows, const struct err *failure)
{
    bool was_prefill = seq_unseen(seq) > 1;
    struct err err;

    if (seq->cancelled) {
        s->o.family->settle(seq->state, 0, &err);
        forget(s, seq);
        return;
    }
    if (failure) {
        s->o.family->settle(seq->state, 0, &err);
        fail(s, seq, failure);
        return;
    }
    if (s->o.family->settle(seq->state, n_rows, &err) < 0) {
        fail(s, seq, &err);
        return;
    }
    seq->n_seen += n_rows;
    if (seq->fault.kind != ERR_NONE) {
        struct err fault = seq->fault;
        fail(s, seq, &fault);
        return;
    }
    if (was_prefill && seq_generated(seq) == 0) {
        struct cz_event *event = events_put(&s->events, seq->id, CZ_EVENT_PROGRESS);
        event->n_done = seq->n_seen;
        event->n_total = seq->n_prompt;
    }
    uint32_t prompt_seen = seq->n_seen < seq->n_prompt ? seq->n_seen : seq->n_prompt;
    if (prompt_seen > seq->n_counted) {
        s->stats.prompt_tokens += prompt_seen - seq->n_counted;
        seq->n_counted = prompt_seen;
    }
    if (seq->picked)
        accept(s, seq);
}

static void conclude(struct sched *s, struct tray *t, const struct err *failure)
{
    uint32_t n = t->step.n_states;

    s->stats.steps++;
    if (t->n_prefill && t->n_decode)
        s->stats.mixed_steps++;
    else if (t->n_prefill)
        s->stats.prefill_steps++;
    else
        s->stats.decode_steps++;
    if (t->n_prefill) {
        s->stats.prefill_ns += t->spent_ns;
        if (t == &s->prefill && !failure)
            s->last_prefill_ns = t->spent_ns;
    } else {
        s->stats.decode_ns += t->spent_ns;
    }
    if (t->n_decode)
        s->last_decode_ns = clock_ns();
    tray_end(t);
    for (uint32_t i = 0; i < n; i++)
        settle(s, t->seqs[i], t->n_rows_of[i], failure);
}

/* 1 when it was put down. */
static int run_tray(struct sched *s, struct tray *t)
{
    struct err failure = { .kind = ERR_NONE };
    uint64_t start = clock_ns();

    s->current = t;
    int rc = s->o.family->forward(s->o.model, &t->step, &failure);
    s->current = NULL;
    t->spent_ns += clock_ns() - start;
    if (rc == 1)
        return 1;
    conclude(s, t, rc < 0 ? &failure : NULL);
    return 0;
}

static void run(struct sched *s)
{
    if (s->prefill.active || build_prefill(s)) {
        if (run_tray(s, &s->prefill) == 0)
            return;
        s->stats.put_downs++;
        admit(s);
    }
    if (build_decode(s))
        run_tray(s, &s->decode);
}

/* ---- the front ---- */

static int open_tray(struct tray *t, const struct sched *s, uint32_t rows, struct err *err)
{
    uint64_t choices;
    uint64_t scratch = s->o.family->scratch_size(s->o.shape, rows, s->o.logit_rows, &choices);

    if (tray_open(t, scratch, rows, s->o.sequences, err) < 0)
        return -1;
    return 0;
}

static void wire_tray(struct tray *t, struct sched *s)
{
    t->step.take_logits = take_logits;
    t->step.logits_ctx = s;
    t->step.pause = between_layers;
    t->step.pause_ctx = s;
    t->step.pool = s->o.pool;
    t->step.kernels = s->o.kernels;
    t->step.experts = s->o.experts;
    t->step.embedding = s->o.embedding;
    t->step.counters = &s->counters;
}

int sched_open(struct sched **out, const struct sched_options *opt, struct err *err)
{
    struct sched *s = calloc(1, sizeof *s);

    if (!s)
        return err_set(err, ERR_NOMEM, "the scheduler");
    s->o = *opt;
    s->running = calloc(opt->sequences, sizeof *s->running);
    s->states = calloc(opt->sequences, sizeof *s->states);
    if (!s->running || !s->states) {
        err_set(err, ERR_NOMEM, "the scheduler's tables for %" PRIu32 " sequences", opt->sequences);
        goto fail;
    }
    if (events_open(&s->events, (uint32_t)events_cap(opt->sequences, opt->queue), err) < 0 ||
        sampler_open(&s->sampler, opt->shape->vocab, err) < 0 ||
        open_tray(&s->prefill, s, prefill_cap(opt->prefill_rows, opt->sequences), err) < 0 ||
        open_tray(&s->decode, s, decode_rows(opt->sequences), err) < 0)
        goto fail;
    wire_tray(&s->prefill, s);
    wire_tray(&s->decode, s);
    for (; s->n_states < opt->sequences; s->n_states++)
        if (opt->family->seq_open(&s->states[s->n_states], opt->model, err) < 0)
            goto fail;
    *out = s;
    return 0;

fail:
    sched_close(s);
    return -1;
}

void sched_close(struct sched *s)
{
    if (!s)
        return;
    while (s->n_running > 0) {
        struct seq *seq = s->running[s->n_running - 1];
        leave_running(s, seq);
        seq_close(seq);
    }
    for (struct seq *seq; (seq = waiting_first(&s->waiting));) {
        waiting_take_first(&s->waiting);
        seq_close(seq);
    }
    while (s->states && s->n_states > 0)
        s->o.family->seq_close(s->states[--s->n_states]);
    tray_close(&s->decode);
    tray_close(&s->prefill);
    sampler_close(s->sampler);
    events_close(&s->events);
    free(s->states);
    free(s->running);
    free(s);
}

/* A full queue of one client locks nobody out: another that has at least two fewer in it takes
 * the place of the newest, which is told. False: there is no such. */
static bool displace(struct sched *s, uint64_t client)
{
    struct seq *seq = waiting_greediest(&s->waiting, client);

    if (!seq || s->n_displaced >= s->events.cap - (uint32_t)events_cap(s->o.sequences, 0))
        return false;
    waiting_remove(&s->waiting, seq);
    struct cz_event *event = events_put(&s->events, seq->id, CZ_EVENT_FAILED);
    seq_usage(&event->usage, seq, clock_ns());
    err_set(&event->err, ERR_BUSY,
            "the queue is full, and of its client's waiting requests, the most of all, the newest "
            "gave its place to another client");
    s->n_displaced++;
    s->stats.n_failed++;
    s->stats.n_displaced++;
    seq_close(seq);
    return true;
}

int sched_submit(struct sched *s, const struct cz_request *r, struct err *err)
{
    struct seq *seq;

    /* Places that are free count as queue too: they are taken when the next step is built. */
    uint32_t places = s->o.queue + (s->o.sequences - s->n_running);
    if (seq_open(&seq, r, s->o.shape->vocab, s->o.context, err) < 0)
        return -1;
    if (s->waiting.n >= places && !displace(s, r->client)) {
        seq_close(seq);
        return err_set(err, ERR_BUSY,
                       "%" PRIu32 " requests are running and %" PRIu32 " are waiting",
                       s->n_running, s->waiting.n);
    }
    waiting_add(&s->waiting, seq);
    s->stats.n_submitted++;
    return 0;
}

uint32_t sched_place(const struct sched *s, uint64_t id)
{
    const struct seq *seq = waiting_find(&s->waiting, id);

    if (!seq)
        return 0;
    uint32_t nth = waiting_place(&s->waiting, seq) + 1, free = s->o.sequences - s->n_running;
    return nth > free ? nth - free : 0;
}

void sched_cancel(struct sched *s, uint64_t id)
{
    for (uint32_t i = 0; i < s->n_running; i++) {
        struct seq *seq = s->running[i];
        if (seq->id != id || seq->cancelled)
            continue;
        if (seq->tray)
            tray_leave(seq->tray, seq);
        else
            forget(s, seq);
        return;
    }
    struct seq *seq = waiting_find(&s->waiting, id);
    if (seq) {
        waiting_remove(&s->waiting, seq);
        s->stats.n_cancelled++;
        seq_close(seq);
    }
}

int sched_step(struct sched *s, struct cz_event *events, size_t cap, struct err *err)
{
    if (cap < 16)
        return err_set(err, ERR_INPUT, "cz_step needs room for 16 events");
    if (s->events.n == 0) {
        admit(s);
        run(s);
    }
    int n = events_take(&s->events, events, cap);
    if (s->events.n == 0)
        s->n_displaced = 0;
    return n;
}

void sched_fail_all(struct sched *s, const struct err *why)
{
    if (s->events.n > 0)
        return; /* told first, or the ring would run over */
    if (s->prefill.active)
        conclude(s, &s->prefill, why);
    admit(s);
    while (s->n_running > 0)
        fail(s, s->running[0], why);
}

bool sched_idle(const struct sched *s)
{
    return s->n_running == 0 && s->waiting.n == 0 && s->events.n == 0;
}

void sched_set_queue(struct sched *s, uint32_t queue)
{
    s->o.queue = queue;
}

void sched_stats(const struct sched *s, struct cz_stats *out)
{
    *out = s->stats;
    out->running = s->n_running;
    out->waiting = s->waiting.n;
    for (uint32_t i = 0; i < s->n_running; i++)
        out->prefilling += seq_unseen(s->running[i]) > 1;
    out->layers = s->counters.layers;
    out->multi_row_products = s->counters.multi_row_products;
}
