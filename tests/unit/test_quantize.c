/* Rounding to E4M3 with block scales: what is stored against plain double arithmetic, ties and
 * edges by hand, and the same bits whoever does the work. */
#include "kernels/quantize.h"
#include "kernels/weights.h"
#include "util/err.h"
#include "util/pool.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_COLS = 700, MAX_WEIGHTS = SCALE_BLOCK * MAX_COLS, MAX_BLOCKS = 8 };

struct bench {
    char *raw; /* owned; the weights begin at an odd byte */
    uint8_t *codes;
    float scales[MAX_BLOCKS];
    struct quantize_strip strip;
};

static void set_up(struct bench *b, enum dtype dtype, uint32_t rows, uint32_t cols)
{
    *b = (struct bench){ .raw = calloc(MAX_WEIGHTS + 1, sizeof(float)),
                         .codes = malloc(MAX_WEIGHTS) };
    assert_true(b->raw && b->codes);
    memset(b->codes, 0xEE, MAX_WEIGHTS);
    b->strip = (struct quantize_strip){ .weights = b->raw + 1, .dtype = dtype, .rows = rows,
                                        .cols = cols, .codes = b->codes, .scales = b->scales };
}

static void tear_down(struct bench *b)
{
    free(b->raw);
    free(b->codes);
}

static uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void put(struct bench *b, size_t i, float x)
{
    uint16_t half = dtype_bf16_from_f32(x);

    if (b->strip.dtype == DTYPE_F32)
        memcpy(b->raw + 1 + 4 * i, &x, 4);
    else
        memcpy(b->raw + 1 + 2 * i, &half, 2);
}

static double weight(const struct bench *b, size_t i)
{
    float x;

    assert_true(dtype_to_f32(&x, b->raw + 1 + i * dtype_size(b->strip.dtype), b->strip.dtype, 1));
    return (double)x;
}

/* The nearest of all finite codes by looking at each, ties to the even one. */
static uint8_t nearest(double x)
{
    uint8_t best = 0;
    double distance = INFINITY;

    for (int code = 0; code <= 0x7E; code++) {
        double value = (double)dtype_f8_e4m3_to_f32((uint8_t)code), d = fabs(fabs(x) - value);
        if (d < distance || (d == distance && code % 2 == 0)) {
            distance = d;
            best = (uint8_t)code;
        }
    }
    return signbit(x) ? best | 0x80 : best;
}

static void check(const struct bench *b)
{
    const struct quantize_strip *s = &b->strip;

    for (uint32_t first = 0; first < s->cols; first += SCALE_BLOCK) {
        uint32_t last = first + SCALE_BLOCK < s->cols ? first + SCALE_BLOCK : s->cols;
        double largest = 0.0;

        for (uint32_t r = 0; r < s->rows; r++)
            for (uint32_t c = first; c < last; c++)
                largest = fmax(largest, fabs(weight(b, (size_t)r * s->cols + c)));
        float scale = largest == 0.0 ? 1.0f : (float)fmax(largest / 448.0, 0x1p-100);
        assert_memory_equal(&s->scales[first / SCALE_BLOCK], &scale, sizeof scale);
        for (uint32_t r = 0; r < s->rows; r++) {
            for (uint32_t c = first; c < last; c++) {
                size_t i = (size_t)r * s->cols + c;
                uint8_t want = nearest((double)(float)(weight(b, i) / (double)scale));
                if (s->codes[i] != want)
                    fail_msg("[%u, %u]: %a / %a is code %#x, not %#x", r, c, weight(b, i),
                             (double)scale, s->codes[i], want);
            }
        }
    }
    assert_int_equal(s->codes[(size_t)s->rows * s->cols], 0xEE); /* and not one more */
}

static void codes_are_the_nearest_and_scales_the_largest(void **state)
{
    static const uint32_t sizes[][2] = { { 1, 1 },     { 1, 128 },  { 128, 1 },  { 128, 128 },
                                         { 128, 129 }, { 5, 127 },  { 77, 300 }, { 3, 639 },
                                         { 128, 256 }, { 64, 513 } };
    static const enum dtype dtypes[] = { DTYPE_BF16, DTYPE_F32, DTYPE_F16 };
    uint64_t seed = 1;
    (void)state;

    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (size_t d = 0; d < 3; d++) {
            struct bench b;
            size_t n = (size_t)sizes[k][0] * sizes[k][1];

            set_up(&b, dtypes[d], sizes[k][0], sizes[k][1]);
            for (size_t i = 0; i < n; i++) {
                uint64_t bits = random_bits(&seed);
                if (dtypes[d] == DTYPE_F16) { /* any finite one */
                    uint16_t half = (uint16_t)(bits & 0xFBFF);
                    memcpy(b.raw + 1 + 2 * i, &half, sizeof half);
                    continue;
                }
                /* Of either sign, over twenty powers of two, so that codes of all kinds come up. */
                double x = ldexp((double)(bits >> 12) * 0x1p-52, -(int)(bits % 20));
                put(&b, i, (float)(bits & 32 ? -x : x));
            }
            assert_true(quantize_strip(&b.strip, NULL));
            check(&b);
            assert_int_equal(quantize_find_bad(&b.strip), n);
            tear_down(&b);
        }
    }
}

/* With 448 in the block the scale is 1, so weights are quotients: each code's value, what lies in
 * the middle of two of them, and its neighbours. */
static void ties_go_to_the_even_code(void **state)
{
    struct bench b;
    size_t n = 0;
    (void)state;

    set_up(&b, DTYPE_F32, 128, 10);
    put(&b, n++, 448.0f);
    put(&b, n++, -448.0f);
    for (int code = 0; code < 0x7E; code++) {
        float low = dtype_f8_e4m3_to_f32((uint8_t)code);
        float high = dtype_f8_e4m3_to_f32((uint8_t)(code + 1)), middle = (low + high) / 2.0f;
        const float values[] = { low, middle, nextafterf(middle, 0.0f),
                                 nextafterf(middle, 500.0f) };
        for (size_t i = 0; i < 4; i++) {
            put(&b, n++, values[i]);
            put(&b, n++, -values[i]);
        }
    }
    assert_true(n <= 128 * 10);
    assert_true(quantize_strip(&b.strip, NULL));
    assert_true(b.scales[0] == 1.0f);
    check(&b);
    assert_int_equal(b.codes[0], 0x7E);
    assert_int_equal(b.codes[1], 0xFE);
    assert_int_equal(b.codes[4], 0x00); /* between 0 and 2^-9 */
    tear_down(&b);
}

static void zeros_and_the_ends_of_the_range_are_harmless(void **state)
{
    static const float largest[] = { 0.0f, FLT_MAX, FLT_MIN, FLT_TRUE_MIN, 0x1p-95f, 0x1p-110f };
    (void)state;

    for (size_t k = 0; k < sizeof largest / sizeof *largest; k++) {
        struct bench b;

        set_up(&b, DTYPE_F32, 2, 3);
        put(&b, 0, largest[k]);
        put(&b, 1, -largest[k] / 3.0f);
        put(&b, 4, FLT_TRUE_MIN);
        assert_true(quantize_strip(&b.strip, NULL));
        check(&b);
        for (size_t i = 0; i < 6; i++)
            assert_true((b.codes[i] & 0x7F) != 0x7F);
        tear_down(&b);
    }
}

static void a_weight_that_is_not_finite_is_found(void **state)
{
    static const float bad[] = { NAN, -NAN, INFINITY, -INFINITY };
    (void)state;

    for (size_t k = 0; k < 4; k++) {
        for (int bf16 = 0; bf16 < 2; bf16++) {
            struct bench b;

            set_up(&b, bf16 ? DTYPE_BF16 : DTYPE_F32, 9, 300);
            put(&b, 5 * 300 + 260, bad[k]);
            put(&b, 8 * 300 + 1, bad[k]);
            assert_false(quantize_strip(&b.strip, NULL));
            assert_int_equal(quantize_find_bad(&b.strip), 5 * 300 + 260);
            tear_down(&b);
        }
    }
}

static void threads_change_no_bit(void **state)
{
    struct bench b, c;
    uint64_t seed = 7;
    (void)state;

    set_up(&b, DTYPE_BF16, 128, MAX_COLS - 1);
    set_up(&c, DTYPE_BF16, 128, MAX_COLS - 1);
    for (size_t i = 0; i < 128 * (MAX_COLS - 1); i++)
        put(&b, i, (float)(int64_t)random_bits(&seed));
    memcpy(c.raw, b.raw, MAX_WEIGHTS * 2);
    assert_true(quantize_strip(&b.strip, NULL));
    for (uint32_t n = 1; n < 5; n++) {
        struct pool *pool;
        struct err err;

        assert_int_equal(pool_open(&pool, n, &err), 0);
        memset(c.codes, 0, MAX_WEIGHTS);
        memset(c.scales, 0, sizeof c.scales);
        assert_true(quantize_strip(&c.strip, pool));
        assert_memory_equal(b.codes, c.codes, 128 * (MAX_COLS - 1));
        assert_memory_equal(b.scales, c.scales, 6 * sizeof(float));
        pool_close(pool);
    }
    tear_down(&b);
    tear_down(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_the_nearest_and_scales_the_largest),
        cmocka_unit_test(ties_go_to_the_even_code),
        cmocka_unit_test(zeros_and_the_ends_of_the_range_are_harmless),
        cmocka_unit_test(a_weight_that_is_not_finite_is_found),
        cmocka_unit_test(threads_change_no_bit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
