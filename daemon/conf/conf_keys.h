/* conf_keys: the table of keys behind conf, for its reader and its writer. */
#ifndef DAEMON_CONF_KEYS_H
#define DAEMON_CONF_KEYS_H

#include "daemon/conf/conf.h"

#define CONF_MINUTE ((uint64_t)60 * 1000)
#define CONF_HOUR (60 * CONF_MINUTE)

enum conf_kind {
    CONF_TEXT,     /* char * */
    CONF_LIST,     /* char *[] with a uint32_t count */
    CONF_BOOL,     /* bool */
    CONF_COUNT,    /* uint32_t */
    CONF_SIZE,     /* uint64_t bytes */
    CONF_DURATION, /* uint32_t milliseconds */
    CONF_CHOICE,   /* int-sized enum, by name */
    CONF_UNBUILT,  /* nothing: only the default is accepted */
};

struct conf_choice {
    const char *name;
    int value;
    bool unbuilt; /* a word we know for something that is not there yet */
};

/* Who has to begin anew when the key changes while the daemon runs; several may. */
enum conf_change {
    CONF_LIVE = 1,    /* nobody: it is told, or only the supervisor looks at it */
    CONF_WORKERS = 2, /* they are replaced one by one */
    CONF_ENGINE = 4,  /* it is drained and started again */
    CONF_PLAN = 8,    /* nobody: the engine plans its memory and queue again as it runs */
    CONF_RESTART = 16, /* the daemon itself */
};

struct conf_key {
    const char *section, *name;
    enum conf_kind kind;
    unsigned change;     /* of enum conf_change; 0 for CONF_UNBUILT */
    size_t offset;       /* in struct conf */
    size_t count_offset; /* of a list's count */
    uint32_t cap;        /* of a list */
    uint64_t min, max;
    const char *zero; /* the word that stands for 0 or NULL: "auto", "null" */
    const char *all;  /* CONF_SIZE: the word for UINT64_MAX, where 0 means none */
    const struct conf_choice *choices;
    const char *defaults; /* CONF_UNBUILT: the accepted spellings, between '|' */
};

enum conf_null { CONF_NOT_NULL, CONF_IS_NULL };

const struct conf_key *conf_key_find(const char *section, const char *name);
const struct conf_key *conf_key_at(size_t i); /* in the table's order; NULL past its end */
bool conf_section_known(const char *section);
/* The known key (or section, when section is NULL) that is nearest to name, or NULL. */
const char *conf_nearest(const char *section, const char *name);

/* One scalar. is_null: written as null, ~ or nothing. */
int conf_assign(struct conf *c, const struct conf_key *key, const char *value,
                enum conf_null is_null, struct err *err);
void conf_list_clear(struct conf *c, const struct conf_key *key);
int conf_list_add(struct conf *c, const struct conf_key *key, const char *value, struct err *err);
/* "[]" for a list of something that is not built. */
int conf_list_unbuilt(const struct conf_key *key, uint32_t n_values, struct err *err);

#endif
