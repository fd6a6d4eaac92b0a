/* Building steps, running them, and what they mean for the sequences in them. */
#include "run/sched_state.h"

#include "families/family.h"
#include "run/sample.h"
#include "util/clock.h"
#include "util/err.h"

/* ---- building steps ---- */

/* Pages for all its tokens, if need be from those admitted after it. Below 1 it cannot run
 * now: 0 it must wait for a step that was put down, -1 it was sent back itself. */
static int make_room(struct sched *s, struct seq *seq)
{
    while (!sched_reserve(s, seq->state, seq->n_tokens)) {
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
            sched_preempt(s, victim);
            continue;
        }
        if (others_busy)
            return 0;
        sched_preempt(s, seq);
        return -1;
    }
    return 1;
}

/* Adds every sequence with exactly one unseen row. */
static void add_decoding(struct sched *s, struct tray *t)
{
    for (uint32_t i = 0; i < s->n_running && tray_room(t) > 0;) {
        struct seq *seq = s->running[i];
        int room = 0;
        if (sched_is_free(seq) && seq_unseen(seq) == 1) {
            room = make_room(s, seq);
            if (room > 0)
                tray_add(t, seq, 1);
        }
        if (room >= 0)
            i++;
    }
}

/* Up to n unseen rows of a sequence that has more than one, up to its point, if there is room for
 * all its tokens: pages of a prompt were taken at its admission, those of tokens forced since were
 * not. False: it was sent back, and another stands in its place. */
static bool add_rows(struct sched *s, struct tray *t, struct seq *seq, uint32_t n)
{
    int room = make_room(s, seq);

    if (room > 0)
        tray_add(t, seq, sched_rows_to_point(s, seq, n));
    return room >= 0;
}

/* Adds those whose rest is at most `most` rows and fits, oldest first. */
static void add_short(struct sched *s, struct tray *t, uint32_t most)
{
    for (uint32_t i = 0; i < s->n_running;) {
        struct seq *seq = s->running[i];
        uint32_t n = seq_unseen(seq);
        bool fits = sched_is_free(seq) && n > 1 && n <= most && n <= tray_room(t);
        if (!fits || add_rows(s, t, seq, n))
            i++;
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
        any = any || (sched_is_free(s->running[i]) && seq_unseen(s->running[i]) > 1);
    if (!any)
        return false;

    tray_begin(t);
    /* Decoding rows come first: make_room may send prompts back for them. */
    if (s->last_prefill_ns > 0 && s->last_prefill_ns < s->o.token_gap_ns)
        add_decoding(s, t);
    uint32_t end = t->step.n_rows + s->o.prefill_rows;
    add_short(s, t, s->o.prefill_rows / 4);
    for (uint32_t i = 0; i < s->n_running && t->step.n_rows < end;) {
        struct seq *seq = s->running[i];
        uint32_t n = seq_unseen(seq), left = end - t->step.n_rows;
        if (!sched_is_free(seq) || n <= 1 || add_rows(s, t, seq, n < left ? n : left))
            i++;
    }
    if (t->n_prefill == 0 && t->n_decode == 0)
        tray_end(t);
    return t->active;
}

/* ---- running them ---- */

static bool decode_waits(const struct sched *s)
{
    const struct seq *next = waiting_first(&s->waiting);

    if (next && sched_places(s) > 0 && seq_unseen(next) <= RIDER_ROWS)
        return true;
    for (uint32_t i = 0; i < s->n_running; i++)
        if (sched_is_free(s->running[i]) && seq_unseen(s->running[i]) <= RIDER_ROWS)
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

static void ordering(void *ctx, struct cz_expert_order *o)
{
    struct sched *s = ctx;

    o->step = s->stats.steps;
    o->prefill = s->current->n_prefill > 0;
    s->o.watch.ordering(s->o.watch.ctx, o);
}

static int take_logits(void *ctx, uint32_t row_index, float *logits, struct err *err)
{
    struct sched *s = ctx;
    struct tray *t = s->current;
    const struct row *row = &t->step.rows[row_index];
    struct seq *seq = t->seqs[row->seq];

    (void)err;
    if (seq->cancelled || seq->next)
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
        .logprobs = seq->logprobs ? &seq->picked_logprobs : NULL,
        .n_top = seq->n_top,
    };
    /* A fault in one row's numbers is that request's, not the step's. */
    if (sampler_pick(s->sampler, &seq->token, logits, &r, &seq->fault) == 0)
        seq->picked = true;
    return 0;
}

/* Each row of a prompt is counted and told of once, however often it is run. */
static void note_progress(struct sched *s, struct seq *seq, bool was_prefill)
{
    uint32_t prompt_seen = seq->n_seen < seq->n_prompt ? seq->n_seen : seq->n_prompt;

    if (prompt_seen <= seq->n_counted)
        return;
    s->stats.prompt_tokens += prompt_seen - seq->n_counted;
    seq->n_counted = prompt_seen;
    if (was_prefill) {
        struct cz_event *event = events_put(&s->events, seq->id, CZ_EVENT_PROGRESS);
        event->n_done = prompt_seen;
        event->n_total = seq->n_prompt;
        event->usage.n_cached = seq->n_cached;
    }
}

/* n_rows of it were in the step to its end, and are seen now. 0: they left, and whatever came of
 * the step is not theirs. */
static void settle(struct sched *s, struct seq *seq, uint32_t n_rows, const struct err *failure)
{
    bool was_prefill = seq_unseen(seq) > 1;
    struct err err;

    if (seq->cancelled) {
        s->o.family->settle(seq->state, 0, &err);
        sched_forget(s, seq);
        return;
    }
    if (n_rows == 0) {
        s->o.family->settle(seq->state, 0, &err);
        return;
    }
    if (failure) {
        s->o.family->settle(seq->state, 0, &err);
        sched_fail(s, seq, failure);
        return;
    }
    if (s->o.family->settle(seq->state, n_rows, &err) < 0) {
        sched_fail(s, seq, &err);
        return;
    }
    seq->n_seen += n_rows;
    if (seq->fault.kind != ERR_NONE) {
        struct err fault = seq->fault;
        sched_fail(s, seq, &fault);
        return;
    }
    sched_keep_prompt(s, seq);
    note_progress(s, seq, was_prefill);
    if (seq->picked)
        seq_take(seq);
}

static void pace_note(struct pace *p, uint64_t ns, uint64_t n, uint64_t most)
{
    p->ns += ns;
    p->n += n;
    if (p->n > most) {
        p->ns /= 2;
        p->n /= 2;
    }
}

/* How fast it goes of late, from whole steps of one kind: of prefills by the row, so that long ones
 * weigh most; of decode steps by the step, for a sequence waits for the whole of it. */
static void note_pace(struct sched *s, const struct tray *t)
{
    enum { ROWS = 8192, STEPS = 64 };

    for (uint32_t i = 0; i < t->step.n_states; i++)
        if (t->gone[i])
            return; /* it had fewer rows in its later layers */
    if (t == &s->prefill)
        pace_note(&s->row, t->spent_ns, t->step.n_rows, ROWS);
    else if (t->n_prefill == 0)
        pace_note(&s->token, t->spent_ns, 1, STEPS);
}

void sched_conclude(struct sched *s, struct tray *t, const struct err *failure)
{
    uint32_t n = t->step.n_states;

    s->stats.steps++;
    if (t->n_prefill && t->n_decode)
        s->stats.mixed_steps++;
    else if (t->n_prefill)
        s->stats.prefill_steps++;
    else
        s->stats.decode_steps++;
    for (uint32_t i = 0; i < N_PHASES; i++)
        (t->n_prefill ? s->stats.prefill_phase_ns : s->stats.decode_phase_ns)[i] +=
            t->step.phase_ns[i];
    if (t->n_prefill) {
        s->stats.prefill_ns += t->spent_ns;
        if (t == &s->prefill && !failure)
            s->last_prefill_ns = t->spent_ns;
    } else {
        s->stats.decode_ns += t->spent_ns;
    }
    if (t->n_decode)
        s->last_decode_ns = clock_ns();
    if (!failure)
        note_pace(s, t);
    tray_end(t);
    for (uint32_t i = 0; i < n; i++)
        settle(s, t->seqs[i], t->gone[i] ? 0 : t->n_rows_of[i], failure);
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
    sched_conclude(s, t, rc < 0 ? &failure : NULL);
    return 0;
}

void sched_run(struct sched *s)
{
    if (s->prefill.active || build_prefill(s)) {
        if (run_tray(s, &s->prefill) == 0)
            return;
        s->stats.put_downs++;
        sched_admit(s);
    }
    if (build_decode(s))
        run_tray(s, &s->decode);
}

void sched_wire_tray(struct tray *t, struct sched *s)
{
    t->step.take_logits = take_logits;
    t->step.logits_ctx = s;
    t->step.pause = between_layers;
    t->step.pause_ctx = s;
    t->step.ordering = s->o.watch.ordering ? ordering : NULL;
    t->step.ordering_ctx = s;
    t->step.pool = s->o.pool;
    t->step.kernels = s->o.kernels;
    t->step.experts = s->o.experts;
    t->step.embedding = s->o.embedding;
    t->step.counters = &s->counters;
}
