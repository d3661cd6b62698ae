/* simd_avx512 - the vector operations that the kernel bodies are written in, for AVX-512 with VNNI:
 * 16 lanes.
 *
 * simd_avx2.h has the same names. vf holds floats, vi 32-bit integers or bytes. */
#ifndef TANDEM_ENGINE_KERNELS_SIMD_AVX512_H
#define TANDEM_ENGINE_KERNELS_SIMD_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL_NAME(name) name##_avx512

enum {
    V_LANES = 16,
    /* How many rows and panels a product holds in registers; one row alone takes more panels. */
    FLOAT_ROWS = 5,
    FLOAT_PANELS = 4,
    FLOAT_PANELS_ALONE = 4,
    BLOCK_ROWS = 5,
    BLOCK_PANELS = 2,
    BLOCK_PANELS_ALONE = 4,
    ATTEND_QUERIES = 8, /* queries that walk a tile in registers */
    ATTEND_VECTORS = 4, /* vectors of value dimensions at once, of up to 4 queries */
};

typedef __m512 vf;
typedef __m512i vi;
typedef uint32_t v_words __attribute__((vector_size(4 * V_LANES)));

static inline __mmask16 v_mask(size_t n)
{
    return (__mmask16)((1U << n) - 1);
}

/* clang-format off: most operations are one line. */
static inline vf v_zero(void)
{
    return _mm512_setzero_ps();
}
static inline vf v_set1(float x)
{
    return _mm512_set1_ps(x);
}
static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
/* The first n < V_LANES lanes; the others are 0 or not written. */
static inline vf v_load_n(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(v_mask(n), p);
}
static inline void v_store_n(float *p, vf x, size_t n)
{
    _mm512_mask_storeu_ps(p, v_mask(n), x);
}
/* Lanes below n of x, the others of other; n <= V_LANES. */
static inline vf v_first_n(vf x, size_t n, vf other)
{
    return _mm512_mask_mov_ps(other, v_mask(n), x);
}
static inline vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
static inline vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
static inline vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
static inline vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
/* a b + c, c - a b, each with one rounding */
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf v_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
/* The second operand where one of them is NaN. */
static inline vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
/* y, but 0 in the lanes where x < limit */
static inline vf v_zero_below(vf x, vf limit, vf y)
{
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, limit, _CMP_LT_OQ), _mm512_setzero_ps());
}
static inline float v_first(vf x)
{
    return _mm512_cvtss_f32(x);
}
static inline float v_fold_max(vf x)
{
    return _mm512_reduce_max_ps(x);
}
/* The sum of the lanes, in halves: lane l and lane l + 8, then l + 4, then l + 2, then l + 1. */
static inline float v_fold_add(vf x)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 m = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    m = _mm_add_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_add_ss(m, _mm_shuffle_ps(m, m, 1)));
}
static inline vf v_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
static inline void v_to_f16(uint16_t *p, vf x)
{
    /* Without a mask, the macro of an unoptimised gcc passes -1 for one, which is a warning. */
    _mm256_storeu_si256((void *)p, _mm512_maskz_cvtps_ph(0xffff, x, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf v_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}

static inline vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
static inline vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
static inline vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
static inline vi vi_max(vi a, vi b)
{
    return _mm512_max_epi32(a, b);
}
static inline vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}
static inline vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}
static inline vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}
static inline vi vi_min(vi a, vi b)
{
    return _mm512_min_epi32(a, b);
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
    return _mm512_set1_epi8((char)x);
}
/* Each byte of index, 0 .. 15, becomes that entry. */
static inline vi vi_table(const uint8_t table[16], vi index)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)), index);
}
/* V_LANES small numbers. */
static inline vi vi_load_u8(const void *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
}
static inline vi vi_load_i8(const void *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(p));
}
static inline vi vi_load_u16(const void *p)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
}
static inline vf vi_to_float(vi a)
{
    return _mm512_cvtepi32_ps(a);
}
static inline vi v_round_to_int(vf a)
{
    return _mm512_cvtps_epi32(a);
}
static inline vf vi_as_float(vi a)
{
    return _mm512_castsi512_ps(a);
}
static inline vi v_as_int(vf a)
{
    return _mm512_castps_si512(a);
}
static inline int32_t vi_fold_max(vi a)
{
    return _mm512_reduce_max_epi32(a);
}
static inline int32_t vi_fold_add(vi a)
{
    return _mm512_reduce_add_epi32(a);
}
static inline void vi_store_bytes(int8_t *p, vi a)
{
    _mm_storeu_si128((void *)p, _mm512_cvtsepi32_epi8(a));
}

/* The sum over a block of levels, unsigned and of so many bits, times activations: where it starts,
 * four more k of each row, and what it is in the end, less zero times the activations. */
static inline vi dot_start(int bits, int zero, int32_t sum)
{
    (void)bits;
    return _mm512_set1_epi32(-zero * sum);
}
static inline vi dot_4(int bits, vi acc, vi w, vi x)
{
    (void)bits;
    return _mm512_dpbusd_epi32(acc, w, x);
}
static inline vi dot_end(int bits, int zero, vi acc, int32_t sum)
{
    (void)bits, (void)zero, (void)sum;
    return acc;
}

/* clang-format on */

#endif
