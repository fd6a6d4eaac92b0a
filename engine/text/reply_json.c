#include "text/reply_state.h"

#include "util/err.h"

void reply_json_begin(struct reply *r)
{
    r->phase = PHASE_JSON;
}

int reply_json_put(struct reply *r, const char *c, size_t n, struct err *err)
{
    (void)r, (void)c, (void)n;
    return err_set(err, ERR_UNSUPPORTED, "tool calls in JSON");
}

int reply_json_end(struct reply *r, bool cut, struct err *err)
{
    (void)r, (void)cut;
    return err_set(err, ERR_UNSUPPORTED, "tool calls in JSON");
}
