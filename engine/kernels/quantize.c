#include "kernels/quantize.h"

#include "kernels/weights.h"
#include "util/pool.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Rows of a block are always worked on in whole, padded with zeros: a fixed count of iterations is
 * what compilers vectorise at -O2. They do it twice where wider vectors may be there: every
 * operation is exact or correctly rounded, so both give the same bits. */
#define ALWAYS_INLINE inline __attribute__((always_inline))
enum { BITS_OF_INFINITY = 0x7F800000, LARGEST_CODE = 0x7E };

static const float largest_value = 448.0f, least_scale = 0x1p-100f;

static ALWAYS_INLINE void widen(float out[restrict SCALE_BLOCK], const char *from,
                                enum dtype dtype, size_t n)
{
    uint16_t halves[SCALE_BLOCK] = { 0 };

    if (dtype == DTYPE_BF16) {
        memcpy(halves, from, n * sizeof *halves);
        for (size_t i = 0; i < SCALE_BLOCK; i++) {
            uint32_t bits = (uint32_t)halves[i] << 16;
            memcpy(&out[i], &bits, sizeof bits);
        }
        return;
    }
    memset(out, 0, SCALE_BLOCK * sizeof *out);
    bool known = dtype_to_f32(out, from, dtype, n);
    assert(known);
    (void)known;
}

/* The bits of the largest magnitude; NaN is larger than all. */
static ALWAYS_INLINE int32_t largest_bits(const float x[SCALE_BLOCK], int32_t so_far)
{
    for (size_t i = 0; i < SCALE_BLOCK; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= INT32_MAX;
        so_far = bits > so_far ? bits : so_far;
    }
    return so_far;
}

/* Written out, for compilers make branches of ?: here, and no vectors then. */
static ALWAYS_INLINE uint32_t either(bool first, uint32_t a, uint32_t b)
{
    uint32_t mask = -(uint32_t)first;

    return (a & mask) | (b & ~mask);
}

/* Two ways to round to three bits of mantissa, both nearest even. A normal number's bits are
 * rounded as an integer, where a carry goes to the exponent as it should. Below 2^-6 codes are
 * multiples of 2^-9: adding 2^14 leaves just these in an F32's last bits; the eighth of them is the
 * code of 2^-6 itself. */
static ALWAYS_INLINE void encode(uint8_t out[restrict SCALE_BLOCK],
                                 const float x[restrict SCALE_BLOCK], float scale)
{
    const float shift = 0x1p14f;
    uint32_t codes[SCALE_BLOCK], shift_bits;

    memcpy(&shift_bits, &shift, sizeof shift_bits);
    for (size_t i = 0; i < SCALE_BLOCK; i++) {
        float quotient = x[i] / scale, sum;
        uint32_t bits, sum_bits;

        memcpy(&bits, &quotient, sizeof bits);
        sum = fabsf(quotient) + shift;
        memcpy(&sum_bits, &sum, sizeof sum_bits);
        uint32_t magnitude = bits & INT32_MAX;
        uint32_t normal = ((magnitude + 0x7FFFF + (magnitude >> 20 & 1)) >> 20) - (120 << 3);
        uint32_t small = sum_bits - shift_bits;
        uint32_t code = either((int32_t)magnitude < 121 << 23, small, normal);
        code = either((int32_t)code < LARGEST_CODE, code, LARGEST_CODE);
        codes[i] = code | (bits >> 24 & 0x80);
    }
    for (size_t i = 0; i < SCALE_BLOCK; i++)
        out[i] = (uint8_t)codes[i];
}

static float scale_of(int32_t bits)
{
    float largest;

    memcpy(&largest, &bits, sizeof largest);
    if (bits == 0)
        return 1.0f;
    float scale = largest / largest_value;
    return scale < least_scale ? least_scale : scale;
}

/* false: a weight is not finite. */
static ALWAYS_INLINE bool quantize_block(const struct quantize_strip *s, uint32_t block)
{
    size_t first = (size_t)block * SCALE_BLOCK, size = dtype_size(s->dtype);
    size_t n = s->cols - first < SCALE_BLOCK ? s->cols - first : SCALE_BLOCK;
    float row[SCALE_BLOCK];
    uint8_t codes[SCALE_BLOCK];
    int32_t bits = 0;

    for (uint32_t r = 0; r < s->rows; r++) {
        widen(row, (const char *)s->weights + ((size_t)r * s->cols + first) * size, s->dtype, n);
        bits = largest_bits(row, bits);
    }
    if (bits >= BITS_OF_INFINITY)
        return false;
    float scale = s->scales[block] = scale_of(bits);
    for (uint32_t r = 0; r < s->rows; r++) {
        size_t at = (size_t)r * s->cols + first;
        widen(row, (const char *)s->weights + at * size, s->dtype, n);
        encode(codes, row, scale);
        memcpy(s->codes + at, codes, n);
    }
    return true;
}

typedef bool block_fn(const struct quantize_strip *s, uint32_t block);

static bool block_plain(const struct quantize_strip *s, uint32_t block)
{
    return quantize_block(s, block);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static bool block_avx2(const struct quantize_strip *s,
                                                       uint32_t block)
{
    return quantize_block(s, block);
}

static block_fn *widest(void)
{
    return __builtin_cpu_supports("avx2") ? block_avx2 : block_plain;
}
#else
static block_fn *widest(void)
{
    return block_plain;
}
#endif

struct job {
    const struct quantize_strip *strip;
    block_fn *block;
    atomic_bool bad;
};

static void quantize_blocks(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    struct job *job = ctx;

    (void)thread;
    for (uint32_t block = begin; block < end; block++)
        if (!job->block(job->strip, block))
            atomic_store_explicit(&job->bad, true, memory_order_relaxed);
}

bool quantize_strip(const struct quantize_strip *s, struct pool *pool)
{
    uint32_t n_blocks = s->cols / SCALE_BLOCK + (s->cols % SCALE_BLOCK != 0);
    struct job job = { .strip = s, .block = widest() };

    assert(s->rows <= SCALE_BLOCK);
    if (pool)
        pool_run(pool, quantize_blocks, &job, n_blocks, 1);
    else
        quantize_blocks(&job, 0, n_blocks, 0);
    return !job.bad;
}

uint64_t quantize_find_bad(const struct quantize_strip *s)
{
    uint64_t n = (uint64_t)s->rows * s->cols, i = 0;
    size_t size = dtype_size(s->dtype);
    float x;

    while (i < n && dtype_to_f32(&x, (const char *)s->weights + i * size, s->dtype, 1) &&
           isfinite(x))
        i++;
    return i;
}
