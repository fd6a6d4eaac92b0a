/* colizig: the front door of the engine, a library that knows nothing of processes.
 *
 * One thread calls it, from open to close. There are no hidden threads but the compute
 * pool and I/O, and no globals. Nothing here logs: errors are values, events come back
 * from cz_step, numbers from cz_stats. */
#ifndef COLIZIG_H
#define COLIZIG_H

#include "util/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cz_engine;

/* ---- what it should be ---- */

enum cz_profile { CZ_PROFILE_NONE, CZ_PROFILE_TINY, CZ_PROFILE_LAPTOP, CZ_PROFILE_DESKTOP,
                  CZ_PROFILE_GPU };
enum cz_kernels { CZ_KERNELS_AUTO, CZ_KERNELS_SCALAR, CZ_KERNELS_AVX2, CZ_KERNELS_AVX512 };
enum cz_kv_dtype { CZ_KV_BF16, CZ_KV_F32 };
enum cz_dense { CZ_DENSE_BF16, CZ_DENSE_FP8 };
enum cz_device { CZ_DEVICE_CPU, CZ_DEVICE_CUDA };

#define CZ_MEMORY_AUTO UINT64_MAX

/* Zero means "auto" wherever a field says so; cz_options_init gives the defaults. */
struct cz_options {
    const char *model_dir;
    uint64_t ram;            /* bytes for the whole service; 0 auto: what machine or cgroup
                                really has, less a reserve */
    uint64_t vram;           /* must be 0 until a device tier is built */
    enum cz_device device;
    enum cz_profile profile; /* presets for what is left on auto */
    uint64_t kv;             /* bytes of the KV page pool; 0 auto */
    enum cz_kv_dtype kv_dtype;
    enum cz_dense dense;     /* matrices that every token passes over: BF16, as the checkpoint has
                                them, or made FP8 with block scales as they are loaded */
    uint32_t expert_slots;   /* 0 auto: what the budget leaves */
    bool lock;               /* wire all memory of the engine (mlockall) */
    bool direct_io;          /* true; false reads buffered and drops the pages (tests) */
    bool reads_in_turn;      /* experts are read by the caller's thread, one by one. Slower,
                                and a drive that does not answer is waited for; but which experts
                                are found in slots is the same in every run (tools) */
    uint32_t threads;        /* 0 auto */
    enum cz_kernels kernels;
    uint32_t context;        /* tokens a sequence may hold; 0 auto */
    uint32_t sequences;      /* running at once */
    uint32_t queue;          /* waiting behind them; more is ERR_BUSY */
    uint32_t prefill_rows;   /* rows of a prefill chunk; 0 auto */
    uint32_t token_gap_ms;   /* how long a decoding sequence may wait for a prefill */
    uint32_t stall_timeout_ms; /* neither a layer nor a read for so long is a fault; a read is
                                  given up after four fifths of it. 0: never */
    /* the rest of the service, so that the plan covers it */
    uint32_t workers;        /* HTTP workers; 0 when there are none (tools) */
    uint32_t connections;    /* clients of a worker at once */
    uint64_t http_buffer;    /* bytes a worker may buffer for its clients */
    uint64_t reasoning_memory; /* bytes for replies that are remembered; CZ_MEMORY_AUTO: by
                                  what the budget leaves beyond the minimum; 0: none */
    bool no_prefix_cache;    /* no prompt is looked for among what was computed before */
    uint64_t held;           /* for cz_plan: bytes of the machine that a running service of ours
                                holds and gives back before this one opens */
};

void cz_options_init(struct cz_options *o);

/* ---- what a checkpoint is: headers only ---- */

/* Bytes on disk by class. When only config.json is there they are derived from it. */
struct cz_model_info {
    char model_type[32];
    char architecture[64]; /* "Qwen3MoeForCausalLM" */
    bool derived;          /* no shards were there: sizes computed from the config */
    uint32_t n_shards, n_tensors;
    uint32_t vocab, hidden, n_layers, n_moe_layers;
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t n_experts, experts_per_token, expert_width, dense_width;
    uint32_t max_positions;
    bool tied_embeddings, fp8;
    uint64_t n_params;
    uint64_t embedding, head, norms, attention, router, dense_mlp; /* bytes, with scales */
    uint64_t experts, expert_scales;                               /* all experts */
    uint64_t expert_bytes;                                         /* one expert's weights */
    uint64_t total;
    uint64_t kv_bytes_per_token_bf16;
    char warnings[8][160]; /* config keys that change nothing here, by name */
    uint32_t n_warnings;
};

int cz_inspect(struct cz_model_info *out, const char *model_dir, struct err *err);

/* The same, cut by how it is used, and what a sequence keeps: plain integers for whoever adds up.
 * Scales are counted with their tensors. */
struct cz_model_parts {
    /* Bytes of the text model: all that every token passes over (with the token embedding, which
     * is read by row), routed experts, n-gram tables, and constants that are only compared. */
    uint64_t dense, routed, table, constants;
    uint64_t linear_attention, residual_mixing, ngram_projections, shared_experts; /* of dense */
    /* In the files and not of the text model: never read. */
    uint64_t mtp, vision;
    uint32_t n_dense_tensors, n_routed_tensors, n_table_tensors, n_mtp_tensors, n_vision_tensors;
    uint64_t table_rows, table_rows_per_token;
    /* A sequence's state: whatever its length, F32; and values that each token adds. */
    uint64_t fixed_state;
    uint64_t kv_values_per_token, index_values_per_token;
    uint64_t block_values; /* of a block of block_tokens; 0: no such blocks */
    uint32_t block_tokens;
};
int cz_inspect_parts(struct cz_model_parts *out, const char *model_dir, struct err *err);

/* One safetensors file by itself: its header, verified. */
struct cz_file_info {
    uint64_t file_size, data_size; /* data_size: all tensors */
    uint32_t n_tensors, n_dtypes;
    uint64_t n_values;
    struct {
        char name[16]; /* as the format spells it: "F8_E4M3" */
        uint32_t n_tensors;
        uint64_t bytes;
    } dtypes[16];
    char largest[160];
    uint64_t largest_bytes;
};
int cz_inspect_file(struct cz_file_info *out, const char *path, struct err *err);

/* ---- what it will take ---- */

enum { CZ_PLAN_LINES = 48 };

struct cz_plan_line {
    char name[40];   /* "attention", "KV pool", "expert slots", ... */
    char detail[88]; /* "12,031 of 6,144 experts x 4.51 MiB" */
    uint64_t bytes;
};

struct cz_plan {
    struct cz_plan_line lines[CZ_PLAN_LINES];
    uint32_t n_lines;
    uint64_t ram;       /* the budget */
    uint64_t total;     /* sum of the lines; never above ram */
    uint64_t minimum;   /* the least ram this configuration works with */
    uint64_t available; /* what machine or cgroup has */
    char ram_source[48]; /* "config", "machine", "cgroup v2", "cgroup v1" */
    bool derived;        /* no shards were there: sizes computed from the config */
    uint32_t threads, context, sequences, prefill_rows, expert_slots, n_experts_total;
    uint32_t kv_pages, kv_page_tokens, reads_in_flight;
    uint32_t table_rows; /* kept in memory of each n-gram table; 0: it has none */
    uint32_t min_slots; /* fewer expert slots cannot work */
    uint64_t kv_bytes, slot_size, slots_bytes;
    uint64_t engine_bytes; /* the engine process's part of total, with its page tables */
    uint64_t reasoning_bytes; /* for replies that are remembered; 0: none are */
    uint32_t logit_rows; /* rows of logits computed at once */
    uint64_t loading_bytes; /* bounce buffers while loading; given back before the slots fill */
    uint64_t token_resident_bytes, token_expert_bytes; /* weights one token passes over */
    enum cz_dense dense;
    uint64_t resident_bytes;       /* all lines of what is resident, rounding included; */
    uint64_t other_resident_bytes; /* with the other choice of dense */
    /* Estimates, and said to be so: 0 when nothing was probed. */
    double disk_gbps, memory_gbps, tokens_per_second;
};

/* ERR_BUDGET, naming the minimum, when it does not fit; *out is filled as far as the
 * lines go so that they can be shown. probe measures disk and memory for about a
 * second. */
int cz_plan(struct cz_plan *out, const struct cz_options *opt, bool probe, struct err *err);

/* ---- running ---- */

/* What one layer of one step asks of its experts, all rows together. */
struct cz_expert_order {
    uint64_t step; /* steps that ended before this one */
    bool prefill;  /* as cz_stats counts steps, mixed ones with the prefills */
    uint32_t layer, n_rows, n_experts;
    const uint16_t *experts; /* [n_experts]: distinct, rising */
    const uint32_t *first;   /* [experts of the layer + 1]: first[e + 1] - first[e] rows picked e */
};

struct cz_watch { /* called by the engine on the caller's thread */
    void *ctx;
    bool (*loading)(void *ctx, uint64_t done, uint64_t total); /* false: give up opening */
    /* No order of experts is open: may call whatever does not step or close. */
    void (*between_layers)(void *ctx);
    /* Before an order is placed. What o points to is lent for the call, which may call nothing of
     * the engine's. */
    void (*ordering)(void *ctx, const struct cz_expert_order *o);
    /* Reads that ended are added, whatever came of them: while loading, and in the middle of a
     * layer, when nothing else moves. The engine writes, relaxed; any thread reads. NULL is fine. */
    _Atomic uint64_t *reads_ended;
};

/* w is copied; it and its callbacks may be NULL. */
int cz_open(struct cz_engine **out, const struct cz_options *opt, const struct cz_watch *w,
            struct err *err);
void cz_close(struct cz_engine *e); /* NULL is fine */

/* What a caller must know to make requests. Borrowed strings live as long as e. */
struct cz_facts {
    uint32_t vocab, context;
    uint32_t stop_ids[16], n_stop_ids; /* generation_config.json, else config.json */
    struct cz_sampling {
        float temperature; /* 0: greedy */
        uint32_t top_k;    /* 0: off */
        float top_p;       /* 1: off */
        float min_p;       /* 0: off */
        float presence_penalty, frequency_penalty; /* over generated tokens */
        float repetition_penalty;                  /* over prompt and generated; 1: off */
        uint64_t seed;                             /* used when temperature > 0 */
    } defaults; /* of the checkpoint */
    uint64_t tokenizer;   /* fingerprint of tokenizer.json as it was read; 0: there is none */
    uint64_t fingerprint; /* of config, headers, kernels, types of KV and dense weights: what
                             decides an answer */
};
void cz_facts(const struct cz_engine *e, struct cz_facts *out);

struct cz_bias {
    uint32_t token;
    float value; /* added to the raw logit; -100 or less bans the token */
};

enum {
    CZ_MAX_STOP_IDS = 64,
    CZ_MAX_BIAS = 1040,
    CZ_MAX_CHOICES = 4,
    CZ_MAX_TOP = 20,     /* most likely tokens told beside the one that was chosen */
    CZ_MAX_FORCED = 512, /* tokens of each forced list */
};
#define CZ_NO_TOKEN UINT32_MAX
#define CZ_NO_BUDGET UINT32_MAX

/* How a reply thinks; zeroed: it does not. Forced tokens (closing, and forced and forced_behind of
 * a request) are appended instead of being sampled: they are generated tokens like others, count
 * against max_tokens and context, and what of them does not fit is left off: the choice then ends
 * with LENGTH. What is forced depends on the choice's own tokens alone. */
struct cz_thinking {
    uint32_t open, close;    /* the marks' ids; close is needed with inside or may_open */
    bool inside;             /* the prompt leaves the model inside thinking */
    bool may_open;           /* without inside: the first token sampled may be `open` */
    bool call_closes;        /* sampled inside, `call` ends the thinking as well, and nothing is
                                forced behind it: the model calls a tool out of its thoughts */
    uint32_t call;
    uint32_t budget;         /* tokens inside, `open` not counted; CZ_NO_BUDGET: no end */
    const uint32_t *closing; /* holds `close`. Follows the budget's last token, or stands in place of
                                a stop token that was sampled inside */
    uint32_t n_closing;      /* 0: no budget, and a stop token ends the choice inside too */
};

struct cz_request {
    uint64_t id; /* the caller's; unique among live requests */
    uint64_t client; /* those waiting are admitted in turn, a client each; 0 is one like others */
    const uint32_t *prompt;
    uint32_t n_prompt;   /* at least 1 */
    uint32_t max_tokens; /* 0: as many as the context leaves; clamped to that */
    uint32_t min_tokens; /* stop ids are banned until then */
    struct cz_sampling sampling;
    const uint32_t *stop_ids; /* end the sequence; usually cz_facts.stop_ids */
    uint32_t n_stop_ids;
    const struct cz_bias *bias;
    uint32_t n_bias;
    /* One prefill, then the choices one after the other, each as a request of its own with
     * cz_choice_seed would have it. max_tokens holds for each. 0: 1 */
    uint32_t n_choices;
    bool uncached;  /* is computed anew, and leaves nothing that another could find */
    bool logprobs;  /* tell them with each sampled token, */
    uint32_t n_top; /* and those of so many that are most likely */
    struct cz_thinking thinking;
    const uint32_t *forced; /* begin a reply that does not think; with may_open: stand in place of
                               the first token sampled, unless that is `open` */
    const uint32_t *forced_behind; /* follow `close` at once; behind a forced one in place of what
                                      closing has there */
    uint32_t n_forced, n_forced_behind;
    /* For tools and tests: raw logits of every row from position logits_from on, on the
     * engine thread, before sampling. NULL: none. */
    void (*take_logits)(void *ctx, uint32_t position, const float *logits);
    void *logits_ctx;
    uint32_t logits_from;
};

/* The seed of a choice: that of choice 0 is the request's. */
static inline uint64_t cz_choice_seed(uint64_t seed, uint32_t choice)
{
    return choice == 0 ? seed : (seed ^ choice * 0x9e3779b97f4a7c15u) * 0xd1342543de82ef95u;
}

/* Copies r. ERR_INPUT (a token id out of range, no prompt), ERR_TOO_LONG (prompt and one
 * token do not fit the context), ERR_BUSY (running and queue are full). A client that has at
 * least two requests fewer waiting than another gets into a full queue all the same: the newest
 * waiting request of the one with most fails with ERR_BUSY. */
int cz_submit(struct cz_engine *e, const struct cz_request *r, struct err *err);
/* As things stand: 0 when it runs or will in the next step (or is unknown), 1 when it is the next
 * to be admitted after that. A client that comes later may still have its turn before it. */
uint32_t cz_place(const struct cz_engine *e, uint64_t id);
/* No event follows. Unknown ids are ignored (it may just have finished). */
void cz_cancel(struct cz_engine *e, uint64_t id);
/* Ends this choice as a stop token would, if it is the one under way: FINISHED follows with the
 * next step, then the next choice begins, if there is one. A choice that has ended is left alone. */
void cz_next(struct cz_engine *e, uint64_t id, uint32_t choice);

enum cz_event_type { CZ_EVENT_PROGRESS, CZ_EVENT_TOKEN, CZ_EVENT_FINISHED, CZ_EVENT_FAILED };
enum cz_finish { CZ_FINISH_STOP, CZ_FINISH_LENGTH };

struct cz_usage { /* of one choice; prompt, queue and prefill stand in the first one's alone */
    uint32_t n_prompt, n_cached, n_generated; /* the stop token counts as generated */
    uint64_t queue_ns, prefill_ns, decode_ns;
};

/* Log-softmax of the raw logits in double, before bias, bans, penalties and temperature. */
struct cz_logprob {
    uint32_t token;
    float logprob;
};

struct cz_logprobs { /* of one place in a reply */
    struct cz_logprob own;             /* the token that was chosen */
    uint32_t n_top;
    struct cz_logprob top[CZ_MAX_TOP]; /* most likely first, then lower ids first */
};

struct cz_event {
    uint64_t id;
    enum cz_event_type type;
    uint32_t choice;  /* TOKEN, FINISHED */
    uint32_t token;   /* TOKEN; a stop id ends the sequence and is not sent */
    bool forced;      /* TOKEN: appended, not sampled */
    bool has_logprobs; /* TOKEN: they were asked for, and it was sampled */
    bool more;        /* FINISHED: another choice follows */
    uint32_t n_done;  /* PROGRESS: prompt tokens seen so far, of n_total */
    uint32_t n_total;
    enum cz_finish finish; /* FINISHED */
    struct cz_usage usage; /* FINISHED, FAILED */
    struct err err;        /* FAILED */
    struct cz_logprobs logprobs; /* with has_logprobs */
};

/* Runs one step (or the part of one that is due) and hands over up to cap events (at
 * least 16 must fit; what does not fit comes with the next call). Returns how many, or -1 when
 * the engine itself is broken. With nothing to do it returns 0 at once. */
int cz_step(struct cz_engine *e, struct cz_event *events, size_t cap, struct err *err);
bool cz_idle(const struct cz_engine *e); /* nothing running, waiting or to be told */
/* Looks whether the model's files are as they were, and after memory: compares the plan with what
 * the kernel says, and gives expert slots back when memory runs short. Steps do it by themselves;
 * a caller with nothing to do should call it about once a second. Opens no file. */
void cz_tend(struct cz_engine *e);

/* Why the engine holds fewer expert slots than planned. */
enum cz_pressure {
    CZ_PRESSURE_NONE,
    CZ_PRESSURE_GROUP,   /* a control group is near its limit */
    CZ_PRESSURE_MACHINE, /* MemAvailable runs out */
    CZ_PRESSURE_PROCESS, /* the engine itself holds more than planned */
    CZ_PRESSURE_SWAP,    /* the kernel swaps the engine out */
    CZ_PRESSURE_STALL,   /* everybody waits for memory (PSI) */
};
static inline const char *cz_pressure_name(enum cz_pressure p)
{
    static const char *const names[] = { "none", "group", "machine", "process", "swap", "stall" };

    return (unsigned)p < sizeof names / sizeof *names ? names[p] : "?";
}

/* What a step spends its time on; a model has no time in those that it has not. */
enum cz_phase {
    CZ_PHASE_EMBED, CZ_PHASE_ATTENTION, CZ_PHASE_GDN, CZ_PHASE_QSA, CZ_PHASE_RESIDUAL, CZ_PHASE_PLE,
    CZ_PHASE_MOE, CZ_PHASE_HEAD, CZ_N_PHASES
};
static inline const char *cz_phase_name(enum cz_phase p)
{
    static const char *const names[] = { "embed", "attention", "gdn", "qsa", "residual", "ple",
                                         "moe", "head" };

    return (unsigned)p < sizeof names / sizeof *names ? names[p] : "?";
}

struct cz_stats {
    uint32_t running, waiting, prefilling;
    uint64_t n_submitted, n_finished, n_failed, n_cancelled, n_preempted;
    uint64_t n_displaced; /* of the failed: those that lost their place in a full queue */
    uint64_t prompt_tokens, generated_tokens;
    uint64_t layers, steps, decode_steps, prefill_steps, mixed_steps, put_downs;
    uint64_t pool_jobs, multi_row_products; /* kernel calls with two rows or more */
    /* States kept at a prompt's end, and choices that began from one, where a family cannot cut
     * back. */
    uint64_t points_kept, points_used;
    /* Requests that looked for their prompt among what was computed before, tokens they found; and
     * what is kept for that: pages of the KV pool, states, pages given up for others. */
    uint64_t prefix_lookups, prefix_tokens, prefix_evictions;
    uint32_t prefix_pages, prefix_states;
    uint64_t expert_orders, expert_hits, expert_misses, expert_evictions;
    uint64_t expert_read_bytes, expert_wait_ns, expert_retries;
    uint32_t expert_slots, expert_slots_used;
    uint32_t expert_slots_planned; /* more than expert_slots: some were given back for a while */
    enum cz_pressure pressure;     /* why; NONE once all of them are back */
    uint64_t n_pressure;           /* times that it began */
    uint64_t slots_given_back, slots_taken_back; /* for that reason */
    uint64_t own_bytes;  /* anonymous memory and page tables of this process at the last look */
    uint64_t room_bytes; /* what machine or control group had left then */
    uint32_t kv_pages, kv_pages_used, kv_pages_peak;
    uint64_t prefill_ns, decode_ns; /* time in steps of each kind */
    uint64_t prefill_phase_ns[CZ_N_PHASES], decode_phase_ns[CZ_N_PHASES]; /* and its parts */
    /* Of recent steps, a decaying mean: per row of a prefill, and from one token of a sequence to
     * its next. 0: none was measured yet. */
    uint64_t prefill_ns_per_token, decode_ns_per_token;
    bool files_changed; /* cz_fault says which and how */
    uint32_t threads;
    char kernels[16];
    char io[24];
    bool direct_io;
};
/* What happened to the model's files, naming one; NULL while they are as they were. Lasts. */
const struct err *cz_fault(const struct cz_engine *e);
void cz_stats(const struct cz_engine *e, struct cz_stats *out); /* engine thread */
const struct cz_plan *cz_engine_plan(const struct cz_engine *e);

/* ---- lists, on the engine thread ---- */

struct cz_expert_layer { /* one layer with routed experts */
    uint32_t layer, n_experts;
    uint32_t n_resident; /* in a slot, or being read into one */
    uint64_t hits, misses;  /* of its orders */
    uint64_t evictions;     /* its experts that left for others */
};
/* Every routed layer, rising. How many were written, at most cap. */
uint32_t cz_expert_layers(const struct cz_engine *e, struct cz_expert_layer *out, uint32_t cap);

struct cz_expert_heat {
    uint16_t layer, expert;
    float heat; /* how likely a visit of a token to the layer asks for it, by recent ones; 0..1 */
    bool resident;
};
/* Experts that tokens asked for, hottest first. How many were written, at most cap. */
uint32_t cz_expert_hottest(const struct cz_engine *e, struct cz_expert_heat *out, uint32_t cap);

/* ---- limits that change while it runs ---- */

struct cz_limits {
    uint32_t queue;
    uint64_t ram; /* a new budget for the whole service: expert slots follow. 0: as it is */
    uint32_t workers, connections; /* of the rest of the service, likewise */
    uint64_t http_buffer;
};
/* Between steps or between layers; answers stay the same, bit for bit. What is open stays (dense
 * weights, KV pool, chunks), and the number of expert slots follows: memory of slots that go is
 * the kernel's when it returns, after reads into them have ended. ERR_BUDGET, naming the least,
 * when ram cannot hold what is open, or the machine has no memory left to grow into; ERR_IO when a
 * drive that does not answer holds a slot that should go. Nothing has changed then. cz_engine_plan
 * shows the new budget afterwards. */
int cz_adjust(struct cz_engine *e, const struct cz_limits *limits, struct err *err);

/* ---- is this machine fit for it ---- */

/* Checks the library on this very machine, one line each: kernels against the scalar ones
 * and, when opt->model_dir is given, tokenizer, store under eviction, chunking and threads,
 * same bits each time. Returns how many checks failed, or -1 when they could not be run. */
int cz_selftest(const struct cz_options *opt,
                void (*line)(void *ctx, bool passed, const char *text), void *ctx,
                struct err *err);

#endif
