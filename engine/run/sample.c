#include "run/sample.h"

#include "run/logprobs.h"
#include "util/err.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    float logit;
    uint32_t id;
};

struct sampler {
    uint32_t vocab;
    uint32_t *counts;             /* owned; [vocab], all zero between calls */
    struct candidate *candidates; /* owned; [vocab] */
    float *raw;                   /* owned; [vocab]; the row as it came, where logprobs are asked */
};

uint64_t sampler_size(uint32_t vocab)
{
    return sizeof(struct sampler) + (uint64_t)vocab * (sizeof(uint32_t) + sizeof(struct candidate) + sizeof(float));
}

int sampler_open(struct sampler **out, uint32_t vocab, struct err *err)
{
    struct sampler *s = calloc(1, sizeof *s);

    if (!s)
        return err_set(err, ERR_NOMEM, "the sampler");
    s->vocab = vocab;
    s->counts = calloc(vocab, sizeof *s->counts);
    s->candidates = calloc(vocab, sizeof *s->candidates);
    s->raw = calloc(vocab, sizeof *s->raw);
    if (!s->counts || !s->candidates || !s->raw) {
        sampler_close(s);
        return err_set(err, ERR_NOMEM, "the sampler's tables for %" PRIu32 " tokens", vocab);
    }
    *out = s;
    return 0;
}

void sampler_close(struct sampler *s)
{
    if (!s)
        return;
    free(s->raw);
    free(s->candidates);
    free(s->counts);
    free(s);
}

/* ---- the draw ---- */

/* The finaliser of splitmix64 (Steele, Lea and Flood 2014): a bijection that mixes well. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in [0, 1) with 53 bits, a function of its arguments only. */
static double draw(uint64_t seed, uint32_t index)
{
    uint64_t z = mix(seed + 0x9e3779b97f4a7c15u) ^ mix((uint64_t)index * 0xd1342543de82ef95u + 1);

    return (double)(mix(z) >> 11) * 0x1p-53;
}

/* ---- before the choice ---- */

static int check(const float *logits, uint32_t n, struct err *err)
{
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(logits[i]))
            return err_set(err, ERR_NUMERIC, "logit of token %" PRIu32 " is not a finite number: "
                           "the weights or the activations are broken", i);
    return 0;
}

/* Multiplicative over prompt and reply (Keskar et al. 2019), then the two additive ones over the
 * reply, as OpenAI defines them. */
static void penalise(struct sampler *s, float *logits, const struct sample_request *r)
{
    const struct cz_sampling *how = r->how;

    if (how->repetition_penalty != 1.0f) {
        for (uint32_t i = 0; i < r->n_tokens; i++) {
            uint32_t id = r->tokens[i];
            if (s->counts[id]++ > 0)
                continue;
            logits[id] = logits[id] > 0.0f ? logits[id] / how->repetition_penalty
                                           : logits[id] * how->repetition_penalty;
        }
        for (uint32_t i = 0; i < r->n_tokens; i++)
            s->counts[r->tokens[i]] = 0;
    }
    if (how->presence_penalty == 0.0f && how->frequency_penalty == 0.0f)
        return;
    for (uint32_t i = r->n_prompt; i < r->n_tokens; i++)
        s->counts[r->tokens[i]]++;
    for (uint32_t i = r->n_prompt; i < r->n_tokens; i++) {
        uint32_t id = r->tokens[i];
        if (s->counts[id] == 0)
            continue;
        logits[id] -= how->presence_penalty + how->frequency_penalty * (float)s->counts[id];
        s->counts[id] = 0;
    }
}

static uint32_t largest(const float *logits, uint32_t n)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* ---- the choice ---- */

/* Higher logit first, then lower id: a total order, so every way of sorting agrees. */
static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static int compare(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    return before(x, y) ? -1 : before(y, x) ? 1 : 0;
}

/* Sinks c[i] in a heap whose root is the candidate that comes last. */
static void sink(struct candidate *c, uint32_t n, uint32_t i)
{
    for (;;) {
        uint32_t last = i, left = 2 * i + 1, right = left + 1;
        if (left < n && before(&c[last], &c[left]))
            last = left;
        if (right < n && before(&c[last], &c[right]))
            last = right;
        if (last == i)
            return;
        struct candidate swap = c[i];
        c[i] = c[last];
        c[last] = swap;
        i = last;
    }
}

/* Moves the k candidates that come first to the front, sorted. */
static void select_first(struct candidate *c, uint32_t n, uint32_t k)
{
    if (k < n) {
        for (uint32_t i = k / 2; i-- > 0;)
            sink(c, k, i);
        for (uint32_t i = k; i < n; i++) {
            if (!before(&c[i], &c[0]))
                continue;
            struct candidate out = c[0]; /* stays among the rest */
            c[0] = c[i];
            c[i] = out;
            sink(c, k, 0);
        }
        n = k;
    }
    qsort(c, n, sizeof *c, compare);
}

/* Probabilities are relative to the first candidate, in double, summed in order. */
static double weight(const struct candidate *c, const struct candidate *first)
{
    return exp((double)c->logit - (double)first->logit);
}

/* The shortest run of candidates whose probability reaches top_p. Without top_k the whole
 * vocabulary would have to be sorted; the run is nearly always short, so ever more of the
 * front is sorted until it is long enough. The total is summed in id order, before that. */
static uint32_t cut_top_p(struct candidate *c, uint32_t n, uint32_t sorted, double total,
                          double top_p)
{
    double sum = 0.0;
    uint32_t kept = 0;

    for (;;) {
        for (; kept < sorted; kept++) {
            sum += weight(&c[kept], &c[0]);
            if (sum >= top_p * total)
                return kept + 1;
        }
        if (sorted == n)
            return n;
        uint32_t more = sorted * 8 < n ? sorted * 8 : n;
        select_first(c + sorted, n - sorted, more - sorted);
        sorted = more;
    }
}

static uint32_t choose(struct sampler *s, const float *logits, const struct sample_request *r)
{
    const struct cz_sampling *how = r->how;
    struct candidate *c = s->candidates;
    uint32_t n = s->vocab, sorted;
    double total = 0.0, sum = 0.0;

    for (uint32_t i = 0; i < n; i++)
        c[i] = (struct candidate){ logits[i] / how->temperature, i };
    if (how->top_k > 0 && how->top_k < n) {
        select_first(c, n, how->top_k);
        n = sorted = how->top_k;
        for (uint32_t i = 0; i < n; i++)
            total += weight(&c[i], &c[0]);
    } else {
        struct candidate first = { logits[largest(logits, n)] / how->temperature, 0 };
        for (uint32_t i = 0; i < n; i++)
            total += weight(&c[i], &first);
        sorted = n < 256 ? n : 256;
        select_first(c, n, sorted);
    }
    if (how->top_p < 1.0f) {
        n = cut_top_p(c, n, sorted, total, (double)how->top_p);
    } else if (sorted < n) {
        select_first(c + sorted, n - sorted, n - sorted);
    }
    uint32_t kept = 0;
    for (; kept < n; kept++) {
        double w = weight(&c[kept], &c[0]);
        if (kept > 0 && (w <= 0.0 || w < (double)how->min_p)) /* 0: what is banned, too */
            break;
        sum += w;
    }

    double at = draw(how->seed, r->index) * sum;
    for (uint32_t i = 0; i + 1 < kept; i++) {
        at -= weight(&c[i], &c[0]);
        if (at < 0.0)
            return c[i].id;
    }
    return c[kept - 1].id;
}

int sampler_pick(struct sampler *s, uint32_t *token, float *logits, const struct sample_request *r,
                 struct err *err)
{
    if (check(logits, s->vocab, err) < 0)
        return -1;
    if (r->logprobs)
        memcpy(s->raw, logits, s->vocab * sizeof *s->raw);
    for (uint32_t i = 0; i < r->n_bias; i++)
        logits[r->bias[i].token] = r->bias[i].value <= -100.0f
                                       ? -INFINITY
                                       : logits[r->bias[i].token] + r->bias[i].value;
    for (uint32_t i = 0; i < r->n_banned; i++)
        if (r->banned[i] < s->vocab)
            logits[r->banned[i]] = -INFINITY;
    penalise(s, logits, r);
    /* A temperature so small that dividing by it overflows means greedy too. */
    *token = r->how->temperature < 1e-5f ? largest(logits, s->vocab) : choose(s, logits, r);
    if (logits[*token] == -INFINITY)
        return err_set(err, ERR_INPUT, "logit_bias and stop ids ban every token");
    if (r->logprobs)
        logprobs_of(r->logprobs, s->raw, s->vocab, *token, r->n_top);
    return 0;
}
