/* arena: memory handed out in a row and given back all at once.
 *
 * Over memory that the caller owns. Scratch of a step comes from one, so that the
 * forward path calls neither malloc nor free. One thread at a time. */
#ifndef UTIL_ARENA_H
#define UTIL_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct arena {
    char *base; /* borrowed */
    uint64_t size, used, peak;
};

static inline void arena_init(struct arena *a, void *base, uint64_t size)
{
    *a = (struct arena){ .base = base, .size = size };
}

/* What a take of size bytes really uses; sums of these size an arena exactly. */
static inline uint64_t arena_need(uint64_t size)
{
    return (size + 63) & ~(uint64_t)63;
}

/* 64-byte aligned when base is, not cleared. NULL when the arena is full. */
static inline void *arena_take(struct arena *a, uint64_t size)
{
    uint64_t need = arena_need(size);

    if (need < size || need > a->size - a->used)
        return NULL;
    void *at = a->base + a->used;
    a->used += need;
    if (a->used > a->peak)
        a->peak = a->used;
    return at;
}

/* Everything taken after the mark goes back. */
static inline uint64_t arena_mark(const struct arena *a)
{
    return a->used;
}

static inline void arena_back(struct arena *a, uint64_t mark)
{
    a->used = mark;
}

#endif
