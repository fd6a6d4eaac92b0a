/* How a job is handed out and taken back.
 *
 * The owner writes the job's fields, then stores an odd number in `round` (open), takes
 * pieces itself, stores the next even number (closed) and waits until `inside` is zero.
 * A helper that sees an odd round enters (inside + 1), looks at round once more, takes
 * pieces while it is still the same, and leaves (inside - 1). Entering and closing are both
 * sequentially consistent, so either the helper sees the closed round or the owner sees
 * the helper. Nobody has to come: a helper that is asleep or not scheduled delays no job,
 * which is what keeps more threads than cores usable.
 *
 * Sleeping follows the same pattern: whoever is about to sleep says so first and looks
 * again, whoever changes the word looks for sleepers afterwards. */
#include "util/pool.h"

#include "util/clock.h"
#include "util/cpu_quota.h"
#include "util/err.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Tuning. A decode step has a job every few microseconds to some hundred microseconds; a
 * sleeping thread costs the owner a system call and comes 5 to 50 us late. With more
 * threads than processors a spinning thread keeps a working one away, so it gives up early. */
enum { SPIN_NS = 100000, SPIN_CROWDED_NS = 3000, SPINS_PER_LOOK = 16 };

enum { POOL_THREADS_MAX = 1024 };

struct helper {
    struct pool *pool; /* borrowed */
    pthread_t thread;
    uint32_t index;
};

struct pool {
    /* Written by the owner while the round is closed and nobody is inside. */
    pool_fn *fn;
    void *ctx;
    uint32_t n_items, grain;

    /* Each on its own cache line: the words that threads fight over. */
    _Alignas(64) _Atomic uint64_t next;      /* first item nobody took; everyone adds to it */
    _Alignas(64) _Atomic uint32_t round; /* odd: a job is open. Owner writes; futex of helpers */
    _Atomic uint32_t sleepers;               /* helpers in, or about to enter, futex wait */
    _Alignas(64) _Atomic uint32_t inside; /* helpers that may touch the job; futex of the owner */
    _Atomic uint32_t owner_sleeps;           /* 1 while the owner waits on inside */
    _Alignas(64) _Atomic bool stop;          /* set by pool_close before its last round */

    uint32_t n_threads;  /* the caller included */
    uint32_t n_helpers;  /* threads really started */
    uint64_t spin_ns;
    uint64_t jobs;
    struct helper *helpers; /* owned, [n_threads - 1] */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, uint32_t n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n > INT_MAX ? INT_MAX : (int)n, NULL, NULL, 0);
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Spins until *word differs from seen, for at most spin_ns. True when it does. */
static bool spin_while(_Atomic uint32_t *word, uint32_t seen, uint64_t spin_ns)
{
    uint64_t start = clock_ns();

    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != seen)
                return true;
            relax();
        }
    } while (clock_ns() - start < spin_ns);
    return false;
}

static void take_pieces(struct pool *p, uint32_t thread)
{
    const uint32_t n = p->n_items, grain = p->grain;

    for (;;) {
        uint64_t begin = atomic_fetch_add_explicit(&p->next, grain, memory_order_relaxed);
        if (begin >= n)
            return;
        uint64_t end = begin + grain < n ? begin + grain : n;
        p->fn(p->ctx, (uint32_t)begin, (uint32_t)end, thread);
    }
}

/* Returns the round that differs from seen. */
static uint32_t wait_round(struct pool *p, uint32_t seen)
{
    if (!spin_while(&p->round, seen, p->spin_ns)) {
        atomic_fetch_add(&p->sleepers, 1);
        while (atomic_load(&p->round) == seen)
            futex_wait(&p->round, seen);
        atomic_fetch_sub(&p->sleepers, 1);
    }
    return atomic_load_explicit(&p->round, memory_order_acquire);
}

static void *helper_main(void *arg)
{
    struct helper *h = arg;
    struct pool *p = h->pool;
    uint32_t seen = 0;
    char name[24];

    /* By the thread itself: naming another one writes to a file of /proc. */
    snprintf(name, sizeof name, "compute-%u", h->index); /* the kernel keeps 15 characters */
    prctl(PR_SET_NAME, name);
    for (;;) {
        seen = wait_round(p, seen);
        if (atomic_load_explicit(&p->stop, memory_order_acquire))
            return NULL;
        if (seen % 2 == 0)
            continue;

        atomic_fetch_add(&p->inside, 1);
        if (atomic_load(&p->round) == seen)
            take_pieces(p, h->index);
        if (atomic_fetch_sub(&p->inside, 1) == 1 && atomic_load(&p->owner_sleeps))
            futex_wake(&p->inside, 1);
    }
}

static void wait_until_nobody_inside(struct pool *p)
{
    uint32_t n;

    while ((n = atomic_load(&p->inside)) != 0) {
        if (spin_while(&p->inside, n, p->spin_ns))
            continue;
        atomic_store(&p->owner_sleeps, 1);
        if ((n = atomic_load(&p->inside)) != 0)
            futex_wait(&p->inside, n);
        atomic_store(&p->owner_sleeps, 0);
    }
}

/* Opens or closes a round and wakes at most n sleeping helpers. */
static void turn_round(struct pool *p, uint32_t n)
{
    atomic_fetch_add(&p->round, 1);
    if (n > 0 && atomic_load(&p->sleepers) > 0)
        futex_wake(&p->round, n);
}

void pool_run(struct pool *p, pool_fn *fn, void *ctx, uint32_t n_items, uint32_t grain)
{
    if (n_items == 0)
        return;
    if (grain == 0)
        grain = 1;
    if (p->n_helpers == 0 || n_items <= grain) {
        fn(ctx, 0, n_items, 0);
        return;
    }

    p->fn = fn;
    p->ctx = ctx;
    p->n_items = n_items;
    p->grain = grain;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    p->jobs++;
    turn_round(p, (n_items - 1) / grain);
    take_pieces(p, 0);
    turn_round(p, 0);
    wait_until_nobody_inside(p);
}

static int start_helper(struct pool *p, uint32_t index, struct err *err)
{
    struct helper *h = &p->helpers[index - 1];

    *h = (struct helper){ .pool = p, .index = index };
    int rc = pthread_create(&h->thread, NULL, helper_main, h);
    if (rc != 0) {
        errno = rc;
        return err_errno(err, "compute thread %u of %u", index + 1, p->n_threads);
    }
    p->n_helpers++;
    return 0;
}

int pool_open(struct pool **out, uint32_t n_threads, struct err *err)
{
    const uint32_t available = pool_auto_threads();
    sigset_t all, before;
    int rc = 0;

    if (n_threads == 0)
        n_threads = available;
    if (n_threads > POOL_THREADS_MAX)
        return err_set(err, ERR_INPUT, "%u compute threads: at most %d are possible", n_threads,
                       POOL_THREADS_MAX);

    struct pool *p = aligned_alloc(_Alignof(struct pool), sizeof *p);
    struct helper *helpers = calloc(n_threads, sizeof *helpers);
    if (!p || !helpers) {
        free(p);
        free(helpers);
        return err_set(err, ERR_NOMEM, "pool of %u compute threads", n_threads);
    }
    *p = (struct pool){ .n_threads = n_threads, .helpers = helpers };
    p->spin_ns = n_threads <= available ? SPIN_NS : SPIN_CROWDED_NS;

    /* Signals belong to the thread that owns the pool. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (uint32_t i = 1; i < n_threads && rc == 0; i++)
        rc = start_helper(p, i, err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc < 0) {
        pool_close(p);
        return -1;
    }
    *out = p;
    return 0;
}

void pool_close(struct pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    turn_round(p, p->n_helpers);
    for (uint32_t i = 0; i < p->n_helpers; i++)
        pthread_join(p->helpers[i].thread, NULL);
    free(p->helpers);
    free(p);
}

uint32_t pool_threads(const struct pool *p)
{
    return p->n_threads;
}

uint64_t pool_jobs(const struct pool *p)
{
    return p->jobs;
}

/* The kernel refuses a mask shorter than its own, so ask with ever longer ones. */
static uint32_t affinity_count(void)
{
    for (int n = CPU_SETSIZE; n <= 1 << 20; n *= 4) {
        size_t size = CPU_ALLOC_SIZE(n);
        cpu_set_t *set = CPU_ALLOC(n);
        if (!set)
            return 1;
        int rc = sched_getaffinity(0, size, set);
        int count = rc == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (rc == 0)
            return count > 0 ? (uint32_t)count : 1;
        if (errno != EINVAL)
            return 1;
    }
    return 1;
}

uint32_t pool_auto_threads(void)
{
    uint32_t n = affinity_count(), quota = cpu_quota("");

    if (quota < n)
        n = quota;
    return n < POOL_THREADS_MAX ? n : POOL_THREADS_MAX;
}
