#include "daemon/worker/recalling.h"

#include "daemon/openai/openai_in.h"
#include "daemon/wire/link.h"
#include "daemon/worker/prompt.h"
#include "daemon/worker/worker_state.h"
#include "text/json_same.h"
#include "util/err.h"

#include <stdlib.h>
#include <string.h>

/* Of what http.buffer has left, for one answer. */
enum { ROOM_SHARE = 4, MOST_ROOM = 1 << 20, LEAST_ROOM = 4096 };

struct recalled_frame { /* an answer, as it came */
    struct recalled_frame *next;
    _Alignas(8) char bytes[];
};

struct recalled_reply {
    const struct wire_remember *m; /* in a frame; NULL: not known */
    bool same;                     /* the message means what was said */
};

/* ---- paying ---- */

static void *take(struct recalling *r, uint64_t size)
{
    void *p;

    if (!quota_take(&r->worker->quota, size))
        return NULL;
    p = calloc(1, size);
    if (!p) {
        quota_give(&r->worker->quota, size);
        return NULL;
    }
    r->cost += size;
    return p;
}

static uint32_t room_for_answer(const struct recalling *r)
{
    const struct quota *q = &r->worker->quota;
    uint64_t room = q->used < q->cap ? (q->cap - q->used) / ROOM_SHARE : 0;

    return room < LEAST_ROOM ? 0 : room < MOST_ROOM ? (uint32_t)room : MOST_ROOM;
}

/* ---- what is wanted ---- */

static bool is_on(const struct openai_request *request, const struct wire_hello *hello)
{
    return request->kind == OPENAI_CHAT && request->reasoning_memory && hello->reply_most > 0;
}

static size_t count_keys(const struct openai_request *request)
{
    size_t n = 0;

    for (size_t i = 0; i < request->chat.n_messages; i++) {
        const struct chat_message *m = &request->chat.messages[i];
        if (m->role == CHAT_ASSISTANT)
            n += m->n_calls + 1;
    }
    return n;
}

/* A reply with calls is known by their ids; one without, or whose ids the client left out, by the
 * conversation. */
static void want(struct recalling *r, const struct openai_request *request)
{
    struct conversation c;

    conversation_begin(&c, &r->secret, CONVERSATION_EVERYBODY);
    for (size_t i = 0; i < request->chat.n_messages; i++) {
        const struct chat_message *m = &request->chat.messages[i];
        uint32_t before = r->n_wanted;
        conversation_put(&c, m);
        if (m->role != CHAT_ASSISTANT)
            continue;
        for (size_t k = 0; k < m->n_calls; k++)
            if (m->calls[k].id)
                r->wanted[r->n_wanted++] = (struct wire_wanted){
                    .key = conversation_call_key(&r->secret, CONVERSATION_EVERYBODY,
                                                 m->calls[k].id, m->calls[k].id_size),
                    .message = (uint32_t)i };
        if (r->n_wanted == before)
            r->wanted[r->n_wanted++] = (struct wire_wanted){ .key = conversation_key(&c),
                                                             .message = (uint32_t)i };
    }
}

/* ---- what is known ---- */

static bool same_text(const char *a, size_t a_size, const char *b, size_t b_size)
{
    return a_size == b_size && (!a_size || memcmp(a, b, a_size) == 0);
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* White space around it aside: templates trim it, and so do clients. */
static bool same_trimmed(const char *a, size_t a_size, const char *b, size_t b_size)
{
    for (; a_size && is_space(*a); a_size--)
        a++;
    for (; b_size && is_space(*b); b_size--)
        b++;
    while (a_size && is_space(a[a_size - 1]))
        a_size--;
    while (b_size && is_space(b[b_size - 1]))
        b_size--;
    return same_text(a, a_size, b, b_size);
}

/* Arguments that came as an object are compared as the text that they would be. */
static bool same_object(struct recalling *r, const json_t *object, const char *text, size_t size)
{
    size_t n = json_dumpb(object, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
    bool same = false;

    if (!n || !quota_take(&r->worker->quota, n))
        return false;
    char *own = malloc(n);
    if (own && json_dumpb(object, own, n, JSON_COMPACT | JSON_ENCODE_ANY) == n)
        same = json_same(own, n, text, size, &r->secret);
    free(own);
    quota_give(&r->worker->quota, n);
    return same;
}

/* Whether they are the calls that were made, however they are spelled. */
static bool same_calls(struct recalling *r, const struct chat_message *m,
                       const struct wire_reply_view *v)
{
    const struct openai_request *request = r->request;
    const char *text = v->call_text;

    if (m->n_calls != v->head->n_calls)
        return false;
    for (uint32_t i = 0; i < v->head->n_calls; i++) {
        const struct chat_call *c = &m->calls[i];
        const json_t *object = request->call_objects[c - request->calls];
        const char *arguments = text + v->calls[i].name_size;
        size_t size = v->calls[i].arguments_size;
        if (!same_text(c->name, c->name_size, text, v->calls[i].name_size))
            return false;
        if (object ? !same_object(r, object, arguments, size)
                   : !json_same(c->arguments, c->arguments_size, arguments, size, &r->secret))
            return false;
        text = arguments + size;
    }
    return true;
}

/* The client's spelling gives way to the model's. */
static void spell_calls(struct openai_request *request, const struct chat_message *m,
                        const struct wire_reply_view *v)
{
    const char *text = v->call_text;

    for (uint32_t i = 0; i < v->head->n_calls; i++) {
        size_t at = (size_t)(&m->calls[i] - request->calls);
        text += v->calls[i].name_size;
        request->calls[at].arguments = text;
        request->calls[at].arguments_size = v->calls[i].arguments_size;
        request->call_objects[at] = NULL;
        text += v->calls[i].arguments_size;
    }
}

static void use_reply(struct recalling *r, uint32_t message, const struct wire_remember *reply)
{
    struct recalled_reply *to = &r->replies[message];
    struct chat_message *m = &r->request->messages[message];
    struct sip_sum content = conversation_content_sum(&r->secret, m->text, m->size);
    struct wire_reply_view v;

    wire_reply_view(&v, reply);
    to->m = reply;
    to->same = sip_same(content, reply->content) && same_calls(r, m, &v);
    if (to->same)
        spell_calls(r->request, m, &v);
    if (!m->reasoning && reply->reasoning_size) {
        m->reasoning = v.reasoning;
        m->reasoning_size = reply->reasoning_size;
    } else if (!same_trimmed(m->reasoning, m->reasoning_size, v.reasoning,
                             reply->reasoning_size)) {
        to->same = false; /* the client has thoughts of its own */
    }
}

static void use_answer(struct recalling *r, const struct wire_recalled *m)
{
    const struct wire_recalled_reply *at = NULL;

    for (uint32_t i = 0; i < m->n; i++) {
        at = wire_recalled_next(m, at);
        if (at->message >= r->request->chat.n_messages ||
            r->request->messages[at->message].role != CHAT_ASSISTANT ||
            r->replies[at->message].m)
            continue;
        use_reply(r, at->message, (const struct wire_remember *)(at + 1));
    }
}

/* What the answer says must outlive it. */
static const struct wire_recalled *keep_answer(struct recalling *r, const struct wire_recalled *m)
{
    const struct wire_recalled_reply *at = NULL;

    for (uint32_t i = 0; i < m->n; i++)
        at = wire_recalled_next(m, at);
    const char *end = at ? (const char *)(at + 1) + wire_reply_padded(at->size)
                         : (const char *)(m + 1);
    size_t size = (size_t)(end - (const char *)m);
    struct recalled_frame *f = take(r, sizeof *f + size);
    if (!f)
        return NULL;
    memcpy(f->bytes, m, size);
    f->next = r->frames;
    r->frames = f;
    return (const struct wire_recalled *)(const void *)f->bytes;
}

/* ---- asking ---- */

static void end(struct recalling *r)
{
    recalling_stop(r);
    r->ready(r->ctx);
}

static void said(void *owner, const struct wire_recalled *m);

/* The next of what is wanted: false when all was asked, or there is nobody or no room. */
static bool ask(struct recalling *r)
{
    uint32_t left = r->n_wanted - r->asked;
    struct link_question q = { .wanted = r->wanted + r->asked, .room = room_for_answer(r),
                               .n = left < WIRE_MAX_WANTED ? left : WIRE_MAX_WANTED };
    struct err none;

    r->n_asked = q.n;
    return left > 0 && q.room > 0 && link_recall(r->worker->link, r, &q, said, &none) == 0;
}

static void said(void *owner, const struct wire_recalled *m)
{
    struct recalling *r = owner;

    if (m && m->n)
        m = keep_answer(r, m);
    if (!m || m->n_looked == 0) {
        end(r);
        return;
    }
    use_answer(r, m);
    r->asked += m->n_looked;
    if (!ask(r))
        end(r);
}

static int late(sd_event_source *source, uint64_t usec, void *ctx)
{
    (void)source;
    (void)usec;
    end(ctx);
    return 0;
}

int recalling_start(struct recalling *r, struct worker *w, struct openai_request *request,
                    uint32_t patience_ms, void (*ready)(void *ctx), void *ctx)
{
    const struct wire_hello *hello = &link_status(w->link)->hello;
    size_t n;

    r->worker = w;
    r->request = request;
    r->ready = ready;
    r->ctx = ctx;
    if (!is_on(request, hello) || !link_status(w->link)->connected ||
        (n = count_keys(request)) == 0)
        return 0;
    r->secret = hello->secret;
    r->wanted = take(r, n * sizeof *r->wanted);
    r->replies = take(r, request->chat.n_messages * sizeof *r->replies);
    if (!r->wanted || !r->replies)
        return 0;
    want(r, request);
    if (sd_event_add_time_relative(w->loop, &r->timer, CLOCK_MONOTONIC,
                                   (uint64_t)patience_ms * 1000, 10000, late, r) < 0)
        return 0;
    r->waiting = ask(r);
    if (!r->waiting)
        recalling_stop(r);
    return r->waiting;
}

void recalling_stop(struct recalling *r)
{
    if (r->waiting)
        link_forget_recall(r->worker->link, r);
    r->waiting = false;
    r->timer = sd_event_source_disable_unref(r->timer);
}

/* ---- using it ---- */

static bool ids_are_known(const struct wire_reply_view *v, uint32_t vocab)
{
    for (uint32_t i = 0; i < v->head->n_ids; i++)
        if (v->ids[i] >= vocab)
            return false;
    return true;
}

/* The assistant's messages as turns: how many. records [n_messages] holds those that are known. */
static size_t make_turns(const struct recalling *r, const struct openai_request *request,
                         uint32_t vocab, struct replay_turn *turns,
                         struct replay_record *records)
{
    size_t n = 0;

    for (size_t i = 0; i < request->chat.n_messages; i++) {
        const struct chat_message *m = &request->chat.messages[i];
        const struct recalled_reply *known = r->replies ? &r->replies[i] : NULL;
        struct wire_reply_view v;
        if (m->role != CHAT_ASSISTANT)
            continue;
        turns[n] = (struct replay_turn){ .content = m->text, .content_size = m->size };
        if (known && known->m && known->same) {
            wire_reply_view(&v, known->m);
            records[n] = (struct replay_record){
                .after = known->m->after, .tail = v.tail, .tail_size = known->m->tail_size,
                .reasoning = v.reasoning, .reasoning_size = known->m->reasoning_size,
                .ids = v.ids, .n_ids = known->m->n_ids };
            if (ids_are_known(&v, vocab))
                turns[n].record = &records[n];
        }
        n++;
    }
    return n;
}

static void note_prompt(struct recalling *r, const struct openai_request *request,
                        const struct wire_hello *hello, struct remembered_prompt *out)
{
    bool tags = request->keep_tags && !request->hide_reasoning;

    if (!r->replay.tail_size || tags)
        return; /* content with tags in it is not what a template shows as content */
    out->on = true;
    out->secret = hello->secret;
    out->most = hello->reply_most;
    out->after = r->replay.after;
    out->tail_size = (uint32_t)r->replay.tail_size;
    memcpy(out->tail, r->replay.tail, r->replay.tail_size);
    conversation_begin(&out->conversation, &hello->secret, CONVERSATION_EVERYBODY);
    for (size_t i = 0; i < request->chat.n_messages; i++)
        conversation_put(&out->conversation, &request->chat.messages[i]);
}

void recalling_apply(struct recalling *r, struct worker *w, const struct openai_request *request,
                     struct prompt *p, struct remembered_prompt *out)
{
    const struct wire_hello *hello = &link_status(w->link)->hello;
    bool prompted = request->chat.add_generation_prompt && !request->chat.continue_final;
    size_t n = request->chat.n_messages;
    struct replay_record *records;
    struct err none;

    r->worker = w;
    if (!is_on(request, hello))
        return;
    /* Keys of an engine that is gone say nothing of this prompt. */
    if (!sip_same(r->secret, hello->secret))
        r->secret = hello->secret;
    uint64_t most = replay_memory(p->chat.n, n);
    if (!quota_take(&w->quota, most))
        return;
    r->cost += most;
    r->turns = take(r, (n + 1) * sizeof *r->turns);
    records = take(r, (n + 1) * sizeof *records);
    if (r->turns && records) {
        size_t n_turns = make_turns(r, request, hello->vocab, r->turns, records);
        if (replay_splice(&r->replay, p->chat.run, p->chat.n, r->turns, n_turns, prompted,
                          &r->secret, &none) == 0) {
            if (r->replay.n_replayed)
                prompt_replace(p, r->replay.parts, r->replay.n_parts);
            if (out && prompted)
                note_prompt(r, request, hello, out);
        }
    }
    free(records);
}

void recalling_done(struct recalling *r)
{
    recalling_stop(r);
    replay_done(&r->replay);
    free(r->turns);
    free(r->wanted);
    free(r->replies);
    while (r->frames) {
        struct recalled_frame *next = r->frames->next;
        free(r->frames);
        r->frames = next;
    }
    if (r->cost)
        quota_give(&r->worker->quota, r->cost);
    *r = (struct recalling){ 0 };
}
