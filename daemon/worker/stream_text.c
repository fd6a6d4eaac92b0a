/* What the engine says about a request. */
#include "daemon/worker/stream.h"

#include "daemon/base/log.h"
#include "daemon/worker/counting.h"
#include "daemon/worker/stream_state.h"
#include "daemon/worker/worker_state.h"
#include "util/clock.h"

#include <inttypes.h>

static void on_accepted(void *owner, uint32_t place)
{
    struct stream *s = owner;

    s->accepted_ns = s->told_ns = clock_ns();
    s->x->asked = true;
    s->waits = place > 0;
    prompt_done(&s->prompts[s->index]);
    log_line(LOG_LEVEL_DEBUG, "accepted id=%s place=%" PRIu32, s->x->request_id, place);
    if (s->request.stream && s->index == 0) {
        stream_start_keepalive(s);
        for (uint32_t i = 0; i < s->request.n_choices && s->reply.kind == OPENAI_CHAT; i++)
            openai_out_role(&s->x->out, &s->reply, i);
        stream_note_put(s);
    }
    stream_put_echo(s);
    stream_is_full(s);
}

static void on_refused(void *owner, enum err_kind kind, uint32_t retry_after_s, const char *text)
{
    struct stream *s = owner;
    struct api_error e;

    s->live = s->counting = false;
    api_error_engine(&e, kind, retry_after_s, text);
    if (kind == ERR_TOO_LONG)
        api_error_too_long(&e, s->prompts[s->index].n, false,
                           link_status(s->x->worker->link)->hello.context,
                           s->request.kind == OPENAI_CHAT ? "messages" : "prompt");
    stream_fail(s, &e);
}

static void on_progress(void *owner, uint32_t n_done, uint32_t n_total, uint32_t n_cached)
{
    struct stream *s = owner;
    uint64_t now = clock_ns();
    struct openai_progress p = { .total = n_total, .cached = n_cached, .processed = n_done,
                                 .time_ms = (now - s->accepted_ns) / 1000000 };

    s->waits = false;
    if (!s->request.stream || !s->request.return_progress || now < s->told_ns + 1000000000u)
        return;
    s->told_ns = now;
    openai_out_noop(&s->x->out, &s->reply, stream_index(s), &p);
    if (!stream_is_full(s))
        stream_note_put(s);
}

/* A choice that a stop string or the like has ended. The last one is cancelled and ours to sum up;
 * behind another one the engine goes on by itself once it has heard of it. */
static void end_here(struct stream *s)
{
    remembering_end_here(&s->remembering);
    const char *finish = stream_finish_text(s, false);

    if (!finish)
        return;
    if (s->choice + 1 < s->request.n_choices) {
        s->over = finish;
        link_next(s->x->worker->link, s->link_id, s->choice);
        return;
    }
    struct cz_usage usage = stream_own_usage(s);
    stream_cancel(s);
    stream_end_choice(s, finish, &usage, true, false);
}

static void on_tokens(void *owner, uint32_t choice, const uint32_t *tokens, uint32_t n,
                      const struct cz_logprobs *logprobs)
{
    struct stream *s = owner;
    int over = 0;

    if (choice != s->choice || s->over)
        return;
    if (!s->choice_ns)
        s->choice_ns = clock_ns();
    if (!s->first_ns)
        s->first_ns = s->choice_ns;
    for (uint32_t i = 0; i < n && over == 0; i++)
        over = stream_take_token(s, tokens[i], logprobs ? &logprobs[i] : NULL);
    if (over > 0)
        end_here(s);
    else if (over == 0)
        counting_tokens(s);
}

static void on_finished(void *owner, uint32_t choice, bool more, enum cz_finish reason,
                        const struct cz_usage *usage)
{
    struct stream *s = owner;

    if (!more)
        s->live = false;
    if (choice != s->choice)
        return;
    const char *finish = s->over ? s->over : stream_finish_text(s, reason == CZ_FINISH_LENGTH);
    if (!finish)
        return;
    struct cz_usage told = *usage;
    stream_count_unsent(s, usage);
    if (s->over) /* what came before the engine had heard of it is nobody's */
        told.n_generated = s->n_tokens;
    stream_end_choice(s, finish, &told, false, more);
}

static void on_failed(void *owner, enum err_kind kind, const char *text, const struct cz_usage *u)
{
    struct stream *s = owner;
    struct api_error e;

    (void)u;
    s->live = false;
    api_error_engine(&e, kind, 0, text);
    stream_fail(s, &e);
}

const struct link_events stream_events = {
    .accepted = on_accepted,
    .refused = on_refused,
    .progress = on_progress,
    .tokens = on_tokens,
    .finished = on_finished,
    .failed = on_failed,
};
