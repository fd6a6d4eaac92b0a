/* sandbox: each child narrows itself.
 *
 * A child gives up gaining privileges, core dumps and more descriptors than its role needs. A
 * worker then gives up the file system, once its tokenizer is read. Nothing here can be taken
 * back. Called before threads start, except sandbox_no_files, which covers only the calling
 * thread and the ones it starts. */
#ifndef DAEMON_SANDBOX_H
#define DAEMON_SANDBOX_H

#include <stdint.h>

struct err;

/* no_new_privs, no core dumps, at most n_fds descriptors (0: as it is). */
int sandbox_enter(uint32_t n_fds, struct err *err);

/* No file can be opened, made or removed from here on (Landlock). Returns 1 when the kernel
 * enforces it, 0 when this kernel has no Landlock, -1 when it was refused. */
int sandbox_no_files(struct err *err);

#endif
