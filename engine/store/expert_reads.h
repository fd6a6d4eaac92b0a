/* expert_reads: the bytes of experts on their way into slots.
 *
 * An expert is read in pieces, a few experts at once, with as much under way as a drive
 * likes best. A piece that fails is tried once more. A read that stands still for too
 * long is given up: its slot is of no use until the drive has answered after all,
 * because the kernel may write there until then. Knows nothing of orders and loans.
 * Engine thread; never waits but in reap. */
#ifndef STORE_EXPERT_READS_H
#define STORE_EXPERT_READS_H

#include "io/io.h"

#include <stdbool.h>
#include <stdint.h>

struct drives;
struct err;
struct expert_map;
struct expert_reads;

struct expert_reads_options {
    const struct expert_map *map; /* borrowed, like the rest */
    const struct drives *drives;
    struct io *io;
    char *slots;               /* [n_slots, map->slot_size]; as many of them as are open */
    uint32_t n_slots;
    uint32_t most;             /* experts being read at once */
    uint32_t stall_timeout_ms; /* 0: never */
};

int expert_reads_open(struct expert_reads **out, const struct expert_reads_options *opt,
                      struct err *err);
uint64_t expert_reads_size(uint32_t n_slots); /* bytes of its tables */
/* Waits for reads under way, as io_forget does. False: some may write into slots for ever. NULL is
 * fine. */
bool expert_reads_close(struct expert_reads *r);

/* Experts being read, without those given up. Fewer than most: one may begin. */
uint32_t expert_reads_count(const struct expert_reads *r);
/* index: ordinal * n_experts + expert. Its bytes are asked for by feed. */
void expert_reads_begin(struct expert_reads *r, uint32_t slot, uint32_t index);
/* Hands pieces to io. 1: all of what was begun is under way; 0: there is no room; -1. */
int expert_reads_feed(struct expert_reads *r, struct err *err);

enum read_outcome {
    READ_CAME,   /* the expert is in the slot */
    READ_FAILED, /* expert_reads_why says why; the slot is free */
    READ_LATE,   /* given up before; the slot is free now */
};
struct read_end {
    uint32_t slot;
    enum read_outcome outcome;
};
enum { READ_ENDS = 32 }; /* pieces under way at most, hence ends of one reap */

/* Waits up to timeout_ms for a piece and tells which slots ended. How many, or -1. */
int expert_reads_reap(struct expert_reads *r, struct read_end ends[READ_ENDS], int timeout_ms,
                      struct err *err);
/* ERR_IO for a slot that ended with READ_FAILED, until the slot is used again. */
int expert_reads_why(const struct expert_reads *r, uint32_t slot, struct err *err);

/* Gives up one read that stood still for stall_timeout_ms, with *why filled. False: none
 * did. *is_free: nothing of it was under way, so READ_LATE will not come. */
bool expert_reads_give_up(struct expert_reads *r, uint32_t *slot, bool *is_free, struct err *why);
/* Until the next one may be given up; at most a second. */
int expert_reads_patience_ms(const struct expert_reads *r);

struct expert_reads_stats {
    uint64_t reads, retries, bytes;
};
void expert_reads_stats(const struct expert_reads *r, struct expert_reads_stats *out);

/* The layer number that messages name. */
uint32_t expert_reads_layer(const struct expert_reads *r, uint32_t index);

#endif
