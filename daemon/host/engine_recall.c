/* Replies that are remembered: workers tell them and ask for them; the door keeps them between.
 *
 * A client that has its reply may send it back at once, to another worker. What the first one told
 * of it is on its way then, on another channel; so a question waits until all that has come is
 * read. */
#include "daemon/host/engine_host_state.h"

#include "daemon/base/buf.h"
#include "daemon/base/log.h"
#include "daemon/wire/channel.h"
#include "util/err.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void recall_remember(struct host *h, const struct wire_remember *m, size_t size)
{
    struct wire_reply_view v;

    wire_reply_view(&v, m);
    if (size <= RECALL_LARGEST)
        recall_store_put(&h->recall, v.keys, m->n_keys, m, (uint32_t)size);
}

/* ---- answering ---- */

static bool put_reply(struct buf *to, struct recall_store *s, uint32_t message, uint32_t record,
                      uint32_t size)
{
    struct wire_recalled_reply head = { .message = message, .size = size };

    if (!buf_reserve(to, sizeof head + wire_reply_padded(size)))
        return false;
    buf_put(to, (const char *)&head, sizeof head);
    recall_store_copy(s, record, to->data + to->size);
    memset(to->data + to->size + size, 0, wire_reply_padded(size) - size);
    to->size += wire_reply_padded(size);
    return true;
}

/* A message whose keys are all unknown is a miss; its keys stand beside each other. */
static void count(struct recall_store *s, const struct wire_wanted *w, uint32_t n, uint32_t i,
                  bool found)
{
    if (found)
        s->hits++;
    else if (i + 1 == n || w[i + 1].message != w[i].message)
        s->misses++;
}

static void answer(struct peer *p, uint64_t id, const struct wire_recall *m)
{
    struct recall_store *s = &p->host->recall;
    const struct wire_wanted *w = (const struct wire_wanted *)(m + 1);
    uint32_t room = m->room < RECALL_LARGEST ? m->room : RECALL_LARGEST;
    struct wire_recalled head = { 0 };
    struct buf out;

    buf_init(&out, NULL);
    buf_put(&out, (const char *)&head, sizeof head);
    bool known = false; /* the message that w[i] is about */
    for (uint32_t i = 0; i < m->n; i++, head.n_looked++) {
        uint32_t record, size = 0;
        if (i == 0 || w[i].message != w[i - 1].message)
            known = false;
        if (known)
            continue;
        size = recall_store_find(s, &w[i].key, &record);
        size_t whole = sizeof(struct wire_recalled_reply) + wire_reply_padded(size);
        /* The first one may be as large as the largest record, whatever stands before it. */
        if (size && head.n && out.size + whole > room)
            break;
        if (size && (whole > m->room || !put_reply(&out, s, w[i].message, record, size)))
            size = 0;
        known = size > 0;
        head.n += known;
        count(s, w, m->n, i, known);
    }
    if (out.data)
        memcpy(out.data, &head, sizeof head);
    const struct channel_part part = { out.data ? out.data : (const char *)&head,
                                       out.data ? out.size : sizeof head };
    peer_send(p, WIRE_RECALLED, id, &part, 1);
    buf_done(&out);
}

/* ---- waiting ---- */

void recall_forget(struct peer *p)
{
    free(p->recall);
    p->recall = NULL;
}

static void answer_waiting(struct peer *p)
{
    struct wire_recall *m = p->recall;

    p->recall = NULL;
    if (m && p->channel)
        answer(p, p->recall_id, m);
    free(m);
}

static int answer_all(sd_event_source *source, void *ctx)
{
    struct host *h = ctx;

    (void)source;
    for (size_t i = 0; i < N_PEERS; i++)
        answer_waiting(&h->peers[i]);
    return 0;
}

void recall_ask(struct peer *p, uint64_t id, const struct wire_recall *m, size_t size)
{
    struct host *h = p->host;

    answer_waiting(p); /* a worker asks one by one; what it asked before is not lost */
    if (!p->channel)
        return;
    p->recall = h->recalls ? malloc(size) : NULL;
    if (!p->recall) {
        answer(p, id, m);
        return;
    }
    memcpy(p->recall, m, size);
    p->recall_id = id;
    sd_event_source_set_enabled(h->recalls, SD_EVENT_ONESHOT);
}

/* ---- beginning and end ---- */

void recall_open(struct host *h)
{
    uint64_t size = engine_thread_facts(h->engine)->plan.reasoning_bytes;
    struct err why;

    if (h->recall.n_blocks || !size)
        return;
    /* Without it, prompts are read anew more often; that is no reason to serve nobody. */
    if (getrandom(&h->secret, sizeof h->secret, 0) != sizeof h->secret) {
        log_line(LOG_LEVEL_WARNING, "replies are not remembered: no random numbers");
        return;
    }
    if (recall_store_open(&h->recall, size, &why) < 0) {
        log_line(LOG_LEVEL_WARNING, "replies are not remembered: %s", why.text);
        return;
    }
    if (sd_event_add_defer(h->loop, &h->recalls, answer_all, h) < 0)
        return; /* then questions are answered as they come */
    sd_event_source_set_priority(h->recalls, SD_EVENT_PRIORITY_NORMAL + 1);
    sd_event_source_set_enabled(h->recalls, SD_EVENT_OFF);
}

void recall_close(struct host *h)
{
    h->recalls = sd_event_source_disable_unref(h->recalls);
    for (size_t i = 0; i < N_PEERS; i++)
        recall_forget(&h->peers[i]);
    recall_store_close(&h->recall);
}
