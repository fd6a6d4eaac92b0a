/* sched: which rows run next.
 *
 * Requests are admitted as sequence places and KV pages allow, clients taking turns (waiting.h).
 * When the queue is full, a client that has at least two requests fewer in it than the greediest
 * takes the place of that one's newest, which fails with ERR_BUSY. Then, step by step: a
 * prefill step takes unseen prompt rows, oldest request first, with small remainders of others
 * riding along; a decode step takes the one unseen row of every decoding sequence. A prefill
 * expected to be quick carries the decoding rows with it; a long one is put down between
 * layers whenever a decoding sequence has waited token_gap, for one decode step. Sequences
 * share no state, so none of this changes a bit of any answer.
 *
 * KV pages are taken as a sequence grows. When none is left the sequence admitted last is
 * sent back to the queue's head and later starts over from its tokens, which gives the same
 * bits again. The pool holds at least one whole context, so the oldest always gets on.
 *
 * What a sequence has seen is kept in its pages when it leaves, and another that begins alike begins
 * behind it (store/prefix_cache.h). Pages of running sequences come first.
 *
 * Choices of a request are one sequence, which is cut back to its prompt after each. Where a family
 * cannot cut back, a copy of its state stands in a sequence's place that nobody needs at the time;
 * when somebody does, or there is none, the prompt is run again.
 *
 * Engine thread. submit, cancel and next may be called from the watch between layers. */
#ifndef RUN_SCHED_H
#define RUN_SCHED_H

#include "colizig.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct expert_store;
struct family;
struct kernels;
struct kv_pool;
struct model;
struct model_shape;
struct pool;
struct row_store;
struct sched;

struct sched_options { /* all borrowed but the numbers */
    const struct family *family;
    struct model *model;
    const struct model_shape *shape;
    const struct kernels *kernels;
    struct pool *pool;
    struct expert_store *experts; /* NULL without routed layers */
    struct row_store *embedding;
    struct kv_pool *kv;
    struct cz_watch watch;
    uint32_t context, sequences, queue, prefill_rows, logit_rows;
    uint64_t token_gap_ns;
    bool no_prefix_cache;
};

/* Bytes of both trays, the sampler and the requests' tokens, for the plan. *choices is the
 * part of it for per-choice expert outputs. */
uint64_t sched_size(const struct model_shape *shape, const struct family *family,
                    uint32_t context, uint32_t sequences, uint32_t queue, uint32_t prefill_rows,
                    uint32_t logit_rows, uint64_t *choices);

int sched_open(struct sched **out, const struct sched_options *opt, struct err *err);
void sched_close(struct sched *s); /* NULL is fine */
int sched_submit(struct sched *s, const struct cz_request *r, struct err *err);
/* Requests that will be admitted before it as things stand, and itself, less the places that are
 * free: 0 when it runs, or will from the next step on. */
uint32_t sched_place(const struct sched *s, uint64_t id);
void sched_cancel(struct sched *s, uint64_t id);
void sched_next(struct sched *s, uint64_t id, uint32_t choice); /* cz_next */
int sched_step(struct sched *s, struct cz_event *events, size_t cap, struct err *err);
/* Every request that is running or waiting ends with *why; call it before each step until idle.
 * Between layers it does nothing. */
void sched_fail_all(struct sched *s, const struct err *why);
bool sched_idle(const struct sched *s);
void sched_set_queue(struct sched *s, uint32_t queue);
void sched_stats(const struct sched *s, struct cz_stats *out); /* its own fields only */

#endif
