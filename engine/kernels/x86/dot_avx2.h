/* dot_avx2 - products of bytes for AVX2 alone; included after simd_avx2.h, whose operations it
 * completes. dot_avx_vnni.h has the same names and gives the same sums. */
#ifndef TANDEM_ENGINE_KERNELS_DOT_AVX2_H
#define TANDEM_ENGINE_KERNELS_DOT_AVX2_H

#define KERNEL_NAME(name) name##_avx2

/* How many rows and panels a product of bytes holds in registers. */
enum { BLOCK_ROWS = 3, BLOCK_PANELS = 1, BLOCK_PANELS_ALONE = 2 };

/* The sum over a block of levels, unsigned and of so many bits, times activations: where it starts,
 * four more k of each row, and what it is after at most 32 k, less zero times the activations.
 *
 * vpmaddubsw adds two products in 16 bits, with saturation. Eight bits: the levels, whose zero is
 * 128, get their sign back; their magnitude (128 at most, as an unsigned byte) is one factor and
 * the activation with the level's sign the other: at most 2 x 128 x 127 = 32512, which fits. (The
 * other way round, -128 would have no negative.) Up to four bits, the sums of all 32 k fit into 16
 * bits: 8 x 2 x 15 x 127 = 30480. */
static inline vi dot_start(int bits, int zero, int32_t sum)
{
    (void)bits, (void)zero, (void)sum;
    return _mm256_setzero_si256();
}
static inline vi dot_pairs(vi pairs)
{
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
static inline vi dot_4(int bits, vi acc, vi w, vi x)
{
    if (bits <= 4) return _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, x));
    if (bits < 8) return _mm256_add_epi32(acc, dot_pairs(_mm256_maddubs_epi16(w, x)));
    vi q = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    vi pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(x, q));
    return _mm256_add_epi32(acc, dot_pairs(pairs));
}
static inline vi dot_end(int bits, int zero, vi acc, int32_t sum)
{
    if (bits == 8) return acc;
    return _mm256_sub_epi32(bits <= 4 ? dot_pairs(acc) : acc, _mm256_set1_epi32(zero * sum));
}

#endif
