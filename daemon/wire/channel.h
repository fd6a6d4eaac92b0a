/* channel: whole frames over a stream socket, with descriptors, without blocking.
 *
 * Non-blocking SOCK_STREAM socketpair on an sd-event loop. Outgoing frames wait in a capped
 * outbox; incoming ones are checked by wire_check before the handler sees them, and their body
 * is aligned for its struct. Any error, a malformed frame or the other side's end closes the
 * channel and calls `closed` once, from the loop and never from inside channel_send; frames
 * that came before the end are delivered first. One thread. */
#ifndef DAEMON_CHANNEL_H
#define DAEMON_CHANNEL_H

#include "daemon/wire/wire.h"

#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

struct channel;

struct channel_events {
    void *ctx;
    /* fd is -1 or a descriptor the handler now owns. */
    void (*frame)(void *ctx, const struct wire_head *head, const void *body, size_t size, int fd);
    void (*closed)(void *ctx, const struct err *why); /* ERR_CLOSED for a plain end */
};

/* Takes fd. outbox_cap in bytes. */
int channel_open(struct channel **out, sd_event *loop, int fd, size_t outbox_cap,
                 const struct channel_events *events, struct err *err);
void channel_close(struct channel *c); /* NULL is fine; no callback; safe inside a callback */

/* A frame of parts after the head. fd (-1: none) is duplicated. ERR_BUSY when the
 * outbox is full, ERR_CLOSED after the end. */
struct channel_part {
    const void *bytes;
    size_t size;
};
int channel_send(struct channel *c, uint16_t type, uint64_t id, const struct channel_part *parts,
                 size_t n_parts, int fd, struct err *err);
size_t channel_queued(const struct channel *c); /* bytes waiting */
/* Waits until the outbox is written, at most timeout_ms: for a last word before exit. */
int channel_flush(struct channel *c, int timeout_ms, struct err *err);

#endif
