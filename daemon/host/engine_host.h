/* engine_host: the process that holds the engine.
 *
 * The main thread is the door: an sd-event loop with a channel to the supervisor and one to
 * each worker. It checks what comes in, gives requests numbers of its own (a worker's are
 * unique only on its channel), hands them to the engine thread and carries the answers back.
 * It never waits: not for the engine, not for a worker that stopped reading. */
#ifndef DAEMON_ENGINE_HOST_H
#define DAEMON_ENGINE_HOST_H

struct conf;

/* channel: to the supervisor, taken. Runs until DRAIN, a broken engine or the supervisor's end;
 * the process's exit status. */
int engine_host_run(const struct conf *conf, int channel);

#endif
