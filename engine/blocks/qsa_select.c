/* Which blocks are looked at: the score of the last that is taken is found, then one pass takes
 * what lies above it and, of those that are equal, the earliest.
 *
 * The score is the lowest of the k best so far, as quickselect finds it among 2 k candidates. Of
 * a long past few come after the first candidates that are better, so most are only compared. */
#include "blocks/qsa.h"

#include <string.h>

static float median(float a, float b, float c)
{
    if ((a < b) != (a < c))
        return a;
    return (b < a) != (b < c) ? b : c;
}

/* The k-th largest, k from 1. Reorders x: the k largest come first. */
static float kth_largest(float *x, uint32_t n, uint32_t k)
{
    uint32_t lo = 0, hi = n; /* it lies in [lo, hi) */

    for (;;) {
        float pivot = median(x[lo], x[lo + (hi - lo) / 2], x[hi - 1]);
        uint32_t above = lo, equal = lo, end = hi;
        while (equal < end) { /* larger ones first, then equal ones */
            float v = x[equal];
            if (v > pivot) {
                x[equal++] = x[above];
                x[above++] = v;
            } else if (v < pivot) {
                x[equal] = x[--end];
                x[end] = v;
            } else {
                equal++;
            }
        }
        if (k - 1 < above)
            hi = above;
        else if (k - 1 < end)
            return pivot;
        else
            lo = end;
    }
}

static float last_taken(const float *scores, float *work, uint32_t n, uint32_t k)
{
    uint32_t cap = n / 2 < k ? n : 2 * k, count = cap;

    memcpy(work, scores, cap * sizeof *work);
    float last = kth_largest(work, count, k);
    count = k;
    for (uint32_t i = cap; i < n; i++) {
        if (!(scores[i] > last))
            continue;
        work[count++] = scores[i];
        if (count < cap)
            continue;
        last = kth_largest(work, count, k);
        count = k;
    }
    return kth_largest(work, count, k);
}

void qsa_select(uint32_t *index, const float *scores, float *work, uint32_t n, uint32_t k)
{
    uint32_t above = 0, taken = 0;

    float last = last_taken(scores, work, n, k);
    for (uint32_t i = 0; i < n; i++)
        above += scores[i] > last;
    uint32_t equal = k - above;
    for (uint32_t i = 0; i < n && taken < k; i++) {
        if (scores[i] > last)
            index[taken++] = i;
        else if (!(scores[i] < last) && equal > 0) {
            index[taken++] = i;
            equal--;
        }
    }
}
