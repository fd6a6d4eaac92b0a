/* lanes: sixteen floats side by side, on AVX-512 F, BW, VL and DQ.
 *
 * The vocabulary in which vector_*.h are written; lanes_avx2.h has the same one. The
 * _n forms touch only the first n of the lanes in memory and set the others to zero. */
#ifndef KERNELS_LANES_AVX512_H
#define KERNELS_LANES_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define LANES_INLINE static inline __attribute__((always_inline))

typedef __m512 lanes;

enum { LANES = 16 };

/* Twice LANES consecutive elements. */
struct lanes_pair {
    lanes lo, hi;
};

LANES_INLINE __mmask16 first_lanes(int n)
{
    const uint32_t all = (1u << LANES) - 1;
    return (__mmask16)(n >= LANES ? all : all >> (LANES - (n > 0 ? n : 0)));
}

/* ---- memory ---- */

LANES_INLINE lanes lanes_load(const float *at)
{
    return _mm512_loadu_ps(at);
}

LANES_INLINE lanes lanes_load_n(const float *at, int n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), at);
}

LANES_INLINE void lanes_store(float *at, lanes v)
{
    _mm512_storeu_ps(at, v);
}

LANES_INLINE void lanes_store_n(float *at, lanes v, int n)
{
    _mm512_mask_storeu_ps(at, first_lanes(n), v);
}

/* at[0], at[stride], ... */
LANES_INLINE lanes lanes_gather_n(const float *at, int stride, int n)
{
    __m512i i = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    i = _mm512_mullo_epi32(i, _mm512_set1_epi32(stride));
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), first_lanes(n), i, at, 4);
}

/* The first n lanes of v, then those of other. */
LANES_INLINE lanes lanes_blend_n(lanes v, lanes other, int n)
{
    return _mm512_mask_mov_ps(other, first_lanes(n), v);
}

/* ---- arithmetic ---- */

LANES_INLINE lanes lanes_set(float x)
{
    return _mm512_set1_ps(x);
}

LANES_INLINE lanes lanes_add(lanes a, lanes b)
{
    return _mm512_add_ps(a, b);
}

LANES_INLINE lanes lanes_sub(lanes a, lanes b)
{
    return _mm512_sub_ps(a, b);
}

LANES_INLINE lanes lanes_mul(lanes a, lanes b)
{
    return _mm512_mul_ps(a, b);
}

LANES_INLINE lanes lanes_div(lanes a, lanes b)
{
    return _mm512_div_ps(a, b);
}

/* a * b + c, rounded once. */
LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* c - a * b, rounded once. */
LANES_INLINE lanes lanes_fnma(lanes a, lanes b, lanes c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

/* Where one of them is NaN, b. */
LANES_INLINE lanes lanes_max(lanes a, lanes b)
{
    return _mm512_max_ps(a, b);
}

LANES_INLINE lanes lanes_min(lanes a, lanes b)
{
    return _mm512_min_ps(a, b);
}

LANES_INLINE lanes lanes_round(lanes v)
{
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^n for whole n, -126 <= n <= 127. */
LANES_INLINE lanes lanes_pow2(lanes n)
{
    __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
}

/* v, held in a register: the compiler would rather load it anew for each use, and the loads
 * would become the limit. */
LANES_INLINE lanes lanes_pin(lanes v)
{
    __asm__("" : "+v"(v));
    return v;
}

/* Sum over the lanes: halves, quarters, ... in this fixed order. */
LANES_INLINE float lanes_sum(lanes v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

LANES_INLINE float lanes_highest(lanes v)
{
    return _mm512_reduce_max_ps(v);
}

/* [a0+a2, b0+b2, a1+a3, b1+b3] in each quarter. */
LANES_INLINE lanes fold_floats(lanes a, lanes b)
{
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

LANES_INLINE lanes fold_doubles(lanes a, lanes b)
{
    __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}

/* [a0+a1, a2+a3, b0+b1, b2+b3] of quarters. */
LANES_INLINE lanes fold_quarters(lanes a, lanes b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}

/* Lane i becomes the sum over the lanes of v[i]: each fold halves the vectors. */
LANES_INLINE lanes lanes_sum_each(const lanes v[LANES])
{
    lanes four[4];

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        four[i] = fold_doubles(fold_floats(v[4 * i], v[4 * i + 1]),
                               fold_floats(v[4 * i + 2], v[4 * i + 3]));
    return fold_quarters(fold_quarters(four[0], four[1]), fold_quarters(four[2], four[3]));
}

/* ---- weights ---- */

/* E4M3 bits moved into an F16 have the value times 2^-8, for subnormal codes too, and the
 * conversion from F16 is exact and ignores the denormal bits of MXCSR. The sign bit arrives
 * twice; the mask clears the copy. The caller multiplies by F8_UNIT. */
#define F8_UNIT 256.0f

LANES_INLINE struct lanes_pair pair_from_f8(__m256i codes)
{
    __m512i half = _mm512_slli_epi16(_mm512_cvtepi8_epi16(codes), 7);
    half = _mm512_and_si512(half, _mm512_set1_epi16((short)0xBFFF));
    return (struct lanes_pair){ .lo = _mm512_cvtph_ps(_mm512_castsi512_si256(half)),
                                .hi = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1)) };
}

LANES_INLINE lanes from_bf16(__m256i v)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

LANES_INLINE struct lanes_pair pair_load_f8(const char *at)
{
    return pair_from_f8(_mm256_loadu_si256((const __m256i *)(const void *)at));
}

LANES_INLINE struct lanes_pair pair_load_f8_n(const char *at, int n)
{
    return pair_from_f8(_mm256_maskz_loadu_epi8((__mmask32)((UINT64_C(1) << n) - 1), at));
}

LANES_INLINE lanes lanes_load_bf16(const char *at)
{
    return from_bf16(_mm256_loadu_si256((const __m256i *)(const void *)at));
}

LANES_INLINE lanes lanes_load_bf16_n(const char *at, int n)
{
    return from_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), at));
}

LANES_INLINE lanes lanes_load_f16(const char *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)at));
}

LANES_INLINE lanes lanes_load_f16_n(const char *at, int n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), at));
}

LANES_INLINE lanes lanes_load_f32(const char *at)
{
    return _mm512_loadu_ps((const void *)at);
}

LANES_INLINE lanes lanes_load_f32_n(const char *at, int n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), (const void *)at);
}

/* Nearest even; a NaN stays one. */
LANES_INLINE void lanes_store_bf16_n(char *at, lanes v, int n)
{
    __m512i bits = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    __m512i nan = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));

    up = _mm512_mask_mov_epi32(up, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), nan);
    _mm256_mask_storeu_epi16(at, first_lanes(n), _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16)));
}

#endif
