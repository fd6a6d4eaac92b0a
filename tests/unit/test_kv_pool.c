/* Pages of keys and values: their places in memory, sharing and giving back. */
#include "store/kv_pool.h"

#include "util/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct model_shape shape = {
    .n_layers = 3, .n_kv_heads = 2, .head_dim = 24,
};

static struct kv_pool *pool_of(uint32_t n_pages, enum dtype dtype)
{
    struct kv_pool *p = NULL;
    struct err err = { 0 };

    if (kv_pool_open(&p, &shape, dtype, n_pages, &err) < 0)
        fail_msg("%s", err.text);
    return p;
}

static void a_page_holds_keys_and_values_of_every_layer(void **state)
{
    (void)state;
    assert_int_equal(kv_pool_page_size(&shape, DTYPE_F32), 3 * 2 * 2 * 64 * 24 * 4);
    assert_int_equal(kv_pool_page_size(&shape, DTYPE_BF16), 3 * 2 * 2 * 64 * 24 * 2);
}

static void the_places_in_a_page_cover_it_without_overlap(void **state)
{
    (void)state;
    struct kv_pool *p = pool_of(1, DTYPE_BF16);
    size_t size = kv_pool_page_size(&shape, DTYPE_BF16), head = 64 * 24 * 2;
    char *seen = calloc(size, 1);

    assert_non_null(seen);
    for (uint32_t layer = 0; layer < shape.n_layers; layer++) {
        for (uint32_t h = 0; h < shape.n_kv_heads; h++) {
            size_t at[] = { kv_pool_k_offset(p, layer, h), kv_pool_v_offset(p, layer, h) };

            for (size_t i = 0; i < 2; i++) {
                assert_true(at[i] + head <= size);
                for (size_t b = 0; b < head; b++)
                    assert_int_equal(seen[at[i] + b]++, 0);
            }
        }
    }
    for (size_t b = 0; b < size; b++)
        assert_int_equal(seen[b], 1);
    free(seen);
    kv_pool_close(p);
}

static void an_empty_pool_answers_that_it_is_empty(void **state)
{
    (void)state;
    struct kv_pool *p = pool_of(3, DTYPE_F32);
    int64_t pages[3];

    for (int i = 0; i < 3; i++) {
        pages[i] = kv_pool_take(p);
        assert_in_range(pages[i], 0, 2);
        assert_int_equal(kv_pool_free(p), 2 - i);
    }
    assert_true(pages[0] != pages[1] && pages[1] != pages[2] && pages[0] != pages[2]);
    assert_int_equal(kv_pool_take(p), -1);
    kv_pool_give(p, (uint32_t)pages[1]);
    assert_int_equal(kv_pool_take(p), pages[1]);
    assert_int_equal(kv_pool_take(p), -1);
    assert_int_equal(kv_pool_total(p), 3);
    kv_pool_close(p);

    p = pool_of(0, DTYPE_F32);
    assert_int_equal(kv_pool_take(p), -1);
    kv_pool_close(p);
}

static void a_shared_page_is_free_only_after_its_last_owner(void **state)
{
    (void)state;
    struct kv_pool *p = pool_of(1, DTYPE_F32);
    uint32_t page = (uint32_t)kv_pool_take(p);

    kv_pool_share(p, page);
    kv_pool_share(p, page);
    kv_pool_give(p, page);
    kv_pool_give(p, page);
    assert_int_equal(kv_pool_free(p), 0);
    kv_pool_give(p, page);
    assert_int_equal(kv_pool_free(p), 1);
    kv_pool_close(p);
}

static void pages_do_not_share_memory(void **state)
{
    (void)state;
    struct kv_pool *p = pool_of(4, DTYPE_F32);
    size_t size = kv_pool_page_size(&shape, DTYPE_F32);

    for (uint32_t i = 0; i < 4; i++)
        memset(kv_pool_page(p, i), (int)(i + 1), size);
    for (uint32_t i = 0; i < 4; i++)
        for (size_t b = 0; b < size; b++)
            assert_int_equal(kv_pool_page(p, i)[b], i + 1);
    kv_pool_close(p);
}

static void where_no_layer_attends_pages_are_only_counted(void **state)
{
    static const struct model_shape recurrent = { .n_layers = 3, .n_linear_layers = 3,
                                                  .n_kv_heads = 2, .head_dim = 24 };
    struct kv_pool *p = NULL;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(kv_pool_open(&p, &recurrent, DTYPE_BF16, 2, &err), 0);
    assert_true(kv_pool_take(p) >= 0 && kv_pool_take(p) >= 0);
    assert_int_equal(kv_pool_take(p), -1);
    kv_pool_close(p);
}

static void impossible_pools_are_refused(void **state)
{
    (void)state;
    struct kv_pool *p = NULL;
    struct err err = { 0 };
    struct model_shape huge = shape;

    assert_int_equal(kv_pool_open(&p, &shape, DTYPE_F8_E4M3, 1, &err), -1);
    assert_int_equal(err.kind, ERR_UNSUPPORTED);
    huge.n_layers = huge.n_kv_heads = huge.head_dim = UINT32_MAX;
    assert_true(kv_pool_page_size(&huge, DTYPE_F32) == UINT64_MAX);
    assert_int_equal(kv_pool_open(&p, &huge, DTYPE_F32, 2, &err), -1);
    assert_int_equal(err.kind, ERR_BUDGET);
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_holds_keys_and_values_of_every_layer),
        cmocka_unit_test(the_places_in_a_page_cover_it_without_overlap),
        cmocka_unit_test(an_empty_pool_answers_that_it_is_empty),
        cmocka_unit_test(a_shared_page_is_free_only_after_its_last_owner),
        cmocka_unit_test(pages_do_not_share_memory),
        cmocka_unit_test(where_no_layer_attends_pages_are_only_counted),
        cmocka_unit_test(impossible_pools_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
