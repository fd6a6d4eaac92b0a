#include "store/hottest.h"

#include <stdlib.h>

/* Below 0: a is listed before b. */
static int compare(const void *a, const void *b)
{
    const struct cz_expert_heat *x = a, *y = b;

    if (x->heat > y->heat || x->heat < y->heat)
        return x->heat > y->heat ? -1 : 1;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    return (x->expert > y->expert) - (x->expert < y->expert);
}

static void rise(struct cz_expert_heat *kept, uint32_t at, struct cz_expert_heat one)
{
    for (; at > 0 && compare(&one, &kept[(at - 1) / 2]) > 0; at = (at - 1) / 2)
        kept[at] = kept[(at - 1) / 2];
    kept[at] = one;
}

static void sink(struct cz_expert_heat *kept, uint32_t n, struct cz_expert_heat one)
{
    uint32_t at = 0;

    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && compare(&kept[child + 1], &kept[child]) > 0)
            child++;
        if (compare(&kept[child], &one) <= 0)
            break;
        kept[at] = kept[child];
    }
    kept[at] = one;
}

void hottest_add(struct hottest *h, struct cz_expert_heat one)
{
    if (h->n < h->cap)
        rise(h->kept, h->n++, one);
    else if (h->cap > 0 && compare(&one, &h->kept[0]) < 0)
        sink(h->kept, h->n, one);
}

uint32_t hottest_end(struct hottest *h)
{
    if (h->n > 1)
        qsort(h->kept, h->n, sizeof *h->kept, compare);
    return h->n;
}
