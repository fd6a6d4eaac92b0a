#include "daemon/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Set once before threads start; only the level may change later. */
static const char *log_who = "colizigd";
static bool log_journal, log_stamps;
static _Atomic int log_max = LOG_LEVEL_INFO; /* written by any thread, relaxed: a hint */

/* "device:inode" of the journal's socket, which is ours unless someone redirected it. */
static bool is_journal(int fd)
{
    const char *stream = getenv("JOURNAL_STREAM");
    uint64_t device, inode;
    struct stat about;
    int end = 0;

    if (!stream || sscanf(stream, "%" SCNu64 ":%" SCNu64 "%n", &device, &inode, &end) != 2 ||
        stream[end] != '\0' || fstat(fd, &about) < 0)
        return false;
    return about.st_dev == device && about.st_ino == inode;
}

void log_start(const char *who, enum log_style style, int level)
{
    log_who = who;
    log_journal = is_journal(STDERR_FILENO);
    log_stamps = style == LOG_SERVICE;
    tzset(); /* before the file system is given up */
    log_level(level);
}

void log_level(int level)
{
    atomic_store_explicit(&log_max, level, memory_order_relaxed);
}

int log_level_now(void)
{
    return atomic_load_explicit(&log_max, memory_order_relaxed);
}

/* What stands before who; at most 64 bytes. */
static size_t put_prefix(char *line, int level)
{
    const char *word = level < LOG_LEVEL_WARNING    ? " error"
                       : level == LOG_LEVEL_WARNING ? " warning"
                                                    : "";
    time_t now = time(NULL);
    struct tm local;
    char stamp[32];

    if (log_journal)
        return (size_t)snprintf(line, 64, "<%d>", level);
    if (!log_stamps || !localtime_r(&now, &local) ||
        !strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &local))
        return 0;
    return (size_t)snprintf(line, 64, "%s%s ", stamp, word);
}

void log_line(int level, const char *fmt, ...)
{
    char line[1024];
    size_t used, start;
    va_list args;

    if (level > atomic_load_explicit(&log_max, memory_order_relaxed))
        return;
    used = start = put_prefix(line, level);
    used += (size_t)snprintf(line + used, 128, "%.100s: ", log_who);
    va_start(args, fmt);
    int n = vsnprintf(line + used, sizeof line - used - 1, fmt, args);
    va_end(args);
    if (n < 0)
        return;
    used += (size_t)n;
    if (used > sizeof line - 2)
        used = sizeof line - 2;
    /* A file name or an address may hold anything; it must not start a second line or talk to
     * the terminal. */
    for (size_t i = start; i < used; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[used++] = '\n';

    ssize_t rc;
    do
        rc = write(STDERR_FILENO, line, used);
    while (rc < 0 && errno == EINTR);
}
