/* sched_state: what the parts of the scheduler share.
 *
 * sched.c is the front: coming, going and what the caller is told. sched_steps.c builds steps and
 * runs them. sched_prefix.c is what sequences leave behind and begin from. Engine thread. */
#ifndef RUN_SCHED_STATE_H
#define RUN_SCHED_STATE_H

#include "run/events.h"
#include "run/sched.h"
#include "run/seq.h"
#include "run/tray.h"
#include "run/waiting.h"

#include <stdbool.h>
#include <stdint.h>

struct prefix_cache;
struct sampler;

/* Prompt rows that a decode step may carry besides its own, so that a short prompt need not
 * wait behind a long prefill. Few enough that the step stays a decode step. */
enum { RIDER_ROWS = 64 };

struct pace { /* a decaying mean */
    uint64_t ns, n;
};

struct sched {
    struct sched_options o;
    struct sampler *sampler;
    struct seq **running; /* owned; [sequences], in order of admission */
    uint32_t n_running;
    struct waiting waiting;   /* owns those in it */
    struct seq_state **states; /* owned; [sequences]: those that neither run nor hold a state */
    uint32_t n_states;
    struct prefix_cache *prefix;
    struct tray prefill, decode;
    struct tray *current;    /* whose forward is running */
    struct events events;
    uint32_t n_displaced;    /* of these events, at most, since there were none */
    struct step_counters counters;
    uint64_t admissions, last_decode_ns;
    uint64_t last_prefill_ns; /* what the last prefill step took; 0: not known yet */
    struct pace row, token;   /* of prefills, and from a token to the next */
    struct cz_stats stats;    /* the counters that are ours */
};

/* ---- sched.c ---- */

/* In no step: it can be told of, cut back, sent back. */
static inline bool sched_is_free(const struct seq *seq)
{
    return !seq->tray;
}
/* Places for who waits: also those that only hold a state. */
static inline uint32_t sched_places(const struct sched *s)
{
    return s->o.sequences - s->n_running;
}
void sched_admit(struct sched *s);
void sched_preempt(struct sched *s, struct seq *seq); /* to the head of the queue, to start over */
void sched_fail(struct sched *s, struct seq *seq, const struct err *why);
void sched_forget(struct sched *s, struct seq *seq);

/* ---- sched_prefix.c ---- */

int sched_open_prefix(struct sched *s, struct err *err);
/* A place for it and pages for all its tokens, the most of them that are known already as seen.
 * False: it has to wait. */
bool sched_begin(struct sched *s, struct seq *seq);
/* Pages for n tokens, if need be from the prefix cache: 1; 0 when sequences have them all. */
int sched_reserve(struct sched *s, struct seq_state *state, uint32_t n);
/* Its place is free again. keep: what it has seen is left behind. */
void sched_leave_place(struct sched *s, struct seq *seq, bool keep);
/* It has seen all of its prompt but the last token, which each choice runs again for its logits,
 * or the whole of it: keeps that, once. */
void sched_keep_prompt(struct sched *s, struct seq *seq);
/* Of the next n rows of a sequence, those up to where a point is to be kept. */
uint32_t sched_rows_to_point(const struct sched *s, const struct seq *seq, uint32_t n);
/* Back to the prompt, of which the last row is run again for its logits. */
void sched_cut_back(struct sched *s, struct seq *seq);

/* ---- sched_steps.c ---- */

void sched_run(struct sched *s); /* the step that is due, or the part of one */
/* What a step was, ended or given up, means for its sequences. */
void sched_conclude(struct sched *s, struct tray *t, const struct err *failure);
void sched_wire_tray(struct tray *t, struct sched *s);

#endif
