#include "run/logprobs.h"

#include <math.h>
#include <string.h>

/* The largest so far stand in out->top by their logits, which are made logprobs of at the end. A
 * later id goes behind its equals. */
static void keep_largest(struct cz_logprobs *out, uint32_t cap, uint32_t id, float logit)
{
    uint32_t at = out->n_top;

    while (at > 0 && out->top[at - 1].logprob < logit)
        at--;
    if (at == cap)
        return;
    if (out->n_top < cap)
        out->n_top++;
    memmove(&out->top[at + 1], &out->top[at], (out->n_top - 1 - at) * sizeof out->top[0]);
    out->top[at] = (struct cz_logprob){ id, logit };
}

void logprobs_of(struct cz_logprobs *out, const float *logits, uint32_t vocab, uint32_t token,
                 uint32_t n_top)
{
    float most = logits[0];
    double sum = 0.0;

    *out = (struct cz_logprobs){ 0 };
    for (uint32_t i = 1; i < vocab; i++)
        most = logits[i] > most ? logits[i] : most;
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - (double)most);
    for (uint32_t i = 0; n_top > 0 && i < vocab; i++)
        if (out->n_top < n_top || logits[i] > out->top[n_top - 1].logprob)
            keep_largest(out, n_top, i, logits[i]);

    double whole = (double)most + log(sum);
    out->own = (struct cz_logprob){ token, (float)((double)logits[token] - whole) };
    for (uint32_t i = 0; i < out->n_top; i++)
        out->top[i].logprob = (float)((double)out->top[i].logprob - whole);
}
