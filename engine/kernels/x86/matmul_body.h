/* matmul_body - what packed products have in common, written once for every vector width; included
 * by each file of an instruction set after its simd_*.h. float_body.h, block_body.h, planes_body.h
 * and decoded_body.h are the products.
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
