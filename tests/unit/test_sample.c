/* Sampling: what each field promises, checked against plain arithmetic written here. */
#include "run/sample.h"
#include "util/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 1000 };

static struct sampler *sampler;

static int open_sampler(void **state)
{
    struct err err;

    (void)state;
    return sampler_open(&sampler, VOCAB, &err);
}

static int close_sampler(void **state)
{
    (void)state;
    sampler_close(sampler);
    return 0;
}

static const struct cz_sampling plain = { .temperature = 1.0f, .top_p = 1.0f,
                                          .repetition_penalty = 1.0f };

static uint32_t pick(const float *logits, const struct cz_sampling *how, uint32_t index)
{
    float copy[VOCAB];
    uint32_t token;
    struct err err;
    struct sample_request r = { .how = how, .index = index };

    memcpy(copy, logits, sizeof copy);
    if (sampler_pick(sampler, &token, copy, &r, &err) < 0)
        fail_msg("%s", err.text);
    return token;
}

static void fill(float *logits)
{
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = sinf((float)i * 12.9898f) * 2.0f;
}

static void greedy_takes_the_largest_and_ties_go_to_the_lower_id(void **state)
{
    struct cz_sampling how = plain;
    float logits[VOCAB];

    (void)state;
    fill(logits);
    logits[700] = logits[300] = logits[900] = 5.0f;
    how.temperature = 0.0f;
    assert_int_equal(pick(logits, &how, 0), 300);
    how.temperature = 1e-30f;
    assert_int_equal(pick(logits, &how, 0), 300);
}

static void draws_follow_the_softmax(void **state)
{
    enum { DRAWS = 20000 };
    float logits[VOCAB];
    uint32_t counts[VOCAB] = { 0 };
    double total = 0.0;

    (void)state;
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = -40.0f;
    logits[3] = 1.0f;
    logits[500] = 0.0f;
    logits[999] = -1.0f;
    for (uint32_t i = 0; i < DRAWS; i++)
        counts[pick(logits, &plain, i)]++;
    total = exp(1.0) + 1.0 + exp(-1.0);
    /* Five standard deviations of a binomial count. */
    assert_true(fabs(counts[3] / (double)DRAWS - exp(1.0) / total) < 0.018);
    assert_true(fabs(counts[500] / (double)DRAWS - 1.0 / total) < 0.018);
    assert_true(fabs(counts[999] / (double)DRAWS - exp(-1.0) / total) < 0.018);
    assert_int_equal(counts[3] + counts[500] + counts[999], DRAWS);
}

static void a_draw_is_a_function_of_seed_and_index(void **state)
{
    struct cz_sampling a = plain, b = plain;
    float logits[VOCAB];
    int differ = 0;

    (void)state;
    fill(logits);
    a.seed = 1;
    b.seed = 2;
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t first = pick(logits, &a, i);
        differ += first != pick(logits, &b, i);
        assert_int_equal(first, pick(logits, &a, i));
    }
    assert_true(differ > 90);
}

/* Which tokens can come at all, found by many draws. */
static void support(bool *seen, const float *logits, const struct cz_sampling *how)
{
    memset(seen, 0, VOCAB * sizeof *seen);
    for (uint32_t i = 0; i < 20000; i++)
        seen[pick(logits, how, i)] = true;
}

static void top_k_keeps_the_k_best(void **state)
{
    struct cz_sampling how = plain;
    float logits[VOCAB];
    bool seen[VOCAB];
    uint32_t n = 0;

    (void)state;
    fill(logits);
    how.top_k = 7;
    support(seen, logits, &how);
    for (uint32_t i = 0; i < VOCAB; i++) {
        uint32_t better = 0;
        for (uint32_t j = 0; j < VOCAB; j++)
            better += logits[j] > logits[i];
        assert_int_equal(seen[i], better < 7);
        n += seen[i];
    }
    assert_int_equal(n, 7);
}

static void top_p_keeps_the_shortest_run_that_reaches_it(void **state)
{
    struct cz_sampling how = plain;
    float logits[VOCAB];
    bool seen[VOCAB];

    (void)state;
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = -100.0f;
    /* 0.5, 0.25, 0.15, 0.1 */
    logits[10] = logf(0.5f);
    logits[20] = logf(0.25f);
    logits[30] = logf(0.15f);
    logits[40] = logf(0.1f);
    how.top_p = 0.76f;
    support(seen, logits, &how);
    assert_true(seen[10] && seen[20] && seen[30] && !seen[40]);
    how.top_p = 0.4f;
    support(seen, logits, &how);
    assert_true(seen[10] && !seen[20]);
    how.top_p = 0.0f;
    support(seen, logits, &how);
    assert_true(seen[10] && !seen[20]);
    how.top_p = 0.8f;
    how.top_k = 2; /* 2/3 and 1/3 of what is left: both are needed for 0.8 */
    support(seen, logits, &how);
    assert_true(seen[10] && seen[20] && !seen[30]);
}

static void top_p_over_a_flat_vocabulary_keeps_its_share(void **state)
{
    struct cz_sampling how = plain;
    float logits[VOCAB];
    uint32_t highest = 0;

    (void)state;
    memset(logits, 0, sizeof logits);
    how.top_p = 0.9f; /* 900 of 1000 equal tokens: far past the part that is sorted first */
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t token = pick(logits, &how, i);
        highest = token > highest ? token : highest;
    }
    assert_in_range(highest, 895, 900);
}

static void min_p_is_relative_to_the_best(void **state)
{
    struct cz_sampling how = plain;
    float logits[VOCAB];
    bool seen[VOCAB];

    (void)state;
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = -100.0f;
    logits[1] = 0.0f;
    logits[2] = logf(0.3f);
    logits[3] = logf(0.1f);
    how.min_p = 0.2f;
    support(seen, logits, &how);
    assert_true(seen[1] && seen[2] && !seen[3]);
}

static void penalties_count_what_they_should(void **state)
{
    struct cz_sampling how = plain;
    float logits[VOCAB], base[VOCAB] = { 0 };
    uint32_t tokens[] = { 5, 5, 6, 7, 7, 7 }, token;
    struct sample_request r = { .how = &how, .tokens = tokens, .n_tokens = 6, .n_prompt = 2 };
    struct err err;

    (void)state;
    how.temperature = 0.0f;
    base[5] = 4.0f;
    base[6] = 2.5f;
    base[7] = 3.0f;
    base[8] = 1.0f;

    how.repetition_penalty = 2.0f; /* 5 is in the prompt and counts: 2, 1.25, 1.5, 1 */
    memcpy(logits, base, sizeof logits);
    assert_int_equal(sampler_pick(sampler, &token, logits, &r, &err), 0);
    assert_int_equal(token, 5);
    assert_true(logits[5] == 2.0f && logits[6] == 1.25f && logits[7] == 1.5f && logits[8] == 1.0f);

    how.repetition_penalty = 1.0f;
    how.presence_penalty = 0.5f;
    how.frequency_penalty = 1.0f; /* only the reply: 6 once, 7 three times */
    memcpy(logits, base, sizeof logits);
    assert_int_equal(sampler_pick(sampler, &token, logits, &r, &err), 0);
    assert_true(logits[5] == 4.0f && logits[6] == 1.0f && logits[7] == -0.5f && logits[8] == 1.0f);

    how.repetition_penalty = 2.0f;
    how.presence_penalty = how.frequency_penalty = 0.0f;
    base[6] = -1.0f; /* a negative logit moves down too */
    memcpy(logits, base, sizeof logits);
    assert_int_equal(sampler_pick(sampler, &token, logits, &r, &err), 0);
    assert_true(logits[6] == -2.0f);
}

static void bias_moves_and_bans(void **state)
{
    struct cz_sampling how = plain;
    float logits[VOCAB];
    uint32_t token, stop = 42;
    struct cz_bias bias[] = { { 10, -100.0f }, { 20, 50.0f } };
    struct sample_request r = { .how = &how, .bias = bias, .n_bias = 1 };
    struct err err;

    (void)state;
    how.temperature = 0.0f;
    memset(logits, 0, sizeof logits);
    logits[10] = 9.0f;
    logits[42] = 8.0f;
    logits[43] = 7.0f;
    assert_int_equal(sampler_pick(sampler, &token, logits, &r, &err), 0);
    assert_int_equal(token, 42);

    memset(logits, 0, sizeof logits);
    logits[42] = 8.0f;
    logits[43] = 7.0f;
    r.banned = &stop;
    r.n_banned = 1;
    assert_int_equal(sampler_pick(sampler, &token, logits, &r, &err), 0);
    assert_int_equal(token, 43);

    memset(logits, 0, sizeof logits);
    logits[42] = 8.0f;
    r.n_bias = 2;
    assert_int_equal(sampler_pick(sampler, &token, logits, &r, &err), 0);
    assert_int_equal(token, 20);
}

static void what_is_not_a_number_is_an_error(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    float logits[VOCAB];
    uint32_t token;
    struct err err;
    struct sample_request r = { .how = &plain };

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        fill(logits);
        logits[VOCAB - 1] = bad[i];
        assert_int_equal(sampler_pick(sampler, &token, logits, &r, &err), -1);
        assert_int_equal(err.kind, ERR_NUMERIC);
    }
}

static void banning_everything_is_an_error(void **state)
{
    struct cz_bias bias[VOCAB];
    struct sample_request r = { .how = &plain, .bias = bias, .n_bias = VOCAB };
    float logits[VOCAB];
    uint32_t token;
    struct err err;

    (void)state;
    fill(logits);
    for (uint32_t i = 0; i < VOCAB; i++)
        bias[i] = (struct cz_bias){ i, -100.0f };
    assert_int_equal(sampler_pick(sampler, &token, logits, &r, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_largest_and_ties_go_to_the_lower_id),
        cmocka_unit_test(draws_follow_the_softmax),
        cmocka_unit_test(a_draw_is_a_function_of_seed_and_index),
        cmocka_unit_test(top_k_keeps_the_k_best),
        cmocka_unit_test(top_p_keeps_the_shortest_run_that_reaches_it),
        cmocka_unit_test(top_p_over_a_flat_vocabulary_keeps_its_share),
        cmocka_unit_test(min_p_is_relative_to_the_best),
        cmocka_unit_test(penalties_count_what_they_should),
        cmocka_unit_test(bias_moves_and_bans),
        cmocka_unit_test(what_is_not_a_number_is_an_error),
        cmocka_unit_test(banning_everything_is_an_error),
    };
    return cmocka_run_group_tests(tests, open_sampler, close_sampler);
}
