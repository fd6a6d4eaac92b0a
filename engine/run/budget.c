#include "run/budget.h"

#include "run/headers.h"
#include "run/pressure.h"
#include "store/expert_store.h"
#include "store/machine.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/region.h"
#include "util/size.h"

#include <stdio.h>
#include <stdlib.h>

enum { LOOK_EVERY_MS = 1000 };

/* What a sanitizer keeps beside our memory would be taken for more than was planned, and slots be
 * given back for it. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZERS = 1 };
#else
enum { SANITIZERS = 0 };
#endif

struct budget {
    const struct model_headers *headers; /* borrowed, like plan and experts */
    struct cz_options opt;               /* as opened, with what was adjusted; no strings */
    struct cz_plan *plan;
    struct expert_store *experts;
    struct machine *machine; /* owned */
    struct pressure pressure;
    uint64_t looked_ms;
    uint64_t n_given, n_taken;
    struct machine_memory seen; /* at the last look */
};

int budget_open(struct budget **out, const struct model_headers *headers,
                const struct cz_options *opt, struct cz_plan *plan, struct expert_store *experts,
                struct err *err)
{
    struct budget *b = calloc(1, sizeof *b);

    if (!b)
        return err_set(err, ERR_NOMEM, "the budget");
    *b = (struct budget){ .headers = headers, .opt = *opt, .plan = plan, .experts = experts };
    b->opt.model_dir = NULL; /* the caller's, not ours to keep */
    if (machine_open(&b->machine, "", err) < 0) {
        budget_close(b);
        return -1;
    }
    *out = b;
    return 0;
}

void budget_close(struct budget *b)
{
    if (!b)
        return;
    machine_close(b->machine);
    free(b);
}

static struct expert_store_stats store_of(const struct budget *b)
{
    struct expert_store_stats s = { 0 };

    if (b->experts)
        expert_store_stats(b->experts, &s);
    return s;
}

/* ---- another budget ---- */

/* What a larger budget adds must be there now, as at the start. */
static int check_growth(const struct cz_plan *plan, uint32_t slots, struct err *err)
{
    uint64_t more = plan->expert_slots > slots ? (plan->expert_slots - slots) * plan->slot_size : 0;
    char wanted[24], available[24];

    if (more <= plan->available)
        return 0;
    return err_set(err, ERR_BUDGET,
                   "memory.ram: %s more for expert slots, but only %s of memory are available now",
                   size_text(wanted, sizeof wanted, more),
                   size_text(available, sizeof available, plan->available));
}

/* Slots that were given back under pressure come again in their own time; but no more are kept
 * than the plan has. */
static int follow_plan(struct budget *b, const struct cz_plan *plan, struct err *err)
{
    uint32_t now = store_of(b).n_slots;

    if (!b->experts || plan->expert_slots == now)
        return 0;
    if (plan->expert_slots > now && b->pressure.why != CZ_PRESSURE_NONE)
        return 0;
    if (check_growth(plan, now, err) < 0)
        return -1;
    return expert_store_resize(b->experts, plan->expert_slots, err);
}

int budget_adjust(struct budget *b, const struct cz_limits *limits, struct err *err)
{
    struct cz_options opt = b->opt;
    struct machine_memory memory;
    struct cz_plan plan;

    opt.queue = limits->queue;
    if (limits->ram)
        opt.ram = limits->ram;
    if (limits->workers)
        opt.workers = limits->workers;
    if (limits->connections)
        opt.connections = limits->connections;
    if (limits->http_buffer)
        opt.http_buffer = limits->http_buffer;
    if (machine_read(b->machine, &memory, err) < 0 ||
        plan_again(&plan, b->headers, &opt, b->plan, limits->ram ? limits->ram : b->plan->ram,
                   store_of(b).most_slots, memory.available, err) < 0)
        return -1;
    if (limits->ram)
        snprintf(plan.ram_source, sizeof plan.ram_source, "config");
    if (follow_plan(b, &plan, err) < 0)
        return -1;
    b->opt = opt;
    *b->plan = plan;
    return 0;
}

/* ---- the plan against reality ---- */

static uint64_t region_of(const struct budget *b, uint32_t slots)
{
    return region_size(slots * b->plan->slot_size, REGION_HUGE);
}

void budget_tend(struct budget *b)
{
    uint64_t now_ms = clock_ms();

    if (now_ms - b->looked_ms < LOOK_EVERY_MS)
        return;
    b->looked_ms = now_ms;
    if (machine_read(b->machine, &b->seen, NULL) < 0 || !b->experts)
        return;
    uint32_t slots = store_of(b).n_slots;
    struct machine_memory seen = b->seen;
    if (SANITIZERS)
        seen.own = 0;
    const struct pressure_slots s = {
        .now = slots, .planned = b->plan->expert_slots, .least = b->plan->min_slots,
        .size = b->plan->slot_size,
        .process = b->plan->engine_bytes - region_of(b, b->plan->expert_slots) +
                   region_of(b, slots),
    };
    uint32_t to = pressure_judge(&b->pressure, &seen, &s, now_ms);
    /* A slot that cannot be given, or memory that is not to be had, is seen again next time. */
    if (to == slots || expert_store_resize(b->experts, to, NULL) < 0)
        return;
    if (to < slots)
        b->n_given += slots - to;
    else
        b->n_taken += to - slots;
}

void budget_stats(const struct budget *b, struct cz_stats *out)
{
    out->expert_slots_planned = b->plan->expert_slots;
    out->pressure = b->pressure.why;
    out->n_pressure = b->pressure.n_times;
    out->slots_given_back = b->n_given;
    out->slots_taken_back = b->n_taken;
    out->own_bytes = b->seen.own;
    out->room_bytes = b->seen.available;
}
