/* sandbox_files: which files a process may still open, by Landlock.
 *
 * A ruleset says what it covers; all that is covered and not granted is refused from
 * sandbox_rules_enforce on, for the calling thread and those it starts. Paths may be symlinks:
 * rights go to the file or folder they lead to, by inode. */
#ifndef DAEMON_SANDBOX_FILES_H
#define DAEMON_SANDBOX_FILES_H

#include <stdint.h>

struct err;

enum sandbox_covers {
    SANDBOX_COVERS_EXECUTING,
    /* Also reading and changing the file system, TCP (version 4), abstract sockets and signals to
     * processes outside (6). */
    SANDBOX_COVERS_ALL,
};

enum sandbox_grant { SANDBOX_EXECUTE, SANDBOX_READ, SANDBOX_READ_WRITE };

struct sandbox_rules {
    int fd, version;
    uint64_t covered;
};

/* 1: begun; 0: this kernel has no Landlock, or the container refuses it, and *why is the errno. */
int sandbox_rules_begin(struct sandbox_rules *out, enum sandbox_covers covers, int *why,
                        struct err *err);
/* A file, or a folder and all that lies in it. 1: granted; 0: there is no such path. */
int sandbox_rules_allow(struct sandbox_rules *r, const char *path, enum sandbox_grant grant,
                        struct err *err);
/* A folder, and what symlinks that lie in it lead to. */
int sandbox_rules_allow_tree(struct sandbox_rules *r, const char *dir, enum sandbox_grant grant,
                             struct err *err);
/* Executing the dynamic loader that this program names; nothing to do for a static one. */
int sandbox_rules_allow_loader(struct sandbox_rules *r, struct err *err);
int sandbox_rules_enforce(struct sandbox_rules *r, struct err *err); /* ends r */
void sandbox_rules_drop(struct sandbox_rules *r);

#endif
