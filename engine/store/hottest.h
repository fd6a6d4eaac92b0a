/* hottest: the hottest of many experts, kept in the caller's array as they are told.
 *
 * A heap with the coolest of those kept at its root, so that a model of thousands of experts is
 * gone through once for a list of a few. Ties go to the lower layer, then the lower expert.
 * Pure. */
#ifndef STORE_HOTTEST_H
#define STORE_HOTTEST_H

#include "colizig.h"

#include <stdint.h>

struct hottest {
    struct cz_expert_heat *kept; /* borrowed; [cap] */
    uint32_t cap, n;
};

static inline void hottest_begin(struct hottest *h, struct cz_expert_heat *kept, uint32_t cap)
{
    *h = (struct hottest){ .kept = kept, .cap = cap };
}
void hottest_add(struct hottest *h, struct cz_expert_heat one);
/* Sorts what was kept, hottest first; how many. */
uint32_t hottest_end(struct hottest *h);

#endif
