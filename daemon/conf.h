/* conf: the YAML file as a struct, every key checked.
 *
 * Unknown keys, wrong units, doubled keys and values out of range are ERR_INPUT with file,
 * line and column. The supervisor reads the file once and seals its bytes in a memfd; children
 * parse the same bytes with the same code. */
#ifndef DAEMON_CONF_H
#define DAEMON_CONF_H

#include "colizig.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CONF_MAX_LISTEN = 8, CONF_MAX_WORKERS = 64, CONF_MAX_ALIASES = 16 };

struct conf {
    /* model */
    char *model_dir, *model_name; /* owned; name defaults to the directory's last part */
    char *aliases[CONF_MAX_ALIASES];
    uint32_t n_aliases;
    bool strict_names;
    char *chat_template; /* NULL; anything else is refused until it is built */
    /* memory and engine: as the engine wants them; model_dir inside is borrowed from above */
    struct cz_options engine;
    /* http; connections, body, buffer: per worker */
    char *listen[CONF_MAX_LISTEN];
    uint32_t n_listen;
    uint32_t workers, connections, per_address;
    uint64_t body, buffer;
    uint32_t header_timeout_ms, body_timeout_ms, idle_timeout_ms, drain_timeout_ms, keepalive_ms;
    /* admin, state, log */
    char *admin_socket, *state_dir;
    int log_level; /* syslog numbers: 3 err ... 7 debug */
};

void conf_init(struct conf *c); /* the defaults */
void conf_done(struct conf *c);
/* Parses YAML over what is there. name is for messages. */
int conf_parse(struct conf *c, const char *name, const char *text, size_t size, struct err *err);
int conf_read(struct conf *c, const char *path, struct err *err);
/* What only the whole can tell: a model is named, listen addresses parse, ... */
int conf_finish(struct conf *c, struct err *err);

/* "10s", "500ms", "2m"; false for anything else. */
bool conf_duration(uint32_t *ms, const char *text);

#endif
