#include "io/io.h"

#include "io/io_in_turn.h"
#include "io/io_threads.h"
#include "util/clock.h"
#include "util/err.h"

#include <errno.h>
#include <unistd.h>

int io_open(struct io **out, enum io_kind kind, uint32_t depth, struct err *err)
{
    switch (kind) {
    case IO_AUTO:
    case IO_THREADS:
        return io_threads_open(out, depth, err);
    case IO_IN_TURN:
        return io_in_turn_open(out, depth, err);
    }
    return err_set(err, ERR_UNSUPPORTED, "I/O backend %d", (int)kind);
}

void io_close(struct io *io)
{
    if (io)
        io->ops->close(io);
}

int io_read_range(const struct io_read *r)
{
    uint32_t got = 0;

    do {
        ssize_t n = pread(r->fd, (char *)r->to + got, r->size - got, (off_t)(r->offset + got));

        if (n < 0 && errno == EINTR)
            continue;
        /* Past an end that is no multiple of a block O_DIRECT refuses to go on. */
        if (n < 0)
            return got && errno == EINVAL ? EIO : errno;
        if (n == 0)
            return got < r->need ? EIO : 0;
        got += (uint32_t)n;
    } while (got < r->need);
    return 0;
}

int io_reap(struct io *io, struct io_done *done, size_t cap, int timeout_ms, struct err *err)
{
    int n = io->ops->reap(io, done, cap, timeout_ms, err);

    if (n > 0 && io->ended)
        atomic_fetch_add_explicit(io->ended, (uint64_t)n, memory_order_relaxed);
    return n;
}

uint32_t io_forget(struct io *io, uint32_t n)
{
    uint64_t until = clock_ms() + IO_CLOSE_MS;
    struct io_done done[16];

    while (n > 0) {
        uint64_t now = clock_ms();
        int ended = now < until ? io_reap(io, done, 16, (int)(until - now), NULL) : -1;

        if (ended < 0)
            break;
        n -= (uint32_t)ended;
    }
    return n;
}
