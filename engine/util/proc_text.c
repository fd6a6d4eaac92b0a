#include "util/proc_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool proc_text_read(int fd, char *text, size_t cap)
{
    size_t used = 0;

    while (used < cap - 1) {
        ssize_t got = pread(fd, text + used, cap - 1 - used, (off_t)used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return false;
        if (got == 0)
            break;
        used += (size_t)got;
    }
    text[used] = '\0';
    return true;
}

bool proc_text_number(uint64_t *out, const char *text)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text)
        return false;
    *out = value;
    return true;
}

bool proc_text_field(uint64_t *out, const char *text, const char *key)
{
    size_t length = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (strncmp(line, key, length) != 0)
            continue;
        const char *at = line + length;
        if (*at != ':' && *at != ' ' && *at != '\t')
            continue;
        return proc_text_number(out, at + strspn(at, ": \t"));
    }
    return false;
}
