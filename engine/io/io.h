/* io: reads of bytes from drives, several under way at once.
 *
 * submit starts reads, reap waits for some to end. A read is aligned as O_DIRECT
 * wants it (offset, size and memory to 4 KiB) and at most 64 MiB; it may pass the
 * file's end, and need says how much must come all the same, so that a file cut
 * short is an error and not stale memory. Nothing here retries; the caller decides.
 * One thread owns an io, and one user: reap gives whatever is done, so two that
 * share an io would take each other's completions. No call blocks but reap, up to
 * timeout_ms (a dead disk must not deafen the engine), and close, up to IO_CLOSE_MS.
 *
 * A drive may never answer. Then nobody can take back the memory that a read was given:
 * whoever lent it leaves it to the read and goes on without. */
#ifndef IO_IO_H
#define IO_IO_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct io;

enum { IO_ALIGN = 4096 };
enum { IO_MAX_READ = 64 << 20 };
/* How long anybody who stops waits for a drive that does not answer. A read that a drive works on
 * takes milliseconds; a service that stops has other things to do. */
enum { IO_CLOSE_MS = 1500 };

struct io_read {
    int fd;
    uint32_t size;
    uint32_t need; /* bytes that must come, at most size; fewer are EIO */
    uint64_t offset;
    void *to; /* stays the reader's until the read is reaped */
    uint64_t tag;
};

struct io_done {
    uint64_t tag;
    int error; /* 0 or errno; EIO when fewer than need came */
};

struct io_ops {
    /* How many it took, from the front: 0..n; -1 on a fault of its own. */
    int (*submit)(struct io *io, const struct io_read *r, size_t n, struct err *err);
    /* Done reads, 0 after timeout_ms without one; timeout_ms 0 polls. */
    int (*reap)(struct io *io, struct io_done *done, size_t cap, int timeout_ms, struct err *err);
    /* Drops reads that no drive has begun, and waits for the others up to IO_CLOSE_MS. */
    void (*close)(struct io *io);
};

/* Every backend's struct begins with this. */
struct io {
    const struct io_ops *ops;
    /* Borrowed; reads that ended are added, whatever came of them. Written by the io's owner,
     * relaxed, for any thread that wants to see progress. NULL: nobody does. */
    _Atomic uint64_t *ended;
};

enum io_kind {
    IO_AUTO,
    IO_THREADS,
    IO_IN_TURN, /* no threads: submit reads, one after the other, and does not return before */
};

/* depth: reads under way at once (threads, for IO_THREADS); submit takes a few times as
 * many, so that none of them idles while its owner computes. With IO_IN_TURN it is what submit
 * takes before a reap. */
int io_open(struct io **out, enum io_kind kind, uint32_t depth, struct err *err);
void io_close(struct io *io); /* NULL is fine */

/* For backends: the whole range, over interruptions and short reads, on this thread; 0 or errno. */
int io_read_range(const struct io_read *r);

/* ops->reap, counted. */
int io_reap(struct io *io, struct io_done *done, size_t cap, int timeout_ms, struct err *err);
/* Before the memory of n reads under way can be freed: waits for them up to IO_CLOSE_MS, whatever
 * comes of them. How many have not ended; they may write into their memory for ever. */
uint32_t io_forget(struct io *io, uint32_t n);

#endif
