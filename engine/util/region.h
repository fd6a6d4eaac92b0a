/* region: a large anonymous mapping that the plan has a line for.
 *
 * Starts on a 2 MiB border. All its pages are there when it opens: what was planned is really
 * had, so memory that the machine lacks shows at start and not in the middle of an answer.
 * Left out of core dumps. Any thread.
 *
 * One that is to grow and shrink keeps addresses for the most it may ever hold. Beyond its size
 * nothing is mapped that could be touched or that the kernel would count. */
#ifndef UTIL_REGION_H
#define UTIL_REGION_H

#include <stdbool.h>
#include <stdint.h>

struct err;

enum region_pages { REGION_SMALL, REGION_HUGE }; /* HUGE: transparent huge pages asked for */

struct region {
    char *base;    /* owned; NULL when closed */
    uint64_t size; /* rounded up to 4 KiB, or to 2 MiB for REGION_HUGE */
    uint64_t most; /* how far it may grow; size, unless region_reserve found the addresses */
    enum region_pages pages;
    bool locked; /* region_lock was called */
};

/* The size that region_open will really take. */
uint64_t region_size(uint64_t size, enum region_pages pages);
int region_open(struct region *out, uint64_t size, enum region_pages pages, struct err *err);
void region_close(struct region *r); /* also on a zeroed struct */
/* As close, but the memory stays mapped for ever: somebody may still write into it. */
void region_abandon(struct region *r);

/* As region_open, and able to grow up to most. Where addresses are limited (RLIMIT_AS) or there
 * are none, most becomes size. */
int region_reserve(struct region *out, uint64_t size, uint64_t most, enum region_pages pages,
                   struct err *err);
/* At most r->most. What is cut off goes back to the kernel in whole pages of the region, at once;
 * what is added is there when it returns. Addresses do not move. On failure nothing changed. */
int region_resize(struct region *r, uint64_t size, struct err *err);
/* All memory of the process has been wired (mlockall): what the region only keeps addresses for
 * is let go of again, and what it grows by is wired too. */
void region_lock(struct region *r);
/* It will never grow: the addresses go back. */
void region_drop_reserve(struct region *r);

#endif
