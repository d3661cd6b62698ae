/* planes_readers - how vectors take panels of bit planes apart; included after simd_*.h by what
 * multiplies them (planes_body.h, amx_block.c), where INLINE is known.
 *
 * The layout is that of generic/planes.h. A format is two functions: the levels of four k of each
 * row, and the scales of a part of a block. */
#ifndef TANDEM_ENGINE_KERNELS_PLANES_READERS_H
#define TANDEM_ENGINE_KERNELS_PLANES_READERS_H

#include "engine/kernels/generic/planes.h"

/* Levels of k = 4j .. 4j + 3 of a block, for the rows of vector v. */
typedef vi levels_fn(const uint8_t *planes, int j, int v);

/* Scale and minimum of part s of a group, for the rows of vector v. */
typedef void scales_fn(const uint8_t *head, int s, int v, vf *scale, vf *minimum);

/* ---- levels ---- */

/* n bits of the four values of group j, at bit `to` of their bytes. */
INLINE vi plane_bits(const uint8_t *planes, int n, int j, int v, int to)
{
    vi bits = vi_load(planes + 4 * (j % n * PANEL_ROWS + v * V_LANES));
    int from = n * (j / n);
    bits = from > to ? vi_shift_right(bits, from - to) : vi_shift_left(bits, to - from);
    return vi_and(bits, vi_set1_byte(((1 << n) - 1) << to));
}

INLINE vi levels_4(const uint8_t *planes, int j, int v)
{
    return plane_bits(planes, 4, j, v, 0);
}

INLINE vi levels_4_1(const uint8_t *planes, int j, int v)
{
    return vi_or(levels_4(planes, j, v), plane_bits(planes + 4 * 4 * PANEL_ROWS, 1, j, v, 4));
}

INLINE vi levels_4_2(const uint8_t *planes, int j, int v)
{
    return vi_or(levels_4(planes, j, v), plane_bits(planes + 4 * 4 * PANEL_ROWS, 2, j, v, 4));
}

INLINE vi levels_2(const uint8_t *planes, int j, int v)
{
    return plane_bits(planes, 2, j, v, 0);
}

INLINE vi levels_2_1(const uint8_t *planes, int j, int v)
{
    return vi_or(levels_2(planes, j, v), plane_bits(planes + 2 * 4 * PANEL_ROWS, 1, j, v, 2));
}

INLINE vi levels_iq4(const uint8_t *planes, int j, int v)
{
    return vi_table(planes_iq4_levels, levels_4(planes, j, v));
}

INLINE vi levels_mxfp4(const uint8_t *planes, int j, int v)
{
    return vi_table(planes_mxfp4_levels, levels_4(planes, j, v));
}

/* ---- scales ---- */

INLINE vf negative(vf x)
{
    return v_sub(v_zero(), x);
}

/* The first and second f16 of a head. */
INLINE vf head_d(const uint8_t *head, int v)
{
    return v_load_f16(head + 2 * v * V_LANES);
}

INLINE vf head_m(const uint8_t *head, int v)
{
    return v_load_f16(head + 2 * PANEL_ROWS + 2 * v * V_LANES);
}

/* Bits of one of the 32-bit words behind n f16. */
INLINE vi head_bits(const uint8_t *head, int n, int word, int v, int shift, int mask)
{
    vi bits = vi_load(head + 2 * n * PANEL_ROWS + 4 * (word * PANEL_ROWS + v * V_LANES));
    return vi_and(vi_shift_right(bits, shift), vi_set1(mask));
}

INLINE void scales_one(const uint8_t *head, int s, int v, vf *scale, vf *minimum)
{
    (void)s;
    *scale = head_d(head, v);
    *minimum = v_zero();
}

INLINE void scales_two(const uint8_t *head, int s, int v, vf *scale, vf *minimum)
{
    (void)s;
    *scale = head_d(head, v);
    *minimum = head_m(head, v);
}

/* 2^(e - 128), of which the two lowest are subnormal: their bits are 1 << 21 and 2 << 21. */
INLINE void scales_mxfp4(const uint8_t *head, int s, int v, vf *scale, vf *minimum)
{
    (void)s;
    vi e = vi_load_u8(head + v * V_LANES), one = vi_set1(1);
    vi subnormal = vi_shift_left(vi_add(vi_min(e, one), one), 21);
    *scale = vi_as_float(vi_max(vi_shift_left(vi_sub(e, one), 23), subnormal));
    *minimum = v_zero();
}

INLINE void scales_q2_k(const uint8_t *head, int s, int v, vf *scale, vf *minimum)
{
    vi both = vi_load_u8(head + (4 + s) * PANEL_ROWS + v * V_LANES);
    *scale = v_mul(head_d(head, v), vi_to_float(vi_and(both, vi_set1(0xf))));
    *minimum = negative(v_mul(head_m(head, v), vi_to_float(vi_shift_right(both, 4))));
}

INLINE void scales_q3_k(const uint8_t *head, int s, int v, vf *scale, vf *minimum)
{
    int byte = 8 * (s % 4);
    vi low = head_bits(head, 1, s / 4 % 2, v, byte + 4 * (s / 8), 0xf);
    vi high = head_bits(head, 1, 2, v, byte + 2 * (s / 4), 3);
    vi both = vi_sub(vi_or(low, vi_shift_left(high, 4)), vi_set1(32));
    *scale = v_mul(head_d(head, v), vi_to_float(both));
    *minimum = v_zero();
}

/* Words 0 and 1 hold four scales and four minimums; what is left at the top of their bytes belongs
 * to the other four, which are in word 2. */
INLINE void scales_q4_k(const uint8_t *head, int s, int v, vf *scale, vf *minimum)
{
    int byte = 8 * (s % 4);
    vi a, b;
    if (s < 4) {
        a = head_bits(head, 2, 0, v, byte, 0x3f);
        b = head_bits(head, 2, 1, v, byte, 0x3f);
    } else {
        a = vi_or(head_bits(head, 2, 2, v, byte, 0xf),
                  vi_shift_left(head_bits(head, 2, 0, v, byte + 6, 3), 4));
        b = vi_or(head_bits(head, 2, 2, v, byte + 4, 0xf),
                  vi_shift_left(head_bits(head, 2, 1, v, byte + 6, 3), 4));
    }
    *scale = v_mul(head_d(head, v), vi_to_float(a));
    *minimum = negative(v_mul(head_m(head, v), vi_to_float(b)));
}

INLINE void scales_q6_k(const uint8_t *head, int s, int v, vf *scale, vf *minimum)
{
    vi eight = vi_load_i8(head + (2 + s) * PANEL_ROWS + v * V_LANES);
    *scale = v_mul(head_d(head, v), vi_to_float(eight));
    *minimum = v_zero();
}

INLINE void scales_iq4_xs(const uint8_t *head, int s, int v, vf *scale, vf *minimum)
{
    vi high = vi_load_u16(head + 2 * PANEL_ROWS + 2 * v * V_LANES);
    vi low = head_bits(head, 2, 0, v, 4 * s, 0xf);
    high = vi_shift_left(vi_and(vi_shift_right(high, 2 * s), vi_set1(3)), 4);
    *scale = v_mul(head_d(head, v), vi_to_float(vi_sub(vi_or(low, high), vi_set1(32))));
    *minimum = v_zero();
}

/* ---- formats: X(suffix, levels, scales) ---- */

#define PLANES_READERS(X)                                                                          \
    X(q4_1, levels_4, scales_two)                                                                  \
    X(q5_0, levels_4_1, scales_one)                                                                \
    X(q5_1, levels_4_1, scales_two)                                                                \
    X(iq4_nl, levels_iq4, scales_one)                                                              \
    X(mxfp4, levels_mxfp4, scales_mxfp4)                                                           \
    X(q2_k, levels_2, scales_q2_k)                                                                 \
    X(q3_k, levels_2_1, scales_q3_k)                                                               \
    X(q4_k, levels_4, scales_q4_k)                                                                 \
    X(q5_k, levels_4_1, scales_q4_k)                                                               \
    X(q6_k, levels_4_2, scales_q6_k)                                                               \
    X(iq4_xs, levels_iq4, scales_iq4_xs)                                                           \
    X(tq2_0, levels_2, scales_one)

/* The sum of 16 activations. */
INLINE int32_t sum_16(const int8_t *q)
{
    __m128i bytes = _mm_xor_si128(_mm_loadu_si128((const void *)q), _mm_set1_epi8(-128));
    __m128i sums = _mm_sad_epu8(bytes, _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

#endif
