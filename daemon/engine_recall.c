/* Replies that are remembered: workers tell them and ask for them; the door keeps them between. */
#include "daemon/engine_host_state.h"

#include "daemon/buf.h"
#include "daemon/channel.h"
#include "daemon/log.h"
#include "util/err.h"

#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

void recall_open(struct host *h)
{
    uint64_t size = engine_thread_facts(h->engine)->plan.reasoning_bytes;
    struct err why;

    if (h->recall.n_blocks || !size)
        return;
    /* Without it, prompts are read anew more often; that is no reason to serve nobody. */
    if (getrandom(&h->secret, sizeof h->secret, 0) != sizeof h->secret)
        log_line(LOG_LEVEL_WARNING, "replies are not remembered: no random numbers");
    else if (recall_store_open(&h->recall, size, &why) < 0)
        log_line(LOG_LEVEL_WARNING, "replies are not remembered: %s", why.text);
}

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

void recall_answer(struct peer *p, uint64_t id, const struct wire_recall *m)
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
