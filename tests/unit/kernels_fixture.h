/* kernels_fixture: made-up numbers, and every kernel table this CPU can run. */
#ifndef TESTS_KERNELS_FIXTURE_H
#define TESTS_KERNELS_FIXTURE_H

#include "kernels/kernels.h"
#include "util/err.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LENGTH(a) (sizeof(a) / sizeof *(a))

static inline uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline float random_float(uint64_t *state) /* about a normal distribution */
{
    double sum = 0.0;

    for (int i = 0; i < 6; i++)
        sum += (double)(random_bits(state) >> 11) * 0x1p-53;
    return (float)(sum - 3.0);
}

static inline float *make_floats(size_t n, uint64_t seed)
{
    float *x = malloc((n ? n : 1) * sizeof *x);
    uint64_t state = seed;

    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = random_float(&state);
    return x;
}

/* Runs check with every table that the CPU can run. */
static inline void with_each_table(void (*check)(const struct kernels *k))
{
    for (enum kernel_class c = KERNELS_SCALAR; c <= KERNELS_AVX512; c++) {
        const struct kernels *k = NULL;
        struct err err;

        if (kernels_choose(&k, c, &err) < 0) {
            assert_int_equal(err.kind, ERR_UNSUPPORTED);
            print_message("note: not checked here: %s\n", err.text);
            continue;
        }
        assert_int_equal(k->class, c);
        check(k);
    }
}

static inline void assert_same_bits(const float *a, const float *b, size_t n)
{
    assert_memory_equal(a, b, n * sizeof *a);
}

/* Equal up to rounding: `sum` is the sum of the magnitudes that were added. Lanes of F32 sums
 * of some hundred terms keep the error under a few units of 2^-24 times that. */
static inline void assert_near(double got, double want, double sum)
{
    if (!(fabs(got - want) <= 1e-6 * sum + 1e-30))
        fail_msg("got %.9g, want %.9g, magnitude %.3g", got, want, sum);
}

#endif
