/* options: the command line, and the config it leads to.
 *
 * Flags are settings of the file by a shorter name; they are put over the file's. The struct
 * borrows from argv, which stays as it is, for those who look at it (ps). Before threads start. */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include "daemon/conf/conf.h"

#include <stdbool.h>
#include <stdint.h>

enum { OPTIONS_MAX_SETTINGS = 64 };

enum options_action { OPTIONS_RUN, OPTIONS_CHECK, OPTIONS_VERSION, OPTIONS_HELP };
enum options_role { ROLE_SUPERVISOR, ROLE_WORKER, ROLE_ENGINE, ROLE_CHECK };

struct options {
    enum options_action action;
    enum options_role role;
    uint32_t slot, n_listeners; /* of a worker */
    uint64_t held;              /* of a check; see check.h */
    const char *config;         /* NULL: the default file, if it is there and no --model */
    struct {
        const char *flag; /* NULL: --set, and the key names itself */
        const char *key, *value;
        size_t key_size; /* what follows the key is not cut off */
        bool more;       /* a further entry of a list */
    } settings[OPTIONS_MAX_SETTINGS];
    uint32_t n_settings;
    bool insecure_no_auth;
};

/* ERR_INPUT names the flag. */
int options_parse(struct options *out, int argc, char **argv, struct err *err);
/* File, then settings, then what only the whole can tell. *c is initialised here; call conf_done
 * also after a failure. */
int options_load(const struct options *o, struct conf *c, struct err *err);
extern const char options_help[];

#endif
