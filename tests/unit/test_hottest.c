/* The hottest of many, against sorting them all. */
#include "store/hottest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

enum { MANY = 600 };

static int by_heat(const void *a, const void *b)
{
    const struct cz_expert_heat *x = a, *y = b;

    if (x->heat > y->heat || x->heat < y->heat)
        return x->heat > y->heat ? -1 : 1;
    return x->layer != y->layer ? x->layer - y->layer : x->expert - y->expert;
}

static void a_short_list_is_the_head_of_the_whole_one(void **state)
{
    struct cz_expert_heat all[MANY], kept[MANY];
    uint64_t seed = 7;

    (void)state;
    for (uint32_t n = 0; n < MANY; n = n * 2 + 1) {
        for (uint32_t i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            all[i] = (struct cz_expert_heat){ /* few heats, so that there are ties */
                .layer = (uint16_t)(i / 16), .expert = (uint16_t)(i % 16),
                .heat = (float)(seed >> 59) / 32.0f,
            };
        }
        for (uint32_t cap = 0; cap < 40; cap += 3) {
            struct hottest h;

            hottest_begin(&h, kept, cap);
            for (uint32_t i = 0; i < n; i++)
                hottest_add(&h, all[i]);
            uint32_t got = hottest_end(&h);
            assert_int_equal(got, n < cap ? n : cap);
            struct cz_expert_heat sorted[MANY];
            for (uint32_t i = 0; i < n; i++)
                sorted[i] = all[i];
            qsort(sorted, n, sizeof *sorted, by_heat);
            for (uint32_t i = 0; i < got; i++) {
                assert_int_equal(kept[i].layer, sorted[i].layer);
                assert_int_equal(kept[i].expert, sorted[i].expert);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_list_is_the_head_of_the_whole_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
