/* supervisor_state: what the parts of the supervisor share.
 *
 * supervisor.c opens and runs it, supervisor_children.c hears children and starts them again,
 * supervisor_reload.c changes settings while it runs, supervisor_roll.c replaces workers for
 * that, supervisor_settings.c changes single ones, supervisor_stop.c ends it. One thread, one loop. */
#ifndef DAEMON_SUPERVISOR_STATE_H
#define DAEMON_SUPERVISOR_STATE_H

#include "daemon/conf/conf.h"
#include "daemon/conf/conf_diff.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/supervisor/child.h"
#include "daemon/supervisor/notify.h"

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

enum {
    N_POSTS = CONF_MAX_WORKERS + 1, /* one more while workers are replaced */
    ENGINE_DEATHS = 5,
    ENGINE_DEATHS_MS = 10 * 60 * 1000,
    PULSE_LATE_MS = 2000, /* pulses come every second */
    /* Past its own deadline a child has this long to be gone. */
    GRACE_MS = 2000,
    ENGINE_STOP_MS = 3000, /* to put down a layer and close; nothing must be written */
    EXTEND_US = 60000000,  /* while loading moves on, systemd waits another minute */
};

enum phase { STARTING, SERVING, DRAINING, STOPPING };

/* A place for a worker. Its number is the worker's slot. */
enum post_state {
    POST_FREE,
    POST_COMING,  /* started by a reload and not ready yet */
    POST_ACTIVE,  /* to be kept alive */
    POST_LEAVING, /* replaced; it finishes what it has */
};

struct post {
    struct child child;
    enum post_state state;
    uint32_t generation; /* of the settings it was started with */
    uint64_t due_ms;     /* LEAVING: killed when it is there still */
};

/* Settings as children get them. */
struct settings {
    struct conf *conf;
    int fd;              /* conf, sealed; owned; -1: none */
    uint32_t generation; /* counts reloads */
};

enum reload_step {
    RELOAD_NONE,
    RELOAD_CHECK,        /* a child plans with the new settings */
    RELOAD_ENGINE_STOP,  /* it finishes what it has accepted */
    RELOAD_ROOM,         /* the engine gives back what more workers will take */
    RELOAD_WORKERS,      /* one by one */
    RELOAD_ENGINE_START, /* until it is ready */
    RELOAD_ADJUST,       /* the engine is asked to change as it runs */
};

struct reload {
    enum reload_step step;
    bool again;          /* SIGHUP came meanwhile */
    bool undo;           /* it failed, and what was done is being taken back */
    bool asked;          /* by an admin client, who waits for an answer to this */
    uint64_t question;
    struct conf conf;    /* owned */
    struct settings to;
    struct conf_diff diff;
    uint64_t mark, template_mark; /* of the model's files */
    bool files_changed;
    bool roll, stop_engine; /* what has to be done */
    bool room_made, rolled, engine_stopped, adjusted; /* has been done */
    char engine_why[256], failure[512]; /* why the engine is restarted; what failed */
    enum err_kind failure_kind;
    sd_event_source *late;  /* owned: a child does not end */
    sd_event_source *defer; /* owned: the beginning, outside the question that asked for it */
};

struct admin;
struct options;

struct supervisor {
    const struct options *options;
    struct settings now;
    sd_event *loop;
    struct notify notify;
    struct child_setup setup;
    int listeners[NOTIFY_MAX_FDS]; /* owned */
    uint32_t n_listeners;
    struct post posts[N_POSTS];
    struct child engine, check;
    struct admin *admin; /* NULL: none */
    bool admin_bound;    /* its file is ours to remove */
    enum phase phase;
    int status;
    struct sandbox sandbox; /* of this process */
    uint64_t started_ms;
    uint64_t stop_ms; /* when stopping began */
    uint64_t engine_deaths[ENGINE_DEATHS];
    uint32_t n_engine_deaths;
    uint64_t moved_ms; /* when the engine's pulse last showed movement */
    uint64_t mark;     /* of the model's files when the engine was started */
    uint64_t template_mark; /* of the chat template's when workers were */
    uint64_t budget_question; /* an admin's, that the engine is to answer; 0: none */
    uint64_t budget_ram;
    struct reload reload;
    sd_event_source *signals[3], *deadline, *silence;
};

/* ---- supervisor_stop.c ---- */

/* No more clients; running requests have deadline_ms. */
void stop_gently(struct supervisor *s, uint32_t deadline_ms);
void stop_at_once(struct supervisor *s, int status);
/* A child has ended: the next step of a stop, if the last one is done. */
void stop_go_on(struct supervisor *s);
void stop_tell(struct supervisor *s); /* systemd, how many are left */
void stop_drain(struct child *c, uint32_t deadline_ms, enum wire_drain_mode mode);

/* ---- supervisor_children.c ---- */

/* For struct child_setup. */
void children_started(void *ctx, struct child *c);
void children_frame(void *ctx, struct child *c, const struct wire_head *head, const void *body);
void children_ended(void *ctx, struct child *c, int status);
/* Looks for those that fell silent, every PULSE_LATE_MS. */
void children_look(struct supervisor *s);
/* Starting or serving, and the address: what systemd shows. */
void children_note_ready(struct supervisor *s);
void children_serving_text(const struct supervisor *s, char *buf, size_t cap);
int children_adjust(struct child *c, const struct wire_adjust *m, uint64_t id, struct err *err);
void children_set_log(struct supervisor *s); /* tells all the level of the settings */

/* ---- supervisor_roll.c ---- */

enum roll_result { ROLL_GOES_ON, ROLL_DONE, ROLL_FAILED };

/* The next thing on the way to `wanted` workers with these settings: start one, or let one
 * leave. ROLL_FAILED: none could be started. */
enum roll_result roll_go_on(struct supervisor *s, const struct settings *to, struct err *err);
bool roll_is_due(const struct supervisor *s, const struct settings *to);
/* A worker for a free place. */
int roll_start(struct supervisor *s, const struct settings *with, enum post_state state,
               struct err *err);

/* ---- supervisor_reload.c ---- */

/* By SIGHUP, remembered when another is under way. */
void reload_signalled(struct supervisor *s);
int reload_asked(struct supervisor *s, uint64_t question, struct err *err);
/* What happened to children, for a reload that waits for it. True: it was expected, and
 * nothing else is to be done about it. */
bool reload_worker_ready(struct supervisor *s, struct post *p);
bool reload_worker_ended(struct supervisor *s, struct post *p, int status);
bool reload_engine_ready(struct supervisor *s);
bool reload_engine_ended(struct supervisor *s, int status);
void reload_check_ended(struct supervisor *s, int status);
void reload_answered(struct supervisor *s, uint64_t id, enum err_kind kind, const char *text,
                     size_t size);
void reload_abandon(struct supervisor *s); /* the daemon stops */
const char *reload_step_name(const struct supervisor *s); /* NULL: none is under way */

/* ---- supervisor_settings.c ---- */

int settings_budget(struct supervisor *s, uint64_t question, uint64_t ram, struct err *err);
void settings_budget_answered(struct supervisor *s, enum err_kind kind);
int settings_log_level(struct supervisor *s, int level, struct err *err);

#endif
