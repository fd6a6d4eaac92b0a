#include "families/config_keys.h"

#include "families/family.h"
#include "formats/json.h"
#include "util/err.h"
#include "util/shown.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WARNINGS = sizeof((struct config_warnings *)0)->text /
                      sizeof((struct config_warnings *)0)->text[0] };

void config_warn(struct config_warnings *warnings, const char *fmt, ...)
{
    va_list args;

    if (!warnings || warnings->n == MAX_WARNINGS)
        return;
    va_start(args, fmt);
    vsnprintf(warnings->text[warnings->n++], sizeof warnings->text[0], fmt, args);
    va_end(args);
}

static bool is_known(const char *key, const char *const *known, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(known[i], key) == 0)
            return true;
    return false;
}

/* A switch that is off, a count of none. */
static bool says_nothing(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_FALSE:
        return true;
    case JSON_INTEGER:
    case JSON_REAL:
        return !(json_number_value(v) < 0.0 || json_number_value(v) > 0.0);
    case JSON_STRING:
        return json_string_length(v) == 0;
    case JSON_ARRAY:
        return json_array_size(v) == 0;
    case JSON_OBJECT:
        return json_object_size(v) == 0;
    default:
        return false;
    }
}

int config_keys_check(const struct json *j, const char *const *known, size_t n,
                      const char *whose, struct config_warnings *warnings, struct err *err)
{
    const char *key;
    json_t *v;

    json_object_foreach(j->root, key, v) {
        if (json_is_null(v) || is_known(key, known, n))
            continue;
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
        struct shown value = shown_name(text ? text : "unreadable");
        free(text);
        if (!says_nothing(v))
            return err_set(err, ERR_UNSUPPORTED, "%s: '%s' is %.80s: not known to %s, so it may "
                           "change the answers; there is no support for it", j->name,
                           shown_name(key).text, value.text, whose);
        config_warn(warnings, "'%.80s' is %.40s: not known to %s, ignored", shown_name(key).text,
                    value.text, whose);
    }
    return 0;
}
