/* Two bounded queues under one lock: reads wait in one for a thread, their outcomes
 * wait in the other for reap. A read holds its place from submit to reap, so the
 * second queue cannot overflow and no thread ever waits for its owner. */
#include "io/io_threads.h"

#include "io/io.h"
#include "util/err.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { MAX_DEPTH = 256 };
/* Places per thread: a thread that ends a read finds the next without its owner. */
enum { PLACES_PER_THREAD = 4 };
/* A pread loop needs a few hundred bytes; the default of 8 MiB would count as promised. */
enum { STACK_SIZE = 256 << 10 };

struct io_threads {
    struct io io; /* first: the seam's view of us */
    pthread_t *threads; /* owned */
    uint32_t n_threads, n_places;

    pthread_mutex_t lock; /* over all below */
    pthread_cond_t work, ended;
    bool stop;
    uint32_t n_alive; /* threads that have not left */
    bool orphaned;    /* nobody waits: the last thread to leave frees us */
    uint32_t n_named; /* threads that have begun */
    struct io_read *waiting; /* owned; ring of n_places */
    uint32_t waiting_head, n_waiting;
    struct io_done *done; /* owned; ring of n_places */
    uint32_t done_head, n_done;
    uint32_t n_held; /* places taken: waiting, under way or done */
};

static void free_all(struct io_threads *t)
{
    pthread_cond_destroy(&t->ended);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    free(t->threads);
    free(t->waiting);
    free(t->done);
    free(t);
}

static void *thread_main(void *arg)
{
    struct io_threads *t = arg;
    char name[16];

    pthread_mutex_lock(&t->lock);
    /* By the thread itself: naming another one writes to a file of /proc. */
    snprintf(name, sizeof name, "cz-io-%u", t->n_named++ % 1000);
    prctl(PR_SET_NAME, name);
    for (;;) {
        while (!t->stop && t->n_waiting == 0)
            pthread_cond_wait(&t->work, &t->lock);
        if (t->stop)
            break;
        struct io_read r = t->waiting[t->waiting_head];
        t->waiting_head = (t->waiting_head + 1) % t->n_places;
        t->n_waiting--;
        pthread_mutex_unlock(&t->lock);

        int error = io_read_range(&r);

        pthread_mutex_lock(&t->lock);
        t->done[(t->done_head + t->n_done) % t->n_places] =
            (struct io_done){ .tag = r.tag, .error = error };
        t->n_done++;
        pthread_cond_signal(&t->ended);
    }
    t->n_alive--;
    bool last = t->orphaned && t->n_alive == 0;
    pthread_cond_signal(&t->ended);
    pthread_mutex_unlock(&t->lock);
    if (last)
        free_all(t);
    return NULL;
}

static int threads_submit(struct io *io, const struct io_read *r, size_t n, struct err *err)
{
    struct io_threads *t = (struct io_threads *)io;
    size_t took = 0;

    (void)err;
    pthread_mutex_lock(&t->lock);
    for (; took < n && t->n_held < t->n_places; took++) {
        assert(r[took].size <= IO_MAX_READ && r[took].need <= r[took].size);
        t->waiting[(t->waiting_head + t->n_waiting) % t->n_places] = r[took];
        t->n_waiting++;
        t->n_held++;
        pthread_cond_signal(&t->work);
    }
    pthread_mutex_unlock(&t->lock);
    return (int)took;
}

static struct timespec deadline_in(int timeout_ms)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += timeout_ms / 1000;
    t.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

static int threads_reap(struct io *io, struct io_done *done, size_t cap, int timeout_ms,
                        struct err *err)
{
    struct io_threads *t = (struct io_threads *)io;
    size_t n = 0;

    (void)err;
    pthread_mutex_lock(&t->lock);
    if (t->n_done == 0 && timeout_ms > 0) {
        struct timespec until = deadline_in(timeout_ms);

        while (t->n_done == 0)
            if (pthread_cond_timedwait(&t->ended, &t->lock, &until) == ETIMEDOUT)
                break;
    }
    for (; n < cap && t->n_done > 0; n++) {
        done[n] = t->done[t->done_head];
        t->done_head = (t->done_head + 1) % t->n_places;
        t->n_done--;
        t->n_held--;
    }
    pthread_mutex_unlock(&t->lock);
    return (int)n;
}

/* Threads that sit in a read which does not end are left behind, with what they use: nothing can
 * wake them, and the process must be able to end. */
static void threads_close(struct io *io)
{
    struct io_threads *t = (struct io_threads *)io;
    struct timespec until = deadline_in(IO_CLOSE_MS);
    int rc = 0;

    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->work);
    while (t->n_alive > 0 && rc == 0)
        rc = pthread_cond_timedwait(&t->ended, &t->lock, &until);
    if (t->n_alive > 0) {
        t->orphaned = true;
        for (uint32_t i = 0; i < t->n_threads; i++)
            pthread_detach(t->threads[i]);
        pthread_mutex_unlock(&t->lock);
        return;
    }
    pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; i < t->n_threads; i++)
        pthread_join(t->threads[i], NULL);
    free_all(t);
}

static int start_threads(struct io_threads *t, uint32_t depth, struct err *err)
{
    sigset_t all, before;
    pthread_attr_t attr;
    int rc = 0;

    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    /* A thread inherits the mask of its maker: signals stay with the others. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (rc == 0 && t->n_threads < depth) {
        rc = pthread_create(&t->threads[t->n_threads], &attr, thread_main, t);
        t->n_threads += rc == 0;
        t->n_alive = t->n_threads; /* none leaves before close, which looks under the lock */
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc == 0)
        return 0;
    errno = rc;
    return err_errno(err, "start I/O thread %u of %u", t->n_threads + 1, depth);
}

int io_threads_open(struct io **out, uint32_t depth, struct err *err)
{
    static const struct io_ops ops = {
        .submit = threads_submit,
        .reap = threads_reap,
        .close = threads_close,
    };
    pthread_condattr_t monotonic;

    if (depth < 1 || depth > MAX_DEPTH)
        return err_set(err, ERR_INPUT, "I/O depth %u is not in 1..%d", depth, MAX_DEPTH);
    struct io_threads *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(err, ERR_NOMEM, "I/O threads");
    t->io.ops = &ops;
    t->n_places = depth * PLACES_PER_THREAD;
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&t->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&t->work, NULL);

    t->threads = calloc(depth, sizeof *t->threads);
    t->waiting = calloc(t->n_places, sizeof *t->waiting);
    t->done = calloc(t->n_places, sizeof *t->done);
    if (!t->threads || !t->waiting || !t->done) {
        err_set(err, ERR_NOMEM, "queues of %u I/O threads", depth);
        goto fail;
    }
    if (start_threads(t, depth, err) < 0)
        goto fail;
    *out = &t->io;
    return 0;

fail:
    threads_close(&t->io);
    return -1;
}
