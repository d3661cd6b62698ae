/* dot_avx2 - products of bytes for AVX2 alone; included after simd_avx2.h, whose operations it
 * completes. dot_avx_vnni.h has the same names and gives the same sums. */
#ifndef TANDEM_ENGINE_KERNELS_DOT_AVX2_H
#define TANDEM_ENGINE_KERNELS_DOT_AVX2_H

#define KERNEL_NAME(name) name##_avx2

/* How many rows and panels a product of bytes holds in registers. */
enum { BLOCK_ROWS = 3, BLOCK_PANELS = 1, BLOCK_PANELS_ALONE = 2 };

/* The sum over a block of unsigned quants times activations: where it starts, and four more k of
 * each row. vpmaddubsw adds two products in 16 bits, with saturation. Q4_0: at most 2 x 15 x 127.
 * Q8_0: the quants get their sign back, their magnitude (128 at most, as an unsigned byte) is one
 * factor and the activation with the quant's sign the other: at most 2 x 128 x 127 = 32512, which
 * fits. (The other way round, -128 would have no negative.) */
static inline vi dot_bytes(vi acc, vi unsigned_bytes, vi signed_bytes)
{
    __m256i pairs = _mm256_maddubs_epi16(unsigned_bytes, signed_bytes);
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline vi start_q8_0(int32_t sum)
{
    (void)sum;
    return _mm256_setzero_si256();
}
static inline vi start_q4_0(int32_t sum)
{
    return _mm256_set1_epi32(-8 * sum);
}
static inline vi dot_q8_0(vi acc, vi w, vi x)
{
    __m256i q = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    return dot_bytes(acc, _mm256_abs_epi8(q), _mm256_sign_epi8(x, q));
}
static inline vi dot_q4_0(vi acc, vi w, vi x)
{
    return dot_bytes(acc, w, x);
}

#endif
