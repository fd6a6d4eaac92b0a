/* reload_report: what a reload did with each changed key. Supervisor's thread. */
#ifndef DAEMON_RELOAD_REPORT_H
#define DAEMON_RELOAD_REPORT_H

#include <stddef.h>

struct reload;

/* A line for the log, and as JSON (malloc'd; NULL without memory):
 *   {"applied":["engine.queue"],"workers":"kept","engine":"adjusted","needs_restart":[]}
 * workers: kept, replaced. engine: kept, adjusted, restarted; then also "engine_why". */
char *reload_report(char *line, size_t cap, const struct reload *r);

#endif
