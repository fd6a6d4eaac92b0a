/* What every fuzz target shares: the entry point, and invariants that end the process. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(what)                                                              \
    do {                                                                        \
        if (!(what)) {                                                          \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #what);  \
            abort();                                                            \
        }                                                                       \
    } while (0)

/* For a failure that says more than an expression could. */
static inline void fuzz_broken(const char *what)
{
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

/* The input as a file; the caller closes the returned descriptor. */
static inline int fuzz_file(char path[64], const uint8_t *data, size_t size)
{
    int fd = memfd_create("input", MFD_CLOEXEC);

    MUST(fd >= 0 && (size == 0 || write(fd, data, size) == (ssize_t)size));
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
