/* ctl_page: one screen of a running daemon, made to fit 80 columns by 24 rows and better where
 * there are more.
 *
 * First what one looks for: phase, tokens a second, requests, hits, drive, tiers, clients; then
 * memory as planned beside memory as measured, and the plan's largest lines. Speeds are growth
 * since the look before. One thread. */
#ifndef DAEMON_CTL_PAGE_H
#define DAEMON_CTL_PAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ctl_look {
    json_t *status; /* owned; NULL: the daemon is away, why says more */
    json_t *stats;  /* owned; NULL: the engine did not answer, likewise */
    json_t *plan;   /* owned; NULL: not known yet */
    char why[200];
    uint64_t at_ns;
};

enum { CTL_PAGE_LINES = 60, CTL_PAGE_WIDTH = 120 };

enum ctl_tint { CTL_TINT_PLAIN, CTL_TINT_TITLE, CTL_TINT_ALARM };

struct ctl_page {
    size_t width, rows; /* that may be used, in characters */
    struct {
        char text[4 * CTL_PAGE_WIDTH + 1];
        enum ctl_tint tint;
    } lines[CTL_PAGE_LINES];
    size_t n;
};

/* before NULL at the first look: no growth yet. */
void ctl_page_make(struct ctl_page *page, size_t columns, size_t rows, const struct ctl_look *now,
                   const struct ctl_look *before);
void ctl_look_done(struct ctl_look *look);

#endif
