/* step: one forward over rows of several sequences, the tray that blocks pass along.
 *
 * The whole of continuous batching: blocks project all rows together, attend row by
 * row against each sequence's own state, and meet again in the experts. Prefill
 * chunks, decode and mixtures are the same thing. A step can be put down between
 * layers and taken up again; its activations stay in scratch, which is its own. Engine
 * thread. */
#ifndef BLOCKS_STEP_H
#define BLOCKS_STEP_H

#include "util/arena.h"
#include "util/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cz_expert_order;
struct err;
struct expert_store;
struct kernels;
struct pool;
struct row_store;
struct seq_state;

/* Where the time of a step goes. A family has no time in those it has not. */
enum step_phase {
    PHASE_EMBED,     /* what tokens and n-grams look up */
    PHASE_ATTENTION, /* over the whole past */
    PHASE_GDN,
    PHASE_QSA,
    PHASE_RESIDUAL, /* norms, and reading and writing of streams */
    PHASE_PLE,
    PHASE_MOE,      /* waiting for experts too */
    PHASE_HEAD,     /* what is done with the logits too */
    N_PHASES
};

struct row {
    uint32_t token, pos;
    uint16_t seq; /* index into step.states; a sequence's rows are adjacent, rising in pos */
    bool want_logits;
};

struct step {
    struct row *rows; /* rows of sequences that left are squeezed out between layers */
    uint32_t n_rows;
    struct seq_state **states;
    bool *gone; /* [n_states]; set by the owner between layers: nobody waits for these any more */
    uint32_t n_states;

    /* Called by head for each row that wants logits, in row order; logits is [vocab],
     * valid during the call and the callee's to overwrite. */
    int (*take_logits)(void *ctx, uint32_t row, float *logits, struct err *err);
    void *logits_ctx;

    /* Asked between layers; true puts the step down. NULL: never. */
    bool (*pause)(void *ctx);
    void *pause_ctx;

    /* Told of each order before it is placed; fills in what a block does not know. NULL: nobody. */
    void (*ordering)(void *ctx, struct cz_expert_order *o);
    void *ordering_ctx;

    uint64_t phase_ns[N_PHASES]; /* from the owner's zeros on */
    uint64_t lap_ns;             /* when the present phase began */

    uint32_t next_layer; /* 0 at first; where to go on after a pause */
    float *hidden;       /* [n_rows, hidden]; in scratch; NULL until the step has begun */
    float *rope_cos, *rope_sin; /* [n_rows, head_dim / 2]; in scratch, likewise */
    float *embedded; /* what the rows' n-grams look up, for layers to come; likewise; or NULL */

    struct arena *scratch;
    struct pool *pool;
    const struct kernels *kernels;
    struct expert_store *experts;
    struct row_store *embedding;
    struct step_counters *counters; /* the owner's */
};

/* Between layers: squeezes the rows of sequences that nobody waits for any more out of the step and
 * of these arrays, each of widths[i] floats a row. */
void step_drop_rows(struct step *step, float *const *arrays, const size_t *widths, size_t n_arrays);

static inline void step_begin_laps(struct step *step)
{
    step->lap_ns = clock_ns();
}

/* What went by since the last lap was `phase`. */
static inline void step_lap(struct step *step, enum step_phase phase)
{
    uint64_t now = clock_ns();

    step->phase_ns[phase] += now - step->lap_ns;
    step->lap_ns = now;
}

struct step_counters {
    uint64_t layers, multi_row_products;
    /* Rows of layers whose attention chooses blocks: those that see all of their past, those that
     * leave full blocks out, how many, and rows that leave out the very block they end. */
    uint64_t dense_rows, sparse_rows, blocks_left_out, self_left_out;
    uint64_t tails; /* bit n: a sparse row had n tokens behind its last full block, up to 63 */
    /* Tokens that look up n-grams, once for each table: so early in a sequence that some reach
     * before it, with the end of a text before them, and such ends themselves. */
    uint64_t ngram_starts, ngram_cuts, ngram_ends;
};

#endif
