/* Rows of the hashed n-gram table, against the released constants and a row of worked cases. */
#include "blocks/ngram.h"
#include "util/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct ngram_shape released = {
    .vocab = 248320, .size = 3, .heads_per_order = 8, .base = 20000000, .divisor = 128,
    .seed = 1234, .index = 0, .end = 248044,
};

static struct ngram open_or_fail(const struct ngram_shape *s)
{
    struct ngram n;
    struct err err;

    assert_int_equal(ngram_open(&n, s, &err), 0);
    return n;
}

static void the_released_constants_come_out(void **state)
{
    static const uint64_t multipliers[] = { 23703573157769, 20109073645365, 8052911324071 };
    static const uint32_t above[] = { 3,  23,  33,  47,  59,  63,  69,  77,
                                      81, 93, 107, 147, 153, 159, 161, 171 };
    struct ngram n = open_or_fail(&released);
    uint64_t offset = 0;

    (void)state;
    assert_int_equal(n.n_heads, 16);
    for (int i = 0; i < 3; i++)
        assert_int_equal(n.multipliers[i], multipliers[i]);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(n.sizes[i], 20000000 + above[i]);
        assert_int_equal(n.offsets[i], offset);
        offset += n.sizes[i];
    }
    assert_int_equal(n.n_rows, 320001536);
}

static void a_small_table_has_its_primes_and_multipliers(void **state)
{
    static const uint64_t multipliers[] = { 4295158889763781, 17440218147737327,
                                            1270917961434445 };
    static const uint64_t sizes[] = { 53, 59, 61, 67, 71, 73, 79, 83 };
    struct ngram n = open_or_fail(&(struct ngram_shape){ .vocab = 512, .size = 3,
                                                         .heads_per_order = 4, .base = 50,
                                                         .divisor = 32, .seed = 1234, .end = 7 });

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(n.multipliers[i], multipliers[i]);
    for (int i = 0; i < 8; i++)
        assert_int_equal(n.sizes[i], sizes[i]);
    assert_int_equal(n.n_rows, 576);
}

static void a_second_table_takes_the_primes_behind_the_first(void **state)
{
    struct ngram_shape second = { .vocab = 512, .size = 3, .heads_per_order = 2, .base = 50,
                                  .divisor = 32, .seed = 1234, .index = 1, .end = 7 };
    struct ngram n = open_or_fail(&second);

    (void)state;
    assert_int_equal(n.sizes[0], 71);
    assert_int_equal(n.offsets[0], 0);
    assert_int_equal(n.sizes[3], 83);
}

static void rows_of_the_released_table(void **state)
{
    static const struct {
        uint32_t tokens[3], n;
        uint64_t rows[16];
    } cases[] = {
        { { 1000 }, 1,
          { 1876085, 31308566, 59776718, 71834192, 97499724, 100188615, 134972424, 142751402,
            178377549, 180579936, 219367837, 221375066, 245391246, 270637420, 285992863,
            304819575 } },
        { { 1000, 2000 }, 2,
          { 19790471, 34833089, 42404878, 69061955, 86249091, 105322281, 133942170, 152120809,
            172190926, 185410703, 205959965, 232453570, 252787123, 273475306, 280450173,
            315915558 } },
        { { 1000, 2000, 3000 }, 3,
          { 17238551, 37786998, 58085363, 66530061, 90936363, 119077008, 131292711, 147589323,
            163669071, 180711380, 217289238, 227679745, 246259980, 264845837, 284375812,
            302034413 } },
        { { 1000, 248044, 3000 }, 3, /* an end of text hides what lies behind it */
          { 19767871, 38678248, 41903795, 78642427, 94053828, 106661992, 126328312, 153957680,
            165579332, 187444364, 219149198, 226498876, 250299214, 275325058, 283939340,
            309053089 } },
        { { 1000, 2000, 248044 }, 3, /* but not from itself */
          { 12363941, 34781420, 40372428, 65108007, 96581807, 114674648, 132690334, 151680607,
            171594679, 198065553, 200928689, 229213605, 253485700, 278808905, 294150273,
            312608470 } },
    };
    struct ngram n = open_or_fail(&released);
    uint64_t rows[16];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ngram_rows(rows, &n, cases[i].tokens, cases[i].n - 1);
        for (int head = 0; head < 16; head++)
            assert_int_equal(rows[head], cases[i].rows[head]);
    }
}

static void what_cannot_be_is_refused_by_its_key(void **state)
{
    static const struct {
        struct ngram_shape shape;
        const char *key;
    } cases[] = {
        { { .vocab = 5, .size = 1, .heads_per_order = 1, .base = 5, .divisor = 1 },
          "'ngram_size'" },
        { { .vocab = 5, .size = 9, .heads_per_order = 1, .base = 5, .divisor = 1 },
          "'ngram_size'" },
        { { .vocab = 5, .size = 3, .heads_per_order = 0, .base = 5, .divisor = 1 },
          "'heads_per_ngram'" },
        { { .vocab = 5, .size = 3, .heads_per_order = 129, .base = 5, .divisor = 1 },
          "'heads_per_ngram'" },
        { { .vocab = 5, .size = 3, .heads_per_order = 1, .base = 0, .divisor = 1 },
          "'ngram_vocab_size_base'" },
        { { .vocab = 5, .size = 3, .heads_per_order = 1, .base = UINT64_MAX, .divisor = 1 },
          "'ngram_vocab_size_base'" },
        { { .vocab = 5, .size = 3, .heads_per_order = 1, .base = 5, .divisor = 0 },
          "'make_ngram_vocab_size_divisible_by'" },
    };
    struct ngram n;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ngram_open(&n, &cases[i].shape, &err), -1);
        assert_non_null(strstr(err.text, cases[i].key));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_released_constants_come_out),
        cmocka_unit_test(a_small_table_has_its_primes_and_multipliers),
        cmocka_unit_test(a_second_table_takes_the_primes_behind_the_first),
        cmocka_unit_test(rows_of_the_released_table),
        cmocka_unit_test(what_cannot_be_is_refused_by_its_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
