/* engine_fixture: an engine on a tiny checkpoint, and the bits that a request must give.
 *
 * The reference is one run: one thread, the whole prompt in one chunk, all experts resident.
 * Whatever else a test does to the engine, prompt 0 must give the same logits, bit for bit. */
#ifndef TESTS_ENGINE_FIXTURE_H
#define TESTS_ENGINE_FIXTURE_H

#include "colizig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef MODEL
#define MODEL "build/models/tiny-fp8"
#endif

enum { N_PROMPT = 150, N_NEW = 12, MAX_VOCAB = 4096 };

struct trace { /* what one request gave */
    uint32_t n_prompt, vocab, n_tokens;
    uint32_t tokens[64];
    float *logits; /* [N_PROMPT + N_NEW, vocab] */
    uint32_t n_rows;
    bool done, failed;
    struct cz_usage usage;
    enum cz_finish finish;
};

static uint32_t prompt[4][N_PROMPT];

static inline void take(void *ctx, uint32_t position, const float *logits)
{
    struct trace *t = ctx;

    assert_true(position < N_PROMPT + N_NEW);
    memcpy(t->logits + (size_t)position * t->vocab, logits, t->vocab * sizeof *logits);
    if (position + 1 > t->n_rows)
        t->n_rows = position + 1;
}

static inline void trace_open(struct trace *t, uint32_t vocab)
{
    *t = (struct trace){ .vocab = vocab };
    t->logits = calloc((size_t)(N_PROMPT + N_NEW) * vocab, sizeof *t->logits);
    assert_non_null(t->logits);
}

static inline struct cz_engine *open_engine(const struct cz_options *opt)
{
    struct cz_engine *e;
    struct err err;

    if (cz_open(&e, opt, NULL, &err) < 0)
        fail_msg("%s", err.text);
    return e;
}

static inline void defaults(struct cz_options *opt)
{
    cz_options_init(opt);
    opt->model_dir = MODEL;
    opt->ram = 1ull << 30;
    opt->kv_dtype = CZ_KV_F32;
    opt->context = 512;
    opt->threads = 1;
    for (uint32_t s = 0; s < 4; s++)
        for (uint32_t i = 0; i < N_PROMPT; i++)
            prompt[s][i] = (i * 37 + s * 101 + i * i % 13) % 300;
}

/* The least that a pool may be, to the kibibyte. */
static inline uint64_t kv_of_one_context(const struct cz_options *opt)
{
    struct cz_options least = *opt;
    uint64_t low = 0, high = 1 << 20; /* KiB: too little, enough */
    struct cz_plan plan;
    struct err err;

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        least.kv = middle << 10;
        if (cz_plan(&plan, &least, false, &err) < 0)
            low = middle;
        else
            high = middle;
    }
    return high << 10;
}

static inline void submit(struct cz_engine *e, struct trace *t, uint64_t id, uint32_t which,
                          uint32_t n_prompt, uint32_t n_new)
{
    struct err err;
    struct cz_request r = {
        .id = id,
        .prompt = prompt[which],
        .n_prompt = n_prompt,
        .max_tokens = n_new,
        .sampling = { .top_p = 1.0f, .repetition_penalty = 1.0f },
        .take_logits = t ? take : NULL,
        .logits_ctx = t,
    };
    if (cz_submit(e, &r, &err) < 0)
        fail_msg("%s", err.text);
}

/* Steps until the engine is idle; events of id 1 go to t. */
static inline void run(struct cz_engine *e, struct trace *t)
{
    struct cz_event events[16];
    struct err err;

    for (int guard = 0; !cz_idle(e); guard++) {
        assert_true(guard < 100000);
        int n = cz_step(e, events, 16, &err);
        assert_true(n >= 0);
        for (int i = 0; i < n; i++) {
            if (events[i].type == CZ_EVENT_FAILED)
                fail_msg("%s", events[i].err.text);
            if (events[i].id != 1)
                continue;
            if (events[i].type == CZ_EVENT_TOKEN)
                t->tokens[t->n_tokens++] = events[i].token;
            if (events[i].type == CZ_EVENT_FINISHED) {
                t->done = true;
                t->usage = events[i].usage;
                t->finish = events[i].finish;
            }
        }
    }
}

/* The reference run: one thread, whole prompt in one chunk, all experts resident. */
static inline void reference(struct trace *t)
{
    struct cz_options opt;
    struct cz_facts facts;

    defaults(&opt);
    opt.prefill_rows = N_PROMPT;
    struct cz_engine *e = open_engine(&opt);
    cz_facts(e, &facts);
    trace_open(t, facts.vocab);
    submit(e, t, 1, 0, N_PROMPT, N_NEW);
    run(e, t);
    cz_close(e);
    assert_true(t->done);
    assert_int_equal(t->n_tokens, N_NEW);
}

static struct trace expected;

static inline int make_reference(void **state)
{
    (void)state;
    reference(&expected);
    return 0;
}

static inline int drop_reference(void **state)
{
    (void)state;
    free(expected.logits);
    return 0;
}

static inline void same_bits(const struct trace *t, const char *what)
{
    if (!t->done)
        fail_msg("%s: did not finish", what);
    assert_int_equal(t->n_tokens, expected.n_tokens);
    assert_memory_equal(t->tokens, expected.tokens, t->n_tokens * sizeof t->tokens[0]);
    assert_int_equal(t->n_rows, expected.n_rows);
    if (memcmp(t->logits, expected.logits, (size_t)t->n_rows * t->vocab * sizeof(float)) != 0)
        fail_msg("%s: some logits differ in some bit", what);
}

static inline void check_alone(const struct cz_options *opt, const char *what,
                               struct cz_stats *stats)
{
    struct trace t;
    struct cz_engine *e = open_engine(opt);

    trace_open(&t, expected.vocab);
    submit(e, &t, 1, 0, N_PROMPT, N_NEW);
    run(e, &t);
    same_bits(&t, what);
    cz_stats(e, stats);
    cz_close(e);
    free(t.logits);
}

#endif
