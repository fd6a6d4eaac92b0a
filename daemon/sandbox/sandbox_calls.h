/* sandbox_calls: which system calls a process may still make, by seccomp.
 *
 * The supervisor has a list of what none of our processes ever does; its children inherit it. A
 * worker and the engine have a list of all they do besides. Calls on no list look like calls
 * that this kernel does not have (ENOSYS), for which every library has another way; calls that
 * only an intruder makes end the process (SIGSYS). */
#ifndef DAEMON_SANDBOX_CALLS_H
#define DAEMON_SANDBOX_CALLS_H

#include <stdbool.h>

struct err;

enum sandbox_role { SANDBOX_SUPERVISOR, SANDBOX_WORKER, SANDBOX_ENGINE };

/* sanitizers: leave what they do when a process ends. 1: in force; 0: the kernel or the container
 * has no filters, and *why is the errno. */
int sandbox_calls(enum sandbox_role role, bool sanitizers, int *why, struct err *err);

#endif
