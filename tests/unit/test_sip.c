/* SipHash with 128 bits against the authors' vectors, and in pieces. */
#include "util/sip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct sip_sum sum_of(const unsigned char *bytes, size_t size, size_t piece)
{
    struct sip_sum key;
    unsigned char k[16];
    struct sip s;

    for (unsigned i = 0; i < 16; i++)
        k[i] = (unsigned char)i;
    memcpy(&key, k, sizeof key);
    sip_init(&s, &key);
    for (size_t at = 0; at < size; at += piece)
        sip_put(&s, bytes + at, size - at < piece ? size - at : piece);
    return sip_sum(&s);
}

/* Of vectors_sip128 in the authors' reference: key 00..0f, messages 00..(n-1). */
static void sums_are_those_of_the_reference(void **state)
{
    static const struct {
        size_t size;
        unsigned char sum[16];
    } vectors[] = {
        { 0, { 0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55,
               0x02, 0x93 } },
        { 1, { 0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22,
               0xfc, 0x45 } },
        { 15, { 0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11, 0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf,
                0xc3, 0xd9 } },
    };
    unsigned char message[16];

    (void)state;
    for (unsigned i = 0; i < 16; i++)
        message[i] = (unsigned char)i;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        struct sip_sum sum = sum_of(message, vectors[i].size, 16);
        assert_memory_equal(&sum, vectors[i].sum, sizeof sum);
    }
}

static void pieces_make_no_difference(void **state)
{
    unsigned char message[100];

    (void)state;
    for (unsigned i = 0; i < sizeof message; i++)
        message[i] = (unsigned char)(i * 7);
    for (size_t size = 0; size <= sizeof message; size++)
        for (size_t piece = 1; piece < 20; piece++)
            assert_true(sip_same(sum_of(message, size, 100), sum_of(message, size, piece)));
}

static void a_copy_goes_on_by_itself(void **state)
{
    struct sip a, b;
    struct sip_sum key = { { 1, 2 } };

    (void)state;
    sip_init(&a, &key);
    sip_put(&a, "one", 3);
    b = a;
    sip_put(&b, "two", 3);
    assert_false(sip_same(sip_sum(&a), sip_sum(&b)));
    sip_put(&a, "two", 3);
    assert_true(sip_same(sip_sum(&a), sip_sum(&b)));
}

static void borders_of_texts_count(void **state)
{
    struct sip a, b;
    struct sip_sum key = { { 1, 2 } };

    (void)state;
    sip_init(&a, &key);
    b = a;
    sip_put_text(&a, "ab", 2);
    sip_put_text(&a, "c", 1);
    sip_put_text(&b, "a", 1);
    sip_put_text(&b, "bc", 2);
    assert_false(sip_same(sip_sum(&a), sip_sum(&b)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_reference),
        cmocka_unit_test(pieces_make_no_difference),
        cmocka_unit_test(a_copy_goes_on_by_itself),
        cmocka_unit_test(borders_of_texts_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
