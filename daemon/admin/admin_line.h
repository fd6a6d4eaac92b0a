/* admin_line: one line of an admin client, checked.
 *
 * {"id":1,"cmd":"cancel","request":"req_..."}: an object with a command and the fields that
 * command takes, each of its type; anything else is ERR_INPUT that says what is wrong, an
 * unknown command ERR_UNSUPPORTED that lists those there are. Any thread. */
#ifndef DAEMON_ADMIN_LINE_H
#define DAEMON_ADMIN_LINE_H

#include "util/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum admin_verb {
    ADMIN_STATUS,
    ADMIN_STATS,
    ADMIN_PLAN,
    ADMIN_INSPECT,
    ADMIN_EXPERTS,
    ADMIN_REQUESTS,
    ADMIN_CANCEL,
    ADMIN_RELOAD,
    ADMIN_DRAIN,
    ADMIN_BUDGET,
    ADMIN_LOG,
    ADMIN_WATCH,
};

enum { ADMIN_REQUEST_NAME = 40, ADMIN_TOP_MAX = 1024, ADMIN_WATCH_LEAST_MS = 100 };

struct admin_line {
    json_t *id; /* owned; an integer or a string; NULL: none */
    enum admin_verb verb;
    bool acts; /* changes something, rather than to look */
    char request[ADMIN_REQUEST_NAME]; /* CANCEL: letters, digits, '_' and '-' */
    uint32_t top;                     /* EXPERTS */
    uint32_t timeout_ms;              /* DRAIN; 0: the configuration's */
    uint32_t every_ms;                /* WATCH */
    uint64_t ram;                     /* BUDGET */
    int level;                        /* LOG; 0: tell it */
};

/* *out is filled as far as it was understood, also after a failure, so that the answer can
 * carry the line's id; call admin_line_done either way. */
int admin_line_parse(struct admin_line *out, const char *text, size_t size, struct err *err);
void admin_line_done(struct admin_line *line);
const char *admin_verb_name(enum admin_verb verb);

/* "info" and 6; 0 and NULL for what is none. */
int admin_level(const char *name);
const char *admin_level_name(int level);

#endif
