#include "daemon/host/requests.h"

#include "daemon/host/engine_thread.h"
#include "util/err.h"

#include <stdlib.h>
#include <string.h>

int requests_init(struct requests *r, uint32_t cap, struct err *err)
{
    *r = (struct requests){ .cap = cap, .list = calloc(cap, sizeof *r->list) };
    return r->list ? 0 : err_set(err, ERR_NOMEM, "list of %u requests", cap);
}

void requests_done(struct requests *r)
{
    free(r->list);
    *r = (struct requests){ 0 };
}

struct request *requests_add(struct requests *r, uint32_t slot, uint64_t peer_id)
{
    if (r->n == r->cap)
        return NULL;
    struct request *at = &r->list[r->n++];
    *at = (struct request){ .id = ++r->last_id, .peer_id = peer_id, .slot = slot };
    return at;
}

struct request *requests_find(struct requests *r, uint64_t id)
{
    uint32_t lo = 0, hi = r->n;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (r->list[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < r->n && r->list[lo].id == id ? &r->list[lo] : NULL;
}

struct request *requests_find_peer(struct requests *r, uint32_t slot, uint64_t peer_id)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (r->list[i].slot == slot && r->list[i].peer_id == peer_id && !r->list[i].cancelled)
            return &r->list[i];
    return NULL;
}

void requests_remove(struct requests *r, struct request *at)
{
    size_t after = (size_t)(r->list + r->n - (at + 1));

    memmove(at, at + 1, after * sizeof *at);
    r->n--;
}

/* ---- how far they are ---- */

void requests_note(struct request *at, const struct engine_word *word)
{
    if (word->kind == WORD_ACCEPTED) {
        at->state = word->place ? REQUEST_WAITING : REQUEST_PREFILL;
        at->place = word->place;
    } else if (word->kind == WORD_PROGRESS) {
        at->state = REQUEST_PREFILL;
        at->n_done = word->n_done;
    } else if (word->kind == WORD_TOKEN) {
        at->state = REQUEST_DECODE;
        at->n_done = at->n_prompt;
        at->n_generated++;
    } else if (word->kind == WORD_FINISHED) {
        at->choice = word->choice + 1;
        at->next = false;
    }
}

struct engine_places *requests_waiting(const struct requests *r)
{
    struct engine_places *p = NULL;

    for (uint32_t i = 0; i < r->n; i++) {
        const struct request *at = &r->list[i];
        if (at->cancelled || at->state != REQUEST_WAITING)
            continue;
        if (!p)
            p = calloc(1, sizeof *p + (r->n - i) * sizeof p->of[0]);
        if (!p)
            return NULL; /* they keep the places they had */
        p->of[p->n++].id = at->id;
    }
    return p;
}

void requests_place(struct requests *r, const struct engine_places *places)
{
    for (uint32_t i = 0; i < places->n; i++) {
        struct request *at = requests_find(r, places->of[i].id);
        if (!at || at->state != REQUEST_WAITING)
            continue; /* it went on since */
        at->place = places->of[i].place;
        at->state = at->place ? REQUEST_WAITING : REQUEST_PREFILL;
    }
}
