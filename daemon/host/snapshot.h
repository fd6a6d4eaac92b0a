/* snapshot: the engine's counters, handed to another thread without a lock.
 *
 * A sequence lock whose data are atomic words: the writer makes the version odd, stores, makes
 * it even; a reader that saw an odd or a changed version reads again. One writer, any number
 * of readers; the writer never waits. */
#ifndef DAEMON_SNAPSHOT_H
#define DAEMON_SNAPSHOT_H

#include "colizig.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum { SNAPSHOT_WORDS = (sizeof(struct cz_stats) + 7) / 8 };

struct snapshot {
    _Atomic uint64_t version; /* engine thread writes, release; readers acquire */
    _Atomic uint64_t words[SNAPSHOT_WORDS];
};

static inline void snapshot_put(struct snapshot *s, const struct cz_stats *stats)
{
    uint64_t words[SNAPSHOT_WORDS] = { 0 };
    uint64_t version = atomic_load_explicit(&s->version, memory_order_relaxed);

    memcpy(words, stats, sizeof *stats);
    atomic_store_explicit(&s->version, version + 1, memory_order_relaxed);
    /* Release on each word keeps the odd version before it. */
    for (size_t i = 0; i < SNAPSHOT_WORDS; i++)
        atomic_store_explicit(&s->words[i], words[i], memory_order_release);
    atomic_store_explicit(&s->version, version + 2, memory_order_release);
}

static inline void snapshot_get(const struct snapshot *s, struct cz_stats *out)
{
    uint64_t words[SNAPSHOT_WORDS];
    uint64_t before, after;

    do {
        before = atomic_load_explicit(&s->version, memory_order_acquire);
        for (size_t i = 0; i < SNAPSHOT_WORDS; i++)
            words[i] = atomic_load_explicit(&s->words[i], memory_order_acquire);
        after = atomic_load_explicit(&s->version, memory_order_relaxed);
    } while (before != after || before % 2 != 0);
    memcpy(out, words, sizeof *out);
}

#endif
