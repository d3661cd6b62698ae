/* simd_avx2 - the vector operations that the kernel bodies are written in, for AVX2 with FMA and
 * F16C: 8 lanes.
 *
 * simd_avx512.h has the same names, together with those of dot_avx2.h or dot_avx_vnni.h: how bytes
 * are multiplied, and the name that the kernels get. vf holds floats, vi 32-bit integers or bytes.
 */
#ifndef TANDEM_ENGINE_KERNELS_SIMD_AVX2_H
#define TANDEM_ENGINE_KERNELS_SIMD_AVX2_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

enum {
    V_LANES = 8,
    /* How many rows and panels a product holds in registers; one row alone takes more panels. */
    FLOAT_ROWS = 5,
    FLOAT_PANELS = 1,
    FLOAT_PANELS_ALONE = 4,
    ATTEND_QUERIES = 4, /* queries that walk a tile in registers */
    ATTEND_VECTORS = 2, /* vectors of value dimensions at once, of up to 4 queries */
};

typedef __m256 vf;
typedef __m256i vi;
typedef uint32_t v_words __attribute__((vector_size(4 * V_LANES)));

/* All bits set in the first n lanes. */
static inline __m256i v_mask(size_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

/* clang-format off: most operations are one line. */
static inline vf v_zero(void)
{
    return _mm256_setzero_ps();
}
static inline vf v_set1(float x)
{
    return _mm256_set1_ps(x);
}
static inline vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
/* The first n < V_LANES lanes; the others are 0 or not written. */
static inline vf v_load_n(const float *p, size_t n)
{
    return _mm256_maskload_ps(p, v_mask(n));
}
static inline void v_store_n(float *p, vf x, size_t n)
{
    _mm256_maskstore_ps(p, v_mask(n), x);
}
/* Lanes below n of x, the others of other; n <= V_LANES. */
static inline vf v_first_n(vf x, size_t n, vf other)
{
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(v_mask(n)));
}
static inline vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
static inline vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
static inline vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
static inline vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
/* a b + c, c - a b, each with one rounding */
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf v_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
/* The second operand where one of them is NaN. */
static inline vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
static inline vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
/* y, but 0 in the lanes where x < limit */
static inline vf v_zero_below(vf x, vf limit, vf y)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), y);
}
static inline float v_first(vf x)
{
    return _mm256_cvtss_f32(x);
}
static inline float v_fold_max(vf x)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}
/* The sum of the lanes, in halves: lane l and lane l + 4, then l + 2, then l + 1. */
static inline float v_fold_add(vf x)
{
    __m128 m = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_add_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_add_ss(m, _mm_shuffle_ps(m, m, 1)));
}
static inline vf v_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
static inline void v_to_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf v_load_bf16(const void *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}

static inline vi vi_load(const void *p)
{
    return _mm256_loadu_si256(p);
}
static inline vi vi_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}
static inline vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}
static inline vi vi_max(vi a, vi b)
{
    return _mm256_max_epi32(a, b);
}
static inline vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}
static inline vi vi_or(vi a, vi b)
{
    return _mm256_or_si256(a, b);
}
static inline vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}
static inline vi vi_min(vi a, vi b)
{
    return _mm256_min_epi32(a, b);
}
/* Of unsigned words; n need not be known to the compiler. */
static inline vi vi_shift_left(vi a, int n)
{
    return (vi)((v_words)a << n);
}
static inline vi vi_shift_right(vi a, int n)
{
    return (vi)((v_words)a >> n);
}
static inline vi vi_set1_byte(int x)
{
    return _mm256_set1_epi8((char)x);
}
/* Each byte of index, 0 .. 15, becomes that entry. */
static inline vi vi_table(const uint8_t table[16], vi index)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table)),
                               index);
}
/* V_LANES small numbers. */
static inline vi vi_load_u8(const void *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p));
}
static inline vi vi_load_i8(const void *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p));
}
static inline vi vi_load_u16(const void *p)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
}
static inline vf vi_to_float(vi a)
{
    return _mm256_cvtepi32_ps(a);
}
static inline vi v_round_to_int(vf a)
{
    return _mm256_cvtps_epi32(a);
}
static inline vf vi_as_float(vi a)
{
    return _mm256_castsi256_ps(a);
}
static inline vi v_as_int(vf a)
{
    return _mm256_castps_si256(a);
}
static inline int32_t vi_fold_max(vi a)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}
static inline int32_t vi_fold_add(vi a)
{
    __m128i m = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}
static inline void vi_store_bytes(int8_t *p, vi a)
{
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64((void *)p, _mm_packs_epi16(words, words));
}

/* clang-format on */

#endif
