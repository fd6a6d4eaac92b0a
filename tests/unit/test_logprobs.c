/* Log probabilities against the plain formula. */
#include "run/logprobs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 5000 };

static void fill(float *logits, uint32_t seed)
{
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = sinf((float)(i + seed) * 12.9898f) * 14.0f;
}

/* The formula as it is written, without any shift: these logits are small enough for it. */
static double plain(const float *logits, uint32_t token)
{
    double sum = 0.0;

    for (uint32_t i = 0; i < VOCAB; i++)
        sum += exp((double)logits[i]);
    return (double)logits[token] - log(sum);
}

static void a_logprob_is_the_log_of_the_softmax(void **state)
{
    float logits[VOCAB];
    struct cz_logprobs l;

    (void)state;
    for (uint32_t seed = 0; seed < 5; seed++) {
        fill(logits, seed);
        for (uint32_t token = 0; token < VOCAB; token += 617) {
            logprobs_of(&l, logits, VOCAB, token, 20);
            assert_int_equal(l.own.token, token);
            /* Rounded to a float once, at the end. */
            assert_true(fabs((double)l.own.logprob - plain(logits, token)) <=
                        1e-6 * fabs(plain(logits, token)) + 1e-9);
            assert_int_equal(l.n_top, 20);
            for (uint32_t k = 0; k < 20; k++)
                assert_true(fabs((double)l.top[k].logprob - plain(logits, l.top[k].token)) <=
                            1e-6 * fabs((double)l.top[k].logprob) + 1e-9);
        }
    }
}

static void the_top_list_is_the_largest_with_lower_ids_first(void **state)
{
    static const uint32_t best[] = { 4000, 7, 9, 4999, 3, 2000 };
    float logits[VOCAB];
    struct cz_logprobs l;

    (void)state;
    fill(logits, 1);
    logits[4000] = 30.0f;
    logits[9] = logits[7] = logits[4999] = 25.0f;
    logits[3] = 22.0f;
    logits[2000] = 21.0f;
    for (uint32_t n = 0; n <= 6; n++) {
        logprobs_of(&l, logits, VOCAB, 12, n);
        assert_int_equal(l.n_top, n);
        for (uint32_t k = 0; k < n; k++)
            assert_int_equal(l.top[k].token, best[k]);
    }
    assert_true(l.top[1].logprob == l.top[2].logprob && l.top[2].logprob == l.top[3].logprob);

    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = 0.5f;
    logprobs_of(&l, logits, VOCAB, 4999, 3);
    assert_true(l.top[0].token == 0 && l.top[1].token == 1 && l.top[2].token == 2);
    assert_true(l.own.logprob == l.top[0].logprob);
    assert_true(fabs((double)l.own.logprob + log(VOCAB)) < 1e-6);
}

static void large_logits_and_small_vocabularies_are_fine(void **state)
{
    const float far[] = { 1e30f, -1e30f, 3.0f }, near[] = { 88.0f, 88.0f };
    struct cz_logprobs l;

    (void)state;
    logprobs_of(&l, far, 3, 0, CZ_MAX_TOP);
    assert_true(l.own.logprob == 0.0f);
    assert_int_equal(l.n_top, 3);
    assert_true(isfinite(l.top[2].logprob) && l.top[2].token == 1);
    logprobs_of(&l, near, 2, 1, 1);
    assert_true(fabs((double)l.own.logprob - log(0.5)) < 1e-6);
    assert_int_equal(l.top[0].token, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_logprob_is_the_log_of_the_softmax),
        cmocka_unit_test(the_top_list_is_the_largest_with_lower_ids_first),
        cmocka_unit_test(large_logits_and_small_vocabularies_are_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
