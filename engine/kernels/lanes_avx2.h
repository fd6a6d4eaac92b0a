/* lanes: eight floats side by side, on AVX2, FMA and F16C.
 *
 * The vocabulary in which vector_*.h are written; lanes_avx512.h has the same one. The
 * _n forms touch only the first n of the lanes in memory and set the others to zero. */
#ifndef KERNELS_LANES_AVX2_H
#define KERNELS_LANES_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES_INLINE static inline __attribute__((always_inline))

typedef __m256 lanes;

enum { LANES = 8 };

/* Twice LANES consecutive elements. */
struct lanes_pair {
    lanes lo, hi;
};

LANES_INLINE __m256i first_lanes(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* ---- memory ---- */

LANES_INLINE lanes lanes_load(const float *at)
{
    return _mm256_loadu_ps(at);
}

LANES_INLINE lanes lanes_load_n(const float *at, int n)
{
    return _mm256_maskload_ps(at, first_lanes(n));
}

LANES_INLINE void lanes_store(float *at, lanes v)
{
    _mm256_storeu_ps(at, v);
}

LANES_INLINE void lanes_store_n(float *at, lanes v, int n)
{
    _mm256_maskstore_ps(at, first_lanes(n), v);
}

/* at[0], at[stride], ... */
LANES_INLINE lanes lanes_gather_n(const float *at, int stride, int n)
{
    __m256i i = _mm256_mullo_epi32(_mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0),
                                   _mm256_set1_epi32(stride));
    return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), at, i,
                                    _mm256_castsi256_ps(first_lanes(n)), 4);
}

/* The first n lanes of v, then those of other. */
LANES_INLINE lanes lanes_blend_n(lanes v, lanes other, int n)
{
    return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(first_lanes(n)));
}

/* ---- arithmetic ---- */

LANES_INLINE lanes lanes_set(float x)
{
    return _mm256_set1_ps(x);
}

LANES_INLINE lanes lanes_add(lanes a, lanes b)
{
    return _mm256_add_ps(a, b);
}

LANES_INLINE lanes lanes_sub(lanes a, lanes b)
{
    return _mm256_sub_ps(a, b);
}

LANES_INLINE lanes lanes_mul(lanes a, lanes b)
{
    return _mm256_mul_ps(a, b);
}

LANES_INLINE lanes lanes_div(lanes a, lanes b)
{
    return _mm256_div_ps(a, b);
}

/* a * b + c, rounded once. */
LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* c - a * b, rounded once. */
LANES_INLINE lanes lanes_fnma(lanes a, lanes b, lanes c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

/* Where one of them is NaN, b. */
LANES_INLINE lanes lanes_max(lanes a, lanes b)
{
    return _mm256_max_ps(a, b);
}

LANES_INLINE lanes lanes_min(lanes a, lanes b)
{
    return _mm256_min_ps(a, b);
}

LANES_INLINE lanes lanes_round(lanes v)
{
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^n for whole n, -126 <= n <= 127. */
LANES_INLINE lanes lanes_pow2(lanes n)
{
    __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}

/* v, held in a register: the compiler would rather load it anew for each use, and the loads
 * would become the limit. */
LANES_INLINE lanes lanes_pin(lanes v)
{
    __asm__("" : "+x"(v));
    return v;
}

/* Sum over the lanes: halves, quarters, ... in this fixed order. */
LANES_INLINE float lanes_sum(lanes v)
{
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

LANES_INLINE float lanes_highest(lanes v)
{
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

/* Lane i becomes the sum over the lanes of v[i]. hadd adds neighbours within each half:
 * after two of them, a half holds a sum of four lanes of each of four vectors. */
LANES_INLINE lanes lanes_sum_each(const lanes v[LANES])
{
    __m256 four[2];

#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m256 a = _mm256_hadd_ps(v[4 * i], v[4 * i + 1]);
        __m256 b = _mm256_hadd_ps(v[4 * i + 2], v[4 * i + 3]);
        four[i] = _mm256_hadd_ps(a, b);
    }
    return _mm256_add_ps(_mm256_permute2f128_ps(four[0], four[1], 0x20),
                         _mm256_permute2f128_ps(four[0], four[1], 0x31));
}

/* ---- weights ---- */

/* E4M3 bits moved into an F16 have the value times 2^-8, for subnormal codes too, and the
 * conversion from F16 is exact and ignores the denormal bits of MXCSR. The sign bit arrives
 * twice; the mask clears the copy. The caller multiplies by F8_UNIT.
 *
 * The F16 numbers go through the stack, because the conversion from a register takes the
 * shuffle port, which is the scarce one here; from memory it does not. Measured: 15 to 25 %
 * faster (but not with AVX-512). */
#define F8_UNIT 256.0f

LANES_INLINE struct lanes_pair pair_from_f8(__m128i codes)
{
    union {
        __m256i all;
        __m128i half[2];
    } f16 = { _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7) };

    f16.all = _mm256_and_si256(f16.all, _mm256_set1_epi16((short)0xBFFF));
    __asm__("" : "+m"(f16)); /* really store it */
    return (struct lanes_pair){ .lo = _mm256_cvtph_ps(f16.half[0]),
                                .hi = _mm256_cvtph_ps(f16.half[1]) };
}

LANES_INLINE lanes from_bf16(__m128i v)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

LANES_INLINE __m128i load_16_bytes(const char *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

/* AVX2 has no masked load of bytes. */
LANES_INLINE __m128i load_16_bytes_n(const char *at, int n_bytes)
{
    char copy[16] = { 0 };

    if (n_bytes > 0)
        memcpy(copy, at, (size_t)(n_bytes < 16 ? n_bytes : 16));
    return load_16_bytes(copy);
}

LANES_INLINE struct lanes_pair pair_load_f8(const char *at)
{
    return pair_from_f8(load_16_bytes(at));
}

LANES_INLINE struct lanes_pair pair_load_f8_n(const char *at, int n)
{
    return pair_from_f8(load_16_bytes_n(at, n));
}

LANES_INLINE lanes lanes_load_bf16(const char *at)
{
    return from_bf16(load_16_bytes(at));
}

LANES_INLINE lanes lanes_load_bf16_n(const char *at, int n)
{
    return from_bf16(load_16_bytes_n(at, 2 * n));
}

LANES_INLINE lanes lanes_load_f16(const char *at)
{
    return _mm256_cvtph_ps(load_16_bytes(at));
}

LANES_INLINE lanes lanes_load_f16_n(const char *at, int n)
{
    return _mm256_cvtph_ps(load_16_bytes_n(at, 2 * n));
}

LANES_INLINE lanes lanes_load_f32(const char *at)
{
    return _mm256_loadu_ps((const void *)at);
}

LANES_INLINE lanes lanes_load_f32_n(const char *at, int n)
{
    return _mm256_maskload_ps((const void *)at, first_lanes(n));
}

/* Nearest even; a NaN stays one. */
LANES_INLINE void lanes_store_bf16_n(char *at, lanes v, int n)
{
    __m256i bits = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));

    up = _mm256_srli_epi32(_mm256_blendv_epi8(up, nan, is_nan), 16);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(up, up), 0x08);
    char copy[16];
    _mm_storeu_si128((__m128i *)(void *)copy, _mm256_castsi256_si128(packed));
    memcpy(at, copy, 2 * (size_t)(n < LANES ? n : LANES));
}

#endif
