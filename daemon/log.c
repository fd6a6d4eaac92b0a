#include "daemon/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Set once before threads start; only the level may change later. */
static const char *log_who = "colizigd";
static bool log_prefix = true;
static _Atomic int log_max = LOG_LEVEL_INFO; /* written by any thread, relaxed: a hint */

void log_start(const char *who, int level)
{
    log_who = who;
    log_prefix = !isatty(STDERR_FILENO);
    log_level(level);
}

void log_level(int level)
{
    atomic_store_explicit(&log_max, level, memory_order_relaxed);
}

void log_line(int level, const char *fmt, ...)
{
    char line[1024];
    size_t used = 0, start;
    va_list args;

    if (level > atomic_load_explicit(&log_max, memory_order_relaxed))
        return;
    if (log_prefix)
        used = (size_t)snprintf(line, sizeof line, "<%d>", level);
    start = used;
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
