/* sandbox: each process narrows itself to its role.
 *
 * Three layers, none of which can be taken back. Limits: no new privileges, none of root's, no core
 * dumps, no more descriptors. Landlock: which files, and no TCP, no signals to processes outside. A
 * filter of system calls (seccomp). What a kernel or a container does not have is left out and
 * told, never a reason not to run; docs/sandbox.md says what each role keeps.
 *
 * sandbox_supervisor comes before the first child, which inherits it. The others come before
 * threads start: Landlock and the filter cover the calling thread and those it starts. */
#ifndef DAEMON_SANDBOX_H
#define DAEMON_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

/* What holds. */
struct sandbox {
    int landlock; /* its version; 0: none, and landlock_error says why */
    bool seccomp;
    int landlock_error, seccomp_error; /* errno; 0: left out in a build with sanitizers */
};

/* What the engine may open. */
struct sandbox_files {
    const char *model_dir;     /* read; also what symlinks in it lead to */
    const char *template_file; /* read; NULL, or not there: none */
    const char *state_dir;     /* read and write; likewise */
};

/* Limits: no_new_privs, no core dumps, at most n_fds descriptors (0: as it is). */
int sandbox_enter(uint32_t n_fds, struct err *err);

/* Executes nothing but this very program. */
int sandbox_supervisor(struct sandbox *out, struct err *err);
/* Opens no file, makes no process, thread or socket. */
int sandbox_worker(struct sandbox *out, struct err *err);
/* Opens its files only; makes threads, but neither processes nor sockets. */
int sandbox_engine(struct sandbox *out, const struct sandbox_files *files, struct err *err);

/* "landlock=7 seccomp=on", for logs; returns buf. */
const char *sandbox_text(char *buf, size_t cap, const struct sandbox *s);

#endif
