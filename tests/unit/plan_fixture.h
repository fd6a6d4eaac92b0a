/* plan_fixture: made-up models and sizes to plan for. */
#ifndef TESTS_PLAN_FIXTURE_H
#define TESTS_PLAN_FIXTURE_H

#include "store/plan.h"

#include "colizig.h"
#include "store/expert_store.h"
#include "store/kv_pool.h"
#include "util/err.h"
#include "util/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Activations of a few row vectors, K outputs a row, and the tokens of every request. */
static inline uint64_t run_size(const struct model_shape *shape, const struct family *family,
                                uint32_t context, uint32_t sequences, uint32_t queue,
                                uint32_t prefill_rows, uint32_t logit_rows, uint64_t *choices)
{
    uint64_t n_rows = prefill_rows + sequences;

    (void)family;
    *choices = n_rows * shape->experts_per_token * shape->hidden * 4;
    return n_rows * shape->hidden * 4 * 6 + (uint64_t)logit_rows * shape->vocab * 4 + *choices +
           ((uint64_t)sequences + queue) * context * 4;
}

struct fixture {
    struct cz_options options;
    struct model_shape shape;
    struct plan_input in;
};

/* Qwen3-30B-A3B in FP8: 48 layers x 128 experts of 4.5 MiB. */
static inline void big(struct fixture *f)
{
    *f = (struct fixture){
        .options = { .sequences = 4, .queue = 32, .workers = 2,
                     .connections = 256, .http_buffer = 64 * MIB,
                     .ram = 8 * GIB, .direct_io = true },
        .shape = { .vocab = 151936, .hidden = 2048, .n_layers = 48, .n_heads = 32,
                   .n_kv_heads = 4, .head_dim = 128, .n_experts = 128, .experts_per_token = 8,
                   .expert_width = 768, .dense_width = 6144, .n_moe_layers = 48,
                   .max_positions = 40960, .fp8 = true,
                   .kv_values_per_token = 2ull * 48 * 4 * 128 },
    };
    f->in = (struct plan_input){
        .options = &f->options,
        .shape = &f->shape,
        .resident = { [ROLE_HEAD] = 622329856, [ROLE_NORM] = 811008, [ROLE_ATTENTION] = 906000000,
                      [ROLE_ROUTER] = 25165824, [ROLE_EXPERT] = 7077888 },
        .slot_size = 4730880,
        .row_store_bytes = 16 * 8192,
        .tokenizer_bytes = 20 * MIB,
        .run_size = run_size,
        .available = 20 * GIB,
        .available_source = "machine",
        .auto_threads = 2,
    };
}

static inline void tiny(struct fixture *f)
{
    big(f);
    f->shape = (struct model_shape){
        .vocab = 512, .hidden = 64, .n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16,
        .n_experts = 8, .experts_per_token = 2, .expert_width = 32, .n_moe_layers = 3,
        .max_positions = 512, .kv_values_per_token = 2 * 3 * 2 * 16,
    };
    memset(f->in.resident, 0, sizeof f->in.resident);
    f->in.resident[ROLE_ATTENTION] = 73728;
    f->in.resident[ROLE_HEAD] = 65536;
    f->in.slot_size = 16384;
    f->options.ram = 1 * GIB;
}

static inline uint64_t sum_of(const struct cz_plan *p)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < p->n_lines; i++)
        sum += p->lines[i].bytes;
    return sum;
}

static inline const struct cz_plan_line *line_of(const struct cz_plan *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_lines; i++)
        if (strcmp(p->lines[i].name, name) == 0)
            return &p->lines[i];
    return NULL;
}

static inline struct cz_plan planned(const struct fixture *f)
{
    struct cz_plan p;
    struct err err;

    if (plan_make(&p, &f->in, &err) < 0)
        fail_msg("%s", err.text);
    return p;
}

/* Why; *p gets what is shown all the same. */
static inline struct err refused(const struct fixture *f, struct cz_plan *p, enum err_kind kind)
{
    struct err err;

    assert_int_equal(plan_make(p, &f->in, &err), -1);
    assert_int_equal(err.kind, kind);
    return err;
}

/* xorshift64: the same inputs on every machine. */
static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline uint32_t between(uint64_t *state, uint32_t low, uint32_t high)
{
    return low + (uint32_t)(next_random(state) % (high - low + 1));
}

static inline void randomize(struct fixture *f, uint64_t *state)
{
    big(f);
    struct model_shape *s = &f->shape;
    s->vocab = between(state, 100, 160000);
    s->hidden = between(state, 16, 4096);
    s->n_layers = between(state, 1, 96);
    s->n_moe_layers = between(state, 0, s->n_layers);
    s->n_experts = s->n_moe_layers ? between(state, 1, 256) : 0;
    s->experts_per_token = s->n_experts ? between(state, 1, s->n_experts < 10 ? s->n_experts : 10)
                                        : 0;
    s->max_positions = between(state, 16, 50000);
    s->n_kv_heads = between(state, 1, 16);
    s->head_dim = between(state, 2, 128);
    s->fp8 = next_random(state) & 1;
    f->in.slot_size = s->n_moe_layers ? (uint64_t)between(state, 1, 3000) * 4096 : 0;
    for (int role = 0; role < N_ROLES; role++)
        f->in.resident[role] = next_random(state) % (900 * MIB);
    f->in.tokenizer_bytes = next_random(state) % (40 * MIB);
    struct cz_options *o = &f->options;
    o->sequences = between(state, 1, 16);
    o->queue = between(state, 0, 64);
    o->workers = between(state, 0, 8);
    o->http_buffer = next_random(state) % (128 * MIB);
    o->reasoning_memory = next_random(state) % 3 ? CZ_MEMORY_AUTO
                                                 : MIB + next_random(state) % (64 * MIB);
    o->context = next_random(state) & 1 ? 0 : between(state, 16, s->max_positions);
    o->prefill_rows = next_random(state) & 1 ? 0 : between(state, 1, 2048);
    o->kv_dtype = next_random(state) & 1 ? CZ_KV_F32 : CZ_KV_BF16;
    o->ram = 1; /* asks for the minimum */
}

#endif
