#include "formats/dtype.h"

#include <string.h>

/* The names that the safetensors format knows (huggingface/safetensors, enum Dtype). */
static const struct {
    const char *name;
    enum dtype dtype;
    uint32_t bits;
} known[] = {
    { "F32", DTYPE_F32, 32 },         { "F16", DTYPE_F16, 16 },
    { "BF16", DTYPE_BF16, 16 },       { "F8_E4M3", DTYPE_F8_E4M3, 8 },
    { "F8_E5M2", DTYPE_F8_E5M2, 8 },  { "F64", DTYPE_F64, 64 },
    { "I8", DTYPE_I8, 8 },            { "U8", DTYPE_U8, 8 },
    { "I16", DTYPE_I16, 16 },         { "U16", DTYPE_U16, 16 },
    { "I32", DTYPE_I32, 32 },         { "U32", DTYPE_U32, 32 },
    { "I64", DTYPE_I64, 64 },         { "U64", DTYPE_U64, 64 },
    { "BOOL", DTYPE_BOOL, 8 },        { "C64", DTYPE_OTHER, 64 },
    { "F8_E8M0", DTYPE_OTHER, 8 },    { "F8_E4M3FNUZ", DTYPE_OTHER, 8 },
    { "F8_E5M2FNUZ", DTYPE_OTHER, 8 }, { "F6_E2M3", DTYPE_OTHER, 6 },
    { "F6_E3M2", DTYPE_OTHER, 6 },    { "F4", DTYPE_OTHER, 4 },
};

enum { N_KNOWN = sizeof known / sizeof known[0] };

const char *dtype_name(enum dtype d)
{
    for (uint32_t i = 0; i < N_KNOWN; i++)
        if (known[i].dtype == d && d != DTYPE_OTHER)
            return known[i].name;
    return "other";
}

bool dtype_parse(enum dtype *out, uint32_t *bits, const char *name)
{
    for (uint32_t i = 0; i < N_KNOWN; i++) {
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i].dtype;
            *bits = known[i].bits;
            return true;
        }
    }
    return false;
}

uint32_t dtype_size(enum dtype d)
{
    for (uint32_t i = 0; i < N_KNOWN; i++)
        if (known[i].dtype == d && d != DTYPE_OTHER)
            return known[i].bits / 8;
    return 0;
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

uint16_t dtype_bf16_from_f32(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(bits >> 16 | 0x40); /* rounding could turn a NaN into infinity */
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float dtype_bf16_to_f32(uint16_t x)
{
    return float_of((uint32_t)x << 16);
}

float dtype_f16_to_f32(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 31, fraction = x & 0x3FF;

    if (exponent == 0) { /* zero and subnormals: fraction * 2^-24 */
        float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    if (exponent == 31) /* infinities and NaN */
        return float_of(sign | 0x7F800000 | fraction << 13);
    return float_of(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

/* Sign, four bits of exponent with bias 7, three of mantissa; Micikevicius et al. 2022. */
float dtype_f8_e4m3_to_f32(uint8_t x)
{
    uint32_t sign = (uint32_t)(x & 0x80) << 24, exponent = x >> 3 & 15, mantissa = x & 7;

    if (exponent == 15 && mantissa == 7)
        return float_of(sign | 0x7FC00000);
    if (exponent == 0) {
        float magnitude = (float)mantissa * 0x1p-9f;
        return sign ? -magnitude : magnitude;
    }
    return float_of(sign | (exponent + 127 - 7) << 23 | mantissa << 20);
}

bool dtype_to_f32(float *out, const void *src, enum dtype d, size_t n)
{
    const uint8_t *bytes = src;
    uint16_t half;

    switch (d) {
    case DTYPE_F32:
        memcpy(out, src, n * sizeof *out);
        return true;
    case DTYPE_F16:
        for (size_t i = 0; i < n; i++) {
            memcpy(&half, bytes + 2 * i, sizeof half);
            out[i] = dtype_f16_to_f32(half);
        }
        return true;
    case DTYPE_BF16:
        for (size_t i = 0; i < n; i++) {
            memcpy(&half, bytes + 2 * i, sizeof half);
            out[i] = dtype_bf16_to_f32(half);
        }
        return true;
    case DTYPE_F8_E4M3:
        for (size_t i = 0; i < n; i++)
            out[i] = dtype_f8_e4m3_to_f32(bytes[i]);
        return true;
    default:
        return false;
    }
}

static size_t first_nan(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((bytes[i] & 0x7F) == 0x7F)
            return i;
    return n;
}

size_t dtype_f8_find_nan(const void *bytes, size_t n)
{
    /* A fixed count of iterations without an exit is what compilers vectorise at -O2. */
    enum { BLOCK = 1024 };
    const uint8_t *b = bytes;
    size_t i = 0;

    for (; n - i >= BLOCK; i += BLOCK) {
        uint8_t seen = 0;
        for (size_t j = 0; j < BLOCK; j++)
            seen |= (b[i + j] & 0x7F) == 0x7F ? 0xFF : 0;
        if (seen)
            break;
    }
    return i + first_nan(b + i, n - i);
}
