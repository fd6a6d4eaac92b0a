/* Profiles are presets for what is left on auto:
 *
 *             ram, of what is available   context   KV pool, contexts   prefill rows, up to
 *   (none)    all less a reserve            16384   up to `sequences`                  2048
 *   tiny      a quarter                      4096   one                                  64
 *   laptop    a half                         8192   up to two                           256
 *   desktop   three quarters                16384   up to `sequences`                  2048
 *
 * The ram of a profile is raised to the minimum where the machine allows it. The gpu
 * profile needs a device tier, which is not built. */
#include "store/plan_settings.h"

#include "store/expert_store.h"
#include "store/kv_pool.h"
#include "util/err.h"
#include "util/size.h"

#include <inttypes.h>

enum {
    DEFAULT_CONTEXT = 16384,
    MIN_CONTEXT = 16,
    MIN_PREFILL_ROWS = 64,  /* below, the weights pass by for too few rows */
    MAX_AUTO_ROWS = 2048,   /* a chunk wakes nearly every expert, so a prompt's reads fall with
                               the number of its chunks; above, per-choice outputs cost more */
    MAX_PREFILL_ROWS = 8192,
    MAX_LOGIT_ROWS = 8,
    MAX_SEQUENCES = 256,
    MAX_QUEUE = 65536,
    MAX_THREADS = 1024,
    MAX_WORKERS = 64,
    MAX_CONNECTIONS = 65536,
};

/* 2 to 12 MiB in flight keep a drive busy; beyond 16 MiB it slows down. */
#define IN_FLIGHT_BYTES (12 * MIB)
/* Of replies that are remembered. */
#define MIN_REASONING (1 * MIB)

static int find_preset(struct plan_preset *out, const struct cz_options *o, struct err *err)
{
    switch (o->profile) {
    case CZ_PROFILE_NONE:
        *out = (struct plan_preset){ 0, DEFAULT_CONTEXT, UINT32_MAX, MAX_AUTO_ROWS };
        return 0;
    case CZ_PROFILE_TINY:
        *out = (struct plan_preset){ 1, 4096, 1, MIN_PREFILL_ROWS };
        return 0;
    case CZ_PROFILE_LAPTOP:
        *out = (struct plan_preset){ 2, 8192, 2, 256 };
        return 0;
    case CZ_PROFILE_DESKTOP:
        *out = (struct plan_preset){ 3, DEFAULT_CONTEXT, UINT32_MAX, MAX_AUTO_ROWS };
        return 0;
    case CZ_PROFILE_GPU:
        return err_set(err, ERR_INPUT,
                       "memory.profile gpu: no device tier is built; use tiny, laptop or desktop");
    }
    return err_set(err, ERR_INPUT, "memory.profile: unknown value %d", (int)o->profile);
}

static int check_built(const struct cz_options *o, struct err *err)
{
    if (o->vram)
        return err_set(err, ERR_UNSUPPORTED,
                       "memory.vram: no device tier is built; leave it at 0");
    if (o->device != CZ_DEVICE_CPU)
        return err_set(err, ERR_UNSUPPORTED,
                       "engine.device cuda: no device tier is built; use cpu");
    if (o->kv_dtype != CZ_KV_BF16 && o->kv_dtype != CZ_KV_F32)
        return err_set(err, ERR_INPUT, "memory.kv_dtype: unknown value %d", (int)o->kv_dtype);
    if (o->dense != CZ_DENSE_BF16 && o->dense != CZ_DENSE_FP8)
        return err_set(err, ERR_INPUT, "memory.dense: unknown value %d", (int)o->dense);
    return 0;
}

static int check_range(const char *key, uint64_t value, uint64_t min, uint64_t max,
                       struct err *err)
{
    if (value < min || value > max)
        return err_set(err, ERR_INPUT, "%s: %" PRIu64 " is not between %" PRIu64 " and %" PRIu64,
                       key, value, min, max);
    return 0;
}

static int check_reasoning(uint64_t bytes, struct err *err)
{
    char have[16];

    if (bytes == 0 || bytes == CZ_MEMORY_AUTO)
        return 0;
    if (bytes < MIN_REASONING)
        return err_set(err, ERR_INPUT,
                       "memory.reasoning: %s is too little to be of use; write 0 for none, or at "
                       "least 1MiB", size_text(have, sizeof have, bytes));
    return check_range("memory.reasoning", bytes, 0, PLAN_MAX_RAM, err);
}

static int settle_context(struct plan_settings *s, uint32_t preset, struct err *err)
{
    const struct model_shape *shape = s->in->shape;
    uint32_t wanted = s->in->options->context;

    if (!wanted) {
        s->context = preset < shape->max_positions ? preset : shape->max_positions;
        return 0;
    }
    if (wanted > shape->max_positions)
        return err_set(err, ERR_INPUT,
                       "engine.context: %u tokens are more than this model's %u positions", wanted,
                       shape->max_positions);
    if (wanted < MIN_CONTEXT && wanted < shape->max_positions)
        return err_set(err, ERR_INPUT, "engine.context: %u tokens are fewer than %d", wanted,
                       MIN_CONTEXT);
    s->context = wanted;
    return 0;
}

static int settle_rows(struct plan_settings *s, uint32_t preset, struct err *err)
{
    uint32_t wanted = s->in->options->prefill_rows;

    if (wanted > MAX_PREFILL_ROWS)
        return err_set(err, ERR_INPUT, "engine.prefill_rows: %u rows are more than %d", wanted,
                       MAX_PREFILL_ROWS);
    s->rows_min = wanted ? wanted : MIN_PREFILL_ROWS;
    s->rows_max = wanted ? wanted : preset;
    /* A chunk longer than a whole sequence never happens. */
    if (s->rows_min > s->context)
        s->rows_min = s->context;
    if (s->rows_max > s->context)
        s->rows_max = s->context;
    return 0;
}

/* A page of tokens has keys and values, the indexer's keys, and the keys of the blocks that begin
 * in it. */
static void size_pages(struct plan_settings *s, enum dtype dtype)
{
    const struct model_shape *shape = s->in->shape;

    s->kv_page_size = kv_pool_page_size(shape, dtype);
    s->index_page_size = kv_pool_index_size(shape, dtype);
    s->block_page_size = kv_pool_block_size(shape, dtype);
    if (!size_add(&s->page_size, s->kv_page_size, s->index_page_size + s->block_page_size))
        s->page_size = UINT64_MAX;
}

static int settle_kv(struct plan_settings *s, uint32_t contexts, struct err *err)
{
    const struct cz_options *o = s->in->options;
    char have[16], need[16];

    size_pages(s, o->kv_dtype == CZ_KV_F32 ? DTYPE_F32 : DTYPE_BF16);
    s->pages_min = (uint32_t)size_div_up(s->context, KV_PAGE_TOKENS);
    if (contexts > s->sequences)
        contexts = s->sequences;
    uint64_t most = (uint64_t)s->pages_min * contexts;
    s->pages_max = most > UINT32_MAX ? UINT32_MAX : (uint32_t)most;
    if (!o->kv || !s->page_size)
        return 0;

    uint64_t pages = o->kv / s->page_size;
    if (pages < s->pages_min)
        return err_set(err, ERR_INPUT,
                       "memory.kv: %s is less than one context of %u tokens, which needs %s; raise "
                       "memory.kv or lower engine.context", size_text(have, sizeof have, o->kv),
                       s->context,
                       size_text(need, sizeof need, s->page_size * s->pages_min));
    if (pages > UINT32_MAX)
        return err_set(err, ERR_INPUT, "memory.kv: %s is absurd",
                       size_text(have, sizeof have, o->kv));
    s->pages_min = s->pages_max = (uint32_t)pages;
    return 0;
}

static int settle_slots(struct plan_settings *s, struct err *err)
{
    const struct model_shape *shape = s->in->shape;
    uint32_t wanted = s->in->options->expert_slots;
    uint64_t n_experts = (uint64_t)shape->n_moe_layers * shape->n_experts;

    if (!s->in->slot_size || !n_experts) {
        if (wanted)
            return err_set(err, ERR_INPUT,
                           "memory.expert_slots: this model has no routed experts");
        return 0;
    }
    if (n_experts > UINT32_MAX)
        return err_set(err, ERR_FORMAT, "%" PRIu64 " experts are absurd", n_experts);
    s->n_experts = (uint32_t)n_experts;
    s->reads = s->in->slot_size > IN_FLIGHT_BYTES / 4   ? 2
               : s->in->slot_size > IN_FLIGHT_BYTES / 8 ? 3
                                                        : 4;
    s->slots_min = expert_store_min_slots(shape->experts_per_token, s->reads);
    s->store_min_slots = s->slots_min;
    s->slots_max = s->n_experts > s->slots_min ? s->n_experts : s->slots_min;
    s->slots_most = s->slots_max;
    if (!wanted)
        return 0;
    if (wanted < s->slots_min || wanted > s->slots_max)
        return err_set(err, ERR_INPUT,
                       "memory.expert_slots: %u is not between %u (experts of a token and of reads "
                       "in flight) and %u (all)", wanted, s->slots_min, s->slots_max);
    s->slots_min = s->slots_max = s->slots_most = wanted;
    return 0;
}

int plan_settle(struct plan_settings *out, const struct plan_input *in, struct err *err)
{
    const struct cz_options *o = in->options;
    struct plan_settings settled = { .in = in }, *s = &settled;

    if (check_built(o, err) < 0 || find_preset(&s->preset, o, err) < 0 ||
        check_range("engine.sequences", o->sequences, 1, MAX_SEQUENCES, err) < 0 ||
        check_range("engine.queue", o->queue, 0, MAX_QUEUE, err) < 0 ||
        check_range("engine.threads", o->threads, 0, MAX_THREADS, err) < 0 ||
        check_range("http.workers", o->workers, 0, MAX_WORKERS, err) < 0 ||
        check_range("http.connections", o->connections, 0, MAX_CONNECTIONS, err) < 0 ||
        check_range("http.buffer", o->http_buffer, 0, PLAN_MAX_RAM, err) < 0 ||
        check_range("memory.ram", o->ram, 0, PLAN_MAX_RAM, err) < 0 ||
        check_reasoning(o->reasoning_memory, err) < 0)
        return -1;
    s->threads = o->threads ? o->threads : in->auto_threads;
    s->sequences = o->sequences;
    s->logit_rows = o->sequences < MAX_LOGIT_ROWS ? o->sequences : MAX_LOGIT_ROWS;
    if (settle_context(s, s->preset.context, err) < 0 ||
        settle_rows(s, s->preset.rows, err) < 0 ||
        settle_kv(s, s->preset.contexts, err) < 0 || settle_slots(s, err) < 0)
        return -1;
    *out = settled;
    return 0;
}
