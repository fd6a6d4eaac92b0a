#include "io/io_in_turn.h"

#include "io/io.h"
#include "util/err.h"

#include <assert.h>
#include <stdlib.h>

enum { MAX_DEPTH = 256 };

struct io_in_turn {
    struct io io; /* first: the seam's view of us */
    uint32_t depth, head, n; /* outcomes that wait for reap */
    struct io_done done[];   /* ring of depth */
};

static int in_turn_submit(struct io *io, const struct io_read *r, size_t n, struct err *err)
{
    struct io_in_turn *t = (struct io_in_turn *)io;
    size_t took = 0;

    (void)err;
    for (; took < n && t->n < t->depth; took++) {
        assert(r[took].size <= IO_MAX_READ && r[took].need <= r[took].size);
        t->done[(t->head + t->n++) % t->depth] =
            (struct io_done){ .tag = r[took].tag, .error = io_read_range(&r[took]) };
    }
    return (int)took;
}

/* Nothing is under way, so there is nothing to wait for. */
static int in_turn_reap(struct io *io, struct io_done *done, size_t cap, int timeout_ms,
                        struct err *err)
{
    struct io_in_turn *t = (struct io_in_turn *)io;
    size_t n = 0;

    (void)timeout_ms;
    (void)err;
    for (; n < cap && t->n > 0; n++) {
        done[n] = t->done[t->head];
        t->head = (t->head + 1) % t->depth;
        t->n--;
    }
    return (int)n;
}

static void in_turn_close(struct io *io)
{
    free(io);
}

int io_in_turn_open(struct io **out, uint32_t depth, struct err *err)
{
    static const struct io_ops ops = {
        .submit = in_turn_submit,
        .reap = in_turn_reap,
        .close = in_turn_close,
    };

    if (depth < 1 || depth > MAX_DEPTH)
        return err_set(err, ERR_INPUT, "I/O depth %u is not in 1..%d", depth, MAX_DEPTH);
    struct io_in_turn *t = calloc(1, sizeof *t + depth * sizeof *t->done);
    if (!t)
        return err_set(err, ERR_NOMEM, "reads in turn");
    t->io.ops = &ops;
    t->depth = depth;
    *out = &t->io;
    return 0;
}
