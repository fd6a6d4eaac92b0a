#include "text/added.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b)
{
    const struct added_token *x = a, *y = b;
    uint32_t common = x->size < y->size ? x->size : y->size;
    int order = memcmp(x->text, y->text, common);

    if (order)
        return order;
    return (x->size > y->size) - (x->size < y->size);
}

bool added_init(struct added *a, struct added_token *tokens, uint32_t n,
                const struct added_token **twice)
{
    *a = (struct added){ .tokens = tokens, .n = n };
    if (n)
        qsort(tokens, n, sizeof *tokens, by_text);
    for (uint32_t i = 0; i < n; i++) {
        a->begins[(unsigned char)tokens[i].text[0]] = true;
        a->strips |= tokens[i].lstrip || tokens[i].rstrip;
        if (tokens[i].size > a->longest)
            a->longest = tokens[i].size;
        if (i > 0 && by_text(&tokens[i - 1], &tokens[i]) == 0) {
            *twice = &tokens[i];
            return false;
        }
    }
    return true;
}

/* The first token of low..high whose byte at `depth` is not below `byte`. The tokens agree on
 * the bytes before, and one that ends at depth sorts first. */
static uint32_t lower(const struct added *a, uint32_t low, uint32_t high, size_t depth, int byte)
{
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct added_token *t = &a->tokens[middle];
        int here = t->size > depth ? (unsigned char)t->text[depth] : -1;
        if (here < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct added_token *added_at(const struct added *a, const char *text, size_t size)
{
    const struct added_token *best = NULL;
    uint32_t low = 0, high = a->n;

    if (size == 0 || !a->begins[(unsigned char)text[0]])
        return NULL;
    for (size_t depth = 0; low < high; depth++) {
        if (a->tokens[low].size == depth)
            best = &a->tokens[low];
        if (depth == size)
            break;
        int byte = (unsigned char)text[depth];
        low = lower(a, low, high, depth, byte);
        high = lower(a, low, high, depth, byte + 1);
    }
    return best;
}

const struct added_token *added_find(const struct added *a, const char *text, size_t size)
{
    const struct added_token *found = added_at(a, text, size);

    return found && found->size == size ? found : NULL;
}
