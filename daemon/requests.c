#include "daemon/requests.h"

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
