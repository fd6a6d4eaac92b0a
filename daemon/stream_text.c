/* What the engine says about a request, and its tokens as text. */
#include "daemon/stream.h"

#include "daemon/log.h"
#include "daemon/stream_state.h"
#include "daemon/worker_state.h"
#include "util/clock.h"

#include <inttypes.h>

/* ---- text ---- */

static void put_text(struct stream *s, const char *text, size_t size)
{
    if (size == 0)
        return;
    if (!s->request.stream) {
        buf_put(&s->choices[s->index].text, text, size);
        return;
    }
    openai_out_delta(&s->x->out, &s->reply, s->index, text, size, NULL);
    stream_note_put(s);
}

static void put_echo(struct stream *s)
{
    const struct openai_prompt *p = &s->request.prompts[s->index];
    struct buf text;

    if (!s->request.echo)
        return;
    if (p->text.bytes) {
        put_text(s, p->text.bytes, p->text.size);
        return;
    }
    buf_init(&text, &s->x->worker->quota);
    for (size_t i = 0; i < p->n_ids; i++) {
        size_t size;
        const char *piece = tokenizer_piece(s->x->worker->tokenizer, p->ids[i], &size);
        buf_put(&text, piece, size);
    }
    if (text.failed)
        s->x->out.failed = true;
    put_text(s, text.data, text.size);
    buf_done(&text);
}

/* A cancelled request gets no figures from the engine; these are ours. */
static struct cz_usage own_usage(const struct stream *s)
{
    uint64_t now = clock_ns();
    uint64_t start = s->accepted_ns ? s->accepted_ns : s->asked_ns;

    return (struct cz_usage){ .n_prompt = (uint32_t)s->prompts[s->index].n,
                              .n_generated = s->n_tokens,
                              .prefill_ns = s->first_ns - start, .decode_ns = now - s->first_ns };
}

/* ---- what the engine says ---- */

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
        if (s->reply.kind == OPENAI_CHAT)
            openai_out_role(&s->x->out, &s->reply, 0);
        stream_note_put(s);
    }
    put_echo(s);
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

static void on_progress(void *owner, uint32_t n_done, uint32_t n_total)
{
    struct stream *s = owner;
    uint64_t now = clock_ns();
    struct openai_progress p = { .total = n_total, .processed = n_done,
                                 .time_ms = (now - s->accepted_ns) / 1000000 };

    s->waits = false;
    if (!s->request.stream || !s->request.return_progress || now < s->told_ns + 1000000000u)
        return;
    s->told_ns = now;
    openai_out_noop(&s->x->out, &s->reply, s->index, &p);
    if (!stream_is_full(s))
        stream_note_put(s);
}

static void fail_text(struct stream *s, const struct err *err)
{
    struct api_error e;

    api_error_set(&e, 500, "internal_error", NULL, "%s", err->text);
    stream_fail(s, &e);
}

static void put_new_text(struct stream *s)
{
    size_t size;
    const char *text = text_out_text(s->text, &size);

    put_text(s, text, size);
}

/* 1 when the text ends with this token; 0; -1 when the request is over for another reason. */
static int take_token(struct stream *s, uint32_t token)
{
    const struct tokenizer *t = s->x->worker->tokenizer;
    size_t size = 0;
    const char *piece = tokenizer_is_special(t, token) ? "" : tokenizer_piece(t, token, &size);
    struct err err;
    int stopped = text_out_put(s->text, piece, size, &err);

    s->n_tokens++;
    if (stopped < 0) {
        fail_text(s, &err);
        return -1;
    }
    put_new_text(s);
    return stream_is_full(s) ? -1 : stopped;
}

static void on_tokens(void *owner, uint32_t choice, const uint32_t *tokens, uint32_t n,
                      const struct cz_logprobs *logprobs)
{
    struct stream *s = owner;
    int stopped = 0;

    (void)choice; /* one is asked for, without logprobs */
    (void)logprobs;
    if (!s->first_ns)
        s->first_ns = clock_ns();
    for (uint32_t i = 0; i < n && stopped == 0; i++)
        stopped = take_token(s, tokens[i]);
    if (stopped <= 0)
        return;
    struct cz_usage usage = own_usage(s);
    stream_cancel(s);
    stream_end_prompt(s, "stop", &usage, true);
}

static void on_finished(void *owner, uint32_t choice, bool more, enum cz_finish reason,
                        const struct cz_usage *usage)
{
    struct stream *s = owner;
    struct err err;

    (void)choice;
    (void)more;
    s->live = false;
    int stopped = text_out_finish(s->text, &err);
    if (stopped < 0) {
        fail_text(s, &err);
        return;
    }
    put_new_text(s);
    if (!stream_is_full(s))
        stream_end_prompt(s, reason == CZ_FINISH_LENGTH && !stopped ? "length" : "stop", usage,
                          false);
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
