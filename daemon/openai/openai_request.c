/* What those who read a request's parts share: its memory, and what was ignored. */
#include "daemon/openai/openai_fields.h"

#include <stdio.h>
#include <string.h>

int openai_pay(struct openai_request *r, uint64_t *cost, uint64_t bytes, const char *what,
               struct api_error *e)
{
    if (quota_take(r->quota, bytes)) {
        *cost += bytes;
        return 0;
    }
    if (bytes > r->quota->cap || r->cost > r->quota->cap - bytes)
        return api_error_set(e, 413, "request_too_large", what,
                             "These %s take more memory than the server has for all requests "
                             "(http.buffer).", what);
    return api_error_full(e);
}

static bool is_noted(const struct openai_request *r, const char *key)
{
    size_t size = strlen(key);

    for (const char *at = r->ignored; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (strncmp(at, key, size) == 0 && (at[size] == ',' || !at[size]))
            return true;
    return false;
}

void openai_note_ignored(struct openai_request *r, const char *key)
{
    size_t used = strlen(r->ignored);

    if (!is_noted(r, key) && used + strlen(key) + 2 <= sizeof r->ignored)
        snprintf(r->ignored + used, sizeof r->ignored - used, "%s%s", used ? "," : "", key);
}
