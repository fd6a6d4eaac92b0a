/* plan: the arithmetic of the budget, pure.
 *
 * Every byte that scales with model, context or clients is a line. What does not fit is
 * refused with the minimum that would. No I/O: sizes come in, lines come out.
 *
 * More ram never gives fewer slots: what is left on auto (KV pages beyond one context, rows
 * of a prefill chunk) grows with the slots, so the cost of a number of slots is one rising
 * function, and the plan takes the most slots whose cost fits.
 *
 * Loading happens before slots, KV pool and scratch are touched, so its buffers live in
 * their room: whoever opens them must load the resident part first. */
#ifndef STORE_PLAN_H
#define STORE_PLAN_H

#include "colizig.h"
#include "store/catalog.h"
#include "store/shape.h"

#include <stdint.h>

struct err;
struct family;

struct plan_input {
    const struct cz_options *options; /* validated here */
    const struct model_shape *shape;
    uint64_t resident[N_ROLES]; /* resident_size */
    uint64_t other_resident;    /* their sum, with the other choice of dense */
    uint64_t strip_bytes;       /* resident_strip_size */
    uint64_t slot_size;         /* expert_map.slot_size; 0 without experts */
    uint64_t row_store_bytes;
    enum dtype table_dtype; /* of n-gram tables, where the shape has any */
    uint64_t tokenizer_bytes; /* of one copy in memory; each worker holds one */
    /* sched_size: activations of both steps, logits, sampler and the requests' tokens, all in
     * one; *choices is the part of it for per-choice expert outputs. */
    const struct family *family; /* only handed through */
    uint64_t (*run_size)(const struct model_shape *shape, const struct family *family,
                         uint32_t context, uint32_t sequences, uint32_t queue,
                         uint32_t prefill_rows, uint32_t logit_rows, uint64_t *choices);
    uint64_t available; /* what machine or cgroup has */
    const char *available_source;
    uint32_t auto_threads;
};

/* ERR_INPUT for an option out of range, ERR_UNSUPPORTED for what is not built, ERR_BUDGET
 * for too little ram; then *out holds the lines of the minimum. */
int plan_make(struct cz_plan *out, const struct plan_input *in, struct err *err);

/* A plan for other ram (and engine.queue, which is read from the options) while it runs: what is
 * open stays as *now has it (KV pool, chunks, threads), and only the number of expert slots
 * follows, up to most_slots. ERR_BUDGET, naming the least, when not even the fewest fit; *out is
 * untouched then. */
int plan_refit(struct cz_plan *out, const struct plan_input *in, const struct cz_plan *now,
               uint64_t ram, uint32_t most_slots, struct err *err);

/* Sets tokens_per_second from disk_gbps and memory_gbps of the plan: one sequence decoding,
 * experts picked evenly. */
void plan_estimate(struct cz_plan *p);

#endif
