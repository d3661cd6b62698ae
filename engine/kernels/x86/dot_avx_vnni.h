/* dot_avx_vnni - products of bytes for AVX-VNNI, in one instruction; included after simd_avx2.h,
 * whose operations it completes. dot_avx2.h has the same names and gives the same sums. */
#ifndef TANDEM_ENGINE_KERNELS_DOT_AVX_VNNI_H
#define TANDEM_ENGINE_KERNELS_DOT_AVX_VNNI_H

#define KERNEL_NAME(name) name##_avx_vnni

/* How many rows and panels a product of bytes holds in registers. */
enum { BLOCK_ROWS = 4, BLOCK_PANELS = 1, BLOCK_PANELS_ALONE = 2 };

/* The sum over a block of levels, unsigned and of so many bits, times activations: where it starts,
 * four more k of each row, and what it is in the end, less zero times the activations. */
static inline vi dot_start(int bits, int zero, int32_t sum)
{
    (void)bits;
    return _mm256_set1_epi32(-zero * sum);
}
static inline vi dot_4(int bits, vi acc, vi w, vi x)
{
    (void)bits;
    return _mm256_dpbusd_avx_epi32(acc, w, x);
}
static inline vi dot_end(int bits, int zero, vi acc, int32_t sum)
{
    (void)bits, (void)zero, (void)sum;
    return acc;
}

#endif
