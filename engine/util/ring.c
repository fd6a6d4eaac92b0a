/* Head and tail are free-running counters on cache lines of their own. The producer publishes
 * an item by a release store of tail, the consumer gives a place back by a release store of
 * head; each reads the other's counter with acquire. */
#include "util/ring.h"

#include "util/err.h"
#include "util/size.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct ring {
    _Alignas(64) _Atomic uint64_t tail; /* written by the producer: items put */
    _Alignas(64) _Atomic uint64_t head; /* written by the consumer: items taken */
    _Alignas(64) size_t item_size;
    uint64_t mask;
    int fd;
    char *items; /* owned; [mask + 1, item_size] */
};

int ring_open(struct ring **out, size_t item_size, size_t n_items, struct err *err)
{
    uint64_t n = 1, bytes;
    struct ring *r;

    if (item_size == 0 || n_items == 0 || n_items > (size_t)1 << 30)
        return err_set(err, ERR_INPUT, "ring of %zu items of %zu bytes", n_items, item_size);
    while (n < n_items)
        n *= 2;
    if (!size_mul(&bytes, n, item_size))
        return err_set(err, ERR_NOMEM, "ring of %zu items of %zu bytes", n_items, item_size);

    r = aligned_alloc(64, sizeof *r);
    if (!r)
        return err_set(err, ERR_NOMEM, "ring");
    memset(r, 0, sizeof *r);
    r->item_size = item_size;
    r->mask = n - 1;
    r->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->fd < 0) {
        err_errno(err, "eventfd");
        goto fail;
    }
    r->items = malloc(bytes);
    if (!r->items) {
        err_set(err, ERR_NOMEM, "ring of %zu items of %zu bytes", n_items, item_size);
        goto fail;
    }
    *out = r;
    return 0;

fail:
    ring_close(r);
    return -1;
}

void ring_close(struct ring *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd);
    free(r->items);
    free(r);
}

bool ring_put(struct ring *r, const void *item)
{
    uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&r->head, memory_order_acquire);

    if (tail - head > r->mask)
        return false;
    memcpy(r->items + (tail & r->mask) * r->item_size, item, r->item_size);
    atomic_store_explicit(&r->tail, tail + 1, memory_order_release);

    /* EAGAIN means the counter is full of wake-ups already: the fd is readable. */
    uint64_t one = 1;
    while (write(r->fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    return true;
}

bool ring_get(struct ring *r, void *item)
{
    uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);

    if (head == tail)
        return false;
    memcpy(item, r->items + (head & r->mask) * r->item_size, r->item_size);
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
    return true;
}

int ring_fd(const struct ring *r)
{
    return r->fd;
}

void ring_drain_fd(struct ring *r)
{
    uint64_t count;

    while (read(r->fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
}
