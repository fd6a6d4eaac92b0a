#include "blocks/moe.h"

#include "blocks/ffn.h"
#include "blocks/step.h"
#include "kernels/kernels.h"
#include "store/expert_store.h"
#include "util/err.h"
#include "util/pool.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_BATCH = 32 }; /* experts computed together; more are in flight only in prefill */

/* Where everything of one call lies. A pair is one (row, choice); pairs are kept sorted by
 * expert, so the rows of one expert are adjacent and its product writes one block. */
struct routing {
    uint32_t n_rows, n_pairs;
    float *weight;        /* [n_rows, n_choices] in the router's order */
    uint32_t *place;      /* [n_rows, n_choices]: index of the pair among the sorted */
    uint32_t *pair_row;   /* [n_pairs] sorted by expert */
    uint32_t *first;      /* [n_experts + 1]: pairs of expert e are first[e] .. first[e + 1] */
    uint16_t *wanted;     /* [n_experts]: distinct experts, rising */
    uint32_t n_wanted;
    float *out;           /* [n_pairs, hidden] */
    float *in;            /* [gather_rows, hidden] */
    float *gate, *up;     /* [gather_rows, width] */
    uint32_t gather_rows; /* rows that a batch of experts may have together */
};

/* A lone expert may be wanted by every row; beyond that, batches of this many rows keep the
 * pool busy. */
uint32_t moe_batch_rows(uint32_t n_rows, uint32_t n_choices)
{
    uint64_t pairs = (uint64_t)n_rows * n_choices;
    uint64_t batch = pairs < 256 ? pairs : 256;

    return n_rows > batch ? n_rows : (uint32_t)batch;
}

uint64_t moe_scratch_size(const struct moe_shape *s, uint32_t n_rows, uint64_t *choices)
{
    uint64_t pairs = (uint64_t)n_rows * s->n_choices, gather = moe_batch_rows(n_rows, s->n_choices);

    *choices = arena_need(pairs * s->hidden * sizeof(float));
    return *choices + arena_need((uint64_t)n_rows * s->n_experts * sizeof(float)) +
           arena_need(pairs * sizeof(float)) + 2 * arena_need(pairs * sizeof(uint32_t)) +
           arena_need(((uint64_t)s->n_experts + 1) * sizeof(uint32_t)) +
           arena_need((uint64_t)s->n_experts * sizeof(uint16_t)) +
           arena_need(gather * s->hidden * sizeof(float)) +
           2 * arena_need(gather * s->width * sizeof(float));
}

static bool take_scratch(struct routing *g, const struct moe_shape *s, struct arena *a)
{
    uint64_t n = g->n_rows;

    g->n_pairs = g->n_rows * s->n_choices;
    g->gather_rows = moe_batch_rows(g->n_rows, s->n_choices);
    g->weight = arena_take(a, g->n_pairs * sizeof *g->weight);
    g->place = arena_take(a, g->n_pairs * sizeof *g->place);
    g->pair_row = arena_take(a, g->n_pairs * sizeof *g->pair_row);
    g->first = arena_take(a, (s->n_experts + 1ull) * sizeof *g->first);
    g->wanted = arena_take(a, s->n_experts * sizeof *g->wanted);
    g->out = arena_take(a, n * s->n_choices * s->hidden * sizeof *g->out);
    g->in = arena_take(a, (uint64_t)g->gather_rows * s->hidden * sizeof *g->in);
    g->gate = arena_take(a, (uint64_t)g->gather_rows * s->width * sizeof *g->gate);
    g->up = arena_take(a, (uint64_t)g->gather_rows * s->width * sizeof *g->up);
    return g->weight && g->place && g->pair_row && g->first && g->wanted && g->out && g->in &&
           g->gate && g->up;
}

/* Softmax over all experts, the n_choices largest (ties to the lower id), their weights
 * normalised if the model says so. scores [n_rows, n_experts] is used up. */
static void choose(struct routing *g, const struct moe_shape *s, float *scores)
{
    for (uint32_t r = 0; r < g->n_rows; r++) {
        float *row = scores + (size_t)r * s->n_experts;
        uint32_t *experts = g->place + (size_t)r * s->n_choices; /* ids now, places later */
        float *weight = g->weight + (size_t)r * s->n_choices, sum = 0.0f;

        softmax(row, s->n_experts);
        top_k(experts, row, s->n_experts, s->n_choices);
        for (uint32_t c = 0; c < s->n_choices; c++) {
            weight[c] = row[experts[c]];
            sum += weight[c];
        }
        for (uint32_t c = 0; s->normalise && c < s->n_choices; c++)
            weight[c] /= sum;
    }
}

/* A counting sort of the pairs by expert; within one expert rows stay in order. */
static void group(struct routing *g, const struct moe_shape *s)
{
    memset(g->first, 0, (s->n_experts + 1ull) * sizeof *g->first);
    for (uint32_t p = 0; p < g->n_pairs; p++)
        g->first[g->place[p] + 1]++;
    g->n_wanted = 0;
    for (uint32_t e = 0; e < s->n_experts; e++) {
        if (g->first[e + 1])
            g->wanted[g->n_wanted++] = (uint16_t)e;
        g->first[e + 1] += g->first[e];
    }
    for (uint32_t p = 0; p < g->n_pairs; p++) {
        uint32_t at = g->first[g->place[p]]++;
        g->pair_row[at] = p / s->n_choices;
        g->place[p] = at;
    }
    /* Filling moved each start to the next one's; move them back. */
    memmove(g->first + 1, g->first, s->n_experts * sizeof *g->first);
    g->first[0] = 0;
}

struct batch_job {
    struct routing *g;
    const struct moe_shape *s;
    const float *in;
    struct step *step;
};

/* Gathers the rows of a batch of lent experts and runs them. */
static void compute(void *ctx, const struct expert_loan *loans, uint32_t n_loans)
{
    const struct batch_job *b = ctx;
    struct routing *g = b->g;
    size_t hidden = b->s->hidden, width = b->s->width;
    struct ffn_job jobs[MAX_BATCH];
    uint32_t at = 0;

    for (uint32_t i = 0; i < n_loans; i++) {
        uint32_t e = loans[i].id.expert, from = g->first[e], n = g->first[e + 1] - from;
        jobs[i] = (struct ffn_job){
            .w = loans[i].w,
            .in = g->in + at * hidden,
            .gate = g->gate + at * width,
            .up = g->up + at * width,
            .out = g->out + from * hidden,
            .n_rows = n,
        };
        for (uint32_t j = 0; j < n; j++)
            memcpy(g->in + (at + j) * hidden, b->in + g->pair_row[from + j] * hidden,
                   hidden * sizeof *b->in);
        at += n;
    }
    ffn_run(jobs, n_loans, b->step);
}

static void give_back(struct expert_order *order, const struct expert_loan *loans, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        expert_order_return(order, &loans[i]);
}

int moe_take_all(struct expert_order *order, const struct moe_batches *b, struct err *err)
{
    struct expert_loan loans[MAX_BATCH], next;
    uint32_t n = 0, rows = 0;
    bool held = false; /* a loan that did not fit the batch before */

    for (;;) {
        int got = 1;
        if (!held)
            got = expert_order_next(order, &next, n == 0, err);
        if (got < 0) {
            give_back(order, loans, n);
            return -1;
        }
        if (got == 1) {
            uint32_t e = next.id.expert, more = b->first[e + 1] - b->first[e];
            if (n < MAX_BATCH && rows + more <= b->most_rows) {
                loans[n++] = next;
                rows += more;
                held = false;
                continue;
            }
            held = true;
        }
        if (n == 0 && got == 0)
            return 0;
        if (n == 0) /* nothing is lent to us, so the store broke its word */
            return err_set(err, ERR_BUSY, "the expert store has no slot to lend");
        b->compute(b->ctx, loans, n);
        give_back(order, loans, n);
        n = rows = 0;
    }
}

static int run_order(struct routing *g, const struct moe_shape *s, const float *in, uint32_t layer,
                     struct step *step, struct err *err)
{
    struct batch_job job = { .g = g, .s = s, .in = in, .step = step };
    const struct moe_batches batches = { .first = g->first, .most_rows = g->gather_rows,
                                         .compute = compute, .ctx = &job };
    struct expert_order *order = NULL;

    if (step->ordering) {
        struct cz_expert_order o = { .layer = layer, .n_rows = g->n_rows, .first = g->first,
                                     .n_experts = g->n_wanted, .experts = g->wanted };
        step->ordering(step->ordering_ctx, &o);
    }
    if (expert_store_order(step->experts, &order, (uint16_t)layer, g->wanted, g->n_wanted, err) < 0)
        return -1;
    int rc = moe_take_all(order, &batches, err);
    expert_order_close(order);
    return rc;
}

struct sum_job {
    const struct routing *g;
    const struct moe_shape *s;
    const struct kernels *kernels;
    float *x;
};

static void sum_rows(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct sum_job *job = ctx;
    uint32_t n_choices = job->s->n_choices;
    size_t hidden = job->s->hidden;

    (void)thread;
    for (uint32_t r = begin; r < end; r++) {
        /* Summed apart first: x is large beside the experts' outputs. The first pair's place
         * serves, since nobody reads it afterwards. */
        float *sum = job->g->out + job->g->place[(size_t)r * n_choices] * hidden;
        float first = job->g->weight[(size_t)r * n_choices];
        for (size_t i = 0; i < hidden; i++)
            sum[i] *= first;
        for (uint32_t c = 1; c < n_choices; c++) {
            size_t p = (size_t)r * n_choices + c;
            job->kernels->add_scaled(sum, job->g->out + job->g->place[p] * hidden,
                                     job->g->weight[p], hidden);
        }
        job->kernels->add(job->x + r * hidden, sum, hidden);
    }
}

int moe_forward(float *x, const float *in, const struct moe_shape *s, const struct matrix *router,
                uint32_t layer, struct step *step, struct err *err)
{
    uint64_t mark = arena_mark(step->scratch);
    struct routing g = { .n_rows = step->n_rows };
    float *scores =
        arena_take(step->scratch, (uint64_t)g.n_rows * s->n_experts * sizeof *scores);

    if (!scores || !take_scratch(&g, s, step->scratch))
        return err_set(err, ERR_NOMEM, "expert scratch for %" PRIu32 " rows", g.n_rows);

    matmul_pooled(step->kernels, step->pool, scores, s->n_experts, in, s->hidden, g.n_rows,
                  router);
    step->counters->multi_row_products += g.n_rows > 1;
    choose(&g, s, scores);
    group(&g, s);

    if (run_order(&g, s, in, layer, step, err) < 0)
        return -1;

    struct sum_job sum = { .g = &g, .s = s, .kernels = step->kernels, .x = x };
    pool_run(step->pool, sum_rows, &sum, g.n_rows, 4);
    arena_back(step->scratch, mark);
    return 0;
}
