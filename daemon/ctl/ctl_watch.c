#include "daemon/ctl/ctl_watch.h"

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_page.h"
#include "daemon/ctl/ctl_show.h"
#include "daemon/ctl/ctl_talk.h"
#include "util/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

enum { EVERY_MS = 1000, AGAIN_MS = 1000 };

struct watch {
    struct ctl_talk talk;
    int signals; /* owned */
    bool terminal, colours;
    bool taken;                /* the terminal is ours */
    bool raw;                  /* before is what it was */
    struct termios before;
    struct ctl_look now, last; /* last.status NULL: none yet */
};

/* ---- the terminal ---- */

/* No echo, so that ^C leaves no mark, and no cursor jumping about. */
static void take_terminal(struct watch *w)
{
    struct termios quiet;

    if (!w->terminal || w->taken)
        return;
    w->taken = true;
    if (tcgetattr(STDIN_FILENO, &w->before) == 0) {
        quiet = w->before;
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        w->raw = tcsetattr(STDIN_FILENO, TCSANOW, &quiet) == 0;
    }
    fputs("\033[?25l\033[H\033[J", stdout);
}

static void give_terminal(struct watch *w)
{
    if (!w->taken)
        return;
    w->taken = false;
    if (w->raw)
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &w->before);
    w->raw = false;
    fputs("\033[?25h", stdout);
    fflush(stdout);
}

/* Ctrl-Z: the shell gets its terminal, and we take it again when called back. */
static void suspend(struct watch *w)
{
    give_terminal(w);
    kill(getpid(), SIGSTOP);
    take_terminal(w);
}

static void print_page(const struct watch *w, const struct ctl_page *p)
{
    static const char *const tints[] = { "", "\033[1m", "\033[1;31m" };

    /* Each line is cleared behind its text: clearing the whole screen first would flicker. */
    fputs(w->terminal ? "\033[H" : "", stdout);
    for (size_t i = 0; i < p->n; i++) {
        const char *tint = w->colours ? tints[p->lines[i].tint] : "";
        printf("%s%s%s%s\n", tint, p->lines[i].text, *tint ? "\033[0m" : "",
               w->terminal ? "\033[K" : "");
    }
    fputs(w->terminal ? "\033[J" : "\n", stdout);
    fflush(stdout);
}

static void draw(const struct watch *w)
{
    struct winsize size = { .ws_col = 80, .ws_row = 24 };
    struct ctl_page *page = malloc(sizeof *page);

    if (!page)
        return; /* the next one, perhaps */
    if (w->terminal && (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col < 2 ||
                        size.ws_row < 2))
        size = (struct winsize){ .ws_col = 80, .ws_row = 24 };
    /* The last column and row stay empty, so that no terminal wraps or scrolls. */
    ctl_page_make(page, size.ws_col - 1u, size.ws_row - 1u, &w->now,
                  w->last.status ? &w->last : NULL);
    print_page(w, page);
    free(page);
}

/* ---- looking ---- */

/* The plan changes with the budget and with a new engine; its figures tell. */
static void fetch_plan(struct watch *w)
{
    const json_t *memory = json_object_get(w->now.status, "memory");
    struct ctl_talk t;
    struct err ignored;

    if (w->last.plan && ctl_count(w->last.plan, "total") == ctl_count(memory, "planned_bytes") &&
        ctl_count(w->last.plan, "ram") == ctl_count(memory, "budget_bytes")) {
        w->now.plan = json_incref(w->last.plan);
        return;
    }
    /* Another connection: a line on this one would end the watch. */
    if (ctl_talk_open(&t, w->talk.args, &ignored) < 0)
        return;
    if (w->now.stats)
        ctl_talk_ask(&t, json_pack("{s:s}", "cmd", "plan"), CTL_PATIENCE_MS, &w->now.plan,
                     &ignored);
    ctl_talk_close(&t);
}

/* Takes data, the reply to watch. */
static void take_look(struct watch *w, json_t *data)
{
    const char *why =
        json_string_value(json_object_get(json_object_get(data, "error"), "message"));

    if (w->now.status) {
        ctl_look_done(&w->last);
        w->last = w->now;
    }
    w->now = (struct ctl_look){ .at_ns = clock_ns(),
                                .status = json_incref(json_object_get(data, "status")) };
    const json_t *stats = json_object_get(data, "stats");
    if (json_is_object(stats))
        w->now.stats = json_incref(json_object_get(data, "stats"));
    snprintf(w->now.why, sizeof w->now.why, "%.190s", why ? why : "the engine did not answer");
    json_decref(data);
    fetch_plan(w);
}

static void lose_daemon(struct watch *w, const struct err *why)
{
    ctl_talk_hang_up(&w->talk);
    ctl_look_done(&w->now);
    ctl_look_done(&w->last);
    snprintf(w->now.why, sizeof w->now.why, "%.190s", why->text);
}

/* 1: go on; 0: somebody wants an end. */
static int take_signals(struct watch *w)
{
    struct signalfd_siginfo info;

    while (read(w->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            suspend(w);
        else if (info.ssi_signo != SIGWINCH && info.ssi_signo != SIGCONT)
            return 0;
        draw(w);
    }
    return 1;
}

static void pause_before_again(const struct watch *w)
{
    struct pollfd wait = { .fd = w->signals, .events = POLLIN };

    poll(&wait, 1, AGAIN_MS);
}

static int next_reply(struct watch *w, json_t **data, struct err *err)
{
    if (w->talk.fd >= 0)
        return ctl_talk_more(&w->talk, CTL_PATIENCE_MS, data, err);
    return ctl_talk_ask(&w->talk, json_pack("{s:s,s:i}", "cmd", "watch", "every_ms", EVERY_MS),
                        CTL_PATIENCE_MS, data, err);
}

/* 0 at Ctrl-C; -1 when there never was a daemon. */
static int watch_screen(struct watch *w, struct err *err)
{
    bool seen = false;

    while (!ferror(stdout)) {
        json_t *data = NULL;
        int got = next_reply(w, &data, err);
        if (got < 0 && (!seen || w->talk.refused))
            return -1;
        if (got == 0 && !take_signals(w))
            return 0;
        if (got == 0)
            continue;
        take_terminal(w);
        seen = true;
        if (got > 0)
            take_look(w, data);
        else
            lose_daemon(w, err);
        draw(w);
        if (got < 0) {
            pause_before_again(w);
            if (!take_signals(w))
                return 0;
        }
    }
    return 0;
}

/* For scripts: the counters alone, an object a line, until the daemon ends. */
static int watch_json(struct watch *w, struct err *err)
{
    while (!ferror(stdout)) {
        json_t *data = NULL;
        int got = next_reply(w, &data, err);
        if (got < 0 && w->talk.ended) {
            w->talk.no_daemon = true;
            return err_set(err, ERR_CLOSED, "the daemon ended");
        }
        if (got < 0)
            return -1;
        if (got == 0 && !take_signals(w))
            return 0;
        if (got == 0)
            continue;
        json_t *stats = json_object_get(data, "stats");
        if (json_is_object(stats))
            ctl_print_json(json_incref(stats));
        else
            ctl_print_json(json_pack("{s:O?}", "error", json_object_get(data, "error")));
        json_decref(data);
    }
    return 0;
}

/* ---- beginning and end ---- */

/* Signals are read as events instead of taken as an end, so that the screen is left whole. */
static int watch_signals(struct watch *w, bool screen, struct err *err)
{
    static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
    static const int others[] = { SIGTSTP, SIGWINCH, SIGCONT };
    sigset_t all;

    sigemptyset(&all);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        sigaddset(&all, ends[i]);
    for (size_t i = 0; screen && i < sizeof others / sizeof others[0]; i++)
        sigaddset(&all, others[i]);
    sigprocmask(SIG_BLOCK, &all, NULL);
    w->signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    return w->signals < 0 ? err_errno(err, "signalfd") : 0;
}

int ctl_watch(const struct ctl_args *args)
{
    struct watch w = { .signals = -1 };
    bool json = ctl_has(args, "--json");
    const char *no_colour = getenv("NO_COLOR"), *kind = getenv("TERM");
    struct err err;
    int status = EXIT_FINE;

    w.terminal = !json && isatty(STDOUT_FILENO) && kind && strcmp(kind, "dumb") != 0;
    w.colours = w.terminal && !(no_colour && *no_colour);
    int rc = ctl_talk_open(&w.talk, args, &err);
    if (rc == 0)
        rc = watch_signals(&w, w.terminal, &err);
    if (rc == 0) {
        w.talk.wake = w.signals;
        rc = json ? watch_json(&w, &err) : watch_screen(&w, &err);
    }
    give_terminal(&w);
    if (rc < 0)
        status = ctl_talk_fail(&w.talk, &err);
    ctl_look_done(&w.now);
    ctl_look_done(&w.last);
    ctl_talk_close(&w.talk);
    if (w.signals >= 0)
        close(w.signals);
    return status;
}
