#include "daemon/notify.h"

#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

static int sort_socket(struct notify_sockets *s, int fd, const char *name, struct err *err)
{
    bool local = sd_is_socket(fd, AF_UNIX, SOCK_STREAM, 1) > 0;
    bool inet = sd_is_socket(fd, AF_INET, SOCK_STREAM, 1) > 0 ||
                sd_is_socket(fd, AF_INET6, SOCK_STREAM, 1) > 0;

    if (local && strcmp(name, "http") != 0) {
        if (s->admin >= 0)
            return err_set(err, ERR_INPUT, "systemd handed over two admin sockets");
        s->admin = fd;
        return 0;
    }
    if (!inet && !local)
        return err_set(err, ERR_INPUT, "systemd's socket '%.60s' is no listening stream socket",
                       name);
    /* Non-blocking, or accept in one worker waits for a client that another one took. */
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        return err_errno(err, "systemd's socket '%.60s'", name);
    s->http[s->n_http++] = fd;
    return 0;
}

int notify_sockets(struct notify_sockets *out, struct err *err)
{
    struct notify_sockets s = { .admin = -1 };
    char **names = NULL;
    int rc = 0;
    int n = sd_listen_fds_with_names(0, &names);

    if (n < 0) {
        errno = -n;
        return err_errno(err, "sockets from systemd");
    }
    if (n > NOTIFY_MAX_FDS)
        rc = err_set(err, ERR_INPUT, "systemd handed over %d sockets, at most %d are used", n,
                     NOTIFY_MAX_FDS);
    for (int i = 0; i < n; i++) {
        if (rc == 0)
            rc = sort_socket(&s, SD_LISTEN_FDS_START + i, names[i], err);
        free(names[i]);
    }
    free(names);
    if (rc == 0)
        *out = s;
    return rc;
}

void notify_state(const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    sd_notify(0, text);
}

char **notify_environment(void)
{
    static const char *const ours[] = { "NOTIFY_SOCKET=", "WATCHDOG_USEC=", "WATCHDOG_PID=",
                                        "LISTEN_FDS=",    "LISTEN_PID=",    "LISTEN_FDNAMES=" };
    size_t n = 0, kept = 0;

    while (environ[n])
        n++;
    char **list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; list && i < n; i++) {
        bool keep = true;
        for (size_t j = 0; j < sizeof ours / sizeof ours[0]; j++)
            keep = keep && strncmp(environ[i], ours[j], strlen(ours[j])) != 0;
        if (keep)
            list[kept++] = environ[i];
    }
    return list;
}
