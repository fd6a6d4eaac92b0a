/* Number types of checkpoints, each conversion held to the type's definition. */
#include "formats/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void e4m3_codes_have_their_published_values(void **state)
{
    static const struct {
        uint8_t code;
        float value;
    } want[] = { { 0x00, 0.0f }, { 0x01, 0x1p-9f }, { 0x07, 0.013671875f }, { 0x08, 0.015625f },
                 { 0x38, 1.0f }, { 0x7E, 448.0f },  { 0xB8, -1.0f },        { 0xFE, -448.0f } };

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_true(dtype_f8_e4m3_to_f32(want[i].code) == want[i].value);
    assert_true(isnan(dtype_f8_e4m3_to_f32(0x7F)) && isnan(dtype_f8_e4m3_to_f32(0xFF)));
    assert_true(signbit(dtype_f8_e4m3_to_f32(0x80)));
    /* The definition, code by code. */
    for (int code = 0; code < 256; code++) {
        int e = code >> 3 & 15, m = code & 7;
        double value = e ? ldexp(1.0 + m / 8.0, e - 7) : ldexp(m, -9);
        if ((code & 0x7F) != 0x7F)
            assert_true((double)dtype_f8_e4m3_to_f32((uint8_t)code) ==
                        (code & 0x80 ? -value : value));
    }
}

static void every_half_float_equals_its_definition(void **state)
{
    (void)state;
    for (int code = 0; code < 65536; code++) {
        int e = code >> 10 & 31, m = code & 1023;
        float x = dtype_f16_to_f32((uint16_t)code);
        double value = e ? ldexp(1.0 + m / 1024.0, e - 15) : ldexp(m, -24);

        if (e == 31) {
            assert_true(m ? isnan(x) : isinf(x) && !signbit(x) == !(code >> 15));
            continue;
        }
        assert_true((double)x == (code >> 15 ? -value : value));
        assert_true(!signbit(x) == !(code >> 15));
    }
}

static void bf16_rounds_to_nearest_even(void **state)
{
    static const struct {
        uint32_t bits;
        uint16_t want;
    } cases[] = {
        { 0x3F800000, 0x3F80 }, /* 1 */
        { 0x3F808000, 0x3F80 }, /* half way, down to even */
        { 0x3F818000, 0x3F82 }, /* half way, up to even */
        { 0x3F808001, 0x3F81 }, { 0x3F807FFF, 0x3F80 },
        { 0x7F7FFFFF, 0x7F80 }, /* the largest float rounds to infinity */
        { 0x7F800000, 0x7F80 }, { 0xFF800000, 0xFF80 }, { 0x80000000, 0x8000 },
        { 0x00000001, 0x0000 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float x;
        memcpy(&x, &cases[i].bits, sizeof x);
        assert_int_equal(dtype_bf16_from_f32(x), cases[i].want);
    }
    for (uint32_t code = 0; code < 65536; code++) { /* what BF16 holds survives the way */
        float x = dtype_bf16_to_f32((uint16_t)code);
        if (isnan(x))
            assert_true(isnan(dtype_bf16_to_f32(dtype_bf16_from_f32(x))));
        else
            assert_int_equal(dtype_bf16_from_f32(x), code);
    }
    uint32_t nan_bits = 0x7F800001; /* its payload lies in the half that is cut */
    float nan;
    memcpy(&nan, &nan_bits, sizeof nan);
    assert_true(isnan(dtype_bf16_to_f32(dtype_bf16_from_f32(nan))));
}

static void arrays_convert_from_any_address(void **state)
{
    static const float values[] = { 1.0f, -2.5f, 0.0f, 448.0f, 0.001953125f };
    enum { N = 5 };
    unsigned char bytes[64];
    float out[N];

    (void)state;
    for (size_t shift = 0; shift < 4; shift++) {
        memcpy(bytes + shift, values, sizeof values);
        assert_true(dtype_to_f32(out, bytes + shift, DTYPE_F32, N));
        assert_memory_equal(out, values, sizeof values);
        for (size_t i = 0; i < N; i++) {
            uint16_t half = dtype_bf16_from_f32(values[i]);
            memcpy(bytes + shift + 2 * i, &half, 2);
        }
        assert_true(dtype_to_f32(out, bytes + shift, DTYPE_BF16, N));
        assert_memory_equal(out, values, sizeof values);
        memcpy(bytes + shift, "\x00\x3C\x00\xC1\x00\x00\x00\x5F\x00\x18", 10);
        assert_true(dtype_to_f32(out, bytes + shift, DTYPE_F16, N));
        assert_memory_equal(out, values, sizeof values);
        memcpy(bytes + shift, "\x38\xC2\x00\x7E\x01", 5);
        assert_true(dtype_to_f32(out, bytes + shift, DTYPE_F8_E4M3, N));
        assert_memory_equal(out, values, sizeof values);
    }
    assert_false(dtype_to_f32(out, bytes, DTYPE_I32, 1));
    assert_false(dtype_to_f32(out, bytes, DTYPE_F8_E5M2, 1));
}

static void the_first_nan_code_is_found_wherever_it_lies(void **state)
{
    enum { N = 5000 };
    uint8_t *bytes = malloc(N + 3);

    (void)state;
    assert_non_null(bytes);
    for (size_t shift = 0; shift < 3; shift++) {
        uint8_t *b = bytes + shift;
        for (size_t i = 0; i < N; i++) /* every code but the two */
            b[i] = (uint8_t)((i * 7 & 0x7F) == 0x7F ? 0x7E : i * 7);
        assert_int_equal(dtype_f8_find_nan(b, N), N);
        assert_int_equal(dtype_f8_find_nan(b, 0), 0);
        for (size_t at = 0; at < N; at += 13) {
            uint8_t kept = b[at];
            b[at] = at % 2 ? 0x7F : 0xFF;
            assert_int_equal(dtype_f8_find_nan(b, N), at);
            assert_int_equal(dtype_f8_find_nan(b, at), at);
            assert_int_equal(dtype_f8_find_nan(b, at + 1), at);
            b[at] = kept;
        }
    }
    free(bytes);
}

static void names_and_sizes_agree(void **state)
{
    enum dtype d;
    uint32_t bits;

    (void)state;
    for (int i = 0; i < DTYPE_OTHER; i++) {
        assert_true(dtype_parse(&d, &bits, dtype_name((enum dtype)i)));
        assert_int_equal(d, i);
        assert_int_equal(bits, 8 * dtype_size(d));
    }
    assert_true(dtype_parse(&d, &bits, "F8_E8M0") && d == DTYPE_OTHER && bits == 8);
    assert_true(dtype_parse(&d, &bits, "F4") && d == DTYPE_OTHER && bits == 4);
    assert_int_equal(dtype_size(DTYPE_OTHER), 0);
    assert_false(dtype_parse(&d, &bits, "f32"));
    assert_false(dtype_parse(&d, &bits, ""));
    assert_false(dtype_parse(&d, &bits, "other"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e4m3_codes_have_their_published_values),
        cmocka_unit_test(every_half_float_equals_its_definition),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(arrays_convert_from_any_address),
        cmocka_unit_test(the_first_nan_code_is_found_wherever_it_lies),
        cmocka_unit_test(names_and_sizes_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
