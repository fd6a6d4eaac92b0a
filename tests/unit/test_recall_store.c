/* Records by key in bounded memory. */
#include "daemon/host/recall_store.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sip_sum key_of(uint64_t n)
{
    return (struct sip_sum){ { n * 0x9e3779b97f4a7c15, n } };
}

/* Its bytes say which it is. */
static unsigned char *record_of(uint64_t n, uint32_t size)
{
    unsigned char *bytes = malloc(size);

    assert_non_null(bytes);
    for (uint32_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(n * 31 + i * 7);
    return bytes;
}

static bool put(struct recall_store *s, uint64_t n, uint32_t n_keys, uint32_t size)
{
    struct sip_sum keys[RECALL_MAX_KEYS + 4];
    unsigned char *bytes = record_of(n, size);

    for (uint32_t i = 0; i < n_keys; i++)
        keys[i] = key_of(n + i * 1000000);
    bool kept = recall_store_put(s, keys, n_keys, bytes, size);
    free(bytes);
    return kept;
}

static bool has_by(struct recall_store *s, uint64_t n, uint64_t key, uint32_t size)
{
    struct sip_sum k = key_of(key);
    unsigned char *want, *got;
    uint32_t record, there = recall_store_find(s, &k, &record);

    if (!there)
        return false;
    assert_int_equal(there, size);
    want = record_of(n, size);
    got = malloc(size);
    assert_non_null(got);
    recall_store_copy(s, record, got);
    assert_memory_equal(got, want, size);
    free(want);
    free(got);
    return true;
}

static bool has(struct recall_store *s, uint64_t n, uint32_t size)
{
    return has_by(s, n, n, size);
}

static void open_store(struct recall_store *s, uint64_t size)
{
    struct err err;

    assert_int_equal(recall_store_open(s, size, &err), 0);
}

static void what_was_put_comes_back_by_every_key(void **state)
{
    static const uint32_t sizes[] = { 1, RECALL_BLOCK - 1, RECALL_BLOCK, RECALL_BLOCK + 1, 40000 };
    struct recall_store s;

    (void)state;
    open_store(&s, MIB);
    for (uint32_t i = 0; i < 5; i++)
        assert_true(put(&s, i + 1, i + 1, sizes[i]));
    assert_int_equal(s.n_records, 5);
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t k = 0; k <= i; k++)
            assert_true(has_by(&s, i + 1, i + 1 + k * 1000000, sizes[i]));
    assert_false(has_by(&s, 1, 99, 1));
    recall_store_close(&s);
}

static void the_one_asked_for_least_recently_gives_way(void **state)
{
    struct recall_store s;
    uint64_t n = 0;

    (void)state;
    open_store(&s, MIB);
    while (!s.evicted) {
        assert_true(put(&s, ++n, 1, 5000));
        assert_true(has(&s, 1, 5000)); /* the first is kept by asking */
    }
    assert_false(has(&s, 2, 5000));
    assert_true(has(&s, 1, 5000));
    assert_true(has(&s, n, 5000));
    assert_in_range(s.n_bytes, MIB / 2, MIB);
    assert_int_equal(s.n_bytes, (uint64_t)s.n_records * 5000);
    recall_store_close(&s);
}

static void memory_is_what_was_asked_for(void **state)
{
    static const uint64_t sizes[] = { 200 * KIB, MIB, 5 * MIB, 64 * MIB, 64 * MIB + 12345 };
    struct recall_store s;

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        open_store(&s, sizes[i]);
        assert_in_range(s.region.size, sizes[i] / 10 * 9, region_size(sizes[i], REGION_SMALL));
        assert_true(s.largest <= sizes[i] / 8 && s.largest <= RECALL_LARGEST);
        assert_true(put(&s, 1, RECALL_MAX_KEYS, s.largest));
        assert_true(has(&s, 1, s.largest));
        assert_false(put(&s, 2, 1, s.largest + 1));
        recall_store_close(&s);
    }
}

static void without_memory_nothing_is_kept(void **state)
{
    struct recall_store s;

    (void)state;
    for (uint64_t size = 0; size < 100 * KIB; size += 50 * KIB) {
        open_store(&s, size);
        assert_int_equal(s.largest, 0);
        assert_false(put(&s, 1, 1, 10));
        assert_false(has(&s, 1, 10));
        recall_store_close(&s);
    }
}

static void a_newer_record_takes_over_the_keys(void **state)
{
    struct recall_store s;

    (void)state;
    open_store(&s, MIB);
    assert_true(put(&s, 1, 3, 100));
    assert_true(put(&s, 1, 1, 3000));
    assert_true(has(&s, 1, 3000));
    assert_int_equal(s.n_records, 1);
    assert_false(has_by(&s, 1, 1000001, 100));
    /* One key twice in a record. */
    struct sip_sum twice[] = { key_of(7), key_of(7) };
    assert_true(recall_store_put(&s, twice, 2, "x", 1));
    assert_true(recall_store_put(&s, twice, 2, "y", 1));
    assert_int_equal(s.n_records, 2);
    recall_store_close(&s);
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Against the plainest model: what is found is right, and nothing leaks. */
static void any_order_of_puts_keeps_it_whole(void **state)
{
    static uint32_t sizes[400], n_keys[400];
    struct recall_store s;
    uint64_t seed = 5;

    (void)state;
    open_store(&s, 300 * KIB);
    for (int i = 0; i < 20000; i++) {
        uint64_t n = next(&seed) % 400;
        if (next(&seed) % 3) {
            sizes[n] = (uint32_t)(1 + next(&seed) % (next(&seed) % 4 ? 3000 : 30000));
            n_keys[n] = (uint32_t)(1 + next(&seed) % 5);
            assert_true(put(&s, n, n_keys[n], sizes[n]));
            assert_true(has(&s, n, sizes[n]));
        } else if (sizes[n]) {
            has_by(&s, n, n + next(&seed) % n_keys[n] * 1000000, sizes[n]);
        }
    }
    assert_true(s.evicted > 0);
    assert_true(s.n_slots <= (s.mask + 1) / 2);
    uint32_t found = 0;
    for (uint64_t n = 0; n < 400; n++)
        found += sizes[n] && has(&s, n, sizes[n]);
    assert_int_equal(found, s.n_records);
    for (uint64_t n = 0; n < 10; n++)
        assert_true(put(&s, 1000 + n, 1, s.largest));
    assert_in_range(s.n_records, 1, 8);
    assert_int_equal(s.n_slots, s.n_records);
    recall_store_close(&s);
}

/* Bounded by far more than it takes, as the machine may be busy: 2 ms each would be a scan. */
static void a_full_store_answers_quickly(void **state)
{
    struct recall_store s;
    uint64_t n = 0;

    (void)state;
    open_store(&s, 16 * MIB);
    while (!s.evicted)
        put(&s, ++n, 1, 300);
    assert_true(n > 5000);
    uint64_t begin = clock_ns();
    for (uint64_t i = 0; i < 5000; i++) {
        struct sip_sum k = key_of(i);
        uint32_t record;
        recall_store_find(&s, &k, &record);
    }
    assert_true(clock_ns() - begin < 1000000000);
    recall_store_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_comes_back_by_every_key),
        cmocka_unit_test(the_one_asked_for_least_recently_gives_way),
        cmocka_unit_test(memory_is_what_was_asked_for),
        cmocka_unit_test(without_memory_nothing_is_kept),
        cmocka_unit_test(a_newer_record_takes_over_the_keys),
        cmocka_unit_test(any_order_of_puts_keeps_it_whole),
        cmocka_unit_test(a_full_store_answers_quickly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
