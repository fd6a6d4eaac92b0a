/* requests: which worker's request stands behind which number of the engine, and how far it is.
 *
 * Numbers are given in rising order, so finding one is a binary search. A cancelled request
 * keeps its place until the engine has let go of it; that bounds what is under way to the
 * engine. Door's thread. */
#ifndef DAEMON_REQUESTS_H
#define DAEMON_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>

struct engine_places;
struct engine_word;
struct err;

/* As the engine's last word said; one that was sent back to the queue looks as before. */
enum request_state { REQUEST_WAITING, REQUEST_PREFILL, REQUEST_DECODE };

struct request {
    uint64_t id;      /* the engine's */
    uint64_t peer_id; /* the worker's, unique on its channel */
    uint32_t slot;    /* the worker's */
    bool cancelled;   /* nobody waits for it */
    enum request_state state;
    char name[40], address[48]; /* for lists: as a client and the log know it, and who asks */
    uint32_t n_prompt, n_done, n_generated; /* n_done: prompt tokens seen */
    uint32_t place;                         /* WAITING: 1 is the next */
    uint32_t choice;                        /* under way, as the engine last said */
    bool next;                              /* the engine was told to end it */
    uint64_t came_ms;
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

void requests_note(struct request *at, const struct engine_word *word); /* about this one */
/* Those that wait, for ORDER_PLACES; malloc'd; NULL: nobody does. */
struct engine_places *requests_waiting(const struct requests *r);
void requests_place(struct requests *r, const struct engine_places *places);

#endif
