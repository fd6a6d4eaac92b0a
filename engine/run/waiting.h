/* waiting: the requests that are not running yet, and whose turn it is.
 *
 * Clients take turns: a ring of clients that wait, each with its requests in the order in which
 * they came. Whoever is first in the ring has its oldest request admitted and goes to the ring's
 * end, so a client with thirty requests delays one with a single request by one of them. Requests
 * that ran and were sent back stand before all others: it is their own turn that goes on.
 *
 * Holds no memory of its own: the links lie in the requests. Engine thread. */
#ifndef RUN_WAITING_H
#define RUN_WAITING_H

#include <stdint.h>

struct seq;

struct waiting { /* zeroed: empty */
    struct seq *sent_back; /* in the order in which they go on */
    struct seq *ring;      /* the oldest request of the client whose turn it is; of the others by
                              turn.next_client */
    uint32_t n;
};

/* In a request: its place among those of its client. The rest is of use only in the oldest. */
struct turn {
    struct seq *next;        /* of the same client, younger; or sent back, later */
    struct seq *next_client; /* the oldest request of the client whose turn is next */
    struct seq *newest;      /* of this client */
    uint32_t n;              /* requests of this client */
};

void waiting_add(struct waiting *w, struct seq *seq);
void waiting_send_back(struct waiting *w, struct seq *seq); /* before all others */
struct seq *waiting_first(const struct waiting *w);         /* NULL: nobody waits */
void waiting_take_first(struct waiting *w);
struct seq *waiting_find(const struct waiting *w, uint64_t id); /* NULL: not here */
void waiting_remove(struct waiting *w, struct seq *seq);
/* How many would be admitted before it if nobody else came. */
uint32_t waiting_place(const struct waiting *w, const struct seq *seq);
/* The newest request of the client that has most of them waiting, if that is at least two more
 * than the client given has; those sent back do not count and are not named. NULL: none. */
struct seq *waiting_greediest(const struct waiting *w, uint64_t client);

#endif
