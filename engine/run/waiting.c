#include "run/waiting.h"

#include "run/seq.h"

#include <assert.h>

/* Where the pointer to this client's oldest request stands, or the end of the ring. */
static struct seq **find_client(struct waiting *w, uint64_t client)
{
    struct seq **at = &w->ring;

    while (*at && (*at)->client != client)
        at = &(*at)->turn.next_client;
    return at;
}

void waiting_add(struct waiting *w, struct seq *seq)
{
    struct seq **at = find_client(w, seq->client);

    seq->turn = (struct turn){ .newest = seq, .n = 1 };
    if (*at) {
        (*at)->turn.newest->turn.next = seq;
        (*at)->turn.newest = seq;
        (*at)->turn.n++;
    } else {
        *at = seq;
    }
    w->n++;
}

void waiting_send_back(struct waiting *w, struct seq *seq)
{
    seq->turn = (struct turn){ .next = w->sent_back };
    w->sent_back = seq;
    w->n++;
}

struct seq *waiting_first(const struct waiting *w)
{
    return w->sent_back ? w->sent_back : w->ring;
}

/* The oldest of a client leaves: the next one stands in its place in the ring, if there is one. */
static void take_oldest(struct seq **at)
{
    struct seq *oldest = *at, *heir = oldest->turn.next;

    if (heir) {
        heir->turn.next_client = oldest->turn.next_client;
        heir->turn.newest = oldest->turn.newest;
        heir->turn.n = oldest->turn.n - 1;
        *at = heir;
    } else {
        *at = oldest->turn.next_client;
    }
}

void waiting_take_first(struct waiting *w)
{
    struct seq *first = waiting_first(w);

    if (w->sent_back) {
        w->sent_back = first->turn.next;
    } else {
        take_oldest(&w->ring);
        if (first->turn.next && w->ring->turn.next_client) { /* its client goes to the end */
            struct seq *heir = w->ring, **end = &heir->turn.next_client;

            w->ring = *end;
            while (*end)
                end = &(*end)->turn.next_client;
            *end = heir;
            heir->turn.next_client = NULL;
        }
    }
    first->turn = (struct turn){ 0 };
    w->n--;
}

struct seq *waiting_find(const struct waiting *w, uint64_t id)
{
    for (struct seq *s = w->sent_back; s; s = s->turn.next)
        if (s->id == id)
            return s;
    for (struct seq *c = w->ring; c; c = c->turn.next_client)
        for (struct seq *s = c; s; s = s->turn.next)
            if (s->id == id)
                return s;
    return NULL;
}

static void remove_younger(struct seq *oldest, struct seq *seq)
{
    struct seq *before = oldest;

    while (before->turn.next != seq)
        before = before->turn.next;
    before->turn.next = seq->turn.next;
    if (oldest->turn.newest == seq)
        oldest->turn.newest = before;
    oldest->turn.n--;
}

void waiting_remove(struct waiting *w, struct seq *seq)
{
    struct seq **at = &w->sent_back;

    while (*at && *at != seq)
        at = &(*at)->turn.next;
    if (*at) {
        *at = seq->turn.next;
    } else {
        at = find_client(w, seq->client);
        assert(*at); /* it waits, so its client does */
        if (*at == seq)
            take_oldest(at);
        else
            remove_younger(*at, seq);
    }
    seq->turn = (struct turn){ 0 };
    w->n--;
}

uint32_t waiting_place(const struct waiting *w, const struct seq *seq)
{
    uint32_t place = 0, older = 0;
    bool ahead = true; /* of seq's client in the ring */

    for (const struct seq *s = w->sent_back; s; s = s->turn.next) {
        if (s == seq)
            return place;
        place++;
    }
    for (const struct seq *c = w->ring; c; c = c->turn.next_client)
        if (c->client == seq->client)
            for (const struct seq *s = c; s != seq; s = s->turn.next)
                older++;
    for (const struct seq *c = w->ring; c; c = c->turn.next_client) {
        uint32_t rounds = ahead && c->client != seq->client ? older + 1 : older;

        ahead = ahead && c->client != seq->client;
        place += c->turn.n < rounds ? c->turn.n : rounds;
    }
    return place;
}

struct seq *waiting_greediest(const struct waiting *w, uint64_t client)
{
    const struct seq *greediest = NULL;
    uint32_t own = 0;

    for (const struct seq *c = w->ring; c; c = c->turn.next_client) {
        if (c->client == client)
            own = c->turn.n;
        if (!greediest || c->turn.n >= greediest->turn.n)
            greediest = c;
    }
    return greediest && greediest->turn.n >= own + 2 ? greediest->turn.newest : NULL;
}
