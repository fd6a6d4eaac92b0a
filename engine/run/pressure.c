#include "run/pressure.h"

#include "util/size.h"

#include <stdbool.h>

/* What must stay free, a thirty-second of what there is. A group that is ours has less to be
 * careful of than a machine, whose other users come and go. */
#define GROUP_LEAST (8 * MIB)
#define GROUP_MOST (256 * MIB)
#define MACHINE_LEAST (64 * MIB)
#define MACHINE_MOST (1 * GIB)
/* Beyond the plan by so much, or by a thirty-second: libc and kernel round in their own ways. */
#define PROCESS_SLACK (32 * MIB)
/* Less than this in a second is the kernel tidying up. */
#define SWAP_STEP (1 * MIB)

enum {
    STALL_HIGH = 1000, /* hundredths of a percent: a tenth of the time */
    STALL_LOW = 100,
    QUIET_MS = 60 * 1000,
    LONGEST_QUIET_MS = 30 * 60 * 1000,
    GROW_EVERY_MS = 5000,
    SOON_MS = 10 * 60 * 1000, /* after growing */
};

static uint64_t share(uint64_t of, uint64_t least, uint64_t most)
{
    uint64_t part = of / 32;

    return part < least ? least : part > most ? most : part;
}

static uint64_t group_floor(const struct machine_memory *m)
{
    return share(m->limit == UINT64_MAX ? 0 : m->limit, GROUP_LEAST, GROUP_MOST);
}

static uint64_t machine_floor(const struct machine_memory *m)
{
    return share(m->total, MACHINE_LEAST, MACHINE_MOST);
}

static uint64_t slack_of(uint64_t process)
{
    return process / 32 > PROCESS_SLACK ? process / 32 : PROCESS_SLACK;
}

static uint32_t step_of(const struct pressure_slots *s)
{
    return s->planned / 32 ? s->planned / 32 : 1;
}

/* Bytes to be out of the worst there is, with some room; 0: nothing is wrong. */
static uint64_t bytes_short(const struct pressure *p, const struct machine_memory *m,
                            const struct pressure_slots *s, enum cz_pressure *why)
{
    uint64_t group = group_floor(m), machine = machine_floor(m), some = step_of(s) * s->size;
    uint64_t process = s->process + p->excess, need = 0, most = 0;

    if (m->group_room < group) {
        *why = CZ_PRESSURE_GROUP;
        most = group + group / 2 - m->group_room;
    }
    need = machine + machine / 2 - m->free;
    if (m->free < machine && need > most) {
        *why = CZ_PRESSURE_MACHINE;
        most = need;
    }
    need = m->own - process;
    if (m->own > process + slack_of(process) && need > most) {
        *why = CZ_PRESSURE_PROCESS;
        most = need;
    }
    if (m->swapped >= p->swapped + SWAP_STEP && most < some) {
        *why = CZ_PRESSURE_SWAP;
        most = some;
    }
    /* Others may wait in a limit of their own, which we cannot ease: the machine's figure counts
     * only where the machine is short. */
    bool stalled = m->group_stall >= STALL_HIGH ||
                   (m->machine_stall >= STALL_HIGH && m->free < 2 * machine);
    if (stalled && most < some) {
        *why = CZ_PRESSURE_STALL;
        most = some;
    }
    return most;
}

/* Slots that may be taken again with all staying calm. */
static uint32_t slots_free(const struct pressure *p, const struct machine_memory *m,
                           const struct pressure_slots *s)
{
    uint64_t group = 2 * group_floor(m), machine = 2 * machine_floor(m);
    uint64_t process = s->process + p->excess;

    if (m->group_room <= group || m->free <= machine || m->own > process + slack_of(process) / 2 ||
        m->swapped > p->swapped || m->group_stall >= STALL_LOW)
        return 0;
    uint64_t room = m->group_room - group < m->free - machine ? m->group_room - group
                                                              : m->free - machine;
    uint64_t n = room / s->size;
    return n < step_of(s) ? (uint32_t)n : step_of(s);
}

static void begin(struct pressure *p, enum cz_pressure why, uint64_t now_ms)
{
    bool soon = p->grown_ms && now_ms - p->grown_ms < SOON_MS;

    if (p->why == CZ_PRESSURE_NONE)
        p->n_times++;
    p->why = why;
    p->calm_since_ms = 0;
    if (soon || !p->quiet_ms)
        p->quiet_ms = !p->quiet_ms ? QUIET_MS
                      : 2 * p->quiet_ms < LONGEST_QUIET_MS ? 2 * p->quiet_ms
                                                           : LONGEST_QUIET_MS;
    else if (p->grown_ms)
        p->quiet_ms = QUIET_MS;
    p->grown_ms = 0; /* counted once */
}

static uint32_t give(const struct pressure_slots *s, uint64_t bytes)
{
    /* Whole huge pages go back, so a part of one gives nothing. */
    uint64_t n = size_div_up(size_up(bytes, 2 * MIB), s->size), most = s->now - s->least;

    return s->now - (uint32_t)(n < most ? n : most);
}

static uint32_t take(struct pressure *p, const struct machine_memory *m,
                     const struct pressure_slots *s, uint64_t now_ms)
{
    uint32_t n = slots_free(p, m, s);

    if (n == 0) {
        p->calm_since_ms = 0;
        return s->now;
    }
    if (!p->calm_since_ms)
        p->calm_since_ms = now_ms;
    if (now_ms - p->calm_since_ms < p->quiet_ms)
        return s->now;
    if (s->now == s->planned) { /* there was nothing to give, or all is back */
        p->why = CZ_PRESSURE_NONE;
        return s->now;
    }
    p->grown_ms = now_ms;
    p->calm_since_ms = now_ms - p->quiet_ms + GROW_EVERY_MS;
    uint32_t to = s->planned - s->now < n ? s->planned : s->now + n;
    if (to == s->planned)
        p->why = CZ_PRESSURE_NONE;
    return to;
}

uint32_t pressure_judge(struct pressure *p, const struct machine_memory *m,
                        const struct pressure_slots *slots, uint64_t now_ms)
{
    enum cz_pressure why = CZ_PRESSURE_NONE;
    uint32_t to = slots->now;

    if (!p->looked) {
        p->looked = true;
        p->swapped = m->swapped;
        p->excess = m->own > slots->process ? m->own - slots->process : 0;
    }
    uint64_t bytes = bytes_short(p, m, slots, &why);
    if (bytes > 0) {
        begin(p, why, now_ms);
        to = give(slots, bytes);
    } else if (p->why != CZ_PRESSURE_NONE || slots->now < slots->planned) {
        if (!p->quiet_ms)
            p->quiet_ms = QUIET_MS;
        to = take(p, m, slots, now_ms);
    }
    p->swapped = m->swapped;
    return to;
}
