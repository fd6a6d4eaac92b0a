/* io_in_turn: the backend without threads, for runs that must be the same each time.
 *
 * Reads are done in the order in which they are submitted, before submit returns, so nothing
 * depends on how fast a drive is. Nobody can give up a read that a drive never answers: for tools,
 * not for a service. */
#ifndef IO_IO_IN_TURN_H
#define IO_IO_IN_TURN_H

#include <stdint.h>

struct err;
struct io;

/* depth: 1 to 256. Through io_open. */
int io_in_turn_open(struct io **out, uint32_t depth, struct err *err);

#endif
