/* child: one process that the supervisor keeps alive.
 *
 * The same binary, started by fork and exec with its channel as descriptor 3, the sealed config
 * as 4 and a worker's listeners from 5 on. A child that dies is started again after a pause that
 * doubles from 0.1 to 30 seconds and begins anew once a life was long. Supervisor's thread,
 * which must be the process's only one. */
#ifndef DAEMON_CHILD_H
#define DAEMON_CHILD_H

#include "daemon/conf/options.h"
#include "daemon/wire/wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

enum { CHILD_FD_CHANNEL = 3, CHILD_FD_CONF = 4, CHILD_FD_LISTEN = 5, CHILD_PARK_ABOVE = 64 };

struct channel;
struct child;

/* What all children share. Descriptors lie above CHILD_PARK_ABOVE and are borrowed. */
struct child_setup {
    sd_event *loop;
    int exe;
    const int *listeners;
    uint32_t n_listeners;
    char **environment;
    void *ctx;
    void (*frame)(void *ctx, struct child *c, const struct wire_head *head, const void *body);
    void (*started)(void *ctx, struct child *c);
    /* status is an exit status, or minus the signal. Decides what comes next. */
    void (*ended)(void *ctx, struct child *c, int status);
};

struct child {
    const struct child_setup *setup; /* borrowed */
    enum options_role role;
    uint32_t slot;
    int conf;           /* the sealed config of its next life; borrowed */
    uint64_t held;      /* for ROLE_CHECK: bytes that what runs would give back */
    char name[24];      /* "worker 1", "engine" */
    pid_t pid;          /* 0: not running */
    uint32_t life;      /* counts starts, also over child_init: no two lives of a slot are one */
    uint32_t born;      /* life at child_init */
    bool ready;         /* said so in this life */
    struct wire_ready sandbox; /* once ready */
    char said[256];     /* its last STATUS, also after its end; "" once it is ready */
    uint64_t heard_ms;  /* when its last PULSE came, in this life; 0: none */
    struct wire_pulse pulse; /* that one */
    uint32_t pause_ms;  /* before the next start */
    uint64_t started_ms;
    uint32_t n_deaths;
    struct channel *channel; /* owned; NULL when not running */
    sd_event_source *exit, *retry, *force;
};

/* *c is zero or a child that is down. conf: see above. */
void child_init(struct child *c, const struct child_setup *setup, enum options_role role,
                uint32_t slot, int conf);
int child_start(struct child *c, struct err *err);
/* After the pause that is due. A start that fails pauses again. */
void child_start_later(struct child *c);
void child_stay_down(struct child *c); /* forgets a start that is due */
/* The pauses before are forgotten: what failed before may be different now. */
void child_start_afresh(struct child *c);
void child_kill(struct child *c, int signal);
/* SIGABRT now, SIGKILL a moment later if it is still there. */
void child_abort(struct child *c);
void child_done(struct child *c);

/* Moves a descriptor above CHILD_PARK_ABOVE, close-on-exec, and closes the old one. */
int child_park_fd(int *fd, struct err *err);

#endif
