/* The kernels of this CPU against the scalar reference, on sizes that are no multiples of
 * anything. Two classes may order a sum differently, so a product is compared relative to
 * the sum of its terms' magnitudes: a few F32 roundings of it are allowed, a lost term or a
 * wrong scale is a thousand times more. */
#include "run/selftest.h"

#include "formats/dtype.h"
#include "kernels/kernels.h"
#include "util/err.h"
#include "util/pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 261, COLS = 387, N_IN = 5, SCALES = 3 * 4, HEAD_DIM = 64, HEADS = 4, TOKENS = 77 };

#define MATMUL_TOLERANCE 2e-6
#define VECTOR_TOLERANCE 4e-6

/* All buffers of the checks; one block from the heap. */
struct bench {
    uint8_t weights[ROWS * COLS * sizeof(float)];
    float scales[SCALES];
    float in[N_IN * COLS], magnitude[N_IN * ROWS];
    float expect[N_IN * ROWS], got[N_IN * ROWS], alone[ROWS];
    float page[2][TOKENS * HEAD_DIM]; /* keys, values */
    uint64_t state;
};

static float next_unit(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (float)(int32_t)(*state >> 32) / 2147483648.0f;
}

/* ---- conversions ---- */

/* E4M3 by its definition: sign, 4 bits of exponent with bias 7, 3 of fraction. */
static float e4m3_by_definition(unsigned code)
{
    int exponent = (code >> 3) & 15, fraction = code & 7;
    double value = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);

    return (float)(code & 0x80 ? -value : value);
}

static void check_conversions(struct selftest *t)
{
    unsigned n_wrong = 0;
    uint8_t codes[300];

    for (unsigned code = 0; code < 256; code++) {
        float value = dtype_f8_e4m3_to_f32((uint8_t)code);
        bool right = (code & 0x7f) == 0x7f ? isnan(value) != 0
                                           : value == e4m3_by_definition(code);
        n_wrong += !right;
    }
    selftest_line(t, n_wrong == 0, "FP8 E4M3: all 256 codes by definition, %u wrong", n_wrong);

    memset(codes, 0x38, sizeof codes);
    bool found = dtype_f8_find_nan(codes, sizeof codes) == sizeof codes;
    for (size_t i = 0; i < sizeof codes; i++) {
        codes[i] = i & 1 ? 0xff : 0x7f;
        found = found && dtype_f8_find_nan(codes, sizeof codes) == i;
        codes[i] = 0x38;
    }
    selftest_line(t, found, "FP8 E4M3: a NaN code is found at each of %zu places", sizeof codes);

    n_wrong = 0;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float value = dtype_bf16_to_f32((uint16_t)bits);
        n_wrong += !isnan(value) && dtype_bf16_from_f32(value) != bits;
    }
    selftest_line(t, n_wrong == 0, "bfloat16: every value comes back, %u wrong", n_wrong);
}

/* ---- products ---- */

static void fill_weights(struct bench *b, enum dtype dtype)
{
    size_t n = (size_t)ROWS * COLS;

    for (size_t i = 0; i < n; i++) {
        float x = next_unit(&b->state);
        uint16_t half = dtype_bf16_from_f32(x);
        switch (dtype) {
        case DTYPE_F8_E4M3: /* uniform codes: subnormals and extremes are all there */
            b->weights[i] = (uint8_t)(b->state >> 20);
            if ((b->weights[i] & 0x7f) == 0x7f)
                b->weights[i] = 0;
            break;
        case DTYPE_F16:
            half = (uint16_t)(0x2c00 + ((b->state >> 24) & 0x83ff)); /* 1/16 to 1/4, both signs */
            memcpy(b->weights + i * 2, &half, 2);
            break;
        case DTYPE_BF16:
            memcpy(b->weights + i * 2, &half, 2);
            break;
        default:
            memcpy(b->weights + i * 4, &x, 4);
        }
    }
    for (size_t i = 0; i < SCALES; i++)
        b->scales[i] = 0.01f + fabsf(next_unit(&b->state));
    for (size_t i = 0; i < N_IN * COLS; i++)
        b->in[i] = next_unit(&b->state);
}

/* sum of |w x| of each output, from the scalar class over absolute values. */
static void fill_magnitudes(struct bench *b, const struct matrix *w)
{
    uint32_t size = dtype_size(w->dtype);

    for (uint32_t o = 0; o < ROWS; o++) {
        float row[COLS];
        dtype_to_f32(row, (const char *)w->data + (size_t)o * COLS * size, w->dtype, COLS);
        for (uint32_t r = 0; r < N_IN; r++) {
            double sum = 0.0;
            for (uint32_t c = 0; c < COLS; c++) {
                float scale = w->scales ? w->scales[o / SCALE_BLOCK * 4 + c / SCALE_BLOCK] : 1.0f;
                sum += fabs((double)row[c] * (double)scale * (double)b->in[r * COLS + c]);
            }
            b->magnitude[r * ROWS + o] = (float)sum;
        }
    }
}

/* The largest difference, relative to the terms; infinite when one is not finite. */
static double product_difference(const struct bench *b)
{
    double worst = 0.0;

    for (size_t i = 0; i < N_IN * ROWS; i++) {
        double difference = fabs((double)b->got[i] - (double)b->expect[i]);
        if (!isfinite(difference))
            return (double)INFINITY;
        if (b->magnitude[i] > 0.0f)
            difference /= (double)b->magnitude[i];
        if (difference > worst)
            worst = difference;
    }
    return worst;
}

/* A row by itself and halves of the outputs must give the same bits as all at once. */
static bool rows_are_independent(struct bench *b, const struct kernels *k, const struct matrix *w)
{
    for (uint32_t r = 0; r < N_IN; r++) {
        k->matmul(b->alone, ROWS, b->in + r * COLS, COLS, 1, w, 0, 130);
        k->matmul(b->alone, ROWS, b->in + r * COLS, COLS, 1, w, 130, ROWS);
        if (memcmp(b->alone, b->got + r * ROWS, sizeof b->alone) != 0)
            return false;
    }
    return true;
}

static void check_products(struct selftest *t, struct bench *b, const struct kernels *k,
                           const struct kernels *scalar)
{
    static const enum dtype dtypes[] = { DTYPE_F8_E4M3, DTYPE_BF16, DTYPE_F16, DTYPE_F32 };

    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
        struct matrix w = { .dtype = dtypes[d], .rows = ROWS, .cols = COLS, .data = b->weights,
                            .scales = dtypes[d] == DTYPE_F8_E4M3 ? b->scales : NULL };
        fill_weights(b, dtypes[d]);
        fill_magnitudes(b, &w);
        scalar->matmul(b->expect, ROWS, b->in, COLS, N_IN, &w, 0, ROWS);
        k->matmul(b->got, ROWS, b->in, COLS, N_IN, &w, 0, ROWS);
        double worst = product_difference(b);
        bool same = rows_are_independent(b, k, &w);
        selftest_line(t, worst <= MATMUL_TOLERANCE && same,
                      "kernels %s: product with %s differs from scalar by %.1e, rows %s", k->name,
                      dtype_name(dtypes[d]), worst, same ? "independent" : "DEPEND on each other");
    }
}

/* ---- the rest of a table ---- */

static double vector_difference(const float *got, const float *expect, size_t n)
{
    double worst = 0.0, largest = 1e-30;

    for (size_t i = 0; i < n; i++) {
        double difference = fabs((double)got[i] - (double)expect[i]);
        if (!isfinite(difference))
            return (double)INFINITY;
        if (difference > worst)
            worst = difference;
        if (fabs((double)expect[i]) > largest)
            largest = fabs((double)expect[i]);
    }
    return worst / largest;
}

static void vector_line(struct selftest *t, const struct kernels *k, const char *what,
                        double worst)
{
    selftest_line(t, worst <= VECTOR_TOLERANCE, "kernels %s: %s differs from scalar by %.1e",
                  k->name, what, worst);
}

static void check_vectors(struct selftest *t, struct bench *b, const struct kernels *k,
                          const struct kernels *scalar)
{
    const float *x = b->in, *y = b->in + COLS;
    char *pages[1] = { (char *)b->page };
    struct kv_view view = { .dtype = DTYPE_F32, .page_tokens = TOKENS, .head_dim = HEAD_DIM,
                            .pages = pages, .v_offset = sizeof b->page[0] };

    scalar->rmsnorm(b->expect, x, y, COLS, 1e-6f);
    k->rmsnorm(b->got, x, y, COLS, 1e-6f);
    vector_line(t, k, "norm", vector_difference(b->got, b->expect, COLS));

    memcpy(b->expect, x, COLS * sizeof *x);
    memcpy(b->got, x, COLS * sizeof *x);
    scalar->silu_mul(b->expect, y, COLS);
    k->silu_mul(b->got, y, COLS);
    vector_line(t, k, "silu", vector_difference(b->got, b->expect, COLS));

    memcpy(b->expect, x, HEAD_DIM * sizeof *x);
    memcpy(b->got, x, HEAD_DIM * sizeof *x);
    scalar->rope(b->expect, y, y + HEAD_DIM, HEAD_DIM);
    k->rope(b->got, y, y + HEAD_DIM, HEAD_DIM);
    vector_line(t, k, "rotation", vector_difference(b->got, b->expect, HEAD_DIM));

    for (size_t i = 0; i < TOKENS * HEAD_DIM; i++) {
        b->page[0][i] = next_unit(&b->state);
        b->page[1][i] = next_unit(&b->state);
    }
    scalar->attend(b->expect, x, HEADS, &view, TOKENS, 0.125f);
    k->attend(b->got, x, HEADS, &view, TOKENS, 0.125f);
    vector_line(t, k, "attention", vector_difference(b->got, b->expect, HEADS * HEAD_DIM));
}

/* ---- all ---- */

static void check_pool(struct selftest *t, struct bench *b, const struct kernels *k,
                       struct pool *pool)
{
    struct matrix w = { .dtype = DTYPE_BF16, .rows = ROWS, .cols = COLS, .data = b->weights };
    bool same = true;

    fill_weights(b, DTYPE_BF16);
    k->matmul(b->expect, ROWS, b->in, COLS, N_IN, &w, 0, ROWS);
    for (int round = 0; round < 50 && same; round++) {
        matmul_pooled(k, pool, b->got, ROWS, b->in, COLS, N_IN, &w);
        same = memcmp(b->got, b->expect, sizeof b->got) == 0;
    }
    selftest_line(t, same, "pool: %u threads give the bits of one, 50 times",
                  pool_threads(pool));
}

int selftest_kernels(struct selftest *t, uint32_t n_threads, struct err *err)
{
    static const enum kernel_class classes[] = { KERNELS_AVX2, KERNELS_AVX512 };
    const struct kernels *scalar, *k;
    struct pool *pool = NULL;
    struct err why;
    struct bench *b = calloc(1, sizeof *b);

    if (!b)
        return err_set(err, ERR_NOMEM, "the self test's buffers");
    if (kernels_choose(&scalar, KERNELS_SCALAR, err) < 0 || pool_open(&pool, n_threads, err) < 0) {
        free(b);
        return -1;
    }
    b->state = 0x9e3779b97f4a7c15;
    check_conversions(t);
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        if (kernels_choose(&k, classes[i], &why) < 0) {
            selftest_line(t, true, "not used here: %s", why.text);
            continue;
        }
        check_products(t, b, k, scalar);
        check_vectors(t, b, k, scalar);
    }
    if (kernels_choose(&k, KERNELS_AUTO, &why) == 0)
        check_pool(t, b, k, pool);
    pool_close(pool);
    free(b);
    return 0;
}
