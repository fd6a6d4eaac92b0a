/* status and stats: what a running daemon says of itself, over the admin socket. */
#include "daemon/ctl.h"

#include "daemon/ctl_watch.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/size.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DEFAULT_SOCKET "/run/colizig/admin.sock"
/* The daemon's promise is 4 MiB at most, in milliseconds. */
enum { REPLY_MAX = 4 << 20, PATIENCE_MS = 10000, WATCH_MS = 1000 };

struct talk {
    const struct ctl_args *args;
    const char *path;
    int fd;     /* owned; -1 when closed */
    int signal; /* owned; readable when somebody pressed Ctrl-C; -1 when not watching */
    bool no_daemon;
    bool ended;   /* it closed the connection */
    bool refused; /* it answered that it will not; the connection is fine */
    char *reply; /* owned; [REPLY_MAX + 1] */
    uint64_t id;
};

/* ---- the socket ---- */

static int connect_to(struct talk *t, struct err *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char plain[160];

    if (strlen(t->path) >= sizeof address.sun_path)
        return err_set(err, ERR_INPUT, "--socket: the path is longer than %zu bytes",
                       sizeof address.sun_path - 1);
    memcpy(address.sun_path, t->path, strlen(t->path) + 1);
    ctl_plain(plain, sizeof plain, t->path);
    t->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (t->fd < 0)
        return err_errno(err, "socket");
    if (connect(t->fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return 0;
    if (errno == ENOENT || errno == ECONNREFUSED || errno == ENOTSOCK || errno == ENOTDIR) {
        t->no_daemon = true;
        return err_set(err, ERR_CLOSED, "no daemon listens at %s (%s); is colizigd running, or "
                                        "is --socket another?", plain, strerror(errno));
    }
    return err_errno(err, "connect to %s%s", plain,
                     errno == EACCES ? " (its owner and group may)" : "");
}

static int send_line(struct talk *t, const char *command, struct err *err)
{
    char line[128];
    size_t done = 0;
    size_t size = (size_t)snprintf(line, sizeof line, "{\"id\":%" PRIu64 ",\"cmd\":\"%s\"}\n",
                                   ++t->id, command);

    while (done < size) {
        ssize_t n = send(t->fd, line + done, size - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            t->ended = errno == EPIPE || errno == ECONNRESET;
            return err_errno(err, "ask the daemon");
        }
        done += (size_t)n;
    }
    return 0;
}

/* One line into t->reply. 1; 0 when interrupted; -1. */
static int receive_line(struct talk *t, struct err *err)
{
    uint64_t deadline = clock_ms() + PATIENCE_MS;
    size_t used = 0;

    for (;;) {
        struct pollfd wait[2] = { { .fd = t->fd, .events = POLLIN },
                                  { .fd = t->signal, .events = POLLIN } };
        uint64_t now = clock_ms();
        if (now >= deadline)
            return err_set(err, ERR_IO, "the daemon did not answer within %d s",
                           PATIENCE_MS / 1000);
        if (poll(wait, 2, (int)(deadline - now)) < 0 && errno != EINTR)
            return err_errno(err, "wait for the daemon");
        if (wait[1].revents & POLLIN) {
            return 0;
        }
        if (!(wait[0].revents & (POLLIN | POLLHUP | POLLERR)))
            continue;
        ssize_t n = recv(t->fd, t->reply + used, REPLY_MAX - used, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            t->ended = n == 0 || errno == ECONNRESET;
            return n ? err_errno(err, "read the daemon's answer")
                     : err_set(err, ERR_CLOSED, "the daemon closed the connection");
        }
        char *end = memchr(t->reply + used, '\n', (size_t)n);
        used += (size_t)n;
        if (end) {
            *end = '\0';
            return 1;
        }
        if (used == REPLY_MAX)
            return err_set(err, ERR_IO, "the daemon's answer is larger than 4 MiB");
    }
}

/* The daemon's own refusal becomes our error. */
static int check_reply(const json_t *reply, struct err *err)
{
    const json_t *fault = json_object_get(reply, "error");
    const char *text = json_string_value(json_object_get(fault, "message"));
    const char *kind = json_string_value(json_object_get(fault, "kind"));

    if (json_is_true(json_object_get(reply, "ok")) && json_object_get(reply, "data"))
        return 0;
    return err_set(err, ERR_IO, "the daemon refused: %s%s%s", text ? text : "no reason given",
                   kind ? ", " : "", kind ? kind : "");
}

/* *data is owned by the caller. 1; 0 when interrupted; -1. */
static int ask(struct talk *t, const char *command, json_t **data, struct err *err)
{
    t->refused = false;
    if (t->fd < 0 && connect_to(t, err) < 0)
        return -1;
    if (send_line(t, command, err) < 0)
        return -1;
    int got = receive_line(t, err);
    if (got <= 0)
        return got;
    json_t *reply = json_loads(t->reply, JSON_ALLOW_NUL, NULL);
    if (!reply || !json_is_object(reply)) {
        json_decref(reply);
        return err_set(err, ERR_IO, "the daemon's answer is no JSON object");
    }
    t->refused = check_reply(reply, err) < 0;
    if (t->refused) {
        json_decref(reply);
        return -1;
    }
    *data = json_incref(json_object_get(reply, "data"));
    json_decref(reply);
    return 1;
}

/* ---- the screen ---- */

/* Lines of "name value" that are laid out when all are known. */
struct screen {
    char (*lines)[96]; /* owned */
    size_t n, cap;
};

static void put(struct screen *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct screen *s, const char *fmt, ...)
{
    va_list args;

    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        void *more = realloc(s->lines, cap * sizeof *s->lines);
        if (!more)
            return; /* a shorter screen */
        s->lines = more;
        s->cap = cap;
    }
    va_start(args, fmt);
    vsnprintf(s->lines[s->n++], sizeof s->lines[0], fmt, args);
    va_end(args);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

static void value_text(char *buf, size_t cap, const char *name, double value, bool whole)
{
    char grouped[CTL_BYTES_TEXT];

    if (ends_with(name, "bytes") && value >= 0.0)
        size_text(buf, cap, (uint64_t)value);
    else if (ends_with(name, "_ns"))
        snprintf(buf, cap, "%.3f s", value / 1e9);
    else if (ends_with(name, "_ms"))
        snprintf(buf, cap, "%.3f s", value / 1e3);
    else if (ends_with(name, "pid"))
        snprintf(buf, cap, "%.0f", value); /* a name, not a number */
    else if (whole && value >= 0.0)
        snprintf(buf, cap, "%s", ctl_grouped(grouped, (uint64_t)value));
    else
        snprintf(buf, cap, "%.6g", value);
}

static void put_number(struct screen *s, const char *name, const json_t *value)
{
    char text[40];

    value_text(text, sizeof text, name, json_number_value(value), json_is_integer(value));
    put(s, "  %-22s %16s", name, text);
}

/* Objects nest as headings; arrays are counted, their objects shown in order. */
static void put_value(struct screen *s, const char *name, const json_t *value, int depth)
{
    char plain[64];
    const char *key;
    json_t *item;
    size_t i;

    if (json_is_object(value) && depth < 4) {
        if (*name)
            put(s, "%s", name);
        json_object_foreach((json_t *)(uintptr_t)value, key, item)
            put_value(s, ctl_plain(plain, sizeof plain, key), item, depth + 1);
    } else if (json_is_array(value) && depth < 4) {
        json_array_foreach(value, i, item) {
            char numbered[80];
            snprintf(numbered, sizeof numbered, "%s %zu", name, i);
            put_value(s, numbered, item, depth + 1);
        }
    } else if (json_is_number(value)) {
        put_number(s, name, value);
    } else if (json_is_string(value)) {
        put(s, "  %-22s %s", name, ctl_plain(plain, sizeof plain, json_string_value(value)));
    } else {
        put(s, "  %-22s %s", name,
            json_is_true(value) ? "yes" : json_is_false(value) ? "no" : "-");
    }
}

/* In two columns where one does not fit the terminal. */
static void print_screen(const struct screen *s)
{
    struct winsize size = { 0 };
    size_t rows = s->n;
    bool two = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
               size.ws_col >= 120 && size.ws_row > 2 && s->n > (size_t)size.ws_row - 2;

    if (two)
        rows = (s->n + 1) / 2;
    for (size_t i = 0; i < rows; i++) {
        if (two && i + rows < s->n)
            printf("%-60.60s%s\n", s->lines[i], s->lines[i + rows]);
        else
            printf("%s\n", s->lines[i]);
    }
}

static void print_data(const struct talk *t, const json_t *data)
{
    struct screen screen = { 0 };
    double hits = json_number_value(json_object_get(data, "expert_hits"));
    double misses = json_number_value(json_object_get(data, "expert_misses"));

    if (ctl_has(t->args, "--json")) {
        ctl_print_json(json_deep_copy(data));
        return;
    }
    if (hits + misses > 0.0)
        put(&screen, "%.1f %% of experts were in memory", 100.0 * hits / (hits + misses));
    put_value(&screen, "", data, 0);
    print_screen(&screen);
    fflush(stdout);
    free(screen.lines);
}

/* ---- commands ---- */

static int open_talk(struct talk *t, bool watch, struct err *err)
{
    sigset_t stop;

    t->path = ctl_text(t->args, "--socket");
    if (!t->path)
        t->path = DEFAULT_SOCKET;
    t->reply = malloc(REPLY_MAX + 1);
    if (!t->reply)
        return err_set(err, ERR_NOMEM, "room for an answer");
    if (!watch)
        return 0;
    /* Read as an event instead of taken as an end, so that the screen is left whole. */
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGTERM);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    t->signal = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
    return t->signal < 0 ? err_errno(err, "signalfd") : 0;
}

static void close_talk(struct talk *t)
{
    if (t->fd >= 0)
        close(t->fd);
    if (t->signal >= 0)
        close(t->signal);
    free(t->reply);
}

/* False when somebody pressed Ctrl-C. */
static bool pause_between(const struct talk *t)
{
    struct pollfd wait = { .fd = t->signal, .events = POLLIN };

    return poll(&wait, 1, WATCH_MS) <= 0;
}

/* For scripts: the counters alone, an object a line. */
static int watch_json(struct talk *t, struct err *err)
{
    json_t *data = NULL;
    int got;

    while ((got = ask(t, "stats", &data, err)) > 0) {
        print_data(t, data);
        json_decref(data);
        if (ferror(stdout) || !pause_between(t))
            break;
    }
    return got < 0 ? -1 : 0;
}

/* One look: an engine that loads or is down is shown as that, and looked at again. 1, 0, -1. */
static int look_once(struct talk *t, struct ctl_look *look, uint64_t ram, struct err *err)
{
    json_t *plan = NULL;
    int got = ask(t, "status", &look->status, err);

    if (got <= 0)
        return got;
    look->ram = ram;
    got = ask(t, "stats", &look->stats, err);
    look->at_ns = clock_ns();
    if (got > 0 && !ram)
        got = ask(t, "plan", &plan, err);
    if (got < 0 && t->refused) {
        snprintf(look->why, sizeof look->why, "%.*s", (int)sizeof look->why - 1, err->text);
        got = 1;
    }
    if (plan)
        look->ram = (uint64_t)json_integer_value(json_object_get(plan, "ram"));
    json_decref(plan);
    return got;
}

static int watch_screen(struct talk *t, struct err *err)
{
    bool terminal = isatty(STDOUT_FILENO);
    struct ctl_look now = { 0 }, before = { 0 };
    int got;

    while ((got = look_once(t, &now, before.ram, err)) > 0) {
        ctl_watch_draw(&now, before.status ? &before : NULL, terminal);
        ctl_look_done(&before);
        before = now;
        now = (struct ctl_look){ 0 };
        if (ferror(stdout) || !pause_between(t))
            break;
    }
    ctl_look_done(&now);
    ctl_look_done(&before);
    return got < 0 ? -1 : 0;
}

static int watch_loop(struct talk *t, struct err *err)
{
    int rc = ctl_has(t->args, "--json") ? watch_json(t, err) : watch_screen(t, err);

    if (rc < 0 && t->ended) {
        t->no_daemon = true;
        err_set(err, ERR_CLOSED, "the daemon ended");
    }
    return rc;
}

static int run_command(const struct ctl_args *args, const char *command, bool watch)
{
    struct talk t = { .args = args, .fd = -1, .signal = -1 };
    json_t *data = NULL;
    struct err err = { 0 };
    int status = EXIT_FINE, rc = open_talk(&t, watch, &err);

    if (rc == 0 && watch) {
        rc = watch_loop(&t, &err);
    } else if (rc == 0) {
        rc = ask(&t, command, &data, &err) < 0 ? -1 : 0;
        if (rc == 0)
            print_data(&t, data);
        json_decref(data);
    }
    if (rc < 0) {
        status = ctl_fail(args, &err);
        if (t.no_daemon)
            status = EXIT_NO_DAEMON;
    }
    close_talk(&t);
    return status;
}

static int run_status(const struct ctl_args *args)
{
    return run_command(args, "status", false);
}

static int run_stats(const struct ctl_args *args)
{
    return run_command(args, "stats", ctl_has(args, "--watch"));
}

static const struct ctl_flag status_flags[] = {
    { "--socket", "PATH", "the daemon's admin socket (default " DEFAULT_SOCKET ")", NULL },
    { 0 },
};

static const struct ctl_flag stats_flags[] = {
    { "--socket", "PATH", "the daemon's admin socket (default " DEFAULT_SOCKET ")", NULL },
    { "--watch", NULL, "again every second, until Ctrl-C", NULL },
    { 0 },
};

const struct ctl_command ctl_status = {
    .name = "status",
    .operands = "",
    .summary = "is the daemon up, loading, serving",
    .example = "Exit status 5: no daemon listens.",
    .flags = status_flags,
    .run = run_status,
};

const struct ctl_command ctl_stats = {
    .name = "stats",
    .operands = "",
    .summary = "the daemon's counters",
    .example = "Exit status 5: no daemon listens, or it ended.",
    .flags = stats_flags,
    .run = run_stats,
};
