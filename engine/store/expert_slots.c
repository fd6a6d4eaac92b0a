#include "store/expert_slots.h"

#include "store/evict.h"
#include "store/expert_map.h"
#include "util/err.h"
#include "util/size.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

/* A quarter of a small cache for a guarantee is enough; evict.h says what it is for. */
static uint32_t floor_of(const struct expert_slots *s, uint32_t n)
{
    uint32_t share = n / (4 * s->map->n_moe_layers);

    return share < s->experts_per_token ? share : s->experts_per_token;
}

uint64_t expert_slots_size(uint32_t n_layers, uint32_t n_experts, uint32_t most)
{
    uint64_t n = (uint64_t)n_layers * n_experts;

    return most * (sizeof(struct slot) + sizeof(uint32_t)) + n * sizeof(uint32_t) +
           n_layers * sizeof(struct cz_expert_layer) + evict_size(n_layers, n_experts);
}

/* Free slots are taken from the bottom up. */
static void stack_free(struct expert_slots *s)
{
    s->n_free = 0;
    for (uint32_t i = s->n; i-- > 0;)
        if (s->list[i].state == SLOT_FREE)
            s->free[s->n_free++] = i;
}

static int take_tables(struct expert_slots *s, struct err *err)
{
    size_t n = (size_t)s->map->n_moe_layers * s->n_experts;

    s->list = calloc(s->most, sizeof *s->list);
    s->free = calloc(s->most, sizeof *s->free);
    s->slot_of = calloc(n, sizeof *s->slot_of);
    s->layers = calloc(s->map->n_moe_layers, sizeof *s->layers);
    if (!s->list || !s->free || !s->slot_of || !s->layers)
        return err_set(err, ERR_NOMEM, "tables of %u expert slots", s->most);
    for (size_t i = 0; i < n; i++)
        s->slot_of[i] = NO_SLOT;
    stack_free(s);
    return evict_open(&s->evict, s->map->n_moe_layers, s->n_experts, floor_of(s, s->n), err);
}

int expert_slots_open(struct expert_slots *out, const struct expert_map *map, const float *scales,
                      uint32_t n, uint32_t most, uint32_t experts_per_token, struct err *err)
{
    struct expert_slots s = { .map = map, .scales = scales, .n = n, .most = most > n ? most : n,
                              .n_experts = map->n_experts,
                              .experts_per_token = experts_per_token };
    uint64_t size, reserved;

    if (!size_mul(&size, n, map->slot_size) || !size_mul(&reserved, s.most, map->slot_size))
        return err_set(err, ERR_BUDGET, "%u expert slots: impossible size", s.most);
    for (uint32_t p = 0; p < N_PARTS; p++)
        s.scales_per_expert += map->scale_floats[p];
    assert(s.scales_per_expert == 0 || scales);
    if (take_tables(&s, err) < 0)
        goto fail;
    if (region_reserve(&s.region, size, reserved, REGION_HUGE, err) < 0) {
        err_within(err, "%u expert slots", n);
        goto fail;
    }
    if (s.region.most < reserved)
        s.most = n;
    *out = s;
    return 0;

fail:
    expert_slots_close(&s);
    return -1;
}

void expert_slots_close(struct expert_slots *s)
{
    region_close(&s->region);
    evict_close(s->evict);
    free(s->list);
    free(s->free);
    free(s->slot_of);
    free(s->layers);
    *s = (struct expert_slots){ 0 };
}

/* ---- a slot's way ---- */

bool expert_slots_take_free(struct expert_slots *s, uint32_t *slot)
{
    if (s->n_free == 0)
        return false;
    *slot = s->free[--s->n_free];
    return true;
}

bool expert_slots_evict(struct expert_slots *s, uint32_t ordinal, uint32_t *slot)
{
    uint32_t layer, expert;

    if (!evict_choose(s->evict, ordinal, &layer, &expert))
        return false;
    uint32_t *place = &s->slot_of[layer * s->n_experts + expert];
    *slot = *place;
    *place = NO_SLOT;
    s->n_evictions++;
    s->layers[layer].evictions++;
    return true;
}

static struct expert_weights views(const struct expert_slots *s, uint32_t slot, uint32_t index)
{
    const struct expert_map *m = s->map;
    const struct expert_place *place = &m->places[index];
    const char *at = s->region.base + slot * m->slot_size;
    struct expert_weights w = m->form;

    w.gate.data = at + place->part_at[PART_GATE];
    w.up.data = at + place->part_at[PART_UP];
    w.down.data = at + place->part_at[PART_DOWN];
    if (s->scales_per_expert) {
        const float *scales = s->scales + (size_t)index * s->scales_per_expert;

        w.gate.scales = m->scale_floats[PART_GATE] ? scales : NULL;
        scales += m->scale_floats[PART_GATE];
        w.up.scales = m->scale_floats[PART_UP] ? scales : NULL;
        scales += m->scale_floats[PART_UP];
        w.down.scales = m->scale_floats[PART_DOWN] ? scales : NULL;
    }
    return w;
}

void expert_slots_bind(struct expert_slots *s, uint32_t slot, uint32_t index)
{
    s->list[slot] = (struct slot){ .state = SLOT_READING, .wanted = true, .index = index,
                                   .w = views(s, slot, index) };
    s->slot_of[index] = slot;
    evict_admit(s->evict, index / s->n_experts, index % s->n_experts);
}

void expert_slots_unbind(struct expert_slots *s, uint32_t slot)
{
    uint32_t index = s->list[slot].index;

    s->slot_of[index] = NO_SLOT;
    evict_remove(s->evict, index / s->n_experts, index % s->n_experts);
}

void expert_slots_free(struct expert_slots *s, uint32_t slot)
{
    s->list[slot].state = SLOT_FREE;
    s->free[s->n_free++] = slot;
}

void expert_slots_release(struct expert_slots *s, uint32_t slot)
{
    struct slot *t = &s->list[slot];

    t->state = SLOT_IDLE;
    evict_release(s->evict, t->index / s->n_experts, t->index % s->n_experts);
}

void expert_slots_hold(struct expert_slots *s, uint32_t slot, enum slot_state state)
{
    struct slot *t = &s->list[slot];

    assert(t->state == SLOT_IDLE);
    t->state = state;
    evict_hold(s->evict, t->index / s->n_experts, t->index % s->n_experts);
}

/* ---- more and fewer ---- */

/* Evicts until every idle expert from slot n on finds a free slot below. What leaves may lie
 * anywhere: it is the coldest of all. */
static void make_room(struct expert_slots *s, uint32_t n)
{
    uint32_t above = 0, room = 0, slot;

    for (uint32_t i = 0; i < s->n; i++) {
        assert(i < n || s->list[i].state == SLOT_IDLE || s->list[i].state == SLOT_FREE);
        if (i < n)
            room += s->list[i].state == SLOT_FREE;
        else
            above += s->list[i].state == SLOT_IDLE;
    }
    while (above > room && expert_slots_evict(s, 0, &slot)) {
        s->list[slot].state = SLOT_FREE;
        if (slot < n)
            room++;
        else
            above--;
    }
    assert(above <= room);
}

/* Every view into the old place goes with it: nobody has a loan now. */
static void move_down(struct expert_slots *s, uint32_t n)
{
    uint64_t size = s->map->slot_size;
    uint32_t to = 0;

    for (uint32_t from = n; from < s->n; from++) {
        struct slot *t = &s->list[from];

        if (t->state != SLOT_IDLE)
            continue;
        while (s->list[to].state != SLOT_FREE)
            to++;
        memcpy(s->region.base + to * size, s->region.base + from * size, size);
        s->list[to] = (struct slot){ .state = SLOT_IDLE, .index = t->index,
                                     .w = views(s, to, t->index) };
        s->slot_of[t->index] = to;
        *t = (struct slot){ .state = SLOT_FREE };
    }
}

int expert_slots_resize(struct expert_slots *s, uint32_t n, struct err *err)
{
    assert(n >= 1 && n <= s->most);
    if (n > s->n && region_resize(&s->region, n * s->map->slot_size, err) < 0)
        return err_within(err, "%u expert slots", n);
    if (n < s->n) {
        make_room(s, n);
        move_down(s, n);
        /* Cannot fail: it only cuts off. */
        region_resize(&s->region, n * s->map->slot_size, NULL);
    }
    s->n = n;
    stack_free(s);
    evict_set_floor(s->evict, floor_of(s, n));
    return 0;
}
