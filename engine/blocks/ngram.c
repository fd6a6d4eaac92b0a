#include "blocks/ngram.h"

#include "util/err.h"

#include <inttypes.h>
#include <stdbool.h>

/* Trial division stays below a millisecond for a head up to here. */
static const uint64_t MAX_BASE = (uint64_t)1 << 40;

/* Steele, Lea and Flood 2014. */
static uint64_t splitmix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static bool is_prime(uint64_t n)
{
    if (n < 4)
        return n > 1;
    if (n % 2 == 0 || n % 3 == 0)
        return false;
    for (uint64_t d = 5; d * d <= n; d += 6)
        if (n % d == 0 || n % (d + 2) == 0)
            return false;
    return true;
}

/* So that a multiplier times a token stays below 2^63: signed and unsigned agree. */
static void find_multipliers(struct ngram *n)
{
    const struct ngram_shape *s = &n->shape;
    uint64_t half = (uint64_t)INT64_MAX / s->vocab / 2;
    uint64_t first = s->seed + 10007u * (uint64_t)s->index;

    if (half == 0)
        half = 1;
    for (uint32_t i = 0; i < s->size; i++)
        n->multipliers[i] =
            2 * (splitmix64(first + 0x9e3779b97f4a7c15u * (uint64_t)(i + 1)) % half) + 1;
}

/* Heads are numbered through all layers that have a table, and take one prime after the other. */
static void find_sizes(struct ngram *n)
{
    uint64_t skip = (uint64_t)n->shape.index * n->n_heads, prime = n->shape.base, rows = 0;

    for (uint64_t head = 0; head < skip + n->n_heads; prime++) {
        if (!is_prime(prime))
            continue;
        if (head >= skip) {
            n->sizes[head - skip] = prime;
            n->offsets[head - skip] = rows;
            rows += prime;
        }
        head++;
    }
    n->n_rows = (rows + n->shape.divisor - 1) / n->shape.divisor * n->shape.divisor;
}

int ngram_open(struct ngram *out, const struct ngram_shape *s, struct err *err)
{
    if (s->size < 2 || s->size > NGRAM_MAX_SIZE)
        return err_set(err, ERR_INPUT, "'ngram_size' is %" PRIu32 ": must be 2 to %d", s->size,
                       NGRAM_MAX_SIZE);
    uint64_t heads = (uint64_t)(s->size - 1) * s->heads_per_order;
    if (heads == 0 || heads > NGRAM_MAX_HEADS)
        return err_set(err, ERR_INPUT, "'heads_per_ngram' is %" PRIu32 ": with 'ngram_size' %" PRIu32
                       " that makes %" PRIu64 " heads, of 1 to %d", s->heads_per_order, s->size,
                       heads, NGRAM_MAX_HEADS);
    if (s->base == 0 || s->base > MAX_BASE)
        return err_set(err, ERR_INPUT, "'ngram_vocab_size_base' is %" PRIu64 ": must be 1 to %" PRIu64,
                       s->base, MAX_BASE);
    if (s->divisor == 0 || s->divisor > MAX_BASE)
        return err_set(err, ERR_INPUT, "'make_ngram_vocab_size_divisible_by' is %" PRIu64
                       ": must be 1 to %" PRIu64, s->divisor, MAX_BASE);
    if (s->vocab == 0 || s->index > 1024)
        return err_set(err, ERR_INPUT, "n-gram table %" PRIu32 " of %" PRIu32 " tokens", s->index,
                       s->vocab);
    *out = (struct ngram){ .shape = *s, .n_heads = (uint32_t)heads };
    find_multipliers(out);
    find_sizes(out);
    return 0;
}

void ngram_rows(uint64_t *rows, const struct ngram *n, const uint32_t *tokens, uint32_t at)
{
    const struct ngram_shape *s = &n->shape;
    uint64_t mixed = tokens[at] * n->multipliers[0];
    bool ended = false;

    for (uint32_t back = 1; back < s->size; back++) {
        ended = ended || back > at || tokens[at - back] == s->end;
        mixed ^= (ended ? s->end : tokens[at - back]) * n->multipliers[back];
        for (uint32_t i = 0; i < s->heads_per_order; i++) {
            uint32_t head = (back - 1) * s->heads_per_order + i;
            rows[head] = mixed % n->sizes[head] + n->offsets[head];
        }
    }
}
