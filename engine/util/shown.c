#include "util/shown.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static const char dots[] = "...";

static bool continues(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

static char clean(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7F ? '?' : c;
}

struct shown shown_name(const char *name)
{
    struct shown s = { .text = "" };
    size_t room = sizeof s.text - sizeof dots, n = strnlen(name, sizeof s.text);
    bool cut = n > room;

    if (cut)
        for (n = room; n && continues(name[n]); n--) /* whole characters only */
            ;
    for (size_t i = 0; i < n; i++)
        s.text[i] = clean(name[i]);
    if (cut)
        memcpy(s.text + n, dots, sizeof dots);
    return s;
}

struct shown shown_path(const char *path)
{
    struct shown s = { .text = "" };
    size_t room = sizeof s.text - sizeof dots, n = strlen(path), at = 0;

    if (n > room) {
        path += n - room;
        for (n = room; n && continues(*path); n--)
            path++;
        memcpy(s.text, dots, sizeof dots);
        at = sizeof dots - 1;
    }
    for (size_t i = 0; i < n; i++)
        s.text[at + i] = clean(path[i]);
    return s;
}
