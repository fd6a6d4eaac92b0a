#include "run/sched.h"

#include "families/family.h"
#include "run/sample.h"
#include "run/sched_state.h"
#include "store/prefix_cache.h"
#include "util/clock.h"
#include "util/err.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- sizes ---- */

static uint32_t decode_rows(uint32_t sequences)
{
    return sequences + RIDER_ROWS;
}

static uint32_t prefill_cap(uint32_t prefill_rows, uint32_t sequences)
{
    return prefill_rows + sequences;
}

/* What is said of sequences at a time (tokens that do not fit are told the next time) and, between
 * two steps, one word for each request that loses its place in the queue. */
static uint64_t events_cap(uint32_t sequences, uint32_t queue)
{
    return 8ull * sequences + 16 + queue;
}

/* A request's own memory, at the most that may be asked of it. */
static uint64_t request_size(uint32_t context)
{
    return sizeof(struct seq) + (uint64_t)context * sizeof(uint32_t) + thinking_most() +
           CZ_MAX_BIAS * sizeof(struct cz_bias);
}

uint64_t sched_size(const struct model_shape *shape, const struct family *family,
                    uint32_t context, uint32_t sequences, uint32_t queue, uint32_t prefill_rows,
                    uint32_t logit_rows, uint64_t *choices)
{
    uint64_t part, rows = prefill_cap(prefill_rows, sequences);
    uint64_t size = tray_size(family->scratch_size(shape, context, (uint32_t)rows, logit_rows,
                                                    &part), (uint32_t)rows, sequences);

    *choices = part;
    rows = decode_rows(sequences);
    size += tray_size(family->scratch_size(shape, context, (uint32_t)rows, logit_rows, &part),
                      (uint32_t)rows, sequences);
    *choices += part;
    size += sampler_size(shape->vocab);
    size += ((uint64_t)sequences + queue) * request_size(context);
    return size + events_cap(sequences, queue) * sizeof(struct cz_event);
}

/* ---- coming and going ---- */

static void leave_running(struct sched *s, struct seq *seq, bool keep)
{
    uint32_t i = 0;

    while (s->running[i] != seq)
        i++;
    memmove(s->running + i, s->running + i + 1, (--s->n_running - i) * sizeof *s->running);
    sched_leave_place(s, seq, keep);
}

void sched_fail(struct sched *s, struct seq *seq, const struct err *why)
{
    struct cz_event *event = events_put(&s->events, seq->id, CZ_EVENT_FAILED);

    event->err = *why;
    seq_usage(&event->usage, seq, clock_ns());
    s->stats.n_failed++;
    /* Whatever broke it may have been at work before. */
    prefix_cache_clear(s->prefix);
    leave_running(s, seq, false);
    seq_close(seq);
}

void sched_forget(struct sched *s, struct seq *seq)
{
    s->stats.n_cancelled++;
    leave_running(s, seq, true);
    seq_close(seq);
}

void sched_preempt(struct sched *s, struct seq *seq)
{
    s->stats.n_preempted++;
    leave_running(s, seq, true);
    seq->n_seen = 0;
    waiting_send_back(&s->waiting, seq);
}

void sched_admit(struct sched *s)
{
    struct seq *seq;

    while ((seq = waiting_first(&s->waiting)) && sched_begin(s, seq)) {
        waiting_take_first(&s->waiting);
        seq->admitted = ++s->admissions;
        if (!seq->admitted_ns)
            seq->admitted_ns = clock_ns();
        s->running[s->n_running++] = seq;
    }
}

/* ---- what the caller is told ---- */

static void finish_choice(struct sched *s, struct seq *seq)
{
    struct cz_event *event = events_put(&s->events, seq->id, CZ_EVENT_FINISHED);

    event->finish = seq->finish;
    event->choice = seq->choice;
    seq_usage(&event->usage, seq, clock_ns());
    s->stats.generated_tokens += seq->n_unsent;
    event->more = seq_next_choice(seq);
    if (event->more) {
        sched_cut_back(s, seq);
        return;
    }
    s->stats.n_finished++;
    leave_running(s, seq, true);
    seq_close(seq);
}

/* As much of a sequence as there is room for; true: something, and there may be more. */
static bool tell_of(struct sched *s, struct seq *seq)
{
    struct cz_event token;

    if (!sched_is_free(seq))
        return false;
    if (seq->next && !seq->ended)
        seq_end_choice(seq);
    if (seq_tell(seq, &token)) {
        s->stats.generated_tokens++;
        *events_put(&s->events, token.id, token.type) = token;
        return true;
    }
    if (!seq_is_told(seq))
        return false;
    finish_choice(s, seq);
    return true;
}

/* All there is to be told, or as much as there is room for. False: there was nothing. */
static bool tell(struct sched *s)
{
    uint64_t room = events_cap(s->o.sequences, 0);
    uint32_t before = s->events.n;

    for (uint32_t i = 0; i < s->n_running && s->events.n < room;) {
        uint32_t n_running = s->n_running;
        if (!tell_of(s, s->running[i]) && n_running == s->n_running)
            i++;
    }
    return s->events.n > before;
}

/* ---- the front ---- */

static int open_tray(struct tray *t, const struct sched *s, uint32_t rows, struct err *err)
{
    uint64_t choices;
    uint64_t scratch = s->o.family->scratch_size(s->o.shape, s->o.context, rows, s->o.logit_rows,
                                                 &choices);

    if (tray_open(t, scratch, rows, s->o.sequences, err) < 0)
        return -1;
    return 0;
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
    sched_wire_tray(&s->prefill, s);
    sched_wire_tray(&s->decode, s);
    for (; s->n_states < opt->sequences; s->n_states++)
        if (opt->family->seq_open(&s->states[s->n_states], opt->model, err) < 0)
            goto fail;
    if (sched_open_prefix(s, err) < 0)
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
        leave_running(s, seq, false);
        seq_close(seq);
    }
    for (struct seq *seq; (seq = waiting_first(&s->waiting));) {
        waiting_take_first(&s->waiting);
        seq_close(seq);
    }
    prefix_cache_close(s->prefix);
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
    uint32_t places = s->o.queue + sched_places(s);
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
    uint32_t nth = waiting_place(&s->waiting, seq) + 1, free = sched_places(s);
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
            sched_forget(s, seq);
        return;
    }
    struct seq *seq = waiting_find(&s->waiting, id);
    if (seq) {
        waiting_remove(&s->waiting, seq);
        s->stats.n_cancelled++;
        seq_close(seq);
    }
}

void sched_next(struct sched *s, uint64_t id, uint32_t choice)
{
    struct seq *seq = NULL;

    for (uint32_t i = 0; i < s->n_running && !seq; i++)
        if (s->running[i]->id == id)
            seq = s->running[i];
    if (!seq)
        seq = waiting_find(&s->waiting, id);
    if (!seq || seq->cancelled || seq->ended || seq->choice != choice)
        return;
    seq->next = true;
    /* Rows of the prompt are wanted by the choices that follow, those of the reply by nobody. */
    if (seq->tray && seq->n_seen >= seq->n_prompt)
        tray_drop(seq->tray, seq);
}

int sched_step(struct sched *s, struct cz_event *events, size_t cap, struct err *err)
{
    if (cap < 16)
        return err_set(err, ERR_INPUT, "cz_step needs room for 16 events");
    if (s->events.n == 0 && !tell(s)) {
        sched_admit(s);
        if (!tell(s)) {
            sched_run(s);
            tell(s);
        }
    }
    int n = events_take(&s->events, events, cap);
    if (s->events.n == 0)
        s->n_displaced = 0;
    return n;
}

void sched_fail_all(struct sched *s, const struct err *why)
{
    /* What is there is told first, or the ring would run over; what is in a step ends with it. */
    if (s->events.n > 0 || s->current)
        return;
    if (s->prefill.active)
        sched_conclude(s, &s->prefill, why);
    sched_admit(s);
    while (s->n_running > 0)
        sched_fail(s, s->running[0], why);
}

bool sched_idle(const struct sched *s)
{
    return s->n_running == 0 && s->waiting.n == 0 && s->events.n == 0;
}

void sched_set_queue(struct sched *s, uint32_t queue)
{
    s->o.queue = queue;
}

_Static_assert((int)CZ_N_PHASES == (int)N_PHASES && (int)CZ_PHASE_HEAD == (int)PHASE_HEAD &&
                   (int)CZ_PHASE_QSA == (int)PHASE_QSA, "phases are told as they are counted");

void sched_stats(const struct sched *s, struct cz_stats *out)
{
    struct prefix_stats prefix;

    *out = s->stats;
    out->running = s->n_running;
    out->waiting = s->waiting.n;
    prefix_cache_stats(s->prefix, &prefix);
    out->prefix_pages = prefix.n_pages;
    out->prefix_states = prefix.n_states;
    out->prefix_evictions = prefix.evictions;
    for (uint32_t i = 0; i < s->n_running; i++)
        out->prefilling += seq_unseen(s->running[i]) > 1;
    out->layers = s->counters.layers;
    out->multi_row_products = s->counters.multi_row_products;
    out->prefill_ns_per_token = s->row.n ? s->row.ns / s->row.n : 0;
    out->decode_ns_per_token = s->token.n ? s->token.ns / s->token.n : 0;
}
