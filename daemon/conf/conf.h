/* conf: the YAML file as a struct, every key checked.
 *
 * Unknown keys, wrong units, doubled keys and values out of range are ERR_INPUT with file,
 * line and column. The supervisor reads the file once, puts the command line's settings over
 * it, and seals the whole as YAML in a memfd; children parse that with the same code. What a
 * key may hold stands in one table (conf_keys.c); a key whose feature is not built is accepted at
 * its default and refused by name otherwise. Before threads start. */
#ifndef DAEMON_CONF_H
#define DAEMON_CONF_H

#include "colizig.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CONF_MAX_LISTEN = 8,
    CONF_MAX_WORKERS = 64,
    CONF_MAX_ALIASES = 16,
    CONF_MAX_ORIGINS = 32, /* of cors, and names in hosts */
    CONF_EFFORT_NONE = -1, /* no thinking */
};

struct conf {
    /* model */
    char *model_dir, *model_name; /* owned; name defaults to the directory's last part */
    char *aliases[CONF_MAX_ALIASES];
    uint32_t n_aliases;
    bool strict_names;
    char *chat_template;  /* owned; "" the checkpoint's, "builtin:NAME" or a file */
    int reasoning_effort; /* of requests that name none: enum chat_effort, or CONF_EFFORT_NONE */
    int late_system;      /* enum chat_late_system */
    /* memory and engine: as the engine wants them; model_dir inside is borrowed from above */
    struct cz_options engine;
    /* http; connections, body, buffer: per worker */
    char *listen[CONF_MAX_LISTEN];
    uint32_t n_listen;
    uint32_t workers, connections, per_address;
    uint64_t body, buffer;
    char *cors[CONF_MAX_ORIGINS], *hosts[CONF_MAX_ORIGINS];
    uint32_t n_cors, n_hosts;
    uint32_t header_timeout_ms, body_timeout_ms, idle_timeout_ms, drain_timeout_ms, keepalive_ms;
    /* admin, state, log */
    char *admin_socket; /* owned; "" for none */
    char *state_dir;
    bool admin_default; /* nobody chose the socket's path */
    bool state_default; /* nor that of state_dir */
    int log_level; /* syslog numbers: 3 err ... 7 debug */
};

void conf_init(struct conf *c); /* the defaults */
void conf_done(struct conf *c);
/* Parses YAML over what is there. name is for messages. */
int conf_parse(struct conf *c, const char *name, const char *text, size_t size, struct err *err);
int conf_read(struct conf *c, const char *path, struct err *err);
/* From the start of fd, whose offset stays: a sealed memfd is shared by all children. */
int conf_read_fd(struct conf *c, const char *name, int fd, struct err *err);
/* One setting by its dotted name ("memory.ram"), from the command line. The first value for a
 * list replaces what is there, values with `more` are added. name ("--ram") is for messages. */
int conf_set(struct conf *c, const char *name, const char *key, const char *value, bool more,
             struct err *err);
/* What only the whole can tell: a model is named, listen addresses parse, ... Fills in what
 * follows from other settings. */
int conf_finish(struct conf *c, struct err *err);
/* Refuses listen addresses that others can reach: nothing asks clients for a key. */
int conf_check_exposure(const struct conf *c, struct err *err);
/* The whole as YAML that conf_parse reads back to the same; *out is malloc'd. */
int conf_write(const struct conf *c, char **out, size_t *size, struct err *err);

/* "10s", "500ms", "2m"; false for anything else. */
bool conf_duration(uint32_t *ms, const char *text);

#endif
