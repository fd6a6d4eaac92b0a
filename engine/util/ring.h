/* ring: a bounded queue from one thread to one other.
 *
 * One producer, one consumer, fixed-size items copied in and out; neither ever
 * waits for the other. The eventfd becomes readable when items were put, so the
 * consumer can sleep on it (ring_fd). */
#ifndef UTIL_RING_H
#define UTIL_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct ring;

/* n_items is rounded up to a power of two. */
int ring_open(struct ring **out, size_t item_size, size_t n_items, struct err *err);
void ring_close(struct ring *r); /* NULL is fine; items left are dropped */
bool ring_put(struct ring *r, const void *item); /* producer; false when full */
bool ring_get(struct ring *r, void *item);       /* consumer; false when empty */
int ring_fd(const struct ring *r);               /* borrowed; consumer: poll it */
void ring_drain_fd(struct ring *r);              /* consumer: before emptying the ring */

#endif
