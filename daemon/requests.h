/* requests: which worker's request stands behind which number of the engine.
 *
 * Numbers are given in rising order, so finding one is a binary search. A cancelled request
 * keeps its place until the engine has let go of it; that bounds what is under way to the
 * engine. Door's thread. */
#ifndef DAEMON_REQUESTS_H
#define DAEMON_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>

struct err;

struct request {
    uint64_t id;      /* the engine's */
    uint64_t peer_id; /* the worker's, unique on its channel */
    uint32_t slot;    /* the worker's */
    bool cancelled;   /* nobody waits for it */
};

struct requests {
    struct request *list; /* owned; [cap], ids rise */
    uint32_t n, cap;
    uint64_t last_id;
};

int requests_init(struct requests *r, uint32_t cap, struct err *err);
void requests_done(struct requests *r);
struct request *requests_add(struct requests *r, uint32_t slot, uint64_t peer_id); /* NULL: full */
struct request *requests_find(struct requests *r, uint64_t id);
struct request *requests_find_peer(struct requests *r, uint32_t slot, uint64_t peer_id); /* live */
void requests_remove(struct requests *r, struct request *at);

#endif
