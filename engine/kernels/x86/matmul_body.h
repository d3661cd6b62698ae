/* matmul_body - packed products, written once for every vector width; included by one file of each
 * instruction set after its simd_*.h.
 *
 *   y[r][o] = sum over k of W[o][k] * x[r][k]
 *
 * One lane per output row, k ascending, one accumulator a lane (kernels.h, "Order"). A tile is some
 * rows times some panels, held in registers. Which tile an output falls into changes nothing of its
 * sum, so a batch is cut into tiles as speed likes. Where a group of panels is not full, its last
 * panel stands in for the missing ones and is not stored again. */
#include "engine/kernels/kernels.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))
/* A loop over registers: it must vanish. Not where a sanitizer checks every access: the compiler
 * would need minutes for so much code. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNROLL_FOR(i, n) for (int i = 0; i < (n); i++)
#else
#define UNROLL_FOR(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)
#endif

enum {
    PANEL_VECTORS = PANEL_ROWS / V_LANES,
    MAX_ROWS = 5,
    MAX_PANELS = 4,
    SCALES_BYTES = 2 * PANEL_ROWS,
    FEW_ROWS = 2,       /* which wait for memory */
    AHEAD_BYTES = 2048, /* in a panel, past the reach of the CPU's own guess at a page's end */
};

/* What a tile works on. */
struct tile {
    const struct panels *w;
    size_t panel_bytes;
    size_t first, end; /* panels of the group */
    const struct activations *x;
    size_t row;
    float *y;
    size_t y_stride;
};

typedef vf tile_acc[MAX_ROWS][MAX_PANELS][PANEL_VECTORS];

INLINE const uint8_t *tile_panel(const struct tile *t, int i)
{
    size_t panel = t->first + (size_t)i;
    return t->w->data + (panel < t->end ? panel : t->end - 1) * t->panel_bytes;
}

INLINE void tile_store(const struct tile *t, int rows, int panels, tile_acc acc)
{
    UNROLL_FOR (p, panels) {
        UNROLL_FOR (v, PANEL_VECTORS) {
            size_t column = (t->first + (size_t)p) * PANEL_ROWS + (size_t)v * V_LANES;
            if (t->first + (size_t)p >= t->end || column >= t->w->n_out) continue;
            size_t n = t->w->n_out - column;
            UNROLL_FOR (r, rows) {
                float *y = t->y + (t->row + (size_t)r) * t->y_stride + column;
                if (n >= V_LANES)
                    v_store(y, acc[r][p][v]);
                else
                    v_store_n(y, acc[r][p][v], n);
            }
        }
    }
}

/* fetch_ahead() - the next bytes of a panel, where rows are so few that a product waits for them.
 */
INLINE void fetch_ahead(const uint8_t *at, size_t n_bytes, int rows)
{
    if (rows > FEW_ROWS) return;
    UNROLL_FOR (i, (int)(n_bytes + 63) / 64)
        _mm_prefetch((const char *)at + AHEAD_BYTES + 64 * i, _MM_HINT_T0);
}

/* ---- float formats ---- */

/* Weights of k and k + 1, and of the last k where n_in is odd, of one vector of a panel. */
typedef void load_pair_fn(const uint8_t *panel, size_t k, int v, vf *even, vf *odd);
typedef vf load_last_fn(const uint8_t *panel, size_t k, int v);

INLINE vf last_f32(const uint8_t *panel, size_t k, int v)
{
    return v_load((const float *)panel + k * PANEL_ROWS + v * V_LANES);
}

INLINE void pair_f32(const uint8_t *panel, size_t k, int v, vf *even, vf *odd)
{
    *even = last_f32(panel, k, v);
    *odd = last_f32(panel, k + 1, v);
}

INLINE vf last_f16(const uint8_t *panel, size_t k, int v)
{
    return v_load_f16(panel + 2 * (k * PANEL_ROWS + (size_t)v * V_LANES));
}

INLINE void pair_f16(const uint8_t *panel, size_t k, int v, vf *even, vf *odd)
{
    *even = last_f16(panel, k, v);
    *odd = last_f16(panel, k + 1, v);
}

INLINE vf last_bf16(const uint8_t *panel, size_t k, int v)
{
    return v_load_bf16(panel + 2 * (k * PANEL_ROWS + (size_t)v * V_LANES));
}

INLINE void pair_bf16(const uint8_t *panel, size_t k, int v, vf *even, vf *odd)
{
    vi raw = vi_load(panel + 2 * (k * PANEL_ROWS + (size_t)v * 2 * V_LANES));
    *even = vi_as_float(vi_shift_left(raw, 16));
    *odd = vi_as_float(vi_and(raw, vi_set1((int32_t)0xffff0000)));
}

INLINE void tile_float(const struct tile *t, int rows, int panels, size_t value_bytes,
                       load_pair_fn *load_pair, load_last_fn *load_last)
{
    size_t n_in = t->w->n_in, k = 0;
    const float *x = t->x->f32 + t->row * n_in;
    const uint8_t *panel[MAX_PANELS];
    tile_acc acc;
    UNROLL_FOR (p, panels) {
        panel[p] = tile_panel(t, p);
        UNROLL_FOR (r, rows)
            UNROLL_FOR (v, PANEL_VECTORS) acc[r][p][v] = v_zero();
    }
    for (; k + 2 <= n_in; k += 2) {
        vf even[MAX_PANELS][PANEL_VECTORS], odd[MAX_PANELS][PANEL_VECTORS];
        UNROLL_FOR (p, panels)
            fetch_ahead(panel[p] + k * PANEL_ROWS * value_bytes, 2 * PANEL_ROWS * value_bytes,
                        rows);
        UNROLL_FOR (p, panels)
            UNROLL_FOR (v, PANEL_VECTORS) load_pair(panel[p], k, v, &even[p][v], &odd[p][v]);
        UNROLL_FOR (r, rows) {
            vf x0 = v_set1(x[(size_t)r * n_in + k]);
            UNROLL_FOR (p, panels)
                UNROLL_FOR (v, PANEL_VECTORS) acc[r][p][v] = v_fma(even[p][v], x0, acc[r][p][v]);
        }
        UNROLL_FOR (r, rows) {
            vf x1 = v_set1(x[(size_t)r * n_in + k + 1]);
            UNROLL_FOR (p, panels)
                UNROLL_FOR (v, PANEL_VECTORS) acc[r][p][v] = v_fma(odd[p][v], x1, acc[r][p][v]);
        }
    }
    if (k < n_in)
        UNROLL_FOR (p, panels)
            UNROLL_FOR (v, PANEL_VECTORS) {
                vf weights = load_last(panel[p], k, v);
                UNROLL_FOR (r, rows)
                    acc[r][p][v] = v_fma(weights, v_set1(x[(size_t)r * n_in + k]), acc[r][p][v]);
            }
    tile_store(t, rows, panels, acc);
}

INLINE void tile_f32(const struct tile *t, int rows, int panels)
{
    tile_float(t, rows, panels, 4, pair_f32, last_f32);
}

INLINE void tile_f16(const struct tile *t, int rows, int panels)
{
    tile_float(t, rows, panels, 2, pair_f16, last_f16);
}

INLINE void tile_bf16(const struct tile *t, int rows, int panels)
{
    tile_float(t, rows, panels, 2, pair_bf16, last_bf16);
}

/* ---- block formats ---- */

/* Unsigned quants of k = 4j .. 4j + 3 of a block, for the rows of one vector. */
typedef vi quants_fn(const uint8_t *quants, int j, int v);
typedef vi start_fn(int32_t sum);
typedef vi dot_fn(vi acc, vi w, vi x);

INLINE vi quants_q8_0(const uint8_t *quants, int j, int v)
{
    return vi_load(quants + 4 * (j * PANEL_ROWS + v * V_LANES));
}

INLINE vi quants_q4_0(const uint8_t *quants, int j, int v)
{
    vi halves = vi_load(quants + 4 * (j % 4 * PANEL_ROWS + v * V_LANES));
    return vi_and(j < 4 ? halves : vi_shift_right(halves, 4), vi_set1(0x0f0f0f0f));
}

INLINE vi broadcast_4(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return vi_set1(four);
}

/* block_bytes: of a block of one row in the file. */
INLINE void tile_block(const struct tile *t, int rows, int panels, size_t block_bytes,
                       quants_fn *quants, start_fn *start, dot_fn *dot)
{
    size_t n_blocks = t->w->n_in / QUANT_BLOCK;
    const uint8_t *panel[MAX_PANELS];
    tile_acc acc;
    UNROLL_FOR (p, panels) {
        panel[p] = tile_panel(t, p);
        UNROLL_FOR (r, rows)
            UNROLL_FOR (v, PANEL_VECTORS) acc[r][p][v] = v_zero();
    }
    for (size_t b = 0; b < n_blocks; b++) {
        size_t at = t->row * n_blocks + b; /* of the first row; the next ones are n_blocks apart */
        vi sum[MAX_ROWS][MAX_PANELS][PANEL_VECTORS];
        UNROLL_FOR (p, panels) fetch_ahead(panel[p], block_bytes * PANEL_ROWS, rows);
        UNROLL_FOR (r, rows)
            UNROLL_FOR (p, panels)
                UNROLL_FOR (v, PANEL_VECTORS)
                    sum[r][p][v] = start(t->x->sum[at + (size_t)r * n_blocks]);
        UNROLL_FOR (j, QUANT_BLOCK / 4) {
            vi w[MAX_PANELS][PANEL_VECTORS];
            UNROLL_FOR (p, panels)
                UNROLL_FOR (v, PANEL_VECTORS) w[p][v] = quants(panel[p] + SCALES_BYTES, j, v);
            UNROLL_FOR (r, rows) {
                vi x = broadcast_4(t->x->q8 + (at + (size_t)r * n_blocks) * QUANT_BLOCK + 4 * j);
                UNROLL_FOR (p, panels)
                    UNROLL_FOR (v, PANEL_VECTORS) sum[r][p][v] = dot(sum[r][p][v], w[p][v], x);
            }
        }
        UNROLL_FOR (p, panels)
            UNROLL_FOR (v, PANEL_VECTORS) {
                vf scale = v_load_f16(panel[p] + 2 * v * V_LANES);
                UNROLL_FOR (r, rows) {
                    vf both = v_mul(scale, v_set1(t->x->scale[at + (size_t)r * n_blocks]));
                    acc[r][p][v] = v_fma(both, vi_to_float(sum[r][p][v]), acc[r][p][v]);
                }
            }
        UNROLL_FOR (p, panels) panel[p] += block_bytes * PANEL_ROWS;
    }
    tile_store(t, rows, panels, acc);
}

INLINE void tile_q8_0(const struct tile *t, int rows, int panels)
{
    tile_block(t, rows, panels, 34, quants_q8_0, start_q8_0, dot_q8_0);
}

INLINE void tile_q4_0(const struct tile *t, int rows, int panels)
{
    tile_block(t, rows, panels, 18, quants_q4_0, start_q4_0, dot_q4_0);
}

/* ---- the products ---- */

/* A row alone takes all panels it can at once, because it waits for memory; more rows share what
 * was loaded. */
#define DEFINE_MATMUL(format, bytes, KIND)                                                         \
    KERNEL_MATMUL(KERNEL_NAME(matmul_##format))                                                    \
    {                                                                                              \
        struct tile t = {                                                                          \
            .w = w, .panel_bytes = (bytes), .end = to, .x = x, .y = y, .y_stride = y_stride};      \
        size_t step = n_rows == 1 ? KIND##_PANELS_ALONE : KIND##_PANELS;                           \
        for (t.first = from; t.first < to; t.first += step)                                        \
            for (t.row = 0; t.row < n_rows;) {                                                     \
                size_t left = n_rows - t.row;                                                      \
                if (n_rows == 1) {                                                                 \
                    tile_##format(&t, 1, KIND##_PANELS_ALONE);                                     \
                    t.row += 1;                                                                    \
                } else if (left >= KIND##_ROWS) {                                                  \
                    tile_##format(&t, KIND##_ROWS, KIND##_PANELS);                                 \
                    t.row += KIND##_ROWS;                                                          \
                } else if (left >= 2) {                                                            \
                    tile_##format(&t, 2, KIND##_PANELS);                                           \
                    t.row += 2;                                                                    \
                } else {                                                                           \
                    tile_##format(&t, 1, KIND##_PANELS);                                           \
                    t.row += 1;                                                                    \
                }                                                                                  \
            }                                                                                      \
    }

DEFINE_MATMUL(f32, PANEL_ROWS * 4 * w->n_in, FLOAT)
DEFINE_MATMUL(f16, PANEL_ROWS * 2 * w->n_in, FLOAT)
DEFINE_MATMUL(bf16, PANEL_ROWS * 2 * w->n_in, FLOAT)
DEFINE_MATMUL(q8_0, PANEL_ROWS * 34 * (w->n_in / QUANT_BLOCK), BLOCK)
DEFINE_MATMUL(q4_0, PANEL_ROWS * 18 * (w->n_in / QUANT_BLOCK), BLOCK)
