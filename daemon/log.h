/* log: one line to standard error, with the priority prefix journald understands.
 *
 * Lower case, what and why, then key=value facts. Prompts, replies and keys never appear.
 * On a terminal the prefix is left away. Any thread; one write per line. */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

enum { LOG_LEVEL_ERR = 3, LOG_LEVEL_WARNING, LOG_LEVEL_NOTICE, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* who: "supervisor", "worker[1]", "engine"; kept by reference. */
void log_start(const char *who, int level);
void log_level(int level);
void log_line(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
