#include "text/reply_state.h"

#include "util/err.h"

int reply_xml_begin(struct reply *r, const char *name, size_t size, struct err *err)
{
    return reply_call_begin(r, name, size, err) < 0 ||
                   r->phase == PHASE_OVER ? -1 : err_set(err, ERR_UNSUPPORTED, "tool calls in XML");
}

int reply_xml_put(struct reply *r, const char *c, size_t n, struct err *err)
{
    (void)r, (void)c, (void)n;
    return err_set(err, ERR_UNSUPPORTED, "tool calls in XML");
}

bool reply_xml_may_end(const struct reply *r)
{
    (void)r;
    return false;
}

int reply_xml_end(struct reply *r, bool by_mark, bool cut, struct err *err)
{
    (void)r, (void)cut, (void)by_mark;
    return err_set(err, ERR_UNSUPPORTED, "tool calls in XML");
}
