#include "io/io.h"

#include "io/io_threads.h"
#include "util/err.h"

int io_open(struct io **out, enum io_kind kind, uint32_t depth, struct err *err)
{
    switch (kind) {
    case IO_AUTO:
    case IO_THREADS:
        return io_threads_open(out, depth, err);
    }
    return err_set(err, ERR_UNSUPPORTED, "I/O backend %d", (int)kind);
}

void io_close(struct io *io)
{
    if (io)
        io->ops->close(io);
}
