/* dot_avx_vnni - products of bytes for AVX-VNNI, in one instruction; included after simd_avx2.h,
 * whose operations it completes. dot_avx2.h has the same names and gives the same sums. */
#ifndef TANDEM_ENGINE_KERNELS_DOT_AVX_VNNI_H
#define TANDEM_ENGINE_KERNELS_DOT_AVX_VNNI_H

#define KERNEL_NAME(name) name##_avx_vnni

/* How many rows and panels a product of bytes holds in registers. */
enum { BLOCK_ROWS = 5, BLOCK_PANELS = 1, BLOCK_PANELS_ALONE = 2 };

/* The sum over a block of unsigned quants times activations: where it starts, and four more k of
 * each row. */
static inline vi start_q8_0(int32_t sum)
{
    return _mm256_set1_epi32(-128 * sum);
}
static inline vi start_q4_0(int32_t sum)
{
    return _mm256_set1_epi32(-8 * sum);
}
static inline vi dot_q8_0(vi acc, vi w, vi x)
{
    return _mm256_dpbusd_avx_epi32(acc, w, x);
}
static inline vi dot_q4_0(vi acc, vi w, vi x)
{
    return _mm256_dpbusd_avx_epi32(acc, w, x);
}

#endif
