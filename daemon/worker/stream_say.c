/* Tokens to what the client is told of them, chunk by chunk or kept for the end. */
#include "daemon/worker/stream_state.h"

#include "daemon/wire/link.h"
#include "daemon/worker/worker_state.h"
#include "util/clock.h"

/* Of a reply that is sent at once. */
static struct openai_choice *kept(struct stream *s)
{
    return &s->choices[stream_index(s)];
}

/* ---- beginning and end of a choice ---- */

static int open_parser(struct stream *s, const struct text_stop *stops, struct err *err)
{
    const struct openai_request *r = &s->request;
    struct reply_options o = { .start = s->start,
                               .style = s->style,
                               .marks = s->marks,
                               .tools = r->offer.tools,
                               .n_tools = r->offer.n,
                               .one_call = r->offer.one_call,
                               .keep_tags = r->keep_tags && !r->hide_reasoning,
                               .stops = stops,
                               .n_stops = r->n_stops };

    if (r->offer.choice == OPENAI_TOOLS_NONE)
        o.style = REPLY_NO_TOOLS;
    return reply_open(&s->parser, &o, err);
}

int stream_open_choice(struct stream *s, struct api_error *e)
{
    const struct openai_request *r = &s->request;
    struct text_stop stops[OPENAI_MAX_STOPS];
    struct err err;

    stream_close_choice(s);
    for (uint32_t i = 0; i < r->n_stops; i++)
        stops[i] = (struct text_stop){ r->stops[i].bytes, r->stops[i].size };
    int rc = r->kind == OPENAI_CHAT ? open_parser(s, stops, &err)
                                    : text_out_open(&s->text, stops, r->n_stops, &err);
    if (rc < 0)
        return api_error_set(e, 500, "internal_error", NULL, "%s", err.text);
    s->n_tokens = 0;
    s->choice_ns = 0;
    s->over = NULL;
    s->said = s->in_call = false;
    remembering_begin(&s->remembering, &s->remembered, s->marks.call_end, &s->x->worker->quota);
    return 0;
}

void stream_close_choice(struct stream *s)
{
    text_out_close(s->text);
    reply_close(s->parser);
    s->text = NULL;
    s->parser = NULL;
    quota_give(&s->x->worker->quota, s->parser_cost);
    s->parser_cost = 0;
    openai_logprobs_drop(&s->held);
}

/* ---- what is told ---- */

static void say_text(struct stream *s, const char *text, size_t size)
{
    if (size == 0)
        return;
    s->said = true;
    if (!s->request.stream) {
        buf_put(&kept(s)->text, text, size);
        openai_logprobs_tell(&kept(s)->logprobs, &s->held, size);
        return;
    }
    openai_logprobs_tell(&s->logprobs, &s->held, size);
    openai_out_delta(&s->x->out, &s->reply, stream_index(s), text, size, &s->logprobs);
    stream_note_put(s);
}

static void say_reasoning(struct stream *s, const char *text, size_t size)
{
    if (s->request.hide_reasoning)
        return;
    if (!s->request.stream) {
        buf_put(&kept(s)->reasoning, text, size);
        return;
    }
    openai_out_reasoning(&s->x->out, &s->reply, stream_index(s), text, size);
    stream_note_put(s);
}

static void say_call(struct stream *s, uint32_t call, const char *name, size_t size)
{
    s->in_call = true;
    openai_logprobs_drop(&s->held); /* of white space before it, which is dropped */
    openai_out_call_id(s->call_id);
    if (!s->request.stream) {
        openai_choice_call(kept(s), &s->reply, s->call_id, name, size);
        return;
    }
    openai_out_call(&s->x->out, &s->reply, stream_index(s), call, s->call_id, name, size);
    stream_note_put(s);
}

static void say_arguments(struct stream *s, uint32_t call, const char *text, size_t size)
{
    if (!s->request.stream) {
        openai_choice_arguments(kept(s), text, size);
        return;
    }
    openai_out_arguments(&s->x->out, &s->reply, stream_index(s), call, text, size);
    stream_note_put(s);
}

static void say_call_end(struct stream *s)
{
    if (s->in_call && !s->request.stream)
        openai_choice_call_end(kept(s), &s->reply);
    s->in_call = false;
}

static void say_parts(struct stream *s)
{
    struct reply_part p;

    while (reply_next(s->parser, &p)) {
        switch (p.kind) {
        case REPLY_TEXT_REASONING:
            say_reasoning(s, p.text, p.size);
            break;
        case REPLY_TEXT_CONTENT:
            say_text(s, p.text, p.size);
            break;
        case REPLY_CALL:
            say_call(s, p.call, p.text, p.size);
            break;
        case REPLY_ARGUMENTS:
            say_arguments(s, p.call, p.text, p.size);
            break;
        case REPLY_CALL_END:
            say_call_end(s);
            break;
        }
        remembering_part(&s->remembering, &p, s->call_id);
    }
}

static void say_new(struct stream *s)
{
    size_t size;

    if (s->parser) {
        say_parts(s);
        return;
    }
    const char *text = text_out_text(s->text, &size);
    say_text(s, text, size);
}

void stream_put_echo(struct stream *s)
{
    const struct openai_prompt *p = &s->request.prompts[s->index];
    struct buf text;

    if (!s->request.echo)
        return;
    if (p->text.bytes) {
        openai_logprobs_skip(&s->held, p->text.bytes, p->text.size);
        say_text(s, p->text.bytes, p->text.size);
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
    openai_logprobs_skip(&s->held, text.data, text.size);
    say_text(s, text.data, text.size);
    buf_done(&text);
}

/* ---- log probabilities ---- */

/* Newlines behind thinking are dropped by the parser, and so are what they were worth. */
static bool is_dropped(const struct stream *s, const char *piece, size_t size)
{
    struct reply_result so_far;

    if (!s->parser || s->said || s->request.keep_tags)
        return false;
    for (size_t i = 0; i < size; i++)
        if (piece[i] != '\n')
            return false;
    reply_result(s->parser, &so_far);
    return so_far.n_reasoning_tokens > 0;
}

static struct openai_logprob named(const struct stream *s, const struct cz_logprob *p)
{
    struct openai_logprob out = { .value = (double)p->logprob };

    out.bytes = tokenizer_piece(s->x->worker->tokenizer, p->token, &out.size);
    return out;
}

static void add_logprobs(struct stream *s, const struct cz_logprobs *logprobs, bool unseen)
{
    struct openai_logprob token = named(s, &logprobs->own), top[CZ_MAX_TOP];
    uint32_t n_top = logprobs->n_top < CZ_MAX_TOP ? logprobs->n_top : CZ_MAX_TOP;

    if (s->parser && (reply_token_kind(s->parser) != REPLY_TEXT_CONTENT ||
                      is_dropped(s, token.bytes, token.size)))
        return;
    for (uint32_t i = 0; i < n_top; i++)
        top[i] = named(s, &logprobs->top[i]);
    token.unseen = unseen;
    openai_logprobs_add(&s->held, &token, top, n_top);
}

/* ---- tokens ---- */

static int fail_text(struct stream *s, const struct err *err)
{
    struct api_error e;

    api_error_set(&e, 500, "internal_error", NULL, "%s", err->text);
    stream_fail(s, &e);
    return -1;
}

static bool is_mark(const struct stream *s, uint32_t token)
{
    const struct reply_marks *m = &s->marks;

    return token == m->think || token == m->think_end || token == m->call || token == m->call_end;
}

/* What the parser holds back grows with what the model says. */
static int pay_parser(struct stream *s)
{
    struct quota *quota = &s->x->worker->quota;
    uint64_t held = reply_memory(s->parser);

    if (held > s->parser_cost && !quota_take(quota, held - s->parser_cost)) {
        stream_fail_full(s);
        return -1;
    }
    if (held < s->parser_cost)
        quota_give(quota, s->parser_cost - held);
    s->parser_cost = held;
    return 0;
}

static enum wire_token_kind count_kind(const struct stream *s)
{
    if (!s->parser || reply_token_kind(s->parser) == REPLY_TEXT_CONTENT)
        return TOKENS_CONTENT;
    return reply_token_kind(s->parser) == REPLY_TEXT_REASONING ? TOKENS_REASONING : TOKENS_TOOL;
}

/* ---- figures ---- */

struct cz_usage stream_own_usage(const struct stream *s)
{
    uint64_t now = clock_ns();
    uint64_t start = s->accepted_ns ? s->accepted_ns : s->asked_ns;
    struct cz_usage usage = { .n_generated = s->n_tokens, .decode_ns = now - s->choice_ns };

    if (s->choice == 0) {
        usage.n_prompt = (uint32_t)s->prompts[s->index].n;
        usage.prefill_ns = s->choice_ns - start;
    }
    return usage;
}

/* For timings in every chunk. */
static void note_running(struct stream *s)
{
    if (s->reply.running)
        s->running.engine = stream_own_usage(s);
}

int stream_take_token(struct stream *s, uint32_t token, const struct cz_logprobs *logprobs)
{
    const struct tokenizer *t = s->x->worker->tokenizer;
    size_t size = 0;
    bool unseen = tokenizer_is_special(t, token) && !(s->parser && is_mark(s, token));
    const char *piece = unseen ? "" : tokenizer_piece(t, token, &size);
    struct err err;

    remembering_token(&s->remembering, token);
    int over = s->parser ? reply_put(s->parser, token, piece, size, &err)
                         : text_out_put(s->text, piece, size, &err);

    s->n_tokens++;
    if (over < 0)
        return fail_text(s, &err);
    if (s->parser && pay_parser(s) < 0)
        return -1;
    s->tally.tokens[count_kind(s)]++;
    if (logprobs)
        add_logprobs(s, logprobs, unseen);
    note_running(s);
    say_new(s);
    return stream_is_full(s) ? -1 : over;
}

void stream_count_unsent(struct stream *s, const struct cz_usage *usage)
{
    if (usage->n_generated > s->n_tokens)
        s->tally.tokens[count_kind(s)] += usage->n_generated - s->n_tokens;
}

/* ---- why it ended ---- */

static void tally_reply(struct stream *s, const struct reply_result *result)
{
    s->tally.n_calls += result->n_calls;
    for (uint32_t i = 0; i < N_REPLY_REPAIRS; i++)
        s->tally.repairs[i] += result->repairs[i];
    s->usage.n_reasoning += result->n_reasoning_tokens;
}

static const char *finish_of_reply(struct stream *s, bool cut)
{
    struct reply_result result;

    reply_result(s->parser, &result);
    tally_reply(s, &result);
    remembering_finish(&s->remembering, s->parser, cut, s->x->worker->link);
    if (cut && !result.by_stop_string)
        return "length";
    if (result.n_calls)
        return s->reply.legacy_call ? "function_call" : "tool_calls";
    return "stop";
}

const char *stream_finish_text(struct stream *s, bool cut)
{
    struct reply_result result = { 0 };
    struct err err;
    int by_stop = s->parser ? reply_finish(s->parser, cut, &err) : text_out_finish(s->text, &err);

    if (by_stop < 0) {
        fail_text(s, &err);
        return NULL;
    }
    if (s->parser)
        reply_result(s->parser, &result);
    say_new(s);
    say_call_end(s); /* of a call that was cut */
    if (by_stop || result.by_stop_string)
        openai_logprobs_drop(&s->held); /* of the stop string, which is not told */
    if (stream_is_full(s))
        return NULL;
    if (s->parser)
        return finish_of_reply(s, cut);
    return cut && !by_stop ? "length" : "stop";
}
