#include "daemon/worker/counting.h"

#include "daemon/openai/api_error.h"
#include "daemon/wire/link.h"
#include "daemon/worker/stream_state.h"
#include "daemon/worker/worker_state.h"
#include "util/clock.h"

#include <string.h>

static enum wire_method method_of(const struct exchange *x)
{
    static const char *const names[N_METHODS] = { [METHOD_GET] = "GET", [METHOD_HEAD] = "HEAD",
                                                  [METHOD_POST] = "POST",
                                                  [METHOD_OPTIONS] = "OPTIONS" };

    for (uint32_t i = 0; i < N_METHODS; i++)
        if (names[i] && strcmp(names[i], x->method) == 0)
            return (enum wire_method)i;
    return METHOD_OTHER;
}

static uint64_t since_us(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (to_ns - from_ns) / 1000 : 0;
}

void counting_request(const struct exchange *x)
{
    struct wire_count m = {
        .kind = COUNT_HTTP,
        .route = x->route_index,
        .method = method_of(x),
        .status = (uint32_t)x->status,
        .reject = x->asked ? REJECT_NONE : x->reject,
        .duration_us = since_us(x->started_ns, clock_ns()),
    };

    link_count(x->worker->link, &m);
}

enum wire_reject counting_reject(const struct api_error *e)
{
    static const struct {
        const char *code;
        enum wire_reject reject;
    } codes[] = { { "context_length_exceeded", REJECT_CONTEXT },
                  { "server_overloaded", REJECT_FULL },
                  { "request_too_large", REJECT_INVALID },
                  { "model_loading", REJECT_LOADING },
                  { "engine_unavailable", REJECT_UNAVAILABLE },
                  { "draining", REJECT_UNAVAILABLE } };

    for (size_t i = 0; e->code && i < sizeof codes / sizeof codes[0]; i++)
        if (strcmp(e->code, codes[i].code) == 0)
            return codes[i].reject;
    return e->status >= 400 && e->status < 500 ? REJECT_INVALID : REJECT_NONE;
}

static enum wire_phase phase_of(const struct stream *s)
{
    if (s->first_ns)
        return PHASE_DECODE;
    return !s->accepted_ns || s->waits ? PHASE_QUEUE : PHASE_PREFILL;
}

/* What is in the tally goes along, and is told with it. */
static void take_tally(struct wire_count *m, struct stream *s)
{
    memcpy(m->tokens, s->tally.tokens, sizeof m->tokens);
    memcpy(m->repairs, s->tally.repairs, sizeof m->repairs);
    m->n_calls = s->tally.n_calls;
    m->style = s->style;
    s->tally = (struct stream_tally){ 0 };
}

void counting_tokens(struct stream *s)
{
    struct wire_count m = { .kind = COUNT_TOKENS };
    uint64_t now = clock_ns();

    if (now < s->counted_ns + 1000000000u)
        return;
    s->counted_ns = now;
    take_tally(&m, s);
    link_count(s->x->worker->link, &m);
}

void counting_end(struct stream *s, enum wire_end end, const struct cz_usage *usage, bool own)
{
    struct wire_count m = {
        .kind = COUNT_END,
        .end = end,
        .phase = phase_of(s),
        .own = own || !usage,
        .duration_us = since_us(s->asked_ns, clock_ns()),
        .first_us = s->first_ns ? since_us(s->asked_ns, s->first_ns) : 0,
    };

    if (!s->counting)
        return;
    s->counting = false;
    take_tally(&m, s);
    if (usage)
        m.usage = *usage;
    link_count(s->x->worker->link, &m);
}
