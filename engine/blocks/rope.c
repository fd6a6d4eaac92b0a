#include "blocks/rope.h"

#include "blocks/step.h"
#include "util/err.h"

#include <math.h>
#include <stdlib.h>

/* The dimension that turns n times over the original context. */
static double turning_dim(double n, uint32_t dim, double theta, double original)
{
    return dim * log(original / (n * 2.0 * M_PI)) / (2.0 * log(theta));
}

static double magnitude(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static void fill_yarn(struct rope *r, double theta, const struct rope_yarn *y)
{
    double low = turning_dim(y->beta_fast, r->dim, theta, y->original_positions);
    double high = turning_dim(y->beta_slow, r->dim, theta, y->original_positions);

    if (y->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, r->dim - 1.0);
    if (low == high)
        high += 0.001;
    for (uint32_t i = 0; i < r->dim / 2; i++) {
        float plain = 1.0f / powf((float)theta, (float)(2 * i) / (float)r->dim);
        float stretched = 1.0f / ((float)y->factor * powf((float)theta, (float)(2 * i) / (float)r->dim));
        float ramp = (float)fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
        r->inv_freq[i] = stretched * ramp + plain * (1.0f - ramp);
    }
    if (y->attention_factor > 0.0)
        r->attention_factor = (float)y->attention_factor;
    else if (y->mscale > 0.0 && y->mscale_all_dim > 0.0)
        r->attention_factor = (float)(magnitude(y->factor, y->mscale) /
                                      magnitude(y->factor, y->mscale_all_dim));
    else
        r->attention_factor = (float)magnitude(y->factor, 1.0);
}

int rope_open(struct rope *out, uint32_t dim, double theta, const struct rope_yarn *yarn,
              struct err *err)
{
    struct rope r = { .dim = dim, .attention_factor = 1.0f };

    r.inv_freq = malloc(dim / 2 * sizeof *r.inv_freq);
    if (!r.inv_freq)
        return err_set(err, ERR_NOMEM, "rotary frequencies of %u dimensions", dim);
    if (yarn)
        fill_yarn(&r, theta, yarn);
    else
        for (uint32_t i = 0; i < dim / 2; i++)
            r.inv_freq[i] = 1.0f / powf((float)theta, (float)(2 * i) / (float)dim);
    *out = r;
    return 0;
}

void rope_close(struct rope *r)
{
    free(r->inv_freq);
    *r = (struct rope){ 0 };
}

void rope_angles(const struct rope *r, uint32_t pos, float *cos, float *sin)
{
    for (size_t i = 0; i < r->dim / 2; i++) {
        /* The angle is an F32 product, as the reference computes it. */
        float angle = (float)pos * r->inv_freq[i];
        cos[i] = cosf(angle) * r->attention_factor;
        sin[i] = sinf(angle) * r->attention_factor;
    }
}

void rope_fill(const struct rope *r, struct step *step)
{
    size_t half = r->dim / 2;

    for (uint32_t row = 0; row < step->n_rows; row++)
        rope_angles(r, step->rows[row].pos, step->rope_cos + row * half,
                    step->rope_sin + row * half);
}
