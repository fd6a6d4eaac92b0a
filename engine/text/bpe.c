#include "text/bpe.h"

#include "text/tokenizer.h"
#include "util/err.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Up to here all pairs are looked through for each merge, without touching the heap. */
#define SHORT_PIECE 48

uint32_t bpe_places(uint32_t n_merges)
{
    uint64_t places = 16;

    while (places < (uint64_t)n_merges + n_merges / 2)
        places *= 2;
    return (uint32_t)places;
}

static uint32_t first_place(const struct bpe *b, uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;

    return (uint32_t)(key >> 32 ^ key >> 15) & b->mask;
}

void bpe_init(struct bpe *b, struct bpe_merge *merges, uint32_t *merged, uint32_t n_merges)
{
    uint32_t places = bpe_places(n_merges);

    b->merges = merges;
    b->mask = places - 1;
    b->merged = merged;
    for (uint32_t i = 0; i < places; i++)
        merges[i].left = BPE_NONE;
    for (int i = 0; i < 256; i++)
        b->byte_id[i] = BPE_NONE;
}

static struct bpe_merge *place_of(const struct bpe *b, uint32_t left, uint32_t right)
{
    uint32_t at = first_place(b, left, right);

    while (b->merges[at].left != BPE_NONE &&
           (b->merges[at].left != left || b->merges[at].right != right))
        at = (at + 1) & b->mask;
    return &b->merges[at];
}

void bpe_add(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t merged)
{
    *place_of(b, left, right) = (struct bpe_merge){ .left = left, .right = right, .rank = rank };
    b->merged[rank] = merged;
}

static uint32_t rank_of(const struct bpe *b, uint32_t left, uint32_t right)
{
    const struct bpe_merge *merge = place_of(b, left, right);

    return merge->left == BPE_NONE ? BPE_NONE : merge->rank;
}

static int encode_short(const struct bpe *b, const unsigned char *piece, size_t n,
                        struct ids *out, struct err *err)
{
    uint32_t id[SHORT_PIECE], rank[SHORT_PIECE]; /* rank[i] is that of the pair (i, i + 1) */

    for (size_t i = 0; i < n; i++)
        id[i] = b->byte_id[piece[i]];
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = rank_of(b, id[i], id[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == BPE_NONE)
            break;
        id[best] = b->merged[rank[best]];
        n--;
        memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof *id);
        if (best + 1 < n)
            memmove(rank + best, rank + best + 1, (n - best - 1) * sizeof *rank);
        if (best > 0)
            rank[best - 1] = rank_of(b, id[best - 1], id[best]);
        if (best + 1 < n)
            rank[best] = rank_of(b, id[best], id[best + 1]);
    }
    for (size_t i = 0; i < n; i++)
        if (ids_put(out, id[i], err) < 0)
            return -1;
    return 0;
}

/* ---- long pieces: a linked list of symbols and a heap of pairs ---- */

struct chain {
    uint64_t *heap; /* [2 n] rank << 32 | position; smallest first */
    uint32_t *id;   /* [n]; BPE_NONE where a symbol was merged away */
    uint16_t *next, *previous;
    size_t n_heap;
    uint32_t n;
};

enum { PLACE_BYTES = 2 * sizeof(uint64_t) + sizeof(uint32_t) + 2 * sizeof(uint16_t) };

/* Four children to a node: half the levels of a binary heap, and they share a cache line. */
#define CHILDREN 4

static void sift_down(struct chain *c, size_t at)
{
    uint64_t value = c->heap[at];

    for (;;) {
        size_t child = CHILDREN * at + 1;
        const uint64_t *of = c->heap + child;
        if (child + CHILDREN > c->n_heap) {
            if (child >= c->n_heap)
                break;
            for (size_t i = child + 1; i < c->n_heap; i++)
                child = c->heap[i] < c->heap[child] ? i : child;
        } else {
            size_t low = of[1] < of[0], high = 2 + (of[3] < of[2]);
            child += of[high] < of[low] ? high : low;
        }
        if (c->heap[child] >= value)
            break;
        c->heap[at] = c->heap[child];
        at = child;
    }
    c->heap[at] = value;
}

static void push(struct chain *c, uint64_t value)
{
    size_t at = c->n_heap++;

    while (at > 0 && c->heap[(at - 1) / CHILDREN] > value) {
        c->heap[at] = c->heap[(at - 1) / CHILDREN];
        at = (at - 1) / CHILDREN;
    }
    c->heap[at] = value;
}

static uint64_t pop(struct chain *c)
{
    uint64_t least = c->heap[0];

    c->heap[0] = c->heap[--c->n_heap];
    if (c->n_heap)
        sift_down(c, 0);
    return least;
}

static uint64_t pair_at(const struct bpe *b, const struct chain *c, uint32_t at)
{
    uint32_t rank = BPE_NONE;

    if (c->next[at] < c->n)
        rank = rank_of(b, c->id[at], c->id[c->next[at]]);
    return (uint64_t)rank << 32 | at;
}

static bool is_pair(uint64_t pair)
{
    return pair >> 32 != BPE_NONE;
}

static void merge_all(const struct bpe *b, struct chain *c)
{
    while (c->n_heap) {
        uint64_t pair = pop(c);
        uint32_t at = (uint32_t)pair;
        /* A pair is stale once either of its symbols was merged into another. */
        if (c->id[at] == BPE_NONE || pair_at(b, c, at) != pair)
            continue;

        uint32_t gone = c->next[at], after = c->next[gone];
        c->id[at] = b->merged[pair >> 32];
        c->id[gone] = BPE_NONE;
        c->next[at] = (uint16_t)after;
        if (after < c->n)
            c->previous[after] = (uint16_t)at;

        uint64_t right = pair_at(b, c, at);
        if (is_pair(right))
            push(c, right);
        if (at > 0) {
            uint64_t left = pair_at(b, c, c->previous[at]);
            if (is_pair(left))
                push(c, left);
        }
    }
}

/* Doubles, so that a text of rising words does not allocate for each. */
static int reserve(struct bpe_scratch *scratch, size_t n, struct err *err)
{
    size_t cap = 256;

    if (scratch->cap >= n)
        return 0;
    while (cap < n)
        cap *= 2;
    bpe_scratch_done(scratch);
    scratch->places = malloc(cap * PLACE_BYTES);
    if (!scratch->places)
        return err_set(err, ERR_NOMEM, "merging a word of %zu bytes", n);
    scratch->cap = cap;
    return 0;
}

void bpe_scratch_done(struct bpe_scratch *scratch)
{
    free(scratch->places);
    *scratch = (struct bpe_scratch){ 0 };
}

uint64_t bpe_scratch_memory(const struct bpe_scratch *scratch)
{
    return (uint64_t)scratch->cap * PLACE_BYTES;
}

static int encode_long(const struct bpe *b, const unsigned char *piece, size_t n,
                       struct bpe_scratch *scratch, struct ids *out, struct err *err)
{
    if (reserve(scratch, n, err) < 0)
        return -1;

    struct chain c = { .heap = scratch->places, .n = (uint32_t)n };
    c.id = (uint32_t *)(void *)(c.heap + 2 * n);
    c.next = (uint16_t *)(void *)(c.id + n);
    c.previous = c.next + n;
    for (uint32_t i = 0; i < c.n; i++) {
        c.id[i] = b->byte_id[piece[i]];
        c.next[i] = (uint16_t)(i + 1);
        c.previous[i] = (uint16_t)(i - 1); /* of the first: never looked at */
    }
    /* Each merge takes one pair out and puts two in at most, so 2 n places are enough. */
    for (uint32_t i = 0; i + 1 < c.n; i++) {
        uint64_t pair = pair_at(b, &c, i);
        if (is_pair(pair))
            c.heap[c.n_heap++] = pair;
    }
    for (size_t i = c.n_heap; i-- > 0;)
        sift_down(&c, i);
    merge_all(b, &c);
    for (uint32_t i = 0; i < c.n; i = c.next[i])
        if (ids_put(out, c.id[i], err) < 0)
            return -1;
    return 0;
}

int bpe_encode(const struct bpe *b, const char *piece, size_t size, struct bpe_scratch *scratch,
               struct ids *out, struct err *err)
{
    const unsigned char *bytes = (const unsigned char *)piece;

    assert(size <= BPE_MOST);
    for (size_t i = 0; i < size; i++)
        if (b->byte_id[bytes[i]] == BPE_NONE)
            return err_set(err, ERR_INPUT, "no token for byte 0x%02x", bytes[i]);
    if (size <= SHORT_PIECE)
        return encode_short(b, bytes, size, out, err);
    return encode_long(b, bytes, size, scratch, out, err);
}
