#include "daemon/ctl/ctl_chat_signals.h"

#include "util/err.h"

#include <sys/signalfd.h>
#include <unistd.h>

int chat_signals_open(struct chat_signals *s, struct err *err)
{
    static const int ours[] = { SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP };
    sigset_t set;

    *s = (struct chat_signals){ .fd = -1 };
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        sigaddset(&set, ours[i]);
    sigprocmask(SIG_BLOCK, &set, &s->before);
    /* A reader that leaves is an error of fflush, after which we end in good order. */
    signal(SIGPIPE, SIG_IGN);
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->fd < 0 ? err_errno(err, "signalfd") : 0;
}

void chat_signals_close(struct chat_signals *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

bool chat_signals_take(struct chat_signals *s)
{
    struct signalfd_siginfo info;

    while (read(s->fd, &info, sizeof info) == sizeof info) {
        switch (info.ssi_signo) {
        case SIGINT:
            s->interrupt = true;
            break;
        case SIGWINCH:
            s->resized = true;
            break;
        case SIGTSTP:
            kill(getpid(), SIGSTOP); /* here we stand until somebody says continue */
            s->continued = true;
            break;
        default:
            s->leave = true;
        }
    }
    return s->interrupt || s->leave;
}
