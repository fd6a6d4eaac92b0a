/* model_mark: numbers that change when files of a checkpoint were replaced.
 *
 * Made of the names, inodes, sizes and times of the directory's entries; nothing is opened.
 * Supervisor's thread. */
#ifndef DAEMON_MODEL_MARK_H
#define DAEMON_MODEL_MARK_H

#include <stdint.h>

/* 0 when the directory cannot be listed. */
uint64_t model_mark(const char *dir);
/* Of the chat template alone, which the engine does not read: that of the directory, or the file
 * that was chosen (model.chat_template). 0 when there is none. */
uint64_t template_mark(const char *dir, const char *choice);

#endif
