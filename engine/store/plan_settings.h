/* plan_settings: options with every auto resolved that does not depend on ram.
 *
 * Ranges are checked here, and what is not built is refused by name. Pure; for plan.c. */
#ifndef STORE_PLAN_SETTINGS_H
#define STORE_PLAN_SETTINGS_H

#include "store/plan.h"

#include <stdint.h>

struct err;

/* The most ram anybody may ask for; far above it sums could wrap. */
#define PLAN_MAX_RAM ((uint64_t)1 << 50)

/* What a profile puts in the place of auto. */
struct plan_preset {
    uint32_t ram_quarters; /* 0: all less the reserve */
    uint32_t context, contexts, rows;
};

struct plan_settings {
    const struct plan_input *in; /* borrowed */
    uint32_t threads, context, sequences;
    uint32_t rows_min, rows_max; /* equal when set by hand */
    uint32_t pages_min, pages_max;
    uint32_t slots_min, slots_max, n_experts;
    uint32_t slots_most; /* what tables are made for */
    uint32_t reads, logit_rows;
    uint32_t store_min_slots; /* whatever was set by hand */
    uint64_t kv_page_size, index_page_size, block_page_size; /* bytes for KV_PAGE_TOKENS */
    uint64_t page_size;                                       /* all three */
    struct plan_preset preset;
};

int plan_settle(struct plan_settings *out, const struct plan_input *in, struct err *err);

#endif
