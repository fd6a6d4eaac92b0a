/* shown: names and paths that came from outside, made fit for a message.
 *
 * Control bytes become '?' (a tensor's name may hold escape codes or a line feed), and
 * what is too long is cut with "...": a name keeps its beginning, a path its end. Meant
 * to be used in place: err_set(err, kind, "tensor '%s'", shown_name(t->name).text).
 * Any thread; no allocation. */
#ifndef UTIL_SHOWN_H
#define UTIL_SHOWN_H

struct shown {
    char text[160];
};

struct shown shown_name(const char *name);
struct shown shown_path(const char *path);

#endif
