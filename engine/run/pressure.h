/* pressure: the plan against reality, and how many expert slots follow from it. Pure.
 *
 * The plan is a promise of ours; the machine has made none. When a control group comes near its
 * limit, MemAvailable runs out, the kernel swaps us out, everybody waits for memory, or we hold
 * more than planned, slots are given back: enough to be out of it, in one go, and never below the
 * least. They are taken again slowly, a thirty-second at a time, once all has been calm for a
 * minute. Pressure soon after that means that there was no room after all, and each time the wait
 * doubles, up to half an hour: memory does not go back and forth. */
#ifndef RUN_PRESSURE_H
#define RUN_PRESSURE_H

#include "colizig.h"
#include "store/machine.h"

#include <stdint.h>

struct pressure { /* zeroed: nothing was looked at yet */
    enum cz_pressure why; /* NONE once all slots are back */
    uint64_t calm_since_ms, grown_ms, quiet_ms; /* 0: not calm; never; not yet chosen */
    uint64_t swapped; /* as of the last look */
    uint64_t excess;  /* what we held beyond the plan at the first look; not the slots' fault */
    bool looked;
    uint64_t n_times; /* that it began */
};

struct pressure_slots {
    uint32_t now, planned, least;
    uint64_t size;    /* of one */
    uint64_t process; /* what the engine's process should hold with so many as now */
};

/* How many slots there should be, from least to planned; to be called about once a second. */
uint32_t pressure_judge(struct pressure *p, const struct machine_memory *m,
                        const struct pressure_slots *slots, uint64_t now_ms);

#endif
