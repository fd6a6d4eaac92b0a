/* fake_io: an io whose drive does what the test wants.
 *
 * Reads are kept until reap, and only then carried out, so memory that was reused too
 * early is caught. It delays (a read is done after some calls of reap), reorders,
 * fails the reads the test names by count, and can go silent. One thread; reap never
 * sleeps for longer than it takes to tell that time passes. */
#ifndef TESTS_FAKE_IO_H
#define TESTS_FAKE_IO_H

#include "io/io.h"
#include "store_fixture.h"

#include <time.h>

enum { FAKE_IO_MAX = 256 };

struct fake_io {
    struct io io; /* first */
    struct io_read held[FAKE_IO_MAX];
    uint32_t age[FAKE_IO_MAX]; /* calls of reap it still waits for */
    uint32_t n_held, most_held, room;
    uint64_t bytes_held, most_bytes;
    uint64_t n_reads, n_ended; /* submitted so far; done so far */
    uint32_t delay;       /* upper bound of age */
    bool reorder, silent; /* silent: nothing is ever done */
    uint64_t fail_from, fail_count; /* ends number fail_from.. fail; 0: none */
    uint32_t fail_one_in;           /* a random one in so many fails; 0: none */
    bool retries_work;              /* the read after a failed one of its offset works */
    uint64_t last_failed[FAKE_IO_MAX];
    bool never_once;                /* the next read submitted stays for ever */
    uint64_t seed;
};

static inline uint32_t fake_io_random(struct fake_io *f, uint32_t below)
{
    f->seed = f->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(f->seed >> 33) % below;
}

static inline int fake_io_submit(struct io *io, const struct io_read *r, size_t n,
                                 struct err *err)
{
    struct fake_io *f = (struct fake_io *)io;
    size_t took = 0;

    (void)err;
    for (; took < n && f->n_held < f->room; took++) {
        assert_int_equal(r[took].offset % IO_ALIGN, 0);
        assert_int_equal(r[took].size % IO_ALIGN, 0);
        assert_int_equal((uintptr_t)r[took].to % IO_ALIGN, 0);
        assert_true(r[took].size > 0 && r[took].need > 0 && r[took].need <= r[took].size);
        f->age[f->n_held] = f->delay ? fake_io_random(f, f->delay + 1) : 0;
        if (f->never_once) {
            f->age[f->n_held] = UINT32_MAX;
            f->never_once = false;
        }
        f->held[f->n_held++] = r[took];
        f->bytes_held += r[took].size;
        f->n_reads++;
    }
    if (f->most_held < f->n_held)
        f->most_held = f->n_held;
    if (f->most_bytes < f->bytes_held)
        f->most_bytes = f->bytes_held;
    return (int)took;
}

static inline bool fake_io_fails(struct fake_io *f, const struct io_read *r)
{
    uint64_t number = f->n_ended++;
    uint64_t *last = &f->last_failed[r->tag % FAKE_IO_MAX];
    bool fails = (f->fail_count && number >= f->fail_from &&
                  number < f->fail_from + f->fail_count) ||
                 (f->fail_one_in && fake_io_random(f, f->fail_one_in) == 0);

    if (f->retries_work && *last == r->offset + 1)
        fails = false;
    *last = fails ? r->offset + 1 : 0;
    return fails;
}

static inline int fake_io_end(struct fake_io *f, const struct io_read *r)
{
    if (fake_io_fails(f, r)) {
        memset(r->to, 0x7F, r->size); /* a failed read may leave anything */
        return EIO;
    }
    ssize_t got = pread(r->fd, r->to, r->size, (off_t)r->offset);
    return got < 0 ? errno : (size_t)got < r->need ? EIO : 0;
}

static inline int fake_io_reap(struct io *io, struct io_done *done, size_t cap, int timeout_ms,
                               struct err *err)
{
    struct fake_io *f = (struct fake_io *)io;
    size_t n = 0;

    (void)err;
    for (uint32_t i = 0; i < f->n_held; i++)
        if (f->age[i] > 0 && f->age[i] != UINT32_MAX)
            f->age[i]--;
    while (n < cap && f->n_held > 0 && !f->silent) {
        uint32_t first = f->reorder ? fake_io_random(f, f->n_held) : 0, i = first;

        while (f->age[i] > 0) {
            i = (i + 1) % f->n_held;
            if (i == first)
                break;
        }
        if (f->age[i] > 0)
            break;
        done[n++] = (struct io_done){
            .tag = f->held[i].tag, .error = fake_io_end(f, &f->held[i]),
        };
        f->bytes_held -= f->held[i].size;
        f->n_held--;
        memmove(&f->held[i], &f->held[i + 1], (f->n_held - i) * sizeof f->held[0]);
        memmove(&f->age[i], &f->age[i + 1], (f->n_held - i) * sizeof f->age[0]);
    }
    if (n == 0 && timeout_ms > 0) {
        struct timespec nap = { .tv_nsec = timeout_ms > 2 ? 2000000 : 500000 };

        nanosleep(&nap, NULL);
    }
    return (int)n;
}

static inline void fake_io_close(struct io *io)
{
    (void)io;
}

static inline void fake_io_init(struct fake_io *f)
{
    static const struct io_ops ops = {
        .submit = fake_io_submit, .reap = fake_io_reap, .close = fake_io_close,
    };

    *f = (struct fake_io){ .io.ops = &ops, .room = FAKE_IO_MAX, .seed = 1 };
}

/* The drive answers again, whatever it kept. */
static inline void fake_io_answer(struct fake_io *f)
{
    f->silent = false;
    memset(f->age, 0, sizeof f->age);
}

#endif
