/* planes_body - products of panels of bit planes, written once for every vector width; included by
 * one file of each instruction set after its simd_*.h and matmul_body.h.
 *
 *   y[r][o] = sum over k of W[o][k] * x[r][k]
 *
 * The layout is that of generic/planes.h, the order that of kernels.h. */
#include "engine/kernels/x86/planes_readers.h"

enum { MAX_PARTS = 16 }; /* of a group */

/* Sums of the activations of each part of block `at`. */
INLINE void part_sums(const struct activations *x, size_t at, size_t parts, int32_t sum[2])
{
    sum[0] = parts == 1 ? x->sum[at] : sum_16(x->q8 + at * QUANT_BLOCK);
    sum[1] = x->sum[at] - sum[0];
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
    UNROLL_FOR (p, panels) fetch_ahead(group[p] + planes_at, planes_step(&s), rows);
    UNROLL_FOR (r, rows) {
        at[r] = (t->row + (size_t)r) * (t->w->n_in / QUANT_BLOCK) + b;
        part_sums(x, at[r], s.parts, x_sum[r]);
    }
    UNROLL_FOR (part, parts) {
        size_t of_group = c * s.parts + (size_t)part;
        vi sum[MAX_ROWS][MAX_PANELS][PANEL_VECTORS];
        UNROLL_FOR (r, rows)
            UNROLL_FOR (p, panels)
                UNROLL_FOR (v, PANEL_VECTORS)
                    sum[r][p][v] = dot_start(s.bits, s.zero, x_sum[r][part]);
        UNROLL_FOR (i, n) {
            int j = part * n + i;
            vi w[MAX_PANELS][PANEL_VECTORS];
            UNROLL_FOR (p, panels)
                UNROLL_FOR (v, PANEL_VECTORS) w[p][v] = levels(group[p] + planes_at, j, v);
            UNROLL_FOR (r, rows) {
                vi four = broadcast_4(x->q8 + at[r] * QUANT_BLOCK + 4 * j);
                UNROLL_FOR (p, panels)
                    UNROLL_FOR (v, PANEL_VECTORS)
                        sum[r][p][v] = dot_4(s.bits, sum[r][p][v], w[p][v], four);
            }
        }
        UNROLL_FOR (r, rows) {
            float x_scale = x->scale[at[r]];
            vf offset = v_set1(x_scale * (float)x_sum[r][part]);
            UNROLL_FOR (p, panels)
                UNROLL_FOR (v, PANEL_VECTORS) {
                    vf both = v_mul(scale[p][of_group][v], v_set1(x_scale)), *to = &acc[r][p][v];
                    vi whole = dot_end(s.bits, s.zero, sum[r][p][v], x_sum[r][part]);
                    *to = v_fma(both, vi_to_float(whole), *to);
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
        UNROLL_FOR (p, panels) fetch_ahead(group[p], s.head * PANEL_ROWS, rows);
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

#define DEFINE_TILE(suffix, levels, scales)                                                        \
    INLINE void tile_##suffix(const struct tile *t, int rows, int panels)                          \
    {                                                                                              \
        tile_planes(t, rows, panels, planes_shape_##suffix, levels, scales);                       \
    }
PLANES_READERS(DEFINE_TILE)
#undef DEFINE_TILE

/* Bytes of a panel: 16 rows of the file. */
#define DEFINE_PLANES(id, suffix, blocks, ...)                                                     \
    DEFINE_MATMUL(suffix,                                                                          \
                  w->n_in / QUANT_BLOCK / (blocks)*planes_group_bytes(&planes_shape_##suffix),     \
                  BLOCK)
PLANES_SHAPES(DEFINE_PLANES)
#undef DEFINE_PLANES
