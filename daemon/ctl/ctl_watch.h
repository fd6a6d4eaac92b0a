/* ctl_watch: stats --watch, a screen that is redrawn until Ctrl-C.
 *
 * A daemon that goes away is waited for; one that is not there at first is a failure. On a
 * terminal lines are drawn over the last ones, with colours unless NO_COLOR is set, and the
 * terminal is left as it was found; anywhere else it is plain lines. One thread. */
#ifndef DAEMON_CTL_WATCH_H
#define DAEMON_CTL_WATCH_H

struct ctl_args;

int ctl_watch(const struct ctl_args *args); /* an enum exit_status */

#endif
