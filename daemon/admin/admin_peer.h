/* admin_peer: who is at the other end of the admin socket.
 *
 * The socket's mode decides who may connect, and whoever is connected may look. Acting is for
 * root, for the daemon's own user and for members of the socket's group, also where a unit
 * gave the socket a wider mode. The kernel remembers uid, pid and groups as of connect(2).
 * Supervisor's thread. */
#ifndef DAEMON_ADMIN_PEER_H
#define DAEMON_ADMIN_PEER_H

#include <stdbool.h>
#include <sys/types.h>

struct err;

struct admin_peer {
    uid_t uid; /* (uid_t)-1 and 0 where the kernel does not tell */
    pid_t pid;
};

struct admin_peer admin_peer_of(int fd);
/* ERR_INPUT, naming the rule, when the peer of fd may not act. listener: the socket it came by,
 * whose file has the group. */
int admin_peer_check(int fd, int listener, const char *command, struct err *err);

#endif
