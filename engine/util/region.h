/* region: a large anonymous mapping that the plan has a line for.
 *
 * Starts on a 2 MiB border. All its pages are there when it opens: what was planned is really
 * had, so memory that the machine lacks shows at start and not in the middle of an answer.
 * Left out of core dumps. Any thread. */
#ifndef UTIL_REGION_H
#define UTIL_REGION_H

#include <stdint.h>

struct err;

enum region_pages { REGION_SMALL, REGION_HUGE }; /* HUGE: transparent huge pages asked for */

struct region {
    char *base;    /* owned; NULL when closed */
    uint64_t size; /* rounded up to 4 KiB, or to 2 MiB for REGION_HUGE */
};

/* The size that region_open will really take. */
uint64_t region_size(uint64_t size, enum region_pages pages);
int region_open(struct region *out, uint64_t size, enum region_pages pages, struct err *err);
void region_close(struct region *r); /* also on a zeroed struct */

#endif
