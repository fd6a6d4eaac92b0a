/* err: an error is a value on the caller's stack.
 *
 * A function that can fail returns 0 or -1 and fills *err on failure with one
 * message that names the thing that failed and, where there is one, the cure.
 * Floors add where they were (err_within); nobody logs and returns, nobody exits.
 * A text is UTF-8 whatever was put into it: bytes that are none become '?'.
 * Any thread; no allocation. */
#ifndef UTIL_ERR_H
#define UTIL_ERR_H

enum err_kind {
    ERR_NONE,
    ERR_INPUT,       /* a request, flag or config value is wrong */
    ERR_FORMAT,      /* a file is not what it should be */
    ERR_UNSUPPORTED, /* understood, but not built */
    ERR_BUDGET,      /* does not fit the memory budget */
    ERR_NOMEM,       /* the kernel gave no memory */
    ERR_IO,          /* a read, write or system call failed */
    ERR_BUSY,        /* too much at once; later it may work */
    ERR_TOO_LONG,    /* the prompt does not fit the context */
    ERR_CANCELLED,   /* the caller gave up */
    ERR_NUMERIC,     /* NaN or infinity where a number must be */
    ERR_CLOSED,      /* the other side is gone */
};

struct err {
    enum err_kind kind;
    char text[508];
};

/* Fills *err and returns -1. err may be NULL when the caller does not care. */
int err_set(struct err *err, enum err_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with kind ERR_IO (ERR_NOMEM for ENOMEM) and ": strerror(errno)" appended. */
int err_errno(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Puts "<where>: " before the text that is there, keeps the kind, returns -1. */
int err_within(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#ifdef __clang_analyzer__ /* it sees one file at a time, and must know that these are always -1 */
#define err_set(...) ((void)err_set(__VA_ARGS__), -1)
#define err_errno(...) ((void)err_errno(__VA_ARGS__), -1)
#define err_within(...) ((void)err_within(__VA_ARGS__), -1)
#endif

const char *err_kind_name(enum err_kind kind); /* "format", "budget", ... */

/* Exit status of every program: 0 fine, 1 failure, 2 usage or config, 3 bad
 * checkpoint, 4 does not fit the budget, 5 no daemon. */
enum exit_status { EXIT_FINE, EXIT_FAILED, EXIT_USAGE, EXIT_CHECKPOINT, EXIT_BUDGET, EXIT_NO_DAEMON };
enum exit_status err_exit_status(enum err_kind kind);

#endif
