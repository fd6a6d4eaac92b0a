/* ctl_chat_private: a daemon of our own, for as long as we live.
 *
 * It listens on a port of 127.0.0.1 that the kernel chose and on an admin socket in a
 * directory of its own. The listening socket is ours and handed over as systemd would, so
 * nobody else can take the port in between. It ends with us: on close by SIGTERM, and the
 * kernel sends the same should we die without a word. One thread, before others start. */
#ifndef DAEMON_CTL_CHAT_PRIVATE_H
#define DAEMON_CTL_CHAT_PRIVATE_H

#include <signal.h>
#include <stdbool.h>

struct ctl_args;
struct err;
struct chat_private;

/* Settings among args are passed on. mask: what the daemon's signals are blocked by. */
int chat_private_open(struct chat_private **out, const struct ctl_args *args,
                      const char *model_dir, const sigset_t *mask, struct err *err);
/* Ends it and waits for that, a few seconds at most. NULL is fine. */
void chat_private_close(struct chat_private *p);

const char *chat_private_url(const struct chat_private *p);
const char *chat_private_socket(const struct chat_private *p);
/* False once it has ended; *status is then its exit status, and *err holds its last words. */
bool chat_private_lives(struct chat_private *p, int *status, struct err *err);

#endif
