/* probe: what drive and memory of this machine can do, in about a second.
 *
 * Figures for an estimate, not for a benchmark: decimal gigabytes a second, read the way
 * the engine reads. Any thread; takes and gives back memory of its own. */
#ifndef RUN_PROBE_H
#define RUN_PROBE_H

#include <stdbool.h>
#include <stdint.h>

struct err;
struct shards;

/* Random reads of an expert matrix's size over the checkpoint's own files, a few at once. */
int probe_disk(double *gbps, const struct shards *shards, bool direct, struct err *err);
/* All threads read one buffer of at most max_bytes. */
int probe_memory(double *gbps, uint32_t n_threads, uint64_t max_bytes, struct err *err);

#endif
