#include "daemon/ctl/ctl_chat_private.h"

#include "daemon/ctl/ctl.h"
#include "util/clock.h"
#include "util/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    FD_LISTEN = 3,   /* where systemd's protocol puts the first socket */
    MAX_WORDS = 2 * CTL_MAX_GIVEN + 32,
    STOP_MS = 4000,  /* after SIGTERM; a second one follows, which means at once */
    KILL_MS = 2000,
    LAST_WORDS = 8192,
    MAX_RUN = 75, /* with "/colizig-chat-XXXXXX/admin.sock" a socket's 107 bytes are not full */
};

struct chat_private {
    pid_t pid; /* 0: none, or it has ended and was waited for */
    int status;
    char dir[PATH_MAX], socket[PATH_MAX + 16], url[64];
    int log; /* owned; a memfd: what it says stays off the screen until it is needed */
};

/* ---- what to run ---- */

/* Beside us; where `make install` puts it when we are in bin; else what PATH has. */
static void find_daemon(char *out, size_t cap)
{
    static const char *const places[] = { "colizigd", "../sbin/colizigd" };
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    if (n > 0) {
        self[n] = '\0';
        slash = strrchr(self, '/');
        for (size_t i = 0; slash && i < sizeof places / sizeof places[0]; i++) {
            snprintf(out, cap, "%.*s/%s", (int)(slash - self), self, places[i]);
            if (access(out, X_OK) == 0)
                return;
        }
    }
    snprintf(out, cap, "colizigd");
}

struct words {
    char *list[MAX_WORDS]; /* owned */
    size_t n;
    bool failed;
};

static void add_word(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add_word(struct words *w, const char *fmt, ...)
{
    char *word = NULL;
    va_list args;

    va_start(args, fmt);
    int n = vasprintf(&word, fmt, args);
    va_end(args);
    if (n < 0 || w->n + 1 >= MAX_WORDS) {
        if (n >= 0)
            free(word);
        w->failed = true;
        return;
    }
    w->list[w->n++] = word;
    w->list[w->n] = NULL;
}

static void words_done(struct words *w)
{
    for (size_t i = 0; i < w->n; i++)
        free(w->list[i]);
}

/* "half" and "all" are numbers of a plan, and no key of the configuration. */
static int add_slots(struct words *w, const struct ctl_args *args, const char *model_dir,
                     struct err *err)
{
    struct conf conf;
    int rc = 0;

    if (!ctl_has(args, "--expert-slots"))
        return 0;
    rc = ctl_conf(args, model_dir, &conf, err);
    if (rc == 0)
        rc = ctl_expert_slots(args, &conf.engine, err);
    if (rc == 0 && conf.engine.expert_slots) {
        add_word(w, "--set");
        add_word(w, "memory.expert_slots=%u", conf.engine.expert_slots);
    }
    conf_done(&conf);
    return rc;
}

static int make_words(struct words *w, const struct chat_private *p, const struct ctl_args *args,
                      const char *program, const char *model_dir, struct err *err)
{
    add_word(w, "%s", program);
    add_word(w, "--model");
    add_word(w, "%s", model_dir);
    /* One person: one worker is enough, and nobody is waited for at the end. */
    add_word(w, "--set");
    add_word(w, "http.workers=1");
    add_word(w, "--set");
    add_word(w, "http.drain_timeout=0s");
    for (size_t i = 0; i < args->n_given; i++) {
        const struct ctl_flag *flag = args->given[i].flag;
        bool set = strcmp(flag->name, "--set") == 0;
        if (!flag->key && !set)
            continue;
        add_word(w, "--set");
        add_word(w, "%s%s%s", set ? "" : flag->key, set ? "" : "=", args->given[i].value);
    }
    if (add_slots(w, args, model_dir, err) < 0)
        return -1;
    add_word(w, "--set");
    add_word(w, "admin.socket=%s", p->socket);
    return w->failed ? err_set(err, ERR_NOMEM, "the daemon's command line") : 0;
}

/* ---- where it lives ---- */

static int make_directory(struct chat_private *p, struct err *err)
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    bool ours = run && *run == '/' && strlen(run) <= MAX_RUN && access(run, W_OK | X_OK) == 0;

    snprintf(p->dir, sizeof p->dir, "%s/colizig-chat-XXXXXX", ours ? run : "/tmp");
    if (!mkdtemp(p->dir)) {
        err_errno(err, "make %s", p->dir);
        p->dir[0] = '\0';
        return -1;
    }
    snprintf(p->socket, sizeof p->socket, "%s/admin.sock", p->dir);
    return 0;
}

static int open_listener(int *out, struct chat_private *p, struct err *err)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return err_errno(err, "socket");
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 64) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0) {
        err_errno(err, "a port of 127.0.0.1");
        close(fd);
        return -1;
    }
    snprintf(p->url, sizeof p->url, "http://127.0.0.1:%u", ntohs(address.sin_port));
    *out = fd;
    return 0;
}

/* ---- the process ---- */

static void tell_of_socket(void)
{
    static const char *const not_ours[] = { "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
                                            "JOURNAL_STREAM" };
    char pid[24];

    for (size_t i = 0; i < sizeof not_ours / sizeof not_ours[0]; i++)
        unsetenv(not_ours[i]);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_FDNAMES", "http", 1);
}

_Noreturn static void become_daemon(const struct words *w, int listener, int log_fd, pid_t parent,
                                    const sigset_t *mask)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EXIT_FAILED); /* it is gone already; then nobody sends the signal */
    setpgid(0, 0); /* the terminal's Ctrl-C is for the chat */
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    dup2(null_fd, STDIN_FILENO);
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    if (listener == FD_LISTEN)
        fcntl(listener, F_SETFD, 0);
    else
        dup2(listener, FD_LISTEN);
    tell_of_socket();
    execvp(w->list[0], w->list);
    dprintf(STDERR_FILENO, "%s cannot be executed: %s\n", w->list[0], strerror(errno));
    _exit(EXIT_FAILED);
}

static int start(struct chat_private *p, const struct words *w, const sigset_t *mask,
                 struct err *err)
{
    pid_t parent = getpid();
    int listener = -1;

    p->log = memfd_create("colizigd-log", MFD_CLOEXEC);
    if (p->log < 0)
        return err_errno(err, "memfd");
    if (open_listener(&listener, p, err) < 0)
        return -1;
    p->pid = fork();
    if (p->pid == 0)
        become_daemon(w, listener, p->log, parent, mask);
    int why = errno;
    close(listener);
    errno = why;
    if (p->pid < 0) {
        p->pid = 0;
        return err_errno(err, "fork");
    }
    return 0;
}

int chat_private_open(struct chat_private **out, const struct ctl_args *args,
                      const char *model_dir, const sigset_t *mask, struct err *err)
{
    struct chat_private *p = calloc(1, sizeof *p);
    struct words words = { .n = 0 };
    char program[PATH_MAX + 32];
    int rc;

    if (!p)
        return err_set(err, ERR_NOMEM, "a daemon of our own");
    p->log = -1;
    find_daemon(program, sizeof program);
    rc = make_directory(p, err);
    if (rc == 0)
        rc = make_words(&words, p, args, program, model_dir, err);
    if (rc == 0)
        rc = start(p, &words, mask, err);
    words_done(&words);
    if (rc < 0) {
        chat_private_close(p);
        return -1;
    }
    *out = p;
    return 0;
}

const char *chat_private_url(const struct chat_private *p)
{
    return p->url;
}

const char *chat_private_socket(const struct chat_private *p)
{
    return p->socket;
}

/* ---- the end ---- */

/* What is most likely the reason: an error of the engine or a worker, then any error, then
 * whatever it said last. Of equals the last one. */
static int weight(const char *line)
{
    bool stamped = strlen(line) > 20 && line[4] == '-' && line[13] == ':';

    if (!stamped)
        return 1; /* from before there was a log */
    if (strncmp(line + 19, " error ", 7) != 0)
        return 0;
    return strncmp(line + 26, "supervisor:", 11) == 0 ? 1 : 2;
}

static void last_words(const struct chat_private *p, struct err *err)
{
    char text[LAST_WORDS + 1], *rest = NULL;
    const char *best = "it said nothing";
    int best_weight = -1;
    off_t end = lseek(p->log, 0, SEEK_END);
    ssize_t n = pread(p->log, text, LAST_WORDS, end > LAST_WORDS ? end - LAST_WORDS : 0);

    text[n > 0 ? n : 0] = '\0';
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (weight(line) < best_weight)
            continue;
        best_weight = weight(line);
        best = best_weight == 2 ? line + 26 : line;
    }
    err_set(err, ERR_IO, "colizigd ended: %.450s", best);
}

static bool reap(struct chat_private *p)
{
    int status;

    if (p->pid == 0)
        return true;
    pid_t got = waitpid(p->pid, &status, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR))
        return false;
    p->status = got > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
    p->pid = 0;
    return true;
}

bool chat_private_lives(struct chat_private *p, int *status, struct err *err)
{
    if (!reap(p))
        return true;
    *status = p->status ? p->status : EXIT_FAILED;
    last_words(p, err);
    return false;
}

static bool wait_for_end(struct chat_private *p, uint32_t ms)
{
    static const struct timespec moment = { .tv_nsec = 10000000 };
    uint64_t deadline = clock_ms() + ms;

    while (!reap(p)) {
        if (clock_ms() > deadline)
            return false;
        nanosleep(&moment, NULL);
    }
    return true;
}

static void end_process(struct chat_private *p)
{
    if (reap(p))
        return;
    kill(p->pid, SIGTERM);
    if (wait_for_end(p, STOP_MS))
        return;
    kill(p->pid, SIGTERM);
    if (wait_for_end(p, KILL_MS))
        return;
    kill(p->pid, SIGKILL); /* its children die of that, too */
    wait_for_end(p, KILL_MS);
}

void chat_private_close(struct chat_private *p)
{
    if (!p)
        return;
    end_process(p);
    if (p->log >= 0)
        close(p->log);
    if (p->dir[0]) {
        unlink(p->socket);
        rmdir(p->dir);
    }
    free(p);
}
