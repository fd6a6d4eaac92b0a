/* Live requests stand in an array in the order of their numbers, which only grow: finding one
 * is a binary search, and there are never more than the worker has connections. */
#include "daemon/wire/link.h"

#include "daemon/wire/channel.h"
#include "util/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The largest prompt and some; requests past this are ERR_BUSY. */
enum { LINK_OUTBOX = 2 * WIRE_MAX_FRAME };

struct live {
    uint64_t id;
    void *owner; /* borrowed */
};

/* Few at once, from few addresses, so that more are a fault or a flood. */
enum { MAX_ASKING = 16 };

struct asking {
    uint64_t id; /* 0: the place is free */
    void *owner; /* borrowed */
    link_metrics_said said;
};

/* Who wants to know about replies; the first one's question is under way. */
struct recall {
    void *owner; /* borrowed; NULL: nobody waits for the answer any more */
    struct link_question question;
    link_recalled said;
};

struct link {
    sd_event *loop; /* reference held */
    struct link_events events;
    struct link_status status;
    struct channel *channel; /* NULL without an engine */
    struct live *live;       /* owned, ids rise */
    uint32_t n_live, live_cap;
    uint64_t last_id;
    struct asking asking[MAX_ASKING];
    struct recall *recalls; /* owned: [n_recalls] */
    uint32_t n_recalls, recalls_cap;
    uint64_t recall_id; /* of the question under way; 0: none is */
};

static struct live *find(struct link *l, uint64_t id)
{
    uint32_t lo = 0, hi = l->n_live;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (l->live[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < l->n_live && l->live[lo].id == id ? &l->live[lo] : NULL;
}

/* Takes a request off the list and returns its owner. */
static void *settle(struct link *l, struct live *r)
{
    void *owner = r->owner;
    size_t after = (size_t)(l->live + l->n_live - (r + 1));

    memmove(r, r + 1, after * sizeof *r);
    l->n_live--;
    return owner;
}

static void fail_all(struct link *l, const char *text)
{
    static const struct cz_usage nothing;

    /* Callbacks may cancel others; new submissions are refused while there is no channel. */
    while (l->n_live > 0)
        l->events.failed(settle(l, &l->live[0]), ERR_CLOSED, text, &nothing);
}

static void end_asking(struct asking *a, const char *text, size_t size)
{
    struct asking it = *a;

    *a = (struct asking){ 0 };
    if (it.id)
        it.said(it.owner, text, size);
}

/* The first question's answer; NULL: none will come. */
static void end_recall(struct link *l, const struct wire_recalled *m)
{
    struct recall it = l->recalls[0];

    l->n_recalls--;
    memmove(l->recalls, l->recalls + 1, l->n_recalls * sizeof it);
    l->recall_id = 0;
    if (it.owner)
        it.said(it.owner, m);
}

static void lose_engine(struct link *l, const char *text)
{
    channel_close(l->channel);
    l->channel = NULL;
    l->status.connected = false;
    fail_all(l, text);
    for (size_t i = 0; i < MAX_ASKING; i++)
        end_asking(&l->asking[i], NULL, 0);
    while (l->n_recalls > 0)
        end_recall(l, NULL);
}

/* Messages are not zero-terminated; what callers get is. */
static const char *text_of(char *buf, size_t cap, const char *text, size_t size)
{
    if (size >= cap)
        size = cap - 1;
    memcpy(buf, text, size);
    buf[size] = '\0';
    return buf;
}

static void on_refused(struct link *l, struct live *r, const struct wire_refused *m)
{
    char text[512];

    text_of(text, sizeof text, (const char *)(m + 1), m->text_size);
    l->events.refused(settle(l, r), m->kind, m->retry_after_s, text);
}

static void on_failed(struct link *l, struct live *r, const struct wire_failed *m)
{
    char text[512];

    text_of(text, sizeof text, (const char *)(m + 1), m->text_size);
    l->events.failed(settle(l, r), m->kind, text, &m->usage);
}

static void on_tokens(struct link *l, struct live *r, const struct wire_tokens *m)
{
    const uint32_t *tokens = (const uint32_t *)(m + 1);

    l->events.tokens(r->owner, m->choice, tokens, m->n,
                     m->logprobs ? (const struct cz_logprobs *)(tokens + m->n) : NULL);
}

static void on_finished(struct link *l, struct live *r, const struct wire_finished *m)
{
    void *owner = m->more ? r->owner : settle(l, r);

    l->events.finished(owner, m->choice, m->more, (enum cz_finish)m->reason, &m->usage);
}

static void take_metrics(struct link *l, uint64_t id, const struct wire_text *m)
{
    for (size_t i = 0; id && i < MAX_ASKING; i++)
        if (l->asking[i].id == id)
            end_asking(&l->asking[i], (const char *)(m + 1), m->size);
}

/* Questions that nobody waits for any more are passed over. One that cannot be sent, because the
 * engine does not read, stays the first. */
static void ask_next(struct link *l)
{
    while (l->channel && !l->recall_id && l->n_recalls > 0) {
        const struct link_question *q = &l->recalls[0].question;
        struct wire_recall m = { .n = q->n, .room = q->room };
        const struct channel_part parts[] = { { &m, sizeof m },
                                              { q->wanted, q->n * sizeof *q->wanted } };
        uint64_t number = l->last_id + 1;
        if (!l->recalls[0].owner) {
            end_recall(l, NULL);
            continue;
        }
        if (channel_send(l->channel, WIRE_RECALL, number, parts, 2, -1, NULL) < 0)
            return;
        l->recall_id = l->last_id = number;
    }
}

/* More answered than was asked is none of ours. */
static void take_recalled(struct link *l, uint64_t id, const struct wire_recalled *m)
{
    if (!id || id != l->recall_id)
        return;
    end_recall(l, m->n_looked <= l->recalls[0].question.n ? m : NULL);
    ask_next(l);
}

static void on_frame(void *ctx, const struct wire_head *head, const void *body, size_t size,
                     int fd)
{
    struct link *l = ctx;
    const struct wire_progress *progress = body;
    const struct wire_accepted *accepted = body;

    (void)size;
    if (fd >= 0)
        close(fd);
    if (head->type == WIRE_HELLO) {
        l->status.hello = *(const struct wire_hello *)body;
        l->status.connected = true;
        return;
    }
    if (head->type == WIRE_METRICS_TEXT) {
        take_metrics(l, head->id, body);
        return;
    }
    if (head->type == WIRE_RECALLED) {
        take_recalled(l, head->id, body);
        return;
    }
    struct live *r = find(l, head->id);
    if (!r)
        return; /* cancelled while its word was on the way */

    switch (head->type) {
    case WIRE_ACCEPTED:
        l->events.accepted(r->owner, accepted->place);
        break;
    case WIRE_REFUSED:
        on_refused(l, r, body);
        break;
    case WIRE_PROGRESS:
        l->events.progress(r->owner, progress->n_done, progress->n_total,
                           progress->n_cached);
        break;
    case WIRE_TOKENS:
        on_tokens(l, r, body);
        break;
    case WIRE_FINISHED:
        on_finished(l, r, body);
        break;
    case WIRE_FAILED:
        on_failed(l, r, body);
        break;
    default:
        lose_engine(l, "the engine sent a message that is not for workers");
    }
}

static void on_closed(void *ctx, const struct err *why)
{
    struct link *l = ctx;

    lose_engine(l, why->kind == ERR_CLOSED ? "the engine stopped; it is being restarted"
                                           : why->text);
}

int link_open(struct link **out, sd_event *loop, const struct link_events *events, struct err *err)
{
    struct link *l = calloc(1, sizeof *l);

    if (!l)
        return err_set(err, ERR_NOMEM, "link to the engine");
    l->loop = sd_event_ref(loop);
    l->events = *events;
    *out = l;
    return 0;
}

void link_close(struct link *l)
{
    if (!l)
        return;
    channel_close(l->channel);
    sd_event_unref(l->loop);
    free(l->live);
    free(l->recalls);
    free(l);
}

int link_attach(struct link *l, int fd, struct err *err)
{
    struct channel_events events = { .ctx = l, .frame = on_frame, .closed = on_closed };

    if (l->channel)
        lose_engine(l, "the engine was replaced");
    return channel_open(&l->channel, l->loop, fd, LINK_OUTBOX, &events, err);
}

const struct link_status *link_status(const struct link *l)
{
    return &l->status;
}

static int live_room(struct link *l, struct err *err)
{
    if (l->n_live < l->live_cap)
        return 0;
    uint32_t cap = l->live_cap ? 2 * l->live_cap : 64;
    struct live *live = realloc(l->live, cap * sizeof *live);
    if (!live)
        return err_set(err, ERR_NOMEM, "list of %u requests", cap);
    l->live = live;
    l->live_cap = cap;
    return 0;
}

int link_submit(struct link *l, void *owner, const struct cz_request *r,
                const struct link_from *from, uint64_t *id, struct err *err)
{
    if (!l->channel || !l->status.connected)
        return err_set(err, ERR_CLOSED, "the engine is not there");
    if (r->n_prompt == 0 || r->n_stop_ids > CZ_MAX_STOP_IDS || r->n_bias > CZ_MAX_BIAS)
        return err_set(err, ERR_INPUT, "a request of %u prompt tokens, %u stop ids, %u biases",
                       r->n_prompt, r->n_stop_ids, r->n_bias);
    if (r->n_choices > CZ_MAX_CHOICES || r->n_top > CZ_MAX_TOP ||
        r->thinking.n_closing > CZ_MAX_FORCED || r->n_forced > CZ_MAX_FORCED ||
        r->n_forced_behind > CZ_MAX_FORCED)
        return err_set(err, ERR_INPUT, "a request of %u choices, %u logprobs, %u, %u and %u forced "
                       "tokens", r->n_choices, r->n_top, r->thinking.n_closing, r->n_forced,
                       r->n_forced_behind);
    if (live_room(l, err) < 0)
        return -1;

    struct wire_submit m = {
        .client = r->client,
        .n_prompt = r->n_prompt,
        .max_tokens = r->max_tokens,
        .min_tokens = r->min_tokens,
        .n_stop_ids = r->n_stop_ids,
        .n_bias = r->n_bias,
        .n_choices = r->n_choices,
        .uncached = r->uncached,
        .logprobs = r->logprobs,
        .n_top = r->n_top,
        .think_open = r->thinking.open,
        .think_close = r->thinking.close,
        .think_inside = r->thinking.inside,
        .think_may_open = r->thinking.may_open,
        .think_call = r->thinking.call,
        .think_call_closes = r->thinking.call_closes,
        .think_budget = r->thinking.budget,
        .n_closing = r->thinking.n_closing,
        .n_forced = r->n_forced,
        .n_forced_behind = r->n_forced_behind,
        .sampling = r->sampling,
    };
    snprintf(m.request, sizeof m.request, "%s", from->request);
    snprintf(m.address, sizeof m.address, "%s", from->address);
    const struct channel_part parts[] = {
        { &m, sizeof m },
        { r->prompt, (size_t)r->n_prompt * sizeof *r->prompt },
        { r->stop_ids, (size_t)r->n_stop_ids * sizeof *r->stop_ids },
        { r->thinking.closing, (size_t)r->thinking.n_closing * sizeof *r->prompt },
        { r->forced, (size_t)r->n_forced * sizeof *r->prompt },
        { r->forced_behind, (size_t)r->n_forced_behind * sizeof *r->prompt },
        { r->bias, (size_t)r->n_bias * sizeof *r->bias },
    };
    uint64_t number = l->last_id + 1;
    if (channel_send(l->channel, WIRE_SUBMIT, number, parts, sizeof parts / sizeof *parts, -1,
                     err) < 0)
        return -1;
    l->last_id = number;
    l->live[l->n_live++] = (struct live){ .id = number, .owner = owner };
    *id = number;
    return 0;
}

void link_cancel(struct link *l, uint64_t id)
{
    struct live *r = find(l, id);

    if (!r)
        return;
    settle(l, r);
    /* The engine never leaves CANCEL unread for long, and a full outbox of 32 MiB means that
     * it is not reading at all; then the request ends with the channel. */
    if (l->channel)
        channel_send(l->channel, WIRE_CANCEL, id, NULL, 0, -1, NULL);
}

void link_next(struct link *l, uint64_t id, uint32_t choice)
{
    const struct wire_next m = { .choice = choice };
    const struct channel_part part = { &m, sizeof m };

    /* Where the outbox is full the engine reads nothing, and the channel ends soon. */
    if (find(l, id) && choice < CZ_MAX_CHOICES && l->channel)
        channel_send(l->channel, WIRE_NEXT, id, &part, 1, -1, NULL);
}

/* ---- metrics ---- */

void link_count(struct link *l, const struct wire_count *count)
{
    const struct channel_part part = { count, sizeof *count };

    if (l->channel)
        channel_send(l->channel, WIRE_COUNT, 0, &part, 1, -1, NULL);
}

int link_ask_metrics(struct link *l, void *owner, link_metrics_said said, struct err *err)
{
    size_t i = 0;

    if (!l->channel || !l->status.connected)
        return err_set(err, ERR_CLOSED, "the engine is not there");
    while (i < MAX_ASKING && l->asking[i].id)
        i++;
    if (i == MAX_ASKING)
        return err_set(err, ERR_BUSY, "%d others ask for metrics", MAX_ASKING);
    uint64_t number = l->last_id + 1;
    if (channel_send(l->channel, WIRE_METRICS, number, NULL, 0, -1, err) < 0)
        return -1;
    l->last_id = number;
    l->asking[i] = (struct asking){ .id = number, .owner = owner, .said = said };
    return 0;
}

void link_forget_metrics(struct link *l, void *owner)
{
    for (size_t i = 0; i < MAX_ASKING; i++)
        if (l->asking[i].owner == owner)
            l->asking[i] = (struct asking){ 0 };
}

/* ---- replies that are remembered ---- */

void link_remember(struct link *l, const struct wire_remember *m, size_t size)
{
    const struct channel_part part = { m, size };

    if (l->channel)
        channel_send(l->channel, WIRE_REMEMBER, 0, &part, 1, -1, NULL);
}

int link_recall(struct link *l, void *owner, const struct link_question *q, link_recalled said,
                struct err *err)
{
    if (!l->channel || !l->status.connected)
        return err_set(err, ERR_CLOSED, "the engine is not there");
    if (l->n_recalls == l->recalls_cap) {
        uint32_t cap = l->recalls_cap * 2 + 8;
        struct recall *more = realloc(l->recalls, cap * sizeof *more);
        if (!more)
            return err_set(err, ERR_NOMEM, "list of %u questions", cap);
        l->recalls = more;
        l->recalls_cap = cap;
    }
    l->recalls[l->n_recalls++] = (struct recall){ owner, *q, said };
    ask_next(l);
    return 0;
}

void link_forget_recall(struct link *l, void *owner)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < l->n_recalls; i++) {
        if (l->recalls[i].owner != owner)
            l->recalls[kept++] = l->recalls[i];
        else if (i == 0 && l->recall_id) /* its answer is on the way */
            l->recalls[kept++] = (struct recall){ .question.n = l->recalls[i].question.n };
    }
    l->n_recalls = kept;
}

uint32_t link_live(const struct link *l)
{
    return l->n_live;
}
