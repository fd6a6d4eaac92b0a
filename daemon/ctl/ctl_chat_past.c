#include "daemon/ctl/ctl_chat_past.h"

#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* More than this is no history of a person; it is begun anew. */
enum { MAX_FILE = 64 << 20, MAX_ENTRY = 1 << 20 };

bool chat_past_path(char *buf, size_t cap)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n;

    /* A relative one is to be ignored, says the standard that named the variable. */
    if (state && *state == '/')
        n = snprintf(buf, cap, "%s/colizig/chat-history", state);
    else if (home && *home == '/')
        n = snprintf(buf, cap, "%s/.local/state/colizig/chat-history", home);
    else
        return false;
    if (n < 0 || (size_t)n >= cap)
        return false;
    for (char *slash = strchr(buf + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(buf, 0700);
        *slash = '/';
    }
    return true;
}

static char *read_all(int fd, size_t *size, struct err *err)
{
    struct stat st;
    size_t done = 0;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        err_set(err, ERR_IO, "it is no file");
        return NULL;
    }
    if (st.st_size > MAX_FILE) {
        err_set(err, ERR_IO, "it is larger than %d MiB", MAX_FILE >> 20);
        return NULL;
    }
    char *text = malloc((size_t)st.st_size + 1);
    while (text && done < (size_t)st.st_size) {
        ssize_t n = pread(fd, text + done, (size_t)st.st_size - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    if (!text)
        err_set(err, ERR_NOMEM, "its text");
    *size = done;
    return text;
}

/* Where the newest `most` lines begin; *n is how many there are in all. */
static const char *newest(const char *text, size_t size, size_t most, size_t *n)
{
    const char *from = text;
    size_t skip;

    *n = 0;
    for (size_t i = 0; i < size; i++)
        *n += text[i] == '\n';
    skip = *n > most ? *n - most : 0;
    for (const char *p = text; skip > 0; p++)
        if (*p == '\n') {
            skip--;
            from = p + 1;
        }
    return from;
}

static void give_lines(const char *text, const char *end,
                       void (*each)(void *ctx, const char *text), void *ctx)
{
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop)
            break; /* cut short by a crash */
        json_t *entry = json_loadb(text, (size_t)(stop - text), JSON_DECODE_ANY, NULL);
        if (json_is_string(entry))
            each(ctx, json_string_value(entry));
        json_decref(entry);
        text = stop + 1;
    }
}

/* Beside its place and moved there whole; the descriptor follows. Failing changes nothing. */
static void cut(struct chat_past *p, const char *path, const char *text, size_t size)
{
    char beside[4200];
    int n = snprintf(beside, sizeof beside, "%s.%d", path, (int)getpid());

    if (n < 0 || (size_t)n >= sizeof beside)
        return;
    int fd = open(beside, O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (write(fd, text, size) != (ssize_t)size || rename(beside, path) < 0) {
        unlink(beside);
        close(fd);
        return;
    }
    close(p->fd);
    p->fd = fd;
}

int chat_past_open(struct chat_past *p, const char *path, size_t most,
                   void (*each)(void *ctx, const char *text), void *ctx, struct err *err)
{
    size_t size = 0, n = 0;

    p->fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (p->fd < 0)
        return err_errno(err, "no history: %s", path);
    char *text = read_all(p->fd, &size, err);
    if (!text || fchmod(p->fd, 0600) < 0) {
        if (text)
            err_errno(err, "mode 0600");
        free(text);
        chat_past_close(p);
        return err_within(err, "no history: %s", path);
    }
    const char *from = newest(text, size, most, &n);
    give_lines(from, text + size, each, ctx);
    if (n > 2 * most)
        cut(p, path, from, size - (size_t)(from - text));
    free(text);
    return 0;
}

void chat_past_close(struct chat_past *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

void chat_past_add(struct chat_past *p, const char *text)
{
    json_t *entry = p->fd < 0 || strlen(text) > MAX_ENTRY ? NULL : json_string(text);
    char *quoted = entry ? json_dumps(entry, JSON_ENCODE_ANY) : NULL;
    size_t size = quoted ? strlen(quoted) : 0;

    if (quoted) {
        quoted[size] = '\n'; /* in place of its end: one write is one line, whoever else writes */
        if (write(p->fd, quoted, size + 1) != (ssize_t)size + 1)
            chat_past_close(p);
    }
    free(quoted);
    json_decref(entry);
}
