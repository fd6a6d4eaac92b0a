/* io_threads: the backend that works everywhere, a few threads in pread.
 *
 * Ten percent slower than io_uring on a fast drive, but nothing can forbid it. The
 * threads take no signals, and hold nothing while idle but their stacks. */
#ifndef IO_IO_THREADS_H
#define IO_IO_THREADS_H

#include <stdint.h>

struct err;
struct io;

/* depth: 1 to 256. Through io_open. */
int io_threads_open(struct io **out, uint32_t depth, struct err *err);

#endif
