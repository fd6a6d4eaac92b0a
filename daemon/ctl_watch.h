/* ctl_watch: one screen of a running daemon, made to fit 80 columns by 24 rows.
 *
 * First what one looks for: phase, tokens a second, requests, hits, drive, memory; below it
 * the counters, each with its growth since the look before. Counters that are no rates
 * (times, pages in use, peaks) are shown as they stand. */
#ifndef DAEMON_CTL_WATCH_H
#define DAEMON_CTL_WATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct ctl_look {
    json_t *status, *stats; /* owned; stats NULL: the engine did not answer */
    char why[160];          /* then, the reason */
    uint64_t ram;           /* memory.ram of its plan; 0: not known */
    uint64_t at_ns;
};

/* before NULL at the first look: no growth yet. On a terminal the last screen is drawn over,
 * and what does not fit is left out. */
void ctl_watch_draw(const struct ctl_look *now, const struct ctl_look *before, bool terminal);
void ctl_look_done(struct ctl_look *look);

#endif
