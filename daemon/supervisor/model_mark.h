/* model_mark: a number that changes when files of a checkpoint were replaced.
 *
 * Made of the names, inodes, sizes and times of the directory's entries; nothing is opened.
 * Supervisor's thread. */
#ifndef DAEMON_MODEL_MARK_H
#define DAEMON_MODEL_MARK_H

#include <stdint.h>

/* 0 when the directory cannot be listed. */
uint64_t model_mark(const char *dir);

#endif
