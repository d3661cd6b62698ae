/* decoded_body - products of panels that keep the blocks of the file, written once for every vector
 * width; included by one file of each instruction set after its simd_*.h and matmul_body.h.
 *
 * The reference decoder takes a block of the 16 rows to columns of f32, and these are walked as an
 * F32 panel is (generic/decoded.h). The accumulators wait in memory meanwhile, which rounds
 * nothing. */
#include "engine/kernels/generic/decoded.h"

/* n columns for so many rows, x_stride floats apart. */
INLINE void walk_columns(const float columns[DECODED_VALUES_MAX][PANEL_ROWS], size_t n,
                         const float *x, size_t x_stride, int rows, float acc[][PANEL_ROWS])
{
    vf sum[MAX_ROWS][PANEL_VECTORS];
    UNROLL_FOR (r, rows)
        UNROLL_FOR (v, PANEL_VECTORS) sum[r][v] = v_load(acc[r] + v * V_LANES);
    for (size_t k = 0; k < n; k++) {
        vf weights[PANEL_VECTORS];
        UNROLL_FOR (v, PANEL_VECTORS) weights[v] = v_load(columns[k] + v * V_LANES);
        UNROLL_FOR (r, rows) {
            vf value = v_set1(x[(size_t)r * x_stride + k]);
            UNROLL_FOR (v, PANEL_VECTORS) sum[r][v] = v_fma(weights[v], value, sum[r][v]);
        }
    }
    UNROLL_FOR (r, rows)
        UNROLL_FOR (v, PANEL_VECTORS) v_store(acc[r] + v * V_LANES, sum[r][v]);
}

/* One panel for n <= DECODED_ROWS rows; x, y: of the first of them. */
static void multiply_decoded(const struct format *f, const struct panels *w, size_t p,
                             const float *x, size_t n, float *y, size_t y_stride)
{
    size_t n_blocks = w->n_in / f->block_values, step = (size_t)f->block_bytes * PANEL_ROWS;
    const uint8_t *blocks = w->data + p * n_blocks * step;
    _Alignas(64) float columns[DECODED_VALUES_MAX][PANEL_ROWS];
    _Alignas(64) float acc[DECODED_ROWS][PANEL_ROWS] = {{0}};
    for (size_t b = 0; b < n_blocks; b++, blocks += step, x += f->block_values) {
        size_t r = 0;
        decoded_unpack(f, blocks, columns);
        for (; r + MAX_ROWS <= n; r += MAX_ROWS)
            walk_columns(columns, f->block_values, x + r * w->n_in, w->n_in, MAX_ROWS, acc + r);
        for (; r < n; r++)
            walk_columns(columns, f->block_values, x + r * w->n_in, w->n_in, 1, acc + r);
    }
    size_t first = p * PANEL_ROWS;
    size_t lanes = w->n_out - first < PANEL_ROWS ? w->n_out - first : PANEL_ROWS;
    for (size_t r = 0; r < n; r++) memcpy(y + r * y_stride + first, acc[r], lanes * sizeof **acc);
}

#define DEFINE_DECODED(id, suffix, q8)                                                             \
    KERNEL_MATMUL(KERNEL_NAME(matmul_##suffix))                                                    \
    {                                                                                              \
        for (size_t p = from; p < to; p++)                                                         \
            for (size_t r = 0; r < n_rows; r += DECODED_ROWS)                                      \
                multiply_decoded(format_find(FORMAT_##id), w, p, x->f32 + r * w->n_in,             \
                                 n_rows - r < DECODED_ROWS ? n_rows - r : DECODED_ROWS,            \
                                 y + r * y_stride, y_stride);                                      \
    }
KERNEL_DECODED_FORMATS(DEFINE_DECODED)
#undef DEFINE_DECODED
