/* io: reads of bytes from drives, several under way at once.
 *
 * submit starts reads, reap waits for some to end. A read is aligned as O_DIRECT
 * wants it (offset, size and memory to 4 KiB) and at most 64 MiB; it may pass the
 * file's end, and need says how much must come all the same, so that a file cut
 * short is an error and not stale memory. Nothing here retries; the caller decides.
 * One thread owns an io, and one user: reap gives whatever is done, so two that
 * share an io would take each other's completions. No call blocks but reap, up to
 * timeout_ms (a dead disk must not deafen the engine). */
#ifndef IO_IO_H
#define IO_IO_H

#include <stddef.h>
#include <stdint.h>

struct err;
struct io;

enum { IO_ALIGN = 4096 };
enum { IO_MAX_READ = 64 << 20 };

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
    void (*close)(struct io *io); /* waits for reads under way */
};

/* Every backend's struct begins with this. */
struct io {
    const struct io_ops *ops;
};

enum io_kind { IO_AUTO, IO_THREADS };

/* depth: reads under way at once (threads, for IO_THREADS); submit takes a few times as
 * many, so that none of them idles while its owner computes. */
int io_open(struct io **out, enum io_kind kind, uint32_t depth, struct err *err);
void io_close(struct io *io); /* NULL is fine */

#endif
