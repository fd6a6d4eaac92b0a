/* supervisor: the process that owns sockets and children.
 *
 * One thread, one sd-event loop, no model and no HTTP. It binds (or takes from systemd) the
 * listening sockets, starts workers and engine, introduces them to each other, restarts what
 * dies, tells systemd how things stand and answers the admin socket. */
#ifndef DAEMON_SUPERVISOR_H
#define DAEMON_SUPERVISOR_H

struct conf;
struct options;

/* Until it is told to stop, or nothing more can be done; the process's exit status. *conf is the
 * caller's, and holds other settings after a reload. */
int supervisor_run(const struct options *options, struct conf *conf);

#endif
