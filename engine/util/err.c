#include "util/err.h"

#include "util/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef err_set
#undef err_errno
#undef err_within

/* A value that was shown in part may end within a character, and so may a text that is full: JSON
 * and systemd would take none of it. */
static void mend(char *text)
{
    size_t size = strlen(text);

    for (size_t i = 0; i < size;) {
        int n = utf8_next(text + i, size - i, NULL);
        if (n <= 0) {
            text[i] = '?';
            n = 1;
        }
        i += (size_t)n;
    }
}

int err_set(struct err *err, enum err_kind kind, const char *fmt, ...)
{
    va_list args;

    if (!err)
        return -1;
    err->kind = kind;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    mend(err->text);
    return -1;
}

int err_errno(struct err *err, const char *fmt, ...)
{
    int saved = errno;
    va_list args;

    if (!err)
        return -1;
    err->kind = saved == ENOMEM ? ERR_NOMEM : ERR_IO;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);

    size_t used = strlen(err->text);
    snprintf(err->text + used, sizeof err->text - used, ": %s", strerror(saved));
    mend(err->text);
    errno = saved;
    return -1;
}

int err_within(struct err *err, const char *fmt, ...)
{
    char inner[sizeof err->text];
    va_list args;

    if (!err)
        return -1;
    memcpy(inner, err->text, sizeof inner);
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);

    size_t used = strlen(err->text);
    snprintf(err->text + used, sizeof err->text - used, ": %s", inner);
    mend(err->text);
    return -1;
}

const char *err_kind_name(enum err_kind kind)
{
    switch (kind) {
    case ERR_NONE:
        return "none";
    case ERR_INPUT:
        return "input";
    case ERR_FORMAT:
        return "format";
    case ERR_UNSUPPORTED:
        return "unsupported";
    case ERR_BUDGET:
        return "budget";
    case ERR_NOMEM:
        return "nomem";
    case ERR_IO:
        return "io";
    case ERR_BUSY:
        return "busy";
    case ERR_TOO_LONG:
        return "too_long";
    case ERR_CANCELLED:
        return "cancelled";
    case ERR_NUMERIC:
        return "numeric";
    case ERR_CLOSED:
        return "closed";
    }
    return "unknown";
}

enum exit_status err_exit_status(enum err_kind kind)
{
    switch (kind) {
    case ERR_NONE:
        return EXIT_FINE;
    case ERR_INPUT:
        return EXIT_USAGE;
    case ERR_FORMAT:
    case ERR_UNSUPPORTED:
        return EXIT_CHECKPOINT;
    case ERR_BUDGET:
        return EXIT_BUDGET;
    default:
        return EXIT_FAILED;
    }
}
