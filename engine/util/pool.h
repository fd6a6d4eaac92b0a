/* pool: threads that share a loop.
 *
 * pool_run cuts [0, n_items) into pieces of `grain` items, lets the caller and the
 * pool's threads take pieces until none is left, and returns when all are done.
 * Which thread takes which piece is not fixed, so a job must write only what its
 * own items own: results never depend on the number of threads.
 *
 * Threads spin briefly for the next job (a decode step has hundreds of them a few
 * microseconds apart) and then sleep, so an idle pool costs nothing. Jobs allocate
 * nothing, log nothing and take no lock. One thread owns the pool and calls it. */
#ifndef UTIL_POOL_H
#define UTIL_POOL_H

#include <stdint.h>

struct err;
struct pool;

typedef void pool_fn(void *ctx, uint32_t begin, uint32_t end, uint32_t thread);

/* n_threads counts the caller; 0 takes pool_auto_threads(). */
int pool_open(struct pool **out, uint32_t n_threads, struct err *err);
void pool_close(struct pool *p); /* NULL is fine */
void pool_run(struct pool *p, pool_fn *fn, void *ctx, uint32_t n_items, uint32_t grain);
uint32_t pool_threads(const struct pool *p);
uint64_t pool_jobs(const struct pool *p); /* pool_run calls that woke another thread */

/* What the affinity mask and the cgroup CPU quota (v2 and v1) leave, at least 1. */
uint32_t pool_auto_threads(void);

#endif
