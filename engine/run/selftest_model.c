/* One short reply, computed again and again under other circumstances: threads, chunks,
 * slots, neighbours, a warm cache. An answer depends on the request alone, so every row of
 * logits must come out with the same bits. */
#include "run/selftest.h"

#include "colizig.h"
#include "util/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Short, because a model that streams its experts reads most of them in each run. */
enum { N_PROMPT = 12, N_STEPS = 4, N_ROWS = N_PROMPT + N_STEPS - 1, CONTEXT = 32 };

struct outcome {
    uint32_t vocab;
    float *logits; /* owned; [N_ROWS, vocab] */
    uint32_t rows_seen; /* a bit for each */
    uint32_t tokens[N_STEPS], n_tokens;
};

static void take_logits(void *ctx, uint32_t position, const float *logits)
{
    struct outcome *o = ctx;

    if (position >= N_ROWS)
        return;
    memcpy(o->logits + (size_t)position * o->vocab, logits, o->vocab * sizeof *logits);
    o->rows_seen |= 1u << position;
}

static int submit(struct cz_engine *e, uint64_t id, uint32_t vocab, struct outcome *o,
                  struct err *err)
{
    uint32_t prompt[N_PROMPT];
    struct cz_request r = { .id = id, .prompt = prompt, .n_prompt = N_PROMPT,
                            .max_tokens = N_STEPS, .sampling = { .top_p = 1.0f,
                            .repetition_penalty = 1.0f } };

    for (uint32_t i = 0; i < N_PROMPT; i++)
        prompt[i] = (uint32_t)(((uint64_t)id * 1009 + i * 7919 + 13) % vocab);
    if (o) {
        r.take_logits = take_logits;
        r.logits_ctx = o;
    }
    return cz_submit(e, &r, err);
}

/* Until everything submitted has had its last word. Request 1 is the one that is watched. */
static int drain(struct cz_engine *e, struct outcome *o, struct err *err)
{
    struct cz_event events[16];

    while (!cz_idle(e)) {
        int n = cz_step(e, events, sizeof events / sizeof events[0], err);
        if (n < 0)
            return -1;
        for (int i = 0; i < n; i++) {
            if (events[i].type == CZ_EVENT_FAILED) {
                *err = events[i].err;
                return -1;
            }
            if (events[i].type == CZ_EVENT_TOKEN && events[i].id == 1 && o->n_tokens < N_STEPS)
                o->tokens[o->n_tokens++] = events[i].token;
        }
    }
    return 0;
}

struct run {
    const char *name;
    struct cz_options options;
    uint32_t n_neighbours;
    bool twice; /* the second time on a warm cache, whose outcome counts */
};

static void forget(struct outcome *o)
{
    o->rows_seen = 0;
    o->n_tokens = 0;
    memset(o->logits, 0xff, (size_t)N_ROWS * o->vocab * sizeof *o->logits);
}

static int run_once(struct cz_engine *e, const struct run *r, struct outcome *o, struct err *err)
{
    forget(o);
    for (uint32_t i = 0; i < r->n_neighbours; i += 2)
        if (submit(e, 100 + i, o->vocab, NULL, err) < 0)
            return -1;
    if (submit(e, 1, o->vocab, o, err) < 0)
        return -1;
    for (uint32_t i = 1; i < r->n_neighbours; i += 2)
        if (submit(e, 100 + i, o->vocab, NULL, err) < 0)
            return -1;
    return drain(e, o, err);
}

static int carry_out(const struct run *r, struct outcome *o, struct cz_stats *stats,
                     struct cz_plan *plan, struct err *err)
{
    struct cz_engine *e;
    struct cz_facts facts;
    int rc = -1;

    if (cz_open(&e, &r->options, NULL, err) < 0)
        return -1;
    cz_facts(e, &facts);
    if (!o->logits) {
        o->vocab = facts.vocab;
        o->logits = malloc((size_t)N_ROWS * o->vocab * sizeof *o->logits);
    }
    if (!o->logits) {
        err_set(err, ERR_NOMEM, "logits of %d rows", N_ROWS);
    } else {
        rc = run_once(e, r, o, err);
        if (rc == 0 && r->twice)
            rc = run_once(e, r, o, err);
    }
    cz_stats(e, stats);
    *plan = *cz_engine_plan(e);
    cz_close(e);
    return rc;
}

static bool complete(const struct outcome *o)
{
    return o->rows_seen == (1u << N_ROWS) - 1 && o->n_tokens == N_STEPS;
}

static bool same_bits(const struct outcome *a, const struct outcome *b)
{
    return complete(a) && complete(b) && a->vocab == b->vocab &&
           memcmp(a->tokens, b->tokens, sizeof a->tokens) == 0 &&
           memcmp(a->logits, b->logits, (size_t)N_ROWS * a->vocab * sizeof *a->logits) == 0;
}

/* The largest over prompt rows of |a - b| / |b|. Generated rows are left out: a near tie may
 * send two kernel classes on different ways. */
static double row_difference(const struct outcome *a, const struct outcome *b)
{
    double worst = 0.0;

    for (uint32_t row = 0; row < N_PROMPT; row++) {
        const float *x = a->logits + (size_t)row * a->vocab;
        const float *y = b->logits + (size_t)row * b->vocab;
        double difference = 0.0, size = 0.0;
        for (uint32_t i = 0; i < a->vocab; i++) {
            double d = (double)x[i] - (double)y[i];
            difference += d * d;
            size += (double)y[i] * (double)y[i];
        }
        double relative = size > 0.0 ? sqrt(difference / size) : (double)INFINITY;
        if (!(relative <= worst)) /* also when it is not a number */
            worst = relative;
    }
    return worst;
}

/* Runs, compares with base and says so. A run that fails is a failed check, not our end. */
static void compare(struct selftest *t, const struct run *r, const struct outcome *base,
                    struct outcome *o, struct cz_stats *stats)
{
    struct cz_plan plan;
    struct err why;

    if (carry_out(r, o, stats, &plan, &why) < 0)
        selftest_line(t, false, "%s: %s", r->name, why.text);
    else
        selftest_line(t, same_bits(o, base), "%s: %s", r->name,
                      same_bits(o, base) ? "same bits" : "ANOTHER ANSWER");
}

static void compare_slots(struct selftest *t, struct run *r, uint32_t n_slots, const char *name,
                          const struct outcome *base, struct outcome *o)
{
    struct cz_stats stats = { 0 };

    r->name = name;
    r->options.expert_slots = n_slots;
    compare(t, r, base, o, &stats);
    if (stats.expert_misses > n_slots)
        selftest_line(t, stats.expert_evictions > 0,
                      "%s: %llu evictions, %llu hits, %llu misses", name,
                      (unsigned long long)stats.expert_evictions,
                      (unsigned long long)stats.expert_hits,
                      (unsigned long long)stats.expert_misses);
}

static void compare_kernels(struct selftest *t, struct run r, struct outcome *a,
                            struct outcome *b)
{
    struct cz_stats stats = { 0 };
    struct cz_plan plan;
    struct err why;

    r.options.kv_dtype = CZ_KV_F32;
    if (carry_out(&r, a, &stats, &plan, &why) < 0) {
        selftest_line(t, false, "kernels: %s", why.text);
        return;
    }
    if (strcmp(stats.kernels, "scalar") == 0)
        return; /* there is nothing to compare */
    char name[sizeof stats.kernels];
    memcpy(name, stats.kernels, sizeof name);
    r.options.kernels = CZ_KERNELS_SCALAR;
    if (carry_out(&r, b, &stats, &plan, &why) < 0) {
        selftest_line(t, false, "scalar kernels: %s", why.text);
        return;
    }
    double worst = row_difference(a, b);
    selftest_line(t, worst <= 1e-3, "logits of %s kernels differ from scalar by %.1e", name,
                  worst);
}

static void compare_all(struct selftest *t, const struct run *plain, const struct cz_plan *plan,
                        const struct outcome *base, struct outcome *o)
{
    struct cz_stats stats;
    struct run r = *plain;

    r.name = "a warm cache";
    r.twice = true;
    compare(t, &r, base, o, &stats);

    r = *plain;
    r.name = plan->threads == 1 ? "3 threads" : "1 thread";
    r.options.threads = plan->threads == 1 ? 3 : 1;
    compare(t, &r, base, o, &stats);

    r = *plain;
    r.name = "prefill row by row";
    r.options.prefill_rows = 1;
    compare(t, &r, base, o, &stats);
    r.name = "prefill in chunks of 5 rows";
    r.options.prefill_rows = 5;
    compare(t, &r, base, o, &stats);

    r = *plain;
    r.name = "2 neighbours";
    r.n_neighbours = 2;
    compare(t, &r, base, o, &stats);

    r = *plain;
    r.name = "buffered reads";
    r.options.direct_io = !plain->options.direct_io;
    if (!plain->options.direct_io)
        r.name = "direct reads";
    compare(t, &r, base, o, &stats);

    r = *plain;
    if (plan->n_experts_total)
        compare_slots(t, &r, plan->min_slots, "the fewest expert slots", base, o);
    if (plan->n_experts_total / 2 > plan->min_slots &&
        plan->n_experts_total / 2 < plan->expert_slots)
        compare_slots(t, &r, plan->n_experts_total / 2, "slots for half the experts", base, o);
}

int selftest_model(struct selftest *t, const struct cz_options *opt, struct err *err)
{
    struct outcome base = { 0 }, other = { 0 };
    struct run plain = { .name = "the reply", .options = *opt };
    struct cz_options *o = &plain.options;
    struct cz_stats stats;
    struct cz_plan plan;

    if (!o->context)
        o->context = CONTEXT;
    o->sequences = 3;
    o->queue = 4;
    o->workers = 0;
    o->http_buffer = 0;
    int rc = carry_out(&plain, &base, &stats, &plan, err);
    if (rc == 0) {
        other.vocab = base.vocab;
        other.logits = malloc((size_t)N_ROWS * base.vocab * sizeof *other.logits);
        if (!other.logits)
            rc = err_set(err, ERR_NOMEM, "logits of %d rows", N_ROWS);
    }
    if (rc == 0) {
        selftest_line(t, complete(&base), "the reply: %d rows of logits, %u tokens, %s kernels, "
                                          "%u threads, %u slots", N_ROWS, base.n_tokens,
                      stats.kernels, stats.threads, plan.expert_slots);
        compare_all(t, &plain, &plan, &base, &other);
        compare_kernels(t, plain, &base, &other);
    }
    free(base.logits);
    free(other.logits);
    return rc;
}
