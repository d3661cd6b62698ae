/* planes_body - products of panels of bit planes, written once for every vector width; included by
 * one file of each instruction set after its simd_*.h and matmul_body.h.
 *
 *   y[r][o] = sum over k of W[o][k] * x[r][k]
 *
 * The layout is that of generic/planes.h, the order that of kernels.h. A format is two functions:
 * the levels of four k of each row, and the scales of a part of a block. */
#include "engine/kernels/generic/planes.h"

/* Levels of k = 4j .. 4j + 3 of a block, for the rows of vector v. */
typedef vi levels_fn(const uint8_t *planes, int j, int v);

/* Scale and minimum of part s of a group, for the rows of vector v. */
typedef void scales_fn(const uint8_t *head, int s, int v, vf *scale, vf *minimum);

enum { MAX_PARTS = 16 }; /* of a group */

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

/* ---- a tile ---- */

INLINE int32_t sum_16(const int8_t *q)
{
    __m128i bytes = _mm_xor_si128(_mm_loadu_si128((const void *)q), _mm_set1_epi8(-128));
    __m128i sums = _mm_sad_epu8(bytes, _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

/* Sums of the activations of each part of block `at`. */
INLINE void part_sums(const struct activations *x, size_t at, size_t parts, int32_t sum[2])
{
    sum[0] = parts == 1 ? x->sum[at] : sum_16(x->q8 + at * QUANT_BLOCK);
    sum[1] = x->sum[at] - sum[0];
}

/* Levels that take all eight bits are multiplied as those of Q8_0, smaller ones as those of Q4_0.
 */
INLINE vi start_sum(int zero, int32_t sum)
{
    return zero == 128 ? start_q8_0(sum) : vi_set1(-zero * sum);
}

INLINE vi dot_4(int zero, vi acc, vi w, vi x)
{
    return zero == 128 ? dot_q8_0(acc, w, x) : dot_q4_0(acc, w, x);
}

/* The scales of a group, made f32 once for all rows of a tile. */
typedef vf group_scale[MAX_PANELS][MAX_PARTS][PANEL_VECTORS];

/* Block c of a group, which is block b of the row, for all rows and panels of a tile. */
INLINE void add_block(const struct tile *t, int rows, int panels, const struct planes_shape s,
                      levels_fn *levels, size_t b, size_t c, const uint8_t *const group[MAX_PANELS],
                      group_scale scale, group_scale minimum, tile_acc acc)
{
    const struct activations *x = t->x;
    size_t planes_at = s.head * PANEL_ROWS + c * planes_step(&s), at[MAX_ROWS];
    int parts = (int)s.parts, n = QUANT_BLOCK / 4 / parts;
    int32_t x_sum[MAX_ROWS][2];
    UNROLL_FOR (r, rows) {
        at[r] = (t->row + (size_t)r) * (t->w->n_in / QUANT_BLOCK) + b;
        part_sums(x, at[r], s.parts, x_sum[r]);
    }
    UNROLL_FOR (part, parts) {
        size_t of_group = c * s.parts + (size_t)part;
        vi sum[MAX_ROWS][MAX_PANELS][PANEL_VECTORS];
        UNROLL_FOR (r, rows)
            UNROLL_FOR (p, panels)
                UNROLL_FOR (v, PANEL_VECTORS) sum[r][p][v] = start_sum(s.zero, x_sum[r][part]);
        UNROLL_FOR (i, n) {
            int j = part * n + i;
            vi w[MAX_PANELS][PANEL_VECTORS];
            UNROLL_FOR (p, panels)
                UNROLL_FOR (v, PANEL_VECTORS) w[p][v] = levels(group[p] + planes_at, j, v);
            UNROLL_FOR (r, rows) {
                vi four = broadcast_4(x->q8 + at[r] * QUANT_BLOCK + 4 * j);
                UNROLL_FOR (p, panels)
                    UNROLL_FOR (v, PANEL_VECTORS)
                        sum[r][p][v] = dot_4(s.zero, sum[r][p][v], w[p][v], four);
            }
        }
        UNROLL_FOR (r, rows) {
            float x_scale = x->scale[at[r]];
            vf offset = v_set1(x_scale * (float)x_sum[r][part]);
            UNROLL_FOR (p, panels)
                UNROLL_FOR (v, PANEL_VECTORS) {
                    vf both = v_mul(scale[p][of_group][v], v_set1(x_scale)), *to = &acc[r][p][v];
                    *to = v_fma(both, vi_to_float(sum[r][p][v]), *to);
                    if (s.has_minimum) *to = v_fma(minimum[p][of_group][v], offset, *to);
                }
        }
    }
}

INLINE void tile_planes(const struct tile *t, int rows, int panels, const struct planes_shape s,
                        levels_fn *levels, scales_fn *scales)
{
    size_t n_blocks = t->w->n_in / QUANT_BLOCK;
    const uint8_t *group[MAX_PANELS];
    group_scale scale, minimum;
    tile_acc acc;
    UNROLL_FOR (p, panels) {
        group[p] = tile_panel(t, p);
        UNROLL_FOR (r, rows)
            UNROLL_FOR (v, PANEL_VECTORS) acc[r][p][v] = v_zero();
    }
    for (size_t b = 0; b < n_blocks; b += s.blocks) {
        UNROLL_FOR (p, panels)
            UNROLL_FOR (part, (int)(s.blocks * s.parts))
                UNROLL_FOR (v, PANEL_VECTORS)
                    scales(group[p], part, v, &scale[p][part][v], &minimum[p][part][v]);
        for (size_t c = 0; c < s.blocks; c++)
            add_block(t, rows, panels, s, levels, b + c, c, group, scale, minimum, acc);
        UNROLL_FOR (p, panels) group[p] += planes_group_bytes(&s);
    }
    tile_store(t, rows, panels, acc);
}

#define TILE_q4_1(t, rows, panels)                                                                 \
    tile_planes(t, rows, panels, planes_shape_q4_1, levels_4, scales_two)
#define TILE_q5_0(t, rows, panels)                                                                 \
    tile_planes(t, rows, panels, planes_shape_q5_0, levels_4_1, scales_one)
#define TILE_q5_1(t, rows, panels)                                                                 \
    tile_planes(t, rows, panels, planes_shape_q5_1, levels_4_1, scales_two)
#define TILE_iq4_nl(t, rows, panels)                                                               \
    tile_planes(t, rows, panels, planes_shape_iq4_nl, levels_iq4, scales_one)
#define TILE_mxfp4(t, rows, panels)                                                                \
    tile_planes(t, rows, panels, planes_shape_mxfp4, levels_mxfp4, scales_mxfp4)
#define TILE_q2_k(t, rows, panels)                                                                 \
    tile_planes(t, rows, panels, planes_shape_q2_k, levels_2, scales_q2_k)
#define TILE_q3_k(t, rows, panels)                                                                 \
    tile_planes(t, rows, panels, planes_shape_q3_k, levels_2_1, scales_q3_k)
#define TILE_q4_k(t, rows, panels)                                                                 \
    tile_planes(t, rows, panels, planes_shape_q4_k, levels_4, scales_q4_k)
#define TILE_q5_k(t, rows, panels)                                                                 \
    tile_planes(t, rows, panels, planes_shape_q5_k, levels_4_1, scales_q4_k)
#define TILE_q6_k(t, rows, panels)                                                                 \
    tile_planes(t, rows, panels, planes_shape_q6_k, levels_4_2, scales_q6_k)
#define TILE_iq4_xs(t, rows, panels)                                                               \
    tile_planes(t, rows, panels, planes_shape_iq4_xs, levels_iq4, scales_iq4_xs)
#define TILE_tq2_0(t, rows, panels)                                                                \
    tile_planes(t, rows, panels, planes_shape_tq2_0, levels_2, scales_one)

/* Bytes of a panel: 16 rows of the file. */
#define DEFINE_PLANES(id, suffix, blocks, ...)                                                     \
    DEFINE_MATMUL(suffix,                                                                          \
                  w->n_in / QUANT_BLOCK / (blocks)*planes_group_bytes(&planes_shape_##suffix),     \
                  BLOCK)
PLANES_SHAPES(DEFINE_PLANES)
#undef DEFINE_PLANES
