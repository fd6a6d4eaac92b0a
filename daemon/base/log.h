/* log: one line to standard error: who, what and why.
 *
 * Lower case, then key=value facts. Prompts, replies and keys never appear. For the journal
 * (JOURNAL_STREAM names our standard error, see sd-daemon(3)) a line begins with "<6>", its
 * priority. Anywhere else it begins with date and time, and the level where that is warning or
 * worse: "2026-11-29 16:40:01 warning worker[1]: ...". Any thread; one write per line. */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

enum { LOG_LEVEL_ERR = 3, LOG_LEVEL_WARNING, LOG_LEVEL_NOTICE, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* A program that answers whoever typed its name tells no time and no level. */
enum log_style { LOG_PROGRAM, LOG_SERVICE };

/* who: "supervisor", "worker[1]", "engine"; kept by reference. Before threads start. */
void log_start(const char *who, enum log_style style, int level);
void log_level(int level);
int log_level_now(void);
void log_line(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
